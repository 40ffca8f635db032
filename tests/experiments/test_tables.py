"""Which rows make a figure, and how figures stand in tables."""

import csv
import io
import json
import re

import pyarrow as pa
import pytest
import rich.console

from experiments import disagreements, records, results, summaries, tables

pytestmark = pytest.mark.fast

TRAIN_MAX, TEST_MAX = 2, 6


def _rows(run_id, right, **changes):
    """Evaluation rows with 100 tokens a length, `right` of them right beyond 2."""
    lengths = changes.pop("lengths", range(1, TEST_MAX + 1))
    row = {
        "run_id": run_id,
        "task": "reverse_string",
        "task_title": "Reverse String",
        "encoding": "rope",
        "encoding_title": "RoPE",
        "positions": "consecutive",
        "seed": 0,
        "learning_rate": 1e-3,
        "step": 100,
        "tokens": 100,
        "exact": 1,
        "rows": 4,
        "input_blind": 0.5,
        "train_max_length": TRAIN_MAX,
        "test_max_length": TEST_MAX,
    } | changes
    return [
        row | {"length": n, "correct": 100 if n <= TRAIN_MAX else right}
        for n in lengths
    ]


def _cells(*groups):
    runs = summaries.summarize_runs([row for rows in groups for row in rows])
    return summaries.group_cells(runs)


def test_a_run_is_scored_at_its_last_step():
    (cell,) = _cells(_rows("a", 30, step=50), _rows("a", 70), _rows("a", 90, step=9))
    assert cell.best == pytest.approx(0.7)
    assert cell.runs[0].step == 100


def test_the_figures_of_a_run():
    (cell,) = _cells(_rows("a", 70))
    assert cell.runs[0].numbers == pytest.approx(
        {
            "score": 0.7,
            "input_blind": 0.5,
            "in_range": 1.0,
            "in_range_input_blind": 0.5,
            "exact_match": 0.25,
            "longest": 2,
        }
    )


def test_test_settings_groups_and_studies_are_cells_of_their_own():
    cells = _cells(
        _rows("a", 70),
        _rows("a", 60, test_positions="evenly_spaced"),
        _rows("a", 50, test_encoding="rope scale=4"),
        _rows("b", 40, group="L=1024"),
    )
    labels = {cell.setting.label: cell.best for cell in cells}
    assert labels == {
        "RoPE, consecutive": pytest.approx(0.7),
        "RoPE, consecutive, tested with evenly_spaced": pytest.approx(0.6),
        "RoPE, consecutive, tested as rope scale=4": pytest.approx(0.5),
        "RoPE, consecutive, L=1024": pytest.approx(0.4),
    }
    one_study = _cells(_rows("a", 70, study="s"), _rows("b", 60, study="s", seed=1))
    assert [cell.setting.study for cell in one_study] == [""]
    two = _cells(_rows("a", 70, study="s"), _rows("b", 60, study="t"))
    assert [cell.setting.label for cell in two] == [
        "RoPE, consecutive, s",
        "RoPE, consecutive, t",
    ]


def test_the_mean_is_at_the_rate_with_the_best_mean_and_the_best_over_all():
    (cell,) = _cells(
        _rows("a", 95, learning_rate=1e-4, seed=0),
        _rows("b", 25, learning_rate=1e-4, seed=1),
        _rows("c", 80, learning_rate=3e-4, seed=0),
        _rows("d", 84, learning_rate=3e-4, seed=1),
    )
    assert cell.best == pytest.approx(0.95)
    assert cell.spreads["score"].mean == pytest.approx(0.82)
    assert {run.run_id for run in cell.chosen} == {"c", "d"}
    assert cell.seeds == 2


def test_a_run_without_test_lengths_has_no_score_and_spoils_none():
    (cell,) = _cells(_rows("a", 60), _rows("b", 0, lengths=(1, 2), seed=1))
    assert cell.best == pytest.approx(0.6)
    assert cell.spreads["score"].count == 1
    (alone,) = _cells(_rows("b", 0, lengths=(1, 2)))
    assert tables.best_text(alone) == "–"
    assert records.cell_records([alone])[0]["mean"] is None


def test_settings_and_tasks_keep_the_order_of_tables():
    cells = _cells(
        _rows("a", 50, positions="randomized"),
        _rows("b", 50, encoding="alibi", encoding_title="ALiBi"),
        _rows("c", 50, encoding="none", encoding_title="None"),
        _rows("d", 50),
        _rows("e", 50, task="zoo", task_title="Zoo", task_order=0),
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
        _rows(f"{positions}{seed}", right + 5 * seed, positions=positions, seed=seed)
        for positions, right in (("consecutive", 50), ("randomized", 85))
        for seed in range(3)
    ]
    other = _rows("x", 91, task="a_b", task_title="A_B & 50%", input_blind=0.9)
    return _cells(*seeds, other)


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
    assert strong == [[False, False, True, False], [False, False, False, True]]
    text = tables.markdown_matrix(three_cells, tables.mean_text)
    assert "| **90.0 [85.0, 95.0]** |" in text.split("\n")[3]


