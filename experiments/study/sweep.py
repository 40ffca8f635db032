"""From a study's config file to its runs, and which of them share a program.

A study is a config file with `get_config`, all settings that its runs share, and
`get_sweep`, a list of the fields that each run changes (`configs/sweep.py`). Runs that
differ in seeds and numbers of the optimizer alone are a group: they are trained by one
compiled program.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.building import overrides
from experiments.building.fields import check_fields, check_name
from experiments.building.optimizers import is_own
from experiments.building.tested_positions import label_at_test
from experiments.running import labels, workdir

MEMBER_FIELDS = (
    "train.seed",
    "optim.learning_rate",
    "optim.weight_decay",
    "optim.max_grad_norm",
    "optim.b1",
    "optim.b2",
    "optim.eps",
)
"""Fields in which members of one program may differ."""
OWN_MEMBER_FIELDS = MEMBER_FIELDS[:2] + ("optim.max_grad_norm",)
"""The same under an optimizer of one's own, which takes no traced numbers."""
_SWITCHES = ("optim.weight_decay", "optim.max_grad_norm")  # zero is another program
_EVALUATION = "eval."


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One model of a study, and how it is scored.

    Attributes:
        run_id: its name, in the results and as a folder.
        config: all settings, plain.
        evaluations: the settings `eval` under which it is scored: one, unless points
            of the sweep differ in nothing else.
        group: name of its group.
        rank: which seed, and which choice of numbers, it is in its group.
    """

    run_id: str
    config: Mapping[str, Any]
    evaluations: tuple[Mapping[str, Any], ...]
    group: str
    rank: tuple[int, int]


def load(config_file: str, fields: Sequence[str] = ()) -> tuple[list[StudyRun], int]:
    """Returns the runs of a study's file, and how many points said the same again.

    Args:
        config_file: path of the file, and behind a colon its argument, if any.
        fields: `--config.group.field=value`, for all runs.

    Raises:
        ValueError: if the file defines no study, or a field or a value cannot be.
    """
    base = overrides.load(config_file, fields)
    name, _, argument = config_file.partition(":")
    module = overrides.load_module(pathlib.Path(name))
    if not hasattr(module, "get_sweep"):
        raise ValueError(
            f"{name} defines no get_sweep, so it is one run and no study; train it "
            "with python -m experiments.main, or see configs/studies."
        )
    points = _points(module.get_sweep(argument), name)
    given = set(overrides.paths(fields))
    for field in sorted({field for point in points for field in point} & given):
        raise ValueError(
            f"--config.{field} cannot be set: the sweep of {name} sets it for each run."
        )
    return expand(base, points)


def _points(returned: Any, name: str) -> list[Mapping[str, Any]]:
    """Returns the points that a file's get_sweep gave, in whatever kind of list.

    Raises:
        ValueError: if they are no list of points.
    """
    wrong = returned
    if isinstance(returned, Iterable) and not isinstance(returned, Mapping | str):
        points = list(returned)
        others = [point for point in points if not _is_point(point)]
        if not others:
            return points
        wrong = others[0]
    raise ValueError(
        f"get_sweep of {name} must return a list of points, each with the fields that "
        f"a run changes, such as [{{'train.seed': 0}}]; got {wrong!r} "
        f"({type(wrong).__name__}). configs/sweep.py makes such lists."
    )


def _is_point(point: Any) -> bool:
    return isinstance(point, Mapping) and all(isinstance(name, str) for name in point)


def expand(
    base: ConfigDict, points: Sequence[Mapping[str, Any]]
) -> tuple[list[StudyRun], int]:
    """Returns one run for each different point, in their order.

    Points that give the same config are merged into one run, and so are points that
    differ in `eval` fields only: one model, scored several times.

    Args:
        base: what all runs share; `train.length_seed` becomes 0 where it is not given,
            since members of one program share the lengths of their steps.
        points: the fields that each run changes.

    Returns:
        The runs, and how many points were merged as the same config.

    Raises:
        ValueError: for an unknown field, a value of another type, no points, or two
            points that one folder cannot hold.
    """
    if not points:
        raise ValueError("the sweep has no points; get_sweep must return at least one.")
    plain_base = workdir.plain(base)
    if plain_base["train"]["length_seed"] is None:
        plain_base["train"]["length_seed"] = 0
    checked = _Checked(base)
    by_id: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        config = _with_fields(plain_base, checked.values(point))
        by_id.setdefault(labels.run_id(config), []).append(config)
    merged, runs = 0, []
    for run_id, configs in by_id.items():
        first = configs[0]
        evaluations = []
        for config in configs:
            _check_same_training(run_id, first, config)
            if config["eval"] in evaluations:
                merged += 1
            else:
                evaluations.append(config["eval"])
        _check_told_apart(run_id, first, evaluations)
        runs.append(
            StudyRun(run_id, first, tuple(evaluations), group_of(first), (0, 0))
        )
    return _ranked(runs), merged


def group_of(config: Mapping[str, Any]) -> str:
    """Returns the name of a config's group: what its program is compiled from."""
    fields = workdir.flat(config)
    members = OWN_MEMBER_FIELDS if is_own(fields["optim.name"]) else MEMBER_FIELDS
    fixed = {
        name: value
        for name, value in fields.items()
        if name not in members
        and not name.startswith(_EVALUATION)
        and not name.endswith("title")
    }
    switches = {name: fields[name] != 0 for name in _SWITCHES}
    return json.dumps([fixed, switches], sort_keys=True)


