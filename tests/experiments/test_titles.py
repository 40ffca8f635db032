"""Titles are as short as what a report compares allows; columns stand as published."""

import json

import pytest

from configs import base
from experiments.building import build
from experiments.report import naming, placing, summaries, tables
from experiments.results import records
from experiments.running import labels, workdir
from ropejax.nn.recurrent import RECURRENT
from tests.experiments.evaluation_rows import cells_of, runs_of, scored

pytestmark = pytest.mark.fast


def _named(name, title, options):
    settings = f"({options})" if options else ""
    return name + settings, title + settings


def _run(run_id, task=("copy", "Copy", ""), encoding=("rope", "RoPE", ""), **changes):
    task, task_title = _named(*task)
    encoding, encoding_title = _named(*encoding)
    names = {"task": task, "task_title": task_title, "encoding": encoding}
    return scored(run_id, 50, **names, encoding_title=encoding_title, **changes)


def test_settings_that_are_alike_everywhere_are_left_out():
    (cell,) = cells_of(
        _run(
            "a",
            ("copy", "Copy", "vocab_size=4"),
            ("alibi", "ALiBi", "tie_break=True"),
            positions="randomized(max_position=9, per_sequence=True)",
            positions_title="randomized(max_position=9, per_sequence=True)",
        )
    )
    assert (cell.task_title, cell.setting.label) == ("Copy", "ALiBi, randomized")
    assert cell.task == "copy(vocab_size=4)"  # the name is whole, for files


def test_settings_that_differ_are_named_and_titles_of_ones_own_stay():
    wide = "randomized(per_sequence=True, max_position=9)"
    cells = cells_of(
        _run("a", encoding=("rope", "RoPE", "rotary_dim=8, scale=2.0")),
        _run("b", encoding=("rope", "RoPE", "rotary_dim=8, scale=f(1, 2)")),
        _run("c", encoding=("rope", "RoPE", "")),
        _run("d", positions=wide, positions_title="wide (a=1)"),
        _run("e", encoding=("rope", "RoPE", "x=((")),  # no settings: left as it is
    )
    assert {cell.setting.label for cell in cells} == {
        "RoPE (rotary_dim=8, scale=2.0), consecutive",
        "RoPE (rotary_dim=8, scale=f(1, 2)), consecutive",
        "RoPE, consecutive",
        "RoPE, wide (a=1)",
        "RoPE(x=((), consecutive",
    }


def test_of_parts_with_settings_only_what_differs_is_named():
    parts = "rope=Rotary(), scale=LogScale(form=trained{})"
    cells = cells_of(
        _run("a", encoding=("compose", "RoPE, log n", parts.format(", least=2"))),
        _run("b", encoding=("compose", "RoPE, log n", parts.format(""))),
        _run("c", encoding=("compose", "RoPE, log n", "rope=Rotary()")),
    )
    assert {cell.setting.label for cell in cells} == {
        "RoPE, log n (scale=LogScale, scale.form=trained, scale.least=2), consecutive",
        "RoPE, log n (scale=LogScale, scale.form=trained), consecutive",
        "RoPE, log n, consecutive",
    }
    cells = cells_of(
        _run("a", encoding=("compose", "RoPE, log n", parts.format(", least=2"))),
        _run("b", encoding=("compose", "RoPE, log n", parts.format(""))),
    )
    assert {cell.setting.label for cell in cells} == {
        "RoPE, log n (scale.least=2), consecutive",
        "RoPE, log n, consecutive",
    }


def test_one_title_of_ones_own_for_two_ranges_names_the_range():
    wide, narrow = (f"randomized(sort=True, max_position={n})" for n in (9, 5))
    own = {"positions_title": "randomized"}
    cells = cells_of(
        _run("a", positions=wide, **own), _run("b", positions=narrow, **own)
    )
    assert {cell.setting.label for cell in cells} == {
        "RoPE, randomized (max_position=9)",
        "RoPE, randomized (max_position=5)",
    }
    # two kinds under one title, or settings that cannot be read: names as they are
    for other in ("shifted(max_position=9)", "randomized(x=(()"):
        cells = cells_of(
            _run("a", positions=wide, **own), _run("b", positions=other, **own)
        )
        assert {c.setting.label for c in cells} == {f"RoPE, {wide}", f"RoPE, {other}"}


