"""The command line: fields, help, lists, and one clear message for every slip.

Fault B23: a mistyped setting must never be dropped in silence.
"""

import importlib
import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from configs import base
from experiments import command, lengths, main
from experiments.building import overrides
from experiments.running.interrupt import StoppedError
from ropejax.encodings import ENCODINGS
from ropejax.positions import POSITIONS
from ropejax.tasks import TASKS
from ropejax.training import CURRICULA, OPTIMIZERS

pytestmark = pytest.mark.fast

ROOT = pathlib.Path(__file__).parents[2]
BASE = str(ROOT / "configs" / "base.py")
CHE = str(ROOT / "configs" / "che.py")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("--config.train.steps=20000", "train.steps", 20000),
        ("--config.train.steps=1e4", "train.steps", 10000),
        ("--config.train.steps=2.5e3", "train.steps", 2500),
        ("--config.model.num_kv_heads=2", "model.num_kv_heads", 2),
        ("--config.optim.learning_rate=1", "optim.learning_rate", 1.0),
        ("--config.optim.learning_rate=3e-4", "optim.learning_rate", 3e-4),
        ("--config.model.pre_norm", "model.pre_norm", True),
        ("--config.model.pre_norm=true", "model.pre_norm", True),
        ("--noconfig.model.scan_layers", "model.scan_layers", False),
        ("--config.positions.as_published=false", "positions.as_published", False),
        ("--config.eval.positions=shifted", "eval.positions", "shifted"),
        (
            "--config.encoding.options=a=1, b=(2, 3)",
            "encoding.options",
            "a=1, b=(2, 3)",
        ),
        ("--config.study=mine", "study", "mine"),
    ],
)
def test_fields_take_values_of_their_type(text, field, value):
    config = overrides.load(BASE, [text])
    found = config.to_dict()
    for name in field.split("."):
        found = found[name]
    assert found == value
    assert type(found) is type(value)


def test_a_value_may_follow_its_field():
    config = overrides.load(BASE, ["--config.train.seed", "7", "--config.study", "x"])
    assert (config.train.seed, config.study) == (7, "x")


@pytest.mark.parametrize(
    ("texts", "heads"),
    [
        (["--config.model.num_kv_heads=None"], None),
        (["--config.model.num_kv_heads", "None", "--config.study=x"], None),
        (["--config.model.num_kv_heads=2", "--config.model.num_kv_heads=None"], None),
        (["--config.model.num_kv_heads=None", "--config.model.num_kv_heads=2"], 2),
    ],
)
def test_a_field_may_be_left_out_again(tmp_path, texts, heads):
    file = tmp_path / "config.py"
    file.write_text(
        "from configs import base\n\n\ndef get_config(arg=''):\n"
        "    config = base.get_config()\n    config.model.num_kv_heads = 4\n"
        "    config.eval.positions = 'shifted'\n    return config\n"
    )
    config = overrides.load(str(file), [*texts, "--config.eval.positions=None"])
    assert config.model.num_kv_heads == heads
    assert config.eval.positions is None
    assert config.to_dict()["eval"]["positions"] is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(arg=''):\n    pass", "must return a ConfigDict, .* got NoneType"),
        ("(arg=''):\n    return {'train': 1}", "must return a ConfigDict, .* got dict"),
        (
            "(arg=''):\n    config = base.get_config()\n    del config.train.buckets\n"
            "    return config",
            "the config lacks train.buckets; start from",
        ),
        ("():\n    return base.get_config()", None),
    ],
)
def test_what_a_file_returns_is_a_whole_config(tmp_path, body, message):
    """It failed deep within, with a traceback."""
    file = tmp_path / "config.py"
    file.write_text(f"from configs import base\n\n\ndef get_config{body}\n")
    if message is None:
        assert overrides.load(str(file)).to_dict() == base.get_config().to_dict()
        with pytest.raises(ValueError, match="takes no argument, got 'task=copy'"):
            overrides.load(f"{file}:task=copy")
        return
    with pytest.raises(ValueError, match=message):
        overrides.load(str(file))


def test_the_argument_of_a_config_chooses():
    config = overrides.load(f"{CHE}:task=bucket_sort, encoding=alibi", [])
    assert config.task.name == "bucket_sort"
    assert config.encoding.name == "alibi"
    assert config.positions.name == "randomized"
    assert overrides.load(CHE, []).encoding.name == "rope"


