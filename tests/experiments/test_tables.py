"""Which rows make a figure, and how figures stand in tables."""

import csv
import io
import itertools
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import rich.console

from experiments.report import disagreements, run_configs, summaries, summarize, tables
from experiments.results import records
from experiments.results import store as results
from tests.experiments.evaluation_rows import TEST_MAX, cells_of, scored

pytestmark = pytest.mark.fast


def test_a_run_is_scored_at_its_last_step():
    (cell,) = cells_of(
        scored("a", 30, step=50), scored("a", 70), scored("a", 90, step=9)
    )
    assert cell.best == pytest.approx(0.7)
    assert cell.runs[0].step == 100


def test_the_figures_of_a_run():
    (cell,) = cells_of(scored("a", 70))
    assert cell.runs[0].numbers == pytest.approx(
        {
            "score": 0.7,
            "input_blind": 0.5,
            "in_range": 1.0,
            "in_range_input_blind": 0.5,
            "exact_match": 0.25,
            "longest": 2,
            "nats": math.nan,
        },
        nan_ok=True,
    )


def test_test_settings_groups_and_studies_are_cells_of_their_own():
    cells = cells_of(
        scored("a", 70),
        scored("a", 60, test_positions="evenly_spaced"),
        scored("a", 50, test_encoding="rope scale=4"),
        scored("b", 40, group="L=1024"),
    )
    labels = {cell.setting.label: cell.best for cell in cells}
    assert labels == {
        "RoPE, consecutive": pytest.approx(0.7),
        "RoPE, consecutive, tested with evenly spaced": pytest.approx(0.6),
        "RoPE, consecutive, tested as rope scale=4": pytest.approx(0.5),
        "RoPE, consecutive, L=1024": pytest.approx(0.4),
    }
    one_study = cells_of(scored("a", 70, study="s"), scored("b", 60, study="s", seed=1))
    assert [cell.setting.study for cell in one_study] == [""]
    two = cells_of(scored("a", 70, study="s"), scored("b", 60, study="t"))
    assert [cell.setting.label for cell in two] == [
        "RoPE, consecutive, s",
        "RoPE, consecutive, t",
    ]


def test_the_mean_is_at_the_rate_with_the_best_mean_and_the_best_over_all():
    (cell,) = cells_of(
        scored("a", 95, learning_rate=1e-4, seed=0),
        scored("b", 25, learning_rate=1e-4, seed=1),
        scored("c", 80, learning_rate=3e-4, seed=0),
        scored("d", 84, learning_rate=3e-4, seed=1),
    )
    assert cell.best == pytest.approx(0.95)
    assert cell.spreads["score"].mean == pytest.approx(0.82)
    assert {run.run_id for run in cell.chosen} == {"c", "d"}
    assert cell.seeds == 2


def test_a_lucky_seed_of_a_rate_that_lacks_others_makes_no_mean():
    """As while a study is under way: the rate's other seeds may be worse."""
    (cell,) = cells_of(
        scored("a", 50),
        scored("b", 60, seed=1),
        scored("c", 99, learning_rate=5e-3),
    )
    assert {run.run_id for run in cell.chosen} == {"a", "b"}
    assert cell.best == pytest.approx(0.99)  # as published: over all


def test_a_run_without_test_lengths_has_no_score_and_spoils_none():
    (cell,) = cells_of(scored("a", 60), scored("b", 0, lengths=(1, 2), seed=1))
    assert cell.best == pytest.approx(0.6)
    assert cell.spreads["score"].count == 1
    (alone,) = cells_of(scored("b", 0, lengths=(1, 2)))
    assert tables.best_text(alone) == "–"
    assert records.cell_records([alone])[0]["mean"] is None


def test_settings_and_tasks_keep_the_order_of_tables():
    cells = cells_of(
        scored("a", 50, positions="randomized"),
        scored("b", 50, encoding="alibi", encoding_title="ALiBi"),
        scored("c", 50, encoding="none", encoding_title="None"),
        scored("d", 50),
        scored("e", 50, task="zoo", task_title="Zoo", task_order=0),
    )
    labels = [setting.label for setting in summaries.settings_of(cells)]
    assert labels == [
        "None, consecutive",
        "ALiBi, consecutive",
        "RoPE, consecutive",
        "RoPE, randomized",
    ]
    assert list(summaries.by_task(cells)) == ["zoo", "reverse_string"]


