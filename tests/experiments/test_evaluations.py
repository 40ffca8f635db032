"""Scores on other examples are another evaluation: never averaged, and named."""

import math

import pytest

from experiments.report import data, evaluations, tables
from experiments.report.__main__ import make_report
from experiments.report.comparable import comparable
from experiments.results import schema as results_schema
from experiments.results import store as results
from tests.experiments.evaluation_rows import cells_of, runs_of, scored, store


def _scored(right, **changes):
    given = {"rows": 4, "position_draws": 2, "eval_seed": 1} | changes
    return scored("a", right, **given)


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        ({}, {"eval_seed": 2}, "second"),  # alike: the later
        ({}, {"set_hash": "abc"}, "second"),
        ({"rows": 8}, {"eval_seed": 2}, "first"),  # more sequences
        ({"set_hash": "abc", "rows": 8}, {}, "first"),
        ({}, {"eval_seed": 2, "lengths": (3, 4)}, "first"),  # more lengths
        ({}, {"rows": 400, "lengths": (6,)}, "first"),
        ({"lengths": (3, 4)}, {"position_draws": 1}, "second"),
    ],
)
def test_one_evaluation_counts_and_the_other_is_named(tmp_path, first, second, counts):
    rights = {"first": 90, "second": 50}
    rows = [_scored(90, **first), _scored(50, **second)]
    for written in (rows, [rows[0], rows[1], rows[1]]):  # also if written twice
        (run,) = runs_of(*written)
        assert run.numbers["score"] == pytest.approx(rights[counts] / 100)
        assert len(run.others) == 1
    folder = store(tmp_path, rows[0] + rows[1])
    report = data.gather(folder)
    (note,) = [note for note in report.notes if "in another way" in note]
    condition = note.partition("(")[2].partition(")")[0]
    (other,) = data.gather(folder, where=condition).runs
    assert not other.others
    del rights[counts]
    assert other.numbers["score"] == pytest.approx(*[r / 100 for r in rights.values()])


def test_the_same_length_on_two_sets_counts_once_with_the_later(tmp_path):
    folder = store(tmp_path, _scored(90, set_hash="old") + _scored(50, set_hash="new"))
    (run,) = data.gather(folder).runs
    assert run.numbers["score"] == 0.5
    assert len(results.read(folder)) == 12
    (replaced,) = run.others
    assert "other fixed sets before, which the later ones replace" in replaced


def test_runs_of_one_cell_on_unlike_examples_are_named(tmp_path):
    rows = _scored(90)
    other = [row | {"run_id": "b", "seed": 1, "eval_seed": 7} for row in rows]
    notes = data.gather(store(tmp_path, rows, other)).notes
    assert any("examples: fresh, seed 1 (a); fresh, seed 7 (b)" in n for n in notes)


def test_in_range_is_where_it_was_trained():
    rows = scored("a", 40, train_min_length=2, lengths=(2, 3))
    rows += scored("a", 0, train_min_length=2, lengths=(1,))  # right at 1 too, by hand
    rows[-1]["correct"] = 0
    (run,) = runs_of(rows)
    assert run.trained_on == "2"
    assert run.numbers["in_range"] == 1  # length 1 is not among them


def on_text(rows, perplexity):
    """The same rows with a perplexity by length, and the loss that it is made of."""
    loss = lambda row: math.log(perplexity(row["length"]))
    return [
        row | {"loss": loss(row), "perplexity": perplexity(row["length"])}
        for row in rows
    ]


def even(length):
    return 2.0 if length % 2 else 8.0


def test_perplexity_stands_in_tables_of_tasks_on_text():
    assert "Perplexity" not in tables.score_rows(cells_of(scored("a", 40)))[0]
    rows = on_text(scored("a", 40), even)
    head, first = tables.score_rows(cells_of(rows))
    assert head[-1] == "Perplexity"
    assert first[-1] == "4.000"  # lengths 3 to 6: e to the mean of the losses
    other = on_text(scored("b", 40, seed=1), lambda n: 4 * even(n))
    (cell,) = cells_of(rows, other)
    assert cell.perplexity == pytest.approx(8)  # over seeds likewise: of 4 and 16
    assert cell.perplexity_curve[3] == pytest.approx(4)


def test_a_model_that_diverged_has_no_perplexity():
    rows = on_text(scored("a", 40), even)
    for row, loss in zip(rows, (math.nan, 1.0, math.inf, 1.0, 1.0, 1.0), strict=True):
        row["loss"] = loss
    (cell,) = cells_of(rows)
    assert cell.perplexity_curve.keys() == {2, 4, 5, 6}
    assert tables.perplexity(cell) == "–"  # a length of the score has none