def test_recurrent_networks_have_no_positions():
    assert set(RECURRENT) == summaries.RECURRENT
    cells = cells_of(_run("a"), _run("b", encoding=("rnn", "RNN", "")))
    assert [cell.setting.label for cell in cells] == ["RoPE, consecutive", "RNN"]
    assert [row[2] for row in tables.score_rows(cells)[1:]] == [
        *("consecutive", "recurrent"),
    ]


@pytest.mark.parametrize(
    ("settings", "names", "shared"),
    [
        ([("rope", "consecutive")], ["rope, consecutive"], ""),
        ([("rope", "consecutive"), ("alibi", "consecutive")], ["rope", "alibi"], ""),
        ([("rope", "coupled"), ("alibi", "coupled")], ["rope", "alibi"], "coupled"),
        ([("rope", "consecutive"), ("rope", "pose")], ["consecutive", "pose"], "rope"),
        ([("rope", "consecutive"), ("rnn", "consecutive")], ["rope", "rnn"], ""),
        (
            [("rope", "consecutive"), ("alibi", "pose")],
            ["rope, consecutive", "alibi, pose"],
            "",
        ),
    ],
)
def test_what_all_settings_share_is_said_once(settings, names, shared):
    made = [summaries.Setting("", "", p, e, p, e) for e, p in settings]
    found, said = naming.named_apart(made)
    assert ([found[one] for one in made], said) == (names, shared)


@pytest.mark.parametrize(
    ("settings", "names", "shared"),
    [
        # (encoding, positions, title) of each.
        (["rope consecutive A", "yarn consecutive B"], ["A", "B"], ""),
        (["rope randomized A", "rope randomized B"], ["A", "B"], "rope, randomized"),
        (
            ["rope consecutive A", "yarn consecutive A"],  # one title for two
            ["rope", "yarn"],
            "consecutive, A",
        ),
        (
            ["rope consecutive A", "rope randomized B"],
            ["consecutive, A", "randomized, B"],
            "rope",
        ),
    ],
)
def test_titles_that_tell_all_apart_are_their_names(settings, names, shared):
    made = []
    for encoding, positions, title in map(str.split, settings):
        both = positions, encoding
        made.append(summaries.Setting("", "", *both, *both, title=title))
    found, said = naming.named_apart(made)
    assert ([found[one] for one in made], said) == (names, shared)


@pytest.mark.parametrize(
    ("trained", "tested", "shown"),
    [
        ("randomized", "evenly_spaced", "evenly spaced"),
        ("randomized", "evenly_spaced(max_position=9)", "evenly spaced"),
        ("abacus(max_offset=3, a=1)", "abacus(max_offset=0, a=1)", "max_offset=0"),
        ("randomized(a=1)", "randomized", "randomized"),
        ("consecutive", "of_my_own", "of_my_own"),
    ],
)
def test_what_a_model_is_tested_with_is_said_in_words(trained, tested, shown):
    (cell,) = cells_of(_run("a", positions=trained, test_positions=tested))
    assert cell.setting.variant.endswith(f", tested with {shown}")


def test_variants_of_a_task_that_no_setting_has_two_of_are_one_row():
    hinted = ("copy", "Copy", "vocab_size=4, hints=3")
    plain = ("copy", "Copy", "vocab_size=4")
    cells = cells_of(
        _run("a", plain),
        _run("b", plain, ("none", "NoPE", "")),
        _run("c", hinted, ("none", "NoPE with hints", "")),
    )
    (row,) = tables.matrix(cells, tables.best_text)
    assert row[0].text == "Copy"
    assert {cell.setting.label for cell in cells} == {
        *("RoPE, consecutive", "NoPE, consecutive"),
        "NoPE with hints, consecutive, hints=3",
    }
    assert {cell.task for cell in cells} == {"copy(vocab_size=4, ...)"}