@pytest.fixture
def three_cells():
    """Two tasks; one of 3 seeds in two settings, the other of 1 seed in one."""
    seeds = [
        scored(f"{positions}{seed}", right + 5 * seed, positions=positions, seed=seed)
        for positions, right in (("consecutive", 50), ("randomized", 85))
        for seed in range(3)
    ]
    other = scored("x", 91, task="a_b", task_title="A_B & 50%", input_blind=0.9)
    return cells_of(*seeds, other)


def test_the_long_table_has_the_baseline_beside_every_score(three_cells):
    text = tables.markdown(tables.score_rows(three_cells), 3)
    lines = [
        [part.strip() for part in line.strip("|").split("|")]
        for line in text.split("\n")
    ]
    assert len(set(map(len, text.split("\n")))) == 1
    names = lines[0]
    rows = [dict(zip(names, line, strict=True)) for line in lines[2:]]
    assert rows[0] == {
        "Task": "A_B & 50%",
        "Encoding": "RoPE",
        "Positions": "consecutive",
        "Best": "91.0",
        "Mean [95%]": "91.0",
        "Input-blind": "90.0",
        "In range": "100.0",
        "Blind there": "90.0",
        "Exact": "25.0",
        "≥90% to": "6",
        "Seeds": "1",
    }
    assert rows[2]["Mean [95%]"] == "90.0 [85.0, 95.0]"
    assert rows[2]["Best"] == "95.0"
    assert rows[2]["≥90% to"] == "2–6"
    assert rows[2]["Seeds"] == "3"


def test_the_matrix_marks_the_highest_and_leaves_absent_cells_a_dash(three_cells):
    rows = tables.matrix(three_cells, tables.best_text)
    assert [[cell.text for cell in row] for row in rows] == [
        ["A_B & 50%", "90.0", "91.0", "–"],
        ["Reverse String", "50.0", "60.0", "95.0"],
    ]
    strong = [[cell.strong for cell in row] for row in rows]
    assert strong == [[False] * 4, [False, False, False, True]]  # 91.0 is alone
    text = tables.markdown_matrix(three_cells, tables.mean_text)
    assert "| **90.0 [85.0, 95.0]** |" in text.split("\n")[3]


def test_exact_matches_have_a_table_without_the_token_baseline():
    seeds = [scored(str(n), 50, seed=n, exact=n, task="even_pairs") for n in (1, 2)]
    other = scored("x", 50, exact=4, task="bucket_sort", positions="randomized")
    text = tables.markdown_matrix(
        cells_of(*seeds, other), tables.exact_text, blind=False
    )
    rows = [
        [part.strip() for part in r.strip("|").split("|")] for r in text.split("\n")
    ]
    assert rows[0] == ["Task", "RoPE, consecutive", "RoPE, randomized"]
    assert rows[2:] == [
        ["*regular*", "", ""],
        ["Reverse String", "50.0 / 37.5 [25.0, 50.0]", "–"],
        ["*context-sensitive*", "", ""],
        ["Reverse String", "–", "100.0 / 100.0"],
    ]


@pytest.mark.parametrize(
    ("scores", "strong"),
    [
        ([(50, 60), (70, 80)], [1]),
        ([(50, 60), (70, 80), (65, 71)], [1, 2]),  # 71 is within 70 .. 80
        ([(50, 80), (60, 70)], []),  # nothing is told apart
        ([(50, 60), (90,)], []),  # one lucky seed is no interval
        ([(50,), (80, 90)], []),
        ([(80, 90)], []),
        ([(0, 0), (0, 0)], []),
        ([(10, 90), (1, 2), (20, 30)], [0, 2]),
    ],
)
def test_what_is_bold_is_told_apart_from_what_is_not(scores, strong):
    cells = cells_of(
        *(
            scored(f"{at}-{seed}", right, seed=seed, encoding=f"e{at}")
            for at, of_one in enumerate(scores)
            for seed, right in enumerate(of_one)
        )
    )
    ((_, _, *texts),) = tables.matrix(cells, tables.best_text)
    assert [at for at, one in enumerate(texts) if one.strong] == strong


