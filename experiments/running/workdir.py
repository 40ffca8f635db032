"""The folder of one run: its config, and that nothing else is ever put there.

config.json         every setting, as first written (train.steps may grow)
checkpoints/        the newest and the best state
init_from.json      the run whose parameters it began with, if it did
text.json           the hash of the file that it reads, if it reads one
results/            rows: the run, its training curve, its scores by length
tensorboard/        the training curve, for TensorBoard
profile/            a trace, if one was asked for
nonfinite/          steps whose loss or gradient was not finite, if there were any
"""

import fcntl
import hashlib
import json
import os
import pathlib
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ml_collections import ConfigDict

CHECKPOINTS = "checkpoints"
STUDY = "study.json"
"""What the folder of a study has, and that of a run has not."""

FREE = (
    "study",
    "title",
    "task.title",
    "positions.title",
    "encoding.title",
    "train.steps",
    "train.steps_per_dispatch",
    "train.log_every",
    "train.save_every",
    "train.keep",
    "train.accumulate",
    "model.remat",
    "mesh.",
    "eval.",
)
"""Beginnings of fields that may change from one command on a folder to the next."""

ADDED = types.MappingProxyType(
    {
        "title": "",
        "task.title": "",
        "optim.name": "adam",
        "optim.options": "",
        "train.init_from": "",
        "train.init_new": False,
        "train.progressive_weight": 0.0,
        "train.gradient_loops": None,
        "mesh.sequence_order": "consecutive",
        "model.pretrained": "",
        "model.mask": "",
        "model.normalizer": "softmax",
        "model.normalizer_options": "",
        "model.qk_norm": "none",
        "model.qk_norm_options": "",
        "model.row_scale": "none",
        "model.row_scale_options": "",
        "model.token_shift": "none",
        "model.token_shift_options": "",
        "model.output_gate": "none",
        "model.output_gate_options": "",
        "model.attention_dropout": 0.0,
        "model.attention_scale": None,
        "model.output_norm": False,
        "model.residual_scale": 1.0,
        "model.embedding_norm": False,
        "model.head_dim": None,
        "model.qkv_bias": False,
        "model.out_bias": False,
        "model.parallel": False,
        "model.mlp": "plain",
        "model.mlp_options": "",
        "model.mlp_dim": None,
        "model.norm": "layer",
        "model.norm_options": "",
        "model.embedding_scale": None,
        "model.readout": "linear",
        "model.readout_options": "",
    }
)
"""Fields that configs of earlier versions lack, and the values that mean what those
did: with these, a run keeps its name, and is found again."""


def plain(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config as JSON would hold it."""
    values = config.to_dict() if isinstance(config, ConfigDict) else config
    return json.loads(json.dumps(values))


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the fields of a config by dotted name."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields


def config_hash(config: Mapping[str, Any]) -> str:
    """Returns eight hexadecimal digits, from the fields that alter training."""
    fields = {
        name: value
        for name, value in flat(config).items()
        if not name.startswith(FREE) and (name not in ADDED or value != ADDED[name])
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]


def check_same(workdir: pathlib.Path, config: Mapping[str, Any]) -> None:
    """Raises ValueError if the folder holds a run of another config, or a study.

    Where config.json is gone, its config is what the checkpoints say. A larger
    `train.steps`, and fields that alter no step (logging, saving, evaluation), may
    differ.
    """
    if os.path.exists(workdir / STUDY):
        raise ValueError(
            f"the workdir {workdir} holds a study ({STUDY}), whose results those of a "
            "run would be mixed with; choose another --workdir."
        )
    found = read_config(workdir) or _config_of_checkpoints(workdir)
    if found is None:
        return
    there, here = flat(found), flat(config)
    lines = [
        f"{name} is {there.get(name, 'absent')!r} there "
        f"and {here.get(name, 'absent')!r} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name) and not name.startswith(FREE)
    ]
    if there.get("train.steps", 0) > here["train.steps"]:
        lines.append(
            f"train.steps={here['train.steps']} is below the {there['train.steps']} "
            "there (a larger one extends the run)"
        )
    if lines:
        raise ValueError(
            f"the workdir {workdir} holds a run of another config: {'; '.join(lines)}. "
            "Choose another --workdir, or repeat the command that made this one."
        )


def read_config(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Returns the config of a folder, None if it holds no run.

    What a config of an earlier version lacks is filled in (`ADDED`).

    Raises:
        ValueError: if the file cannot be read, or is no config.
    """
    path = pathlib.Path(workdir) / "config.json"
    try:
        config = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError as error:
        raise _unreadable(path, error.strerror) from None
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}). Choose another folder, or have "
            "this one made readable."
        ) from None
    except ValueError as error:
        raise _unreadable(path, error) from None
    if not isinstance(config, Mapping):
        raise _unreadable(path, f"it holds a {type(config).__name__}, and no config")
    if "model_type" in config:
        raise ValueError(
            f"{path} is of a Hugging Face checkpoint, and of no run of ropejax: "
            "name its folder in model.pretrained (configs/pretrained.py)."
        )
    train = config.get("train")
    steps = train.get("steps") if isinstance(train, Mapping) else None
    if not isinstance(steps, int):
        raise _unreadable(path, f"train.steps must be a number, and is {steps!r}")
    return completed(config)