@pytest.mark.parametrize(
    ("config", "texts", "message"),
    [
        (
            BASE,
            ["--config.optim.learning_rat=1e-3"],
            "no field 'optim.learning_rat'. Did you mean --config.optim.learning_rate",
        ),
        (
            BASE,
            ["--config.train.learning_rate=1e-3"],
            "no field 'train.learning_rate'. Did you mean --config.optim.learning_rat",
        ),
        (
            BASE,
            ["--config.modle.num_layers=2"],
            "Did you mean --config.model.num_layers",
        ),
        (BASE, ["--config.steps=2"], "Did you mean --config.train.steps"),
        (BASE, ["--noconfig.model.prenorm"], "Did you mean --config.model.pre_norm"),
        (BASE, ["--config.Model.Num-Layers=2"], "Did you mean --config.model.num_lay"),
        (BASE, ["--config.train.batch=2"], r"Did you mean --config.train.batch_size\?"),
        (BASE, ["--config.encoding.type=x"], "no field 'encoding.type'. It has"),
        (
            BASE,
            ["--config.rope.typ=yarn"],
            "no field 'rope.typ'. It has .* --config.encoding.options=",
        ),
        (
            BASE,
            ["--config.model=2"],
            "config.model is a group .* set one of .*model.num_layers",
        ),
        (BASE, ["--config.model.rope.typ=yarn"], "no field 'model.rope.typ'"),
        (BASE, ["--config.train.steps=1.5"], "train.steps=1.5.*1.5 is no whole number"),
        (BASE, ["--config.train.steps=many"], "steps=many: 'many' is no whole number,"),
        (BASE, ["--config.train.steps="], "train.steps=: '' is no whole number, such"),
        (BASE, ["--config.train.steps=inf"], "train.steps=inf: inf is no whole number"),
        (BASE, ["--config.train.steps=None"], "'None' is no whole number"),
        (
            BASE,
            ["--config.optim.learning_rate=fast"],
            "rate=fast: 'fast' is no number,",
        ),
        (BASE, ["--config.model.pre_norm=yes"], "pre_norm=yes: 'yes' is neither true"),
        (
            BASE,
            ["--config.model.pre_norm=2"],
            "pre_norm=2: '2' is neither true nor fal",
        ),
        (BASE, ["--config.train.steps=1", "5"], "'5' is no argument"),
        (f"{BASE}:task=x", [], "takes no argument, got 'task=x'"),
        (f"{CHE}:taks=bucket_sort", [], "no argument 'taks'.*Did you mean task"),
        (f"{CHE}:TASK=bucket_sort", [], "no argument 'TASK'.*Did you mean task"),
        (f"{CHE}:bucket_sort", [], "'bucket_sort' .* is not name=value"),
        (f"{CHE}:task=a,task=b", [], "gives task twice"),
        (
            "configs/cheh.py",
            [],
            "no file 'configs/cheh.py'. Did you mean 'configs/che.p",
        ),
        (str(ROOT / "configs" / "arguments.py"), [], "defines no get_config"),
    ],
)
def test_slips_are_answered_with_what_is_nearest(config, texts, message, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(ValueError, match=message):
        overrides.load(config, texts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["--wrkdir=x"], "no option '--wrkdir'. Did you mean '--workdir'"),
        (["--workdir=x"], "--config is missing"),
        ([f"--config={BASE}"], "--workdir is missing"),
        (["--config"], "expected one argument"),
        (["--confg.train.steps=5"], "no option '--confg.train.steps'"),
        # Fields of the config without the word config before them.
        (["--train.steps=5"], r"'--train.steps'. Did you mean --config.train.steps\?"),
        (["--steps=5"], r"Did you mean --config.train.steps\?"),
        (["--seed=5"], "Did you mean --config.eval.seed or --config.train.seed"),
        (["--rope.typ=yarn"], r"no option '--rope.typ'.$"),
    ],
)
def test_options_of_the_command_itself_are_checked(texts, message):
    with pytest.raises(command.UsageError, match=message):
        main.main(texts)


