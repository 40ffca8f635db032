"""What a study lacks is named: lengths, seeds, cells, evaluations."""

import json

import pyarrow as pa
import pytest

from experiments.report import missing
from experiments.report.awaited import awaited
from tests.experiments.evaluation_rows import cells_of, scored

pytestmark = pytest.mark.fast


def test_a_cell_with_fewer_runs_than_others_names_seeds_and_rates():
    groups = [
        scored(f"{p}{seed}{rate}", 50, positions=p, seed=seed, learning_rate=rate)
        for p in ("consecutive", "randomized")
        for seed in (0, 1, 2)
        for rate in (1e-4, 3e-4)
        if p == "consecutive" or (seed, rate) in {(0, 1e-4), (0, 3e-4), (1, 3e-4)}
    ]
    (gap,) = missing.missing_runs(cells_of(*groups))
    assert (gap.have, gap.of) == (3, 6)
    assert str(gap) == (
        "Reverse String, RoPE, randomized: 3 of 6 runs; lacks seed 1, 2 at learning "
        "rate 0.0001; seed 2 at learning rate 0.0003"
    )


def test_parts_of_a_study_are_held_to_their_own_seeds():
    cells = cells_of(
        scored("a", 50),
        scored("b", 50, seed=1),
        scored("c", 50, seed=5, group="ablation", positions="randomized"),
    )
    assert missing.missing_runs(cells) == []


def test_settings_with_rates_of_their_own_are_held_to_these():
    """As a recurrent network beside Transformers in the mini form of deletang2022."""
    rnn = {"encoding": "rnn", "encoding_title": "RNN", "learning_rate": 3e-3}
    cells = cells_of(
        scored("a", 50),
        scored("b", 50, encoding="alibi", encoding_title="ALiBi"),
        *(scored(f"r{seed}", 50, seed=seed, **rnn) for seed in (0, 1)),
    )
    assert [str(gap) for gap in missing.missing_runs(cells)] == [
        f"Reverse String, {name}, consecutive: 1 of 2 runs; lacks seed 1 at learning "
        "rate 0.001"
        for name in ("ALiBi", "RoPE")
    ]


def test_what_no_sweep_asks_for_is_not_missed(tmp_path):
    cells = cells_of(
        scored("a", 50),
        scored("b", 50, seed=1),
        scored("c", 50, positions="randomized(sort=True)"),
        scored("d", 50, task="zoo", task_title="Zoo"),
    )
    store = tmp_path / "results"
    evaluated = {(str(store), name) for name in "abcd"}
    assert awaited([store], evaluated) is None  # no study tells
    every = missing.missing_runs(cells), missing.missing_cells(cells)
    assert [len(lines) for lines in every] == [1, 1]

    def left(*more):
        order = [*"abcd", *more]
        (tmp_path / "study.json").write_text(json.dumps({"order": order}))
        to_come = awaited([store], evaluated)
        gaps = missing.missing_runs(cells, to_come)
        return len(gaps), missing.missing_cells(cells, to_come)

    assert left() == (0, [])
    assert left("reverse_string-rope-randomized-seed1-0f") == (1, [])
    (absent,) = every[1]
    assert left("zoo-rope-randomized-seed0-0f") == (0, [absent])


def test_tasks_may_be_trained_in_ways_of_their_own():
    cells = cells_of(
        scored("a", 50, learning_rate=1e-3),
        scored("b", 50, learning_rate=5e-3, seed=1, task="zoo", task_title="Zoo"),
    )
    assert missing.missing_runs(cells) == []


def test_tasks_without_a_run_are_named_by_setting():
    cells = cells_of(
        scored("a", 50),
        scored("b", 50, task="zoo", task_title="Zoo", positions="randomized"),
        scored("c", 50, positions="randomized"),
    )
    assert missing.missing_cells(cells) == ["RoPE, consecutive: no run on Zoo"]


def test_lengths_that_the_config_asks_for_are_missed():
    cells = cells_of(
        scored("a", 50, lengths=(1, 2, 4, 6)), scored("b", 50, lengths=(1, 3, 6))
    )
    configs = {"a": {"eval.lengths": "1:6"}, "b": {"eval.lengths": "1,3:6:3"}}
    assert missing.missing_lengths(cells, configs) == [
        "Reverse String, RoPE, consecutive: no score at 2 of the lengths asked for, "
        "3, 5 (a); the score is over the others"
    ]


@pytest.mark.parametrize("config", [{}, {"eval.lengths": "1:99"}])
def test_without_a_config_of_these_lengths_the_longest_is_missed(config):
    cells = cells_of(scored("a", 50, lengths=(1, 3, 5)))
    (line,) = missing.missing_lengths(cells, {"a": config})
    assert "no score at 1 of the lengths asked for, 6 (a)" in line
    assert missing.missing_lengths(cells_of(scored("a", 50)), {"a": config}) == []


def test_runs_that_were_started_only_are_listed():
    rows = pa.table({"run_id": ["a", "b", "b", "c"]})
    assert missing.without_evaluation(rows, {"a", "x"}) == ["b", "c"]


def test_the_folder_of_a_study_tells_what_is_unfinished(tmp_path):
    about = {"study": "mini", "runs": 3, "command": "..."}
    (tmp_path / "study.json").write_text(json.dumps(about))
    for folder, name, text in (
        ("done", "a.json", "{}"),
        ("failed", "b.txt", "Traceback\n  ...\nValueError: loss is NaN\n"),
        ("failed", "a.txt", "ValueError: once\n"),  # it was scored after all
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    stores = [tmp_path / "results", tmp_path / "none" / "results"]
    scored = {(str(stores[0]), "a"), (str(stores[1]), "b")}
    assert missing.of_studies(stores, scored) == [
        "study mini: 1 of 3 runs finished",
        "given up: b (ValueError: loss is NaN)",
    ]
