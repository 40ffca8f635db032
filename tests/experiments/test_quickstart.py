"""The quickstart compares two models that differ in their positions alone."""

import pathlib
import shutil
import subprocess

import pytest

from configs import quickstart
from experiments import quickstart as quickstart_command
from experiments.building.build import build
from experiments.command import UsageError
from experiments.running import workdir
from ropejax.positions import Consecutive, Randomized

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("short", ["no", "yes"])
def test_the_two_models_differ_in_positions_alone(short):
    plain, randomized = (
        quickstart.get_config(f"positions={positions},short={short}")
        for positions in quickstart_command.POSITIONS
    )
    fields = [workdir.flat(workdir.plain(config)) for config in (plain, randomized)]
    differing = {name for name in fields[0] if fields[0][name] != fields[1][name]}
    assert {name.split(".")[0] for name in differing} == {"positions"}
    experiments = [build(config) for config in (plain, randomized)]
    assert experiments[0].recipe.positions == Consecutive()
    assert isinstance(experiments[1].recipe.positions, Randomized)
    for experiment in experiments:
        longest = experiment.recipe.curriculum.max_length
        assert experiment.evaluation.lengths[-1] >= 4 * longest


def test_the_full_quickstart_tests_far_past_its_training_lengths():
    experiment = build(quickstart.get_config())
    assert experiment.recipe.curriculum.max_length == 40
    assert {1, 40, 100, 500} <= set(experiment.evaluation.lengths)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["--seeds=0"], "--seeds must be at least 1, got 0"),
        (["--seed=2"], "no option '--seed'. Did you mean '--seeds'"),
        (["more"], "'more' is no argument"),
    ],
)
def test_slips_are_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        quickstart_command.main(texts)
    with pytest.raises(ValueError, match="short must be yes or no, got 'maybe'"):
        quickstart.get_config("short=maybe")


def test_short_may_be_written_as_people_do():
    assert quickstart.get_config("short=Yes") == quickstart.get_config("short=yes")
    assert quickstart.get_config("short=NO") == quickstart.get_config()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("value", "short"), [("1", True), ("yes", True), ("0", False), ("", False)]
)
def test_make_takes_short_by_its_value(value, short):
    done = subprocess.run(
        ["make", "-n", "quickstart", f"SHORT={value}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("--short" in done.stdout) == short


@pytest.mark.slow
def test_the_short_form_shows_table_and_picture_and_then_knows_them(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "120")  # in fewer, long names go on in a next line
    texts = ["--short", f"--workdir={tmp_path}", "--compile_cache="]
    assert quickstart_command.main(texts) == 0
    printed = capsys.readouterr().out
    assert "This is the shortened quickstart" in printed
    for text in ("scaling, consecutive", "scaling, randomized", "input-blind guess"):
        assert text in printed
    picture = tmp_path / "accuracy_by_length.png"
    assert str(picture) in printed.replace("\n", "")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert quickstart_command.main(texts) == 0
    again = capsys.readouterr().out
    assert "already trained to 200" in again
    table = lambda text: [line for line in text.splitlines() if "RoPE" in line]
    assert table(again) == table(printed)
