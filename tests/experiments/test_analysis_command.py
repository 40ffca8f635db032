"""The analysis of a run: numbers on disk, and pictures of just these numbers."""

import json
import shutil

import jax
import numpy as np
import pytest
from rich.console import Console

from configs import base
from experiments.analysis import __main__ as analysis
from experiments.analysis import pictures as analysis_pictures
from experiments.analysis.folders import runs_to_analyse
from experiments.analysis.numbers import analyse_run, chosen_lengths, default_lengths
from experiments.building.build import build
from experiments.running import workdir
from experiments.running.opening import Run
from experiments.running.run import run_experiment

QUIET = Console(quiet=True)


def tiny(**changes):
    config = base.get_config()
    named = {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(
        {
            "task.name": "even_pairs",
            "encoding.name": "sinusoidal",
            "model.num_layers": 2,
            "model.embed_dim": 8,
            "model.num_heads": 2,
            "train.steps": 2,
            "train.batch_size": 2,
            "train.max_length": 4,
            "train.buckets": 1,
            "eval.lengths": "4",
            "eval.samples": 2,
            "eval.draws": 1,
        }
        | named
    )
    return config


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run_experiment(tiny(), folder, console=QUIET, summary=False)
    return folder, analyse_run(folder, lengths=[8, 3], samples=2)


def test_numbers_are_written_as_they_are_returned(analysed):
    folder, numbers = analysed
    assert json.loads((folder / "analysis" / "analysis.json").read_text()) == numbers
    assert numbers["lengths"] == [3, 8]
    assert np.shape(numbers["attention"]["entropy"]) == (2, 2, 2)
    # 3 symbols and the placeholder: entropies lie below log 4.
    assert 0 < np.max(numbers["attention"]["entropy"][0]) <= np.log(4) + 1e-6
    assert np.max(numbers["attention"]["of_largest"]) <= 1 + 1e-6
    seen = numbers["positions"]["positions"]
    # Trained at positions 0 to 4 at most, tested at 0 to 3 and 0 to 8.
    assert seen["unseen"][1] >= 4 / 9
    assert sum(seen["training"]) == pytest.approx(1)
    assert numbers["offsets"]["similarity"][0] == pytest.approx([1, 1, 1], abs=1e-4)
    assert min(numbers["offsets"]["similarity"][-1]) < 0.9
    reach = numbers["receptive_field"]["8"]
    assert reach["query"] == 8
    assert sum(reach["share"]) == pytest.approx(1)
    assert len(reach["share"]) == 9


def test_pictures_are_written_and_show_the_numbers(analysed):
    folder, numbers = analysed
    paths = analysis_pictures.draw_all(numbers, folder / "analysis")
    assert {path.stem for path in paths} == set(analysis_pictures.PICTURES)
    starts = {path.suffix: path.read_bytes()[:4] for path in paths}
    assert starts == {".png": b"\x89PNG", ".pdf": b"%PDF"}
    figure = analysis_pictures.attention_entropy(numbers)
    left, right = figure.axes
    assert left.get_ylabel() == "entropy (nats)"
    assert left.get_xlabel() == "input length (symbols)"
    means = np.array(numbers["attention"]["entropy"]).mean(-1)
    np.testing.assert_allclose(
        left.lines[0].get_xydata(), [[3, means[0, 0]], [8, means[1, 0]]]
    )
    np.testing.assert_allclose(left.lines[1].get_ydata(), means[:, 1])
    # Of uniform attention: 3 or 8 symbols and the placeholder, seen by every token.
    np.testing.assert_allclose(left.lines[2].get_ydata(), np.log([4, 9]), atol=1e-5)
    assert left.lines[2].get_linestyle() == right.lines[-1].get_linestyle() == ":"
    assert set(right.lines[-1].get_ydata()) == {1}
    for draw in analysis_pictures.PICTURES.values():
        for axes in draw(numbers).axes:
            assert axes.get_xlabel() or axes.get_ylabel()


@pytest.mark.fast
def test_of_a_study_the_first_trained_seed_of_each_setting_is_looked_into(tmp_path):
    for name, seed, rate, step in (
        ("a", 2, 1e-3, 5),
        ("b", 1, 1e-3, 5),
        ("c", 0, 1e-3, 0),  # not trained yet
        ("d", 3, 1e-2, 5),
    ):
        folder = tmp_path / "runs" / name
        (folder / "checkpoints" / str(step)).mkdir(parents=True)
        config = tiny(train__seed=seed, optim__learning_rate=rate)
        workdir.write_config(folder, workdir.plain(config))
    runs = [tmp_path / "runs" / name for name in "bd"]
    assert runs_to_analyse(tmp_path) == runs
    assert runs_to_analyse(runs[0]) == [runs[0]]


@pytest.mark.fast
def test_default_lengths_go_beyond_training():
    assert default_lengths(40) == [10, 20, 40, 60, 100, 200]
    assert min(default_lengths(2)) == 2


@pytest.mark.fast
def test_lengths_that_nobody_asked_for_are_those_that_have_positions(tmp_path):
    table = {"encoding__name": "learned", "encoding__options": "max_position=8"}
    config = workdir.plain(tiny(**table))
    run = Run(config, build(config), tmp_path)
    assert sorted(set(default_lengths(4))) == [2, 4, 6, 10, 20]
    assert chosen_lengths(run, None) == [2, 4, 6]
    with pytest.raises(ValueError, match="10 symbols are 11 tokens.* below 8 only"):
        chosen_lengths(run, [4, 10])


def test_what_has_no_attention_is_refused_alone_and_left_out_of_a_study(
    analysed, tmp_path, capsys
):
    other, encoder = tmp_path / "runs" / "rnn", tmp_path / "runs" / "encoder"
    config = tiny(model__kind="rnn", encoding__name="none", model__num_heads=8)
    run_experiment(config, other, console=QUIET, summary=False)
    line = ["--lengths=3,8", "--samples=2", "--compile_cache="]
    with pytest.raises(ValueError, match="a run of model.kind=rnn; only"):
        analysis.main([str(other), *line])
    ignored = shutil.ignore_patterns("analysis")
    shutil.copytree(analysed[0], encoder, ignore=ignored)
    cache = jax.config.jax_compilation_cache_dir
    assert analysis.main([str(tmp_path), *line]) == 0
    assert jax.config.jax_compilation_cache_dir == cache
    printed = capsys.readouterr().out
    assert f"left out: {other} holds a run of model.kind=rnn" in printed
    names = [f"{n}.{s}" for n in analysis_pictures.PICTURES for s in ("png", "pdf")]
    made = [path.name for path in (encoder / "analysis").iterdir()]
    assert sorted(made) == sorted(["analysis.json", *names])
    for name in names:
        assert str(encoder / "analysis" / name) in printed.split()


@pytest.mark.parametrize("seed", [-1, 2**31, 2**32 + 1])
def test_a_seed_that_would_repeat_another_is_refused(analysed, seed):
    with pytest.raises(ValueError, match=f"seed must be in 0 .. 2147483647.*{seed}"):
        analyse_run(analysed[0], lengths=[3], samples=2, seed=seed)
