"""Runs that did not do the same are not averaged, and none counts twice."""

import json

import pyarrow as pa
import pytest

from experiments.report import comparable, run_configs, summaries, unlike_models
from tests.experiments.evaluation_rows import cells_of, runs_of, scored

pytestmark = pytest.mark.fast

WHERE = "Reverse String, RoPE, consecutive: "


def _kept(*groups, **configs):
    flat = {name: run_configs.flat(config) for name, config in configs.items()}
    kept, notes = comparable.comparable(runs_of(*groups), flat)
    return {run.run_id: run for run in kept}, notes


def test_runs_that_did_the_same_are_all_kept():
    kept, notes = _kept(scored("a", 50), scored("b", 60, seed=1))
    assert set(kept) == {"a", "b"}
    assert notes == []


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"step": 50}, "steps trained 50, not 100 (c)"),
        ({"step": 200}, "steps trained 200, not 100 (c)"),
        (
            {"train_max_length": 3},
            "longest training length 3, not 2; scored lengths 4..6, not 3..6 (c)",
        ),
        (
            {"test_max_length": 8, "lengths": range(1, 6)},
            "longest test length 8, not 6; scored lengths 3..5, not 3..6 (c)",
        ),
        ({"lengths": (1, 2, 3, 6)}, "scored lengths 3, 6, not 3..6 (c)"),
        ({"lengths": (1, 2)}, "scored lengths none, not 3..6 (c)"),
    ],
)
def test_a_run_that_did_something_else_is_left_out_and_named(change, note):
    other = scored("c", 0, **({"seed": 2} | change))
    kept, notes = _kept(scored("a", 50), scored("b", 60, seed=1), other)
    assert set(kept) == {"a", "b"}
    start = f"{WHERE}left out, not to be averaged with the other 2: "
    assert notes == [start + note]


def test_a_run_scored_at_more_lengths_is_cut_to_those_of_the_others():
    """Beyond 6 it is always wrong; over 3..6 it has the 0.7 that it had before."""
    more = [
        *scored("c", 70, seed=2),
        *scored("c", 0, seed=2, lengths=(9, 10), test_max_length=10),
    ]
    kept, notes = _kept(scored("a", 50), scored("b", 60, seed=1), more)
    assert kept["c"].numbers["score"] == pytest.approx(0.7)
    assert kept["c"].test_lengths == kept["a"].test_lengths == (3, 4, 5, 6)
    assert kept["c"].accuracy[1] == 1
    assert notes == [
        f"{WHERE}scored at more lengths than the other 2, whose 3..6 count for all: c"
    ]


def test_of_groups_of_one_size_the_longest_trained_counts():
    kept, notes = _kept(scored("a", 50), scored("b", 60, seed=1, step=500))
    assert set(kept) == {"b"}
    assert notes[0].endswith("the other 1: steps trained 100, not 500 (a)")


def test_other_settings_and_tasks_may_do_something_else():
    kept, notes = _kept(
        scored("a", 50),
        scored("b", 50, step=9, positions="randomized"),
        scored("c", 50, step=8, task="zoo"),
    )
    assert set(kept) == {"a", "b", "c"}
    assert notes == []


def test_the_same_config_and_seed_count_once_and_the_later_is_it():
    earlier = scored("late", 90, time="2024-01-01T00:00:00+00:00")
    later = scored("early", 50, time="2025-01-01T00:00:00+00:00")
    same = {"model": {"layers": 2}, "log_every": 1}
    kept, notes = _kept(
        earlier,
        later,
        scored("other", 60, seed=1),
        late=same,
        early=same | {"log_every": 100},
        other=same,
    )
    assert set(kept) == {"early", "other"}
    assert notes == [
        f"{WHERE}seed 0 has 2 runs of the same config: the latest, early, counts; "
        "left out: late"
    ]


def _layers(**numbers):
    return {name: {"model": {"layers": number}} for name, number in numbers.items()}


def test_another_config_is_a_setting_of_its_own_in_all_tasks():
    kept, notes = _kept(
        scored("a", 50),
        scored("b", 60),
        scored("c", 70, task="zoo"),
        scored("d", 80, positions="randomized"),
        **_layers(a=2, b=3, c=2, d=2),
    )
    assert notes == []
    assert {name: run.setting.config for name, run in kept.items()} == {
        "a": "model.layers=2",
        "b": "model.layers=3",
        "c": "model.layers=2",
        "d": "",  # nothing differs there
    }
    cells = summaries.group_cells(list(kept.values()))
    assert [cell.setting.label for cell in cells] == [
        "RoPE, consecutive, model.layers=2",
        "RoPE, consecutive, model.layers=3",
        "RoPE, randomized",
        "RoPE, consecutive, model.layers=2",
    ]