def _ranked(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """Numbers the seeds, and the choices of numbers, within each group."""
    seeds: dict[str, dict[int, int]] = collections.defaultdict(dict)
    choices: dict[str, dict[tuple, int]] = collections.defaultdict(dict)
    ranked = []
    for run in runs:
        optim = run.config["optim"]
        choice = tuple(sorted(optim.items()))
        seed_ranks, choice_ranks = seeds[run.group], choices[run.group]
        rank = (
            seed_ranks.setdefault(run.config["train"]["seed"], len(seed_ranks)),
            choice_ranks.setdefault(choice, len(choice_ranks)),
        )
        ranked.append(dataclasses.replace(run, rank=rank))
    return ranked


class _Checked:
    """Checks names and types of fields by a config, each pair of both only once."""

    def __init__(self, base: ConfigDict):
        self._base = base
        self._fields = list(overrides.all_fields(base))
        self._known: dict[tuple[str, str], Any] = {}

    def values(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the point's values as the config would hold them."""
        return {name: self._value(name, value) for name, value in point.items()}

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()  # of np.arange, np.logspace
        key = name, repr(value)
        if key not in self._known:
            try:
                check_name(name, self._fields)
            except ValueError as error:
                raise ValueError(f"the sweep sets {name!r}: {error}") from None
            trial = self._base.copy_and_resolve_references()
            try:
                check_fields(_with_fields(trial.to_dict(), {name: value}))
                trial.update_from_flattened_dict({name: value})
            except (TypeError, ValueError) as error:
                raise ValueError(f"the sweep's {name}={value!r}: {error}") from None
            self._known[key] = workdir.flat(workdir.plain(trial))[name]
        return self._known[key]


def _with_fields(
    config: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, Any]:
    changed = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in config.items()
    }
    for name, value in fields.items():
        group, _, field = name.rpartition(".")
        (changed[group] if group else changed)[field] = value
    return changed


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    here, there = workdir.flat(one), workdir.flat(other)
    return (name for name in here if here[name] != there[name])


def _check_same_training(
    run_id: str, first: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    names = [n for n in _differing(first, config) if not n.startswith(_EVALUATION)]
    if "train.steps" in names:
        raise ValueError(
            f"two points of the sweep are one run ({run_id}) of other train.steps, "
            f"{first['train']['steps']} and {config['train']['steps']}: a longer "
            "training goes on in the folder of the shorter one. Make them two studies, "
            "each with a --workdir of its own (--config.study=..., "
            "--config.train.steps=...); a report of both folders tells them apart."
        )
    if names:
        raise ValueError(
            f"two points of the sweep train the same model ({run_id}) but differ in "
            f"{', '.join(names)}, which alters no step. Leave one out, or make them "
            "two studies."
        )


def _check_told_apart(
    run_id: str, config: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]]
) -> None:
    """Reports count one evaluation of a run at given test-time positions."""
    if len(evaluations) == 1:
        return
    names = [label_at_test({**config, "eval": one}) for one in evaluations]
    if len(set(names)) < len(names):
        raise ValueError(
            f"two evaluations of one model ({run_id}) are at the same positions "
            f"({', '.join(names)}), so their results could not be told apart in a "
            "report, which counts one of them; leave one out, or make them two studies."
        )
