"""A config.json that is no config any more is told in one line, wherever it is read."""

import json

import pytest

from configs import base
from experiments import main, replay
from experiments.evaluate import evaluate_run
from experiments.running import workdir

CONFIG = workdir.plain(base.get_config())
LACKING = {name: value for name, value in CONFIG.items() if name != "mesh"}
NO_CONFIG = [
    ("{", "Expecting property name"),
    ("[1]", "it holds a list, and no config"),
    ("null", "it holds a NoneType, and no config"),
    ("{}", "train.steps must be a number, and is None"),
    ('{"train": [1]}', "train.steps must be a number, and is None"),
    ('{"train": {"steps": "many"}}', "train.steps must be a number, and is 'many'"),
    (b"\xff\xfe", "can't decode byte"),
]


def message(folder, reason):
    return (
        rf"{folder}/config.json cannot be read \(.*{reason}.*\)\. Remove it, and repeat"
    )


@pytest.mark.parametrize(("content", "reason"), NO_CONFIG)
def test_what_is_no_config_is_told_in_one_line(tmp_path, content, reason):
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "config.json").write_bytes(content)
    for read in (
        lambda: workdir.check_same(tmp_path, CONFIG),
        lambda: replay.replay(tmp_path),
        lambda: evaluate_run(tmp_path),
    ):
        with pytest.raises(ValueError, match=message(tmp_path, reason)):
            read()


def test_a_checkpoint_of_hugging_face_is_not_called_damaged(tmp_path):
    """It was advised to remove its config."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ValueError, match=r"Hugging Face .*folder in model.pretrained"):
        workdir.read_config(tmp_path)


def test_a_folder_of_that_name_is_told_in_one_line(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ValueError, match=message(tmp_path, "Is a directory")):
        workdir.check_same(tmp_path, CONFIG)


def test_a_folder_that_cannot_be_looked_into_is_told_in_one_line(tmp_path):
    """Nothing in it is damaged, so nothing is to be removed."""
    folder = tmp_path / ("n" * 300)
    for read in (lambda: workdir.check_same(folder, CONFIG), lambda: run_at(folder)):
        with pytest.raises(ValueError, match=r"too long\)\. Choose another folder"):
            read()


def run_at(folder):
    return main.main([f"--workdir={folder}"])


def test_fields_that_a_run_needs_are_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LACKING))
    lacking = r"it lacks mesh\.data, mesh\.fsdp, .* and \d+ more"
    with pytest.raises(ValueError, match=message(tmp_path, lacking)):
        replay.replay(tmp_path)


def test_a_whole_config_is_read_as_it_was_written(tmp_path):
    workdir.write_config(tmp_path, CONFIG)
    assert workdir.whole_config(tmp_path) == CONFIG
    assert workdir.whole_config(tmp_path / "none") is None