def test_numbers_of_options_are_written_as_those_of_fields_are():
    parser = command.parser("")
    parser.add_argument("--samples", type=command.whole_number)
    for text, number in {"512": 512, "2e4": 20_000, "1_000": 1000, "-1": -1}.items():
        assert command.parse(parser, [f"--samples={text}"])[0].samples == number
    for text in ("1.5", "many", "", "inf"):
        with pytest.raises(command.UsageError, match="--samples: .* no whole number"):
            command.parse(parser, [f"--samples={text}"])


def test_errors_are_one_line_and_code_two_and_nothing_is_written(tmp_path):
    workdir = tmp_path / "run"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "experiments.main",
            f"--config={CHE}:encoding=yarm",
            f"--workdir={workdir}",
            f"--compile_cache={tmp_path / 'compiled'}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: encoding.name='yarm' is unknown.")
    assert not workdir.exists()
    assert not list(tmp_path.rglob("*-cache"))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("train.seed=2147483648", "train.seed must be in 0 .. 2147483647"),
        ("optim.b2=1.5", "optim.b2 must be in [0, 1), got 1.5"),
        ("encoding.options=max_wavelength=1e999", "max_wavelength must be a finite"),
    ],
)
def test_what_is_out_of_range_is_refused_before_a_folder_is_made(
    field, message, tmp_path, capsys
):
    workdir = tmp_path / "run"
    texts = [f"--config={BASE}", f"--workdir={workdir}", f"--config.{field}"]
    assert stopped_by(lambda: main.main(texts)) == 2
    assert message in capsys.readouterr().err
    assert not workdir.exists()


def raises(error):
    raise error


@pytest.fixture(autouse=True)
def unheeded(monkeypatch):
    """Commands that run in this process leave it the signals."""
    monkeypatch.setattr(command.preemption, "heed_sigterm", lambda: None)


def stopped_by(main) -> int:
    with pytest.raises(SystemExit) as stopped:
        command.run(main)
    return stopped.value.code


def test_what_a_person_can_mend_is_one_message(capsys):
    assert stopped_by(lambda: lengths.parse("x")) == 2
    assert capsys.readouterr().err.startswith("error: cannot read 'x' in lengths")
    assert stopped_by(lambda: raises(StoppedError("stopped at step 5"))) == 130
    assert capsys.readouterr().err == "stopped at step 5\n"
    assert stopped_by(lambda: raises(KeyboardInterrupt())) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_a_device_that_is_out_of_memory_is_one_message_with_remedies(capsys):
    assert stopped_by(lambda: jax.block_until_ready(jnp.zeros(10**13))) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: the device is out of memory (Out of memory alloc")
    assert said.count("\n") == 1
    assert "train.accumulate=4" in said


def test_an_error_of_a_library_keeps_its_traceback():
    with pytest.raises(ValueError, match="not JSON|Expecting value"):
        command.run(lambda: json.loads("nothing"))


def test_list_has_one_line_for_everything(capsys):
    assert main.main(["--list"]) == 0
    printed = capsys.readouterr().out
    for catalogue in (TASKS, ENCODINGS, POSITIONS, CURRICULA, OPTIMIZERS):
        for name, cls in catalogue.items():
            assert f"  {name:<28} {cls.summary}\n" in printed
            assert cls.summary
    assert "max_position=2048, per_sequence=False, per_layer=False" in printed
    assert "train_length=40" not in printed  # runs give their own
    assert "train_length=the run's, beta_fast=32.0" in printed
    assert "max_length" not in printed.partition("curricula (")[2]


def test_help_explains_every_field_and_lists_every_name(capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main(["--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    for field in overrides.all_fields(base.get_config()):
        line = next(line for line in printed.splitlines() if f"  {field} " in line)
        assert len(line.split()) >= 3
    for name in ("reverse_string", "transformer_xl", "evenly_spaced", "--workdir"):
        assert name in printed


@pytest.mark.parametrize(
    "name",
    [
        *("analysis.__main__", "catalogue.__main__", "evaluation_sets.__main__"),
        *("gallery.__main__", "quickstart", "replay"),
    ],
)
def test_what_is_no_option_is_not_left_out_in_silence(name):
    program = importlib.import_module(f"experiments.{name}")
    words = ["folder", "rope"] if name.startswith("analysis") else ["rope"]
    with pytest.raises(command.UsageError, match="'rope' is no argument of this com"):
        program.main(words)