def test_a_mean_is_at_one_setting_of_the_optimizer_and_the_best_over_all():
    """The best of all is 0.9; the mean at one decay is 0.6, at the other 0.7."""
    rights = {
        "a": (30, 0, 0.1),
        "b": (90, 1, 0.1),
        "c": (68, 0, 0.2),
        "d": (72, 1, 0.2),
    }
    kept, notes = _kept(
        *(scored(name, right, seed=seed) for name, (right, seed, _) in rights.items()),
        **{name: {"optim": {"decay": decay}} for name, (*_, decay) in rights.items()},
    )
    assert notes == []
    (cell,) = summaries.group_cells(list(kept.values()))
    assert cell.best == pytest.approx(0.9)
    assert cell.spreads["score"].mean == pytest.approx(0.7)
    assert {run.run_id for run in cell.chosen} == {"c", "d"}
    assert {run.variant for run in cell.chosen} == {"optim.decay=0.2"}


def test_another_optimizer_is_a_setting_of_its_own_and_its_numbers_are_not():
    optims = {
        "a": {"name": "adam", "b2": 0.9},
        "b": {"name": "adam", "b2": 0.99},
        "c": {"name": "lion", "b2": 0.9},
    }
    kept, _ = _kept(
        *(scored(name, 50) for name in optims),
        **{name: {"optim": optim} for name, optim in optims.items()},
    )
    settings = {name: run.setting.config for name, run in kept.items()}
    assert settings["a"] == settings["b"] == "optim.name=adam"
    assert settings["c"] == "optim.name=lion"


def test_a_run_without_a_known_config_or_field_goes_with_most():
    kept, _ = _kept(
        *(scored(name, 50, seed=seed) for seed, name in enumerate("abcde")),
        **_layers(a=2, b=2, c=5),
        d={"model": {"heads": 4}},  # as of a version without the field
    )
    settings = {name: run.setting.config for name, run in kept.items()}
    assert settings["d"] == settings["e"] == settings["a"] == "model.layers=2"
    assert settings["c"] == "model.layers=5"


def test_a_run_of_an_earlier_version_differs_in_nothing_that_came_later():
    """What its config lacks has the value that means what that version did."""
    new = {"train": {"steps": 5}, "model": {"kind": "decoder"}}
    old = json.dumps(new)
    new["model"] |= {"normalizer": "softmax", "attention_dropout": 0.0}
    new["train"] |= {"progressive_weight": 0.0}
    rows = pa.table({"run_id": ["old", "new"], "config": [old, json.dumps(new)]})
    flat = run_configs.flat_configs(rows)
    assert run_configs.differing(list(flat.values())) == []
    new["model"]["normalizer"] = "sink"
    rows = pa.table({"run_id": ["old", "new"], "config": [old, json.dumps(new)]})
    flat = run_configs.flat_configs(rows)
    assert run_configs.differing(list(flat.values())) == ["model.normalizer"]


def test_a_field_that_some_lack_divides_no_setting():
    configs = [{"model.layers": 2}, {"model.layers": 2, "model.kind": "new"}]
    assert run_configs.dividing(configs) == []


def test_evaluation_settings_and_titles_make_no_other_model():
    configs = [
        {"eval.samples": 8, "encoding.title": "x", "model.layers": 2},
        {"eval.samples": 9, "encoding.title": "y", "model.layers": 2},
    ]
    assert run_configs.dividing(configs) == []


def test_settings_of_a_task_that_were_made_unlike_are_named():
    cells = cells_of(
        scored("a", 50),
        scored("b", 50, step=9, positions="randomized"),
        scored("c", 50, task="zoo", task_title="Zoo"),
    )
    assert comparable.unlike_settings(cells) == [
        "Reverse String: settings differ in steps trained: 100 (RoPE, consecutive); "
        "9 (RoPE, randomized)"
    ]


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((), "none"),
        ((7,), "7"),
        ((41, 42), "41, 42"),
        ((41, 42, 43), "41..43"),
        ((41, 42, 43, 50, 60, 70, 71), "41..43, 50..70 by 10, 71"),
        ((1, 5, 6, 7), "1, 5..7"),
    ],
)
def test_lengths_are_written_briefly(lengths, text):
    assert comparable.ranges(lengths) == text


