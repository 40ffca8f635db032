"""Scores on other examples are another evaluation: never averaged, and named."""

import pytest

from experiments.report import data, tables
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


def test_perplexity_stands_in_tables_of_tasks_on_text():
    rows = scored("a", 40)
    assert "Perplexity" not in tables.score_rows(cells_of(rows))[0]
    for row in rows:
        row["perplexity"] = 2.0 if row["length"] % 2 else 8.0
    head, first = tables.score_rows(cells_of(rows))
    assert head[-1] == "Perplexity"
    assert first[-1] == "4"  # lengths 3 to 6: e to the mean of the losses
