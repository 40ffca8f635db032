"""The model and the task at test time: what a config's fields say differently there.

The parameters are those that were trained, so what is changed has none of its own:
RoPE's extensions and distance maps, the factor log n, masks by layers, how often layers
are looped; and of a task what keeps its alphabet, such as the number of operands.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from configs import base
from experiments.building import options
from experiments.building.build import make_model
from experiments.building.fields import all_fields, check_fields, check_name
from experiments.building.methods import make_task
from ropejax.nn.layer_stacks import restacked
from ropejax.nn.parameters import check_fit
from ropejax.tasks import Task
from ropejax.training import Recipe
from ropejax.training.starting import renamed
from ropejax.typing import Params

FLAG = "--config."
_ELSEWHERE = {
    "positions": "set --positions",
    "eval": "set --lengths, --positions, --samples, --draws or --seed",
    "mesh": "set --mesh",
}
"""Groups of fields that are no matter of model or task, and what to do instead."""
_OF_TRAINING = ("dropout", "attention_dropout", "remat", "scan_layers")
"""Fields of `model` that alter nothing at test."""
_OF_MODEL = ("kind", "pretrained")
"""Fields of `model` without which it is another one."""


class Tested(NamedTuple):
    """What is scored.

    Attributes:
        model: the model.
        task: what it is asked.
        label: what results call the encoding, with all that differs; None if nothing
            does.
    """

    model: Any
    task: Task
    label: str | None

    def params(self, trained: Params, before: Any) -> Params:
        """Returns the model's parameters.

        Args:
            trained: those of the model as it was trained.
            before: how that one is made.
        """
        return renamed(restacked(trained, before, self.model), _shapes(self.model))


def make_tested_model(
    config: Mapping[str, Any],
    trained: Recipe,
    fields: Mapping[str, Any],
    encoding_options: str = "",
) -> Tested:
    """Returns a trained model with other settings, and the task likewise.

    Args:
        config: the config that it was trained with, plain.
        trained: its objects.
        fields: those of `task`, `encoding` and `model` that differ, by dotted name.
        encoding_options: settings of the encoding, beside those that it has.

    Raises:
        ValueError: if a field is unknown or no matter of model or task, the model would
            need other parameters than those trained, or the task has another alphabet.
    """
    changed, given = copy.deepcopy(dict(config)), dict(fields)
    where = {name: FLAG + name for name in fields}
    if encoding_options:
        name = "encoding.options"
        if name in given:
            raise ValueError(
                f"--encoding_options and {FLAG}{name} are both given; the first adds "
                "to the settings of training, the second replaces them. Give one."
            )
        given[name] = merged(config["encoding"]["options"], encoding_options)
        where[name] = f"--encoding_options={encoding_options!r}"
    known = list(all_fields(base.get_config()))
    for name, value in given.items():
        check_name(name, known, FLAG)
        _check_matters(name)
        group, _, field = name.partition(".")
        changed[group][field] = value
    check_fields(changed)
    changed = ConfigDict(changed)
    told = ", ".join(where.values())
    own, task = trained.task, trained.task
    model = trained.model
    try:
        if any(not name.startswith("task.") for name in given):
            # What methods take for the trained length is that of the trained task.
            model = make_model(changed, own)
        if any(name.startswith("task.") for name in given):
            task = make_task(changed)
    except ValueError as error:
        raise ValueError(f"{told}: {error}") from None
    try:
        there = jax.eval_shape(
            lambda params: restacked(params, trained.model, model),
            _shapes(trained.model),
        )
    except ValueError as error:
        raise ValueError(f"{told}: {error}") from None
    check_fit(there, _shapes(model), f"{told}: what was trained")
    _check_alphabet(own, task, told)
    if (model, task) == (trained.model, own):
        return Tested(model, task, None)
    return Tested(model, task, _label(config, changed, given))


def merged(own: str, text: str) -> str:
    """Returns settings as text, those of `own` and of `text`, which wins.

    Args:
        own: `name=value, name=value`, or nothing.
        text: likewise.

    Raises:
        ValueError: if the second cannot be read.
    """
    options.split_settings(text, "--encoding_options")
    both = {
        **options.split_settings(own, "encoding.options"),
        **options.split_settings(text, "--encoding_options"),
    }
    return ", ".join(f"{name}={value}" for name, value in both.items())


def _check_matters(name: str) -> None:
    group, _, field = name.partition(".")
    if group in ("task", "encoding", "model") and field != "title":
        if group == "model" and field in (*_OF_MODEL, *_OF_TRAINING):
            raise ValueError(
                f"{FLAG}{name} cannot differ at test: it is a matter of training alone."
            )
        return
    remedy = _ELSEWHERE.get(group, "only fields of task, encoding and model can")
    raise ValueError(f"{FLAG}{name} cannot differ at test; {remedy}.")


def _check_alphabet(trained: Task, tested: Task, told: str) -> None:
    for what, there, here in (
        ("symbols", trained.num_symbols, tested.num_symbols),
        ("outputs", trained.output_vocab, tested.output_vocab),
    ):
        if there != here:
            raise ValueError(
                f"{told}: the task would have {here} {what}, and the model was trained "
                f"with {there}, which mean something else; train a run so instead "
                "(train.init_from)."
            )


def _label(
    config: Mapping[str, Any], changed: ConfigDict, given: Mapping[str, Any]
) -> str:
    """The encoding at test, and behind its settings what else differs."""
    encoding = changed.encoding
    rest = []
    for name, value in given.items():
        group, _, field = name.partition(".")
        if group != "encoding" and value != config[group][field]:
            shown = f"task_{field}" if group == "task" else field
            rest.append(f"{shown}={value!r}")
    return options.with_options(
        encoding.name, ", ".join(filter(None, [encoding.options, *rest]))
    )


def _shapes(model: Any) -> Params:
    return jax.eval_shape(model.init, jax.random.key(0))