@pytest.mark.parametrize("first", [True, False])
def test_runs_from_before_perplexity_was_written_have_none(tmp_path, first):
    new, old = on_text(scored("a", 40), even), scored("b", 40, seed=1)
    folder = store(tmp_path / "runs", *([new, old] if first else [old, new]))
    out = tmp_path / "report"
    (cell,) = make_report(folder, out, formats=("png",)).cells
    assert cell.perplexity == pytest.approx(4)
    assert (out / "perplexity_by_length.png").exists()
    assert "inf" not in (out / "report.json").read_text().lower()


def test_a_perplexity_that_is_not_known_everywhere_is_not_averaged(tmp_path):
    rows = on_text(scored("a", 40), even)
    rows[-1]["loss"] = rows[-1]["perplexity"] = math.nan
    (run,) = runs_of(rows)
    assert math.isnan(run.numbers["nats"])
    partly = scored("a", 40)
    partly[:2] = on_text(partly[:2], even)  # at lengths of training alone
    report = make_report(store(tmp_path / "runs", partly), tmp_path / "report")
    assert math.isnan(report.cells[0].perplexity)


def test_a_run_that_is_cut_to_the_lengths_of_others_loses_their_perplexity_too():
    few = {"lengths": range(1, 5)}
    rows = [on_text(scored(n, 40, seed=i, **few), even) for i, n in enumerate("ab")]
    more = on_text(scored("c", 40, seed=2), lambda n: even(n) if n < 5 else 1000.0)
    kept, _ = comparable(runs_of(*rows, more), {})
    assert [run.numbers["nats"] for run in kept] == [pytest.approx(math.log(4))] * 3


def test_what_most_runs_of_a_cell_were_scored_on_counts_for_all(tmp_path):
    """One more look at one of the seeds changes no mean."""
    seeds = [
        [row | {"run_id": name, "seed": seed} for row in _scored(40)]
        for seed, name in enumerate("abc")
    ]
    more = _scored(90, rows=2, position_draws=1, eval_seed=9, test_max_length=6)
    for rows in (seeds, [part[:4] for part in seeds]):
        (cell,) = cells_of(*rows, more)
        assert [run.numbers["score"] for run in cell.runs] == [0.4] * 3
        assert [len(run.others) for run in cell.runs] == [1, 0, 0]


def test_lengths_of_other_writers_may_have_numbers_of_sequences_of_their_own():
    rows = scored("a", 40)
    for row in rows:
        row["rows"] = 4 + row["length"]
    (run,) = runs_of(rows)
    assert run.numbers["score"] == 0.4
    assert not run.others


def test_fields_of_ones_own_may_have_any_name():
    for name in ("fixed", "counted samples", "examples"):
        (run,) = runs_of([row | {name: 1} for row in scored("a", 40)])
        assert run.numbers["score"] == 0.4


def test_runs_on_unlike_sets_are_named(tmp_path):
    rows = _scored(90, set_hash="one")
    other = [row | {"run_id": "b", "seed": 1, "set_hash": "two"} for row in rows]
    other[0]["set_hash"] = "one"
    notes = data.gather(store(tmp_path, rows, other)).notes
    assert any("scored on unlike fixed sets at 2..6" in note for note in notes)
    fresh = [row | {"run_id": "c", "encoding": "alibi"} for row in _scored(90)]
    notes = data.gather(store(tmp_path, fresh)).notes
    (note,) = [note for note in notes if "settings differ in examples: " in note]
    assert "fixed sets, seed 1 (" in note
    assert "fresh, seed 1 (" in note


def test_many_evaluations_take_little_time():
    """No work of one evaluation goes over all rows: thousands of runs, two each."""
    rows = [
        row | {"run_id": f"{run}", "seed": run, "eval_seed": seed, "rows": 8 // seed}
        for run in range(2000)
        for seed in (1, 2)
        for row in scored("", 40, lengths=(1, 3))
    ]
    table = results_schema.concatenate([results_schema.to_table(rows)], "evaluation")
    kept, starts, others = evaluations.counted(table)
    assert len(kept) == 4000
    assert len(starts) == 2000
    assert (
        others
        == [
            [
                "2 lengths (rows = 4 AND position_draws IS NULL AND "
                "eval_seed = 2 AND set_hash IS NULL)"
            ]
        ]
        * 2000
    )


def test_a_title_that_two_schemes_share_gives_way_to_their_names():
    named = {
        "positions_title": "randomized",
        "positions": "randomized(max_position=64)",
    }
    rows = [scored("a", 40, **named), scored("b", 40, seed=1, **named)]
    assert {cell.setting.label for cell in cells_of(*rows)} == {"RoPE, randomized"}
    other = scored("c", 40, **(named | {"positions": "randomized"}))
    assert {cell.setting.label for cell in cells_of(*rows, other)} == {
        "RoPE, randomized (max_position=64)",
        "RoPE, randomized",
    }