def test_the_latex_table_is_whole_and_shows_texts_as_they_are(three_cells):
    text = tables.latex_matrix(three_cells, tables.mean_text, "All #1", "tab:x")
    assert r"A\_B \& 50\%" in text
    assert r"\caption{All \#1}" in text
    assert r"\shortstack[r]{\textbf{90.0}\\ {\tiny [85.0, 95.0]}}" in text
    assert r"\multicolumn{1}{c}{consecutive} & \multicolumn{1}{c}{randomized}" in text
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text).group(1)
    assert columns == "lrrr"
    plain = re.sub(r"\\[{}&%#_]", "", text)
    assert plain.count("{") == plain.count("}")
    body = plain.split(r"\midrule")[1].split(r"\bottomrule")[0].strip()
    assert [line.count(" & ") for line in body.split("\n")] == [3, 3]
    assert len(re.findall(r"\\begin", text)) == len(re.findall(r"\\end\{", text)) == 2
    assert tables.latex_text("\\~^{}") == (
        r"\textbackslash{}\textasciitilde{}\textasciicircum{}\{\}"
    )


def test_csv_and_json_hold_the_unrounded_figures(three_cells):
    rows = records.cell_records(three_cells)
    assert json.loads(json.dumps(rows)) == rows
    back = list(csv.DictReader(io.StringIO(records.csv_text(rows))))
    assert [float(row["best"]) for row in back] == [row["best"] for row in rows]
    assert back[0]["std"] == back[0]["low"] == ""
    assert float(back[2]["std"]) == pytest.approx(0.05)
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
        for row in _rows(str(seed), 90 + 5 * seed, seed=seed, positions="randomized")
    ]
    tables.print_summary(
        rows, lengths=(2, 4, 6), console=rich.console.Console(file=text, width=80)
    )
    lines = text.getvalue().split("\n")
    assert "Reverse String: token accuracy in % by length; mean of 3 seeds" in lines[0]
    cells = [re.split(r"  +", line.strip()) for line in lines]
    assert ["trained on lengths 1–2", "2", "4", "6", "1–2", "3–6", "≥90% to"] in cells
    assert [
        *("RoPE, randomized", "100.0", "95.0", "95.0", "100.0", "95.0 ± 5.0", "6"),
    ] in cells
    assert ["best input-blind guess", *["50.0"] * 5] in cells


def test_a_few_lengths_are_chosen_among_the_evaluated_ones():
    (cell,) = _cells(_rows("a", 50, lengths=(1, 2, 3, 5, 6)))
    assert tables.few_lengths(cell.runs[0]) == [2, 3, 5, 6]


def _run_row(run_id, config, store="s"):
    row = {"run_id": run_id, "config": json.dumps(config), "store": store}
    return {name: [value] for name, value in row.items()}


def _notes(groups, *run_rows):
    empty = {"run_id": [], "config": [], "store": []}
    schema = pa.schema([(name, pa.string()) for name in empty])
    rows = [pa.table(row, schema=schema) for row in (empty, *run_rows)]
    return disagreements.disagreements(_cells(*groups), pa.concat_tables(rows))


def test_runs_that_differ_in_seed_and_learning_rate_alone_agree():
    groups = [_rows("a", 50), _rows("b", 60, seed=1), _rows("c", 40, learning_rate=1.0)]
    configs = [
        _run_row(
            name, {"seed": i, "optim": {"learning_rate": i}, "model": {"layers": 2}}
        )
        for i, name in enumerate("abc")
    ]
    assert _notes(groups, *configs) == []


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"step": 50}, "runs differ in steps trained: 100 (a); 50 (b)"),
        ({"lengths": (1, 2, 3, 6)}, "test lengths: 3..6 (a); 3..6 (2 of 4) (b)"),
        ({"rows": 9}, "runs differ in sequences a length: 4 (a); 9 (b)"),
        ({"position_draws": 3}, "runs differ in position draws: unset (a); 3 (b)"),
        ({"train_max_length": 3}, "longest training length: 2 (a); 3 (b)"),
        ({"lengths": (1, 2)}, "no evaluation beyond the training lengths: b"),
        ({"lengths": range(1, 6)}, "b is evaluated to length 5 of 6"),
        ({"seed": 0}, "seed 0 has 2 runs: a, b"),
    ],
)
def test_what_runs_of_a_cell_disagree_in_is_named(change, note):
    notes = _notes([_rows("a", 50), _rows("b", 60, **({"seed": 1} | change))])
    assert any(note in line for line in notes)
    assert all(line.startswith("Reverse String, RoPE, consecutive: ") for line in notes)


def test_configs_that_differ_are_named():
    groups = [_rows("a", 50), _rows("b", 60, seed=1)]
    rows = [
        _run_row("a", {"model": {"layers": 2, "width": 8}, "seed": 0}),
        _run_row("b", {"model": {"layers": 3, "width": 8}, "seed": 1}),
    ]
    (note,) = _notes(groups, *rows)
    assert note.endswith("runs differ in config model.layers: 2 (a); 3 (b)")


def test_one_name_for_two_runs_is_named():
    rows = [_run_row("a", {"layers": 2}, "x"), _run_row("a", {"layers": 3}, "y")]
    (note,) = _notes([_rows("a", 50)], *rows)
    assert note.startswith("run a has different configs in x and y")
    assert _notes([_rows("a", 50)], rows[0], rows[0]) == []


def test_summaries_of_stored_rows_and_of_mappings_are_the_same(tmp_path):
    rows = _rows("a", 70)
    with results.ResultsWriter(tmp_path, "a") as writer:
        writer.evaluation(rows)
    stored = summaries.summarize_runs(results.read(tmp_path))
    assert stored == summaries.summarize_runs(rows)