def test_tasks_of_unlike_lengths_in_one_table_are_named():
    alike = cells_of(
        scored("a", 50), scored("c", 50, task="zoo", task_title="Zoo", encoding="x")
    )
    assert comparable.unlike_tasks(alike) == []
    other = scored("c", 50, task="zoo", task_title="Zoo", train_max_length=3)
    assert comparable.unlike_tasks(cells_of(scored("a", 50), other)) == [
        "scores of tasks stand on unlike lengths: longest training length 2 (Reverse "
        "String); 3 (Zoo)"
    ]


def test_an_encoder_and_a_decoder_on_one_task_are_told_apart_by_name():
    """Else RoPE with two position schemes would seem to differ in nothing but these."""
    configs = {
        name: {"model": {"kind": kind}}
        for name, kind in {"a": "encoder", "b": "decoder", "c": "lstm"}.items()
    }
    kept, _ = _kept(
        scored("a", 50),
        scored("b", 50, positions="randomized"),
        scored("c", 50, encoding="lstm", encoding_title="LSTM"),
        **configs,
    )
    assert {name: run.setting.label for name, run in kept.items()} == {
        "a": "RoPE, consecutive, model.kind=encoder",
        "b": "RoPE, randomized, model.kind=decoder",
        "c": "LSTM",
    }
    del configs["b"]
    other = scored("c", 50, encoding="lstm", encoding_title="LSTM")
    kept, _ = _kept(scored("a", 50), other, **configs)
    assert kept["a"].setting.label == "RoPE, consecutive"


def test_what_a_setting_has_beside_its_encoding_is_named():
    """Else the score of a block with gates would be read as that of its encoding."""
    plain = {"model": {"kind": "decoder", "norm": "layer", "output_gate": "none"}}
    models = {"a": plain, "b": plain, "c": {"model": dict(plain["model"])}}
    models["c"]["model"] |= {"norm": "rms", "output_gate": "sigmoid"}
    models["d"] = {"model": {"kind": "lstm", "norm": "other"}}
    configs = {name: run_configs.flat(config) for name, config in models.items()}
    cells = cells_of(
        *(scored("a", 50), scored("b", 50, encoding="alibi", encoding_title="ALiBi")),
        scored("c", 50, encoding="fox", encoding_title="FoX"),
        scored("d", 50, encoding="lstm", encoding_title="LSTM"),
    )
    assert unlike_models.unlike_models(cells, configs) == [
        "Reverse String: FoX, consecutive has model.norm=rms (most: layer), "
        "model.output_gate=sigmoid (most: none)"
    ]
    assert unlike_models.unlike_models(cells[:2], configs) == []


def test_what_a_title_stands_for_needs_no_note_and_what_goes_beyond_it_has_one():
    """All of a title have 4 layers; one that was also made wider is named."""
    deep = {"a": 1, "b": 1, "c": 4, "d": 4, "e": 4}
    configs = {
        name: {"model.kind": "encoder", "model.num_layers": n, "model.embed_dim": 8}
        for name, n in deep.items()
    }
    names = {"a": "rope", "b": "fox", "c": "rope", "d": "fox", "e": "alibi"}
    titles = {"c": "4 layers", "d": "4 layers", "e": "4 layers"}
    groups = [
        scored(run, 50, encoding=name, encoding_title="", title=titles.get(run))
        for run, name in names.items()
    ]
    assert unlike_models.unlike_models(cells_of(*groups), configs) == []
    configs["e"]["model.embed_dim"] = 64
    assert unlike_models.unlike_models(cells_of(*groups), configs) == [
        "Reverse String: alibi, consecutive, 4 layers has model.embed_dim=64 (most: 8)"
    ]


def test_two_models_under_one_title_are_told_apart_by_what_differs():
    kept, _ = _kept(
        scored("a", 50, title="deep"),
        scored("b", 60, title="deep"),
        a={"model": {"num_layers": 4}},
        b={"model": {"num_layers": 8}},
    )
    assert {name: run.setting.label for name, run in kept.items()} == {
        name: f"RoPE, consecutive, deep, model.num_layers={n}"
        for name, n in (("a", 4), ("b", 8))
    }