def test_bold_of_exact_matches_is_by_exact_matches():
    """Tokens say nothing here: all settings have the same."""
    groups = [
        scored(f"{name}{seed}", 50, seed=seed, encoding=name, exact=exact)
        for name, exacts in (("e", (1, 2)), ("f", (3, 4)))
        for seed, exact in enumerate(exacts)
    ]
    cells = cells_of(*groups)
    text = tables.markdown_matrix(cells, tables.exact_text, figure="exact_match")
    assert "**100.0 / 87.5 [75.0, 100.0]**" in text
    assert text.count("**") == 2


def test_csv_and_json_hold_the_unrounded_figures(three_cells):
    rows = records.cell_records(three_cells)
    assert json.loads(json.dumps(rows)) == rows
    back = list(csv.DictReader(io.StringIO(records.csv_text(rows))))
    assert [float(row["best"]) for row in back] == [row["best"] for row in rows]
    assert back[0]["std"] == back[0]["low"] == ""
    assert float(back[2]["std"]) == pytest.approx(0.05)
    assert [row["interval"] for row in back] == ["", "range", "range"]
    runs = records.run_records([run for cell in three_cells for run in cell.runs])
    scores = {row["run_id"]: row["score"] for row in runs}
    assert scores["randomized1"] == pytest.approx(0.9)
    curves = records.curve_records(three_cells)
    assert len(curves) == 3 * TEST_MAX
    last = curves[-1]
    assert (last["length"], last["runs"]) == (6, 3)
    assert (last["mean"], last["low"]) == (pytest.approx(0.9), pytest.approx(0.85))


def test_the_terminal_table_fits_80_columns_and_says_all():
    text = io.StringIO()
    rows = [
        row
        for seed in range(3)
        for row in scored(str(seed), 90 + 5 * seed, seed=seed, positions="randomized")
    ]
    tables.print_summary(
        rows, lengths=(2, 4, 6), console=rich.console.Console(file=text, width=80)
    )
    lines = text.getvalue().split("\n")
    title = " ".join(" ".join(lines[:2]).split())
    assert title.startswith(
        "Reverse String: token accuracy in % by length; mean of 3 seeds ± their std; "
        "exact: sequences right throughout"
    )
    cells = [re.split(r"  +", line.strip()) for line in lines]
    heads = "2", "4", "6", "1–2", "3–6", "3–6", "≥90% to"
    assert ["trained on lengths 1–2", *heads] == cells[cells.index(["exact"]) + 1]
    figures = "100.0", "95.0", "95.0", "100.0", "95.0 ± 5.0", "25.0", "6"
    assert ["RoPE, randomized", *figures] in cells
    assert ["best input-blind guess", *["50.0"] * 5] in cells


def test_exact_sequences_are_counted_past_training_or_where_there_are_none_in_it():
    def columns(*rows):
        text = io.StringIO()
        console = rich.console.Console(file=text, width=100)
        tables.print_summary(list(rows), lengths=(2,), console=console)
        lines = [line.split() for line in text.getvalue().splitlines() if line.strip()]
        (row,) = (line for line in lines if line[:2] == ["RoPE,", "consecutive"])
        return row

    inside = scored("a", 90, lengths=(1, 2), exact=3)  # of 4
    *_, exact, _ = columns(*inside)
    assert exact == "75.0"
    beyond = [row | {"exact": 4 if row["length"] <= 2 else 1} for row in scored("a", 9)]
    *_, exact, _ = columns(*beyond)
    assert exact == "25.0"


def test_the_terminal_table_heads_its_means_with_the_lengths_they_are_of():
    def heads(*rows):
        text = io.StringIO()
        console = rich.console.Console(file=text, width=100)
        tables.print_summary(list(rows), lengths=(2,), console=console)
        return text.getvalue()

    inside = scored("a", 90, lengths=(1, 2))
    far = scored("b", 90, lengths=(1, 2, 6), positions="randomized")
    farther = [
        row | {"length": 9, "test_max_length": 9} if row["length"] == 6 else row
        for row in far
    ]
    assert "over 2" in heads(*[row | {"test_max_length": 2} for row in inside])
    assert "3–6" in heads(*far)
    farther = [row | {"test_max_length": 9} for row in farther]
    both = heads(*scored("c", 90, lengths=(1, 2, 6)), *farther)
    assert "over 2" in both
    assert ", to 9" in both
    assert ", to 6" in both