def test_variants_of_a_task_that_a_setting_has_two_of_are_rows():
    cells = cells_of(
        _run("a", ("copy", "Copy", "vocab_size=4")),
        _run("b", ("copy", "Copy", "vocab_size=8")),
    )
    titles = [row[0].text for row in tables.matrix(cells, tables.best_text)]
    assert titles == ["Copy (vocab_size=4)", "Copy (vocab_size=8)"]


def _order(runs):
    settings = summaries.settings_of(summaries.group_cells(runs))
    return [setting.encoding for setting in settings]


def test_encodings_stand_as_in_the_published_table_and_then_in_the_catalogue():
    scaled = "compose(rope=Rotary(), scale=LogScale())"
    names = ("lstm", "fire", "learned", scaled, "rope", "alibi", "t5", "sinusoidal")
    runs = runs_of(*(scored(name, 50, encoding=name) for name in (*names, "none")))
    assert _order(runs) == [
        *("none", "sinusoidal", "alibi", "rope", scaled, "learned", "t5", "fire"),
        "lstm",  # recurrent networks are a group of their own
    ]


def test_the_order_of_a_sweep_goes_before_the_published_one(tmp_path):
    runs = runs_of(
        *(scored(name, 50, encoding=name) for name in ("none", "rope", "t5"))
    )
    (tmp_path / "study.json").write_text(json.dumps({"order": ["x", "t5", "none"]}))
    sweeps = placing.sweeps_of([tmp_path / "results", tmp_path / "none" / "results"])
    assert sweeps == [["x", "t5", "none"]]
    assert _order(placing.placed(runs, sweeps)) == ["t5", "none", "rope"]


def test_a_title_of_the_run_is_a_setting_of_its_own_in_the_order_of_the_sweep():
    """Four layers at another learning rate are no further run of the plain setting."""
    runs = runs_of(
        scored("a", 50),
        scored("b", 90, title="wide"),
        scored("c", 60, title="4 layers", learning_rate=2e-3),
        scored("d", 70, title="4 layers", learning_rate=2e-3, seed=1),
    )
    cells = summaries.group_cells(runs)
    labels_ = [cell.setting.label for cell in cells]
    plain = "RoPE, consecutive"
    assert labels_ == [plain, f"{plain}, 4 layers", f"{plain}, wide"]
    assert [cell.best for cell in cells] == [0.5, 0.7, 0.9]
    moved = placing.placed(runs, [["b", "c", "a", "d"]])
    titles = [s.title for s in summaries.settings_of(summaries.group_cells(moved))]
    assert titles == ["wide", "4 layers", ""]
    names, shared = naming.named_apart([cell.setting for cell in cells])
    assert shared == "RoPE"
    assert names[cells[1].setting] == "consecutive, 4 layers"
    assert records.cell_records(cells)[1]["title"] == "4 layers"


def test_a_run_has_the_title_of_its_config_and_keeps_its_name():
    config = workdir.plain(base.get_config())
    named = config | {"title": "4 layers"}
    experiment = build.build(config)
    assert labels.run_labels(named, experiment)["title"] == "4 layers"
    assert labels.run_labels(config, experiment)["title"] is None
    old = {name: value for name, value in config.items() if name != "title"}
    ids = {labels.run_id(one) for one in (config, named, workdir.completed(old))}
    assert len(ids) == 1


def test_a_task_may_have_a_title_of_its_own_and_its_runs_keep_their_name():
    config = workdir.plain(base.get_config())
    named = config | {"task": config["task"] | {"title": "Backwards"}}
    old = config | {"task": {"name": "reverse_string", "options": ""}}
    assert labels.run_labels(named, build.build(named))["task_title"] == "Backwards"
    ids = {labels.run_id(one) for one in (config, named, workdir.completed(old))}
    assert len(ids) == 1