def whole_config(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Returns the config of a folder, None if it holds no run; see `read_config`.

    Raises:
        ValueError: also if the config lacks fields that make a run.
    """
    from configs import base

    config = read_config(workdir)
    if config is None:
        return None
    lacking = sorted(flat(plain(base.get_config())).keys() - flat(config).keys())
    if lacking:
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        path = pathlib.Path(workdir) / "config.json"
        raise _unreadable(path, f"it lacks {', '.join(lacking[:5])}{more}")
    return config


def _unreadable(path: pathlib.Path, reason: object) -> ValueError:
    return ValueError(
        f"{path} cannot be read ({reason}). Remove it, and repeat the command that "
        "made the run, which writes it again."
    )


def trained_steps(workdir: pathlib.Path) -> int:
    """Returns the step of the newest checkpoint of a folder, 0 without any."""
    return max(steps_of_checkpoints(workdir), default=0)


def has_checkpoints(workdir: pathlib.Path) -> bool:
    """Returns whether a folder has a checkpoint, of whatever step."""
    return bool(steps_of_checkpoints(workdir))


def steps_of_checkpoints(workdir: pathlib.Path) -> list[int]:
    """Returns the steps of the checkpoints in a folder, in order."""
    names = [path.name for path in (pathlib.Path(workdir) / CHECKPOINTS).glob("*")]
    return sorted(int(name) for name in names if name.isdigit())


def _config_of_checkpoints(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Returns the config that the newest checkpoint with one was saved with."""
    steps = steps_of_checkpoints(workdir)
    if not steps:
        return None
    from ropejax.training.checkpoint import Checkpoints  # imports Orbax: seconds

    try:
        checkpoints = Checkpoints(pathlib.Path(workdir) / CHECKPOINTS, read_only=True)
    except ValueError:
        return None  # damaged, which training mends and tells of
    try:
        for step in reversed(steps):
            try:
                return completed(checkpoints.metadata(step)["config"])
            except (OSError, ValueError, KeyError):
                continue  # damaged, or of a program of one's own
    finally:
        checkpoints.close()
    return None


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a plain config with what those of earlier versions lack (`ADDED`)."""
    made = dict(config)
    for name, value in ADDED.items():
        group, dot, field = name.partition(".")
        if not dot:
            made.setdefault(name, value)
        elif isinstance(made.get(group), Mapping):
            made[group] = {field: value} | dict(made[group])
    return made


def write_config(workdir: pathlib.Path, config: Mapping[str, Any]) -> None:
    """Writes config.json, whole or not at all."""
    path = workdir / "config.json"
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(config, indent=2) + "\n")
    os.replace(temporary, path)


@contextmanager
def locked(workdir: pathlib.Path) -> Iterator[None]:
    """Holds the folder for this process; it is free again however the process ends.

    Raises:
        ValueError: if another process trains there.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    with open(workdir / ".lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"another process is training in {workdir}; wait for it, or choose "
                "another --workdir."
            ) from None
        yield