def test_a_few_lengths_are_chosen_among_the_evaluated_ones():
    (cell,) = cells_of(scored("a", 50, lengths=(1, 2, 3, 5, 6)))
    assert tables.few_lengths(cell.runs[0]) == [2, 3, 5, 6]


def _notes(groups, **configs):
    flat = {name: run_configs.flat(config) for name, config in configs.items()}
    return disagreements.disagreements(cells_of(*groups), flat)


def test_runs_that_differ_in_seed_and_learning_rate_alone_agree():
    groups = [
        scored("a", 50),
        scored("b", 60, seed=1),
        scored("c", 40, learning_rate=1.0),
    ]
    configs = {
        name: {"seed": i, "optim": {"learning_rate": i}, "model": {"layers": 2}}
        for i, name in enumerate("abc")
    }
    assert _notes(groups, **configs) == []


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"rows": 9}, "runs differ in sequences a length: 4 (a); 9 (b)"),
        ({"position_draws": 3}, "runs differ in position draws: none (a); 3 (b)"),
        ({"lengths": (1, 2)}, "no evaluation beyond the training lengths: b"),
    ],
)
def test_what_runs_of_a_cell_disagree_in_is_named(change, note):
    notes = _notes([scored("a", 50), scored("b", 60, **({"seed": 1} | change))])
    assert notes == [f"Reverse String, RoPE, consecutive: {note}"]


def test_configs_that_differ_are_named():
    (note,) = _notes(
        [scored("a", 50), scored("b", 60, seed=1)],
        a={"model": {"layers": 2, "width": 8}, "seed": 0},
        b={"model": {"layers": 3, "width": 8}, "seed": 1},
    )
    assert note.endswith("runs differ in config model.layers: 2 (a); 3 (b)")


def test_summaries_of_stored_rows_and_of_mappings_are_the_same(tmp_path):
    rows = scored("a", 70)
    with results.ResultsWriter(tmp_path, "a") as writer:
        writer.evaluation(rows)
    stored = summarize.summarize_runs(results.read(tmp_path))
    assert stored == summarize.summarize_runs(rows)


def test_a_summary_is_the_sum_of_the_counts_of_the_last_step():
    """Against plain Python, on rows in disorder, of two evaluations."""
    random = np.random.default_rng(0)
    rows = []
    for run_id, positions, step, part in itertools.product(
        "abc", ("consecutive", "shifted"), (10, 20), (1, 2)
    ):
        for row in scored(run_id, 50, test_positions=positions, step=step):
            tokens = int(random.integers(20, 90))
            more = {"tokens": tokens, "correct": int(random.integers(0, tokens + 1))}
            more |= {"rows": 3 * part, "position_draws": None if part == 1 else 4}
            rows.append(row | more | {"input_blind": float(random.random())})
    random.shuffle(rows)
    found = summarize.summarize_runs(rows)
    assert len(found) == 6
    for run in found:
        mine = [
            row
            for row in rows
            if row["run_id"] == run.run_id
            and row["test_positions"] == run.setting.test_positions
            and row["step"] == 20
            and row["rows"] == 6  # of two evaluations, that with more sequences
        ]
        assert (run.step, run.samples) == (20, ((6,), (4,)))
        for length in range(1, TEST_MAX + 1):
            parts = [row for row in mine if row["length"] == length]
            assert len(parts) == 1
            tokens = sum(row["tokens"] for row in parts)
            right = sum(row["correct"] for row in parts)
            blind = sum(row["input_blind"] * row["tokens"] for row in parts)
            assert run.accuracy[length] == pytest.approx(right / tokens)
            assert run.input_blind[length] == pytest.approx(blind / tokens)


def test_a_cell_without_a_score_leaves_the_input_blind_one_of_its_task():
    """A NaN orders with nothing, so that it stood for the highest."""

    def cell(share):
        return SimpleNamespace(spreads={"input_blind": SimpleNamespace(mean=share)})

    known, unknown = cell(0.5), cell(math.nan)
    for cells in ([known, unknown], [unknown, known, unknown]):
        assert tables.input_blind(cells) == "50.0"
    assert tables.input_blind([unknown]) == "–"
