"""The optimizer that a config names: one of the catalogue, or a function of one's own.

Learning rate, schedule and clipping apply to all of them. What else stands in `optim`
does nothing with some: there it must stay at its default.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from ml_collections import ConfigDict

from configs import base
from experiments.building import options
from experiments.building.fitting import fitted
from experiments.building.imported import imported_function, is_path
from experiments.building.naming import named_in
from experiments.building.nearest import nearest
from ropejax.training import (
    OPTIMIZERS,
    Numbers,
    Optimizer,
    OptimizerFamily,
    OwnOptimizer,
    Recipe,
)
from ropejax.training.own_optimizer import MASKS, arguments

_OF_ALL = ("learning_rate", "max_grad_norm")
_NAME, _OPTIONS = "optim.name", "optim.options"


def is_own(name: str) -> bool:
    """Returns whether the name of an optimizer is the path of an import."""
    return is_path(name) and "(" not in name


def make_optimizer(config: ConfigDict) -> optax.GradientTransformation:
    """Returns the optimizer of a config, with its schedule and clipping.

    Raises:
        ValueError: if a name, an option or a number is unknown or out of range, or a
            number does nothing with it.
    """
    optim = config.optim
    if optim.max_grad_norm < 0:
        raise ValueError(
            "optim.max_grad_norm must be positive, or 0 for no clipping, got "
            f"{optim.max_grad_norm}."
        )
    with named_in(config, "optim"):
        return make_family(config)(numbers_of(config))


def make_family(config: ConfigDict | Mapping[str, Any]) -> OptimizerFamily:
    """Returns the optimizer of a config but for its numbers.

    Raises:
        ValueError: as `make_optimizer`.
    """
    config = ConfigDict(config)
    optim, optimizer = config.optim, _make_settings(config)
    return OptimizerFamily(
        steps=config.train.steps,
        warmup_steps=optim.warmup_steps,
        final_fraction=optim.final_fraction,
        clips=optim.max_grad_norm != 0,
        decays=optim.weight_decay != 0 and "weight_decay" in optimizer.heeds,
        optimizer=optimizer,
    )


def numbers_of(config: ConfigDict | Mapping[str, Any]) -> Numbers:
    """Returns those numbers of a config in which members of a population may differ."""
    optim = config["optim"]
    return Numbers(
        optim["learning_rate"],
        # That of one's own is one of its settings.
        weight_decay=0.0 if is_own(optim["name"]) else optim["weight_decay"],
        max_grad_norm=optim["max_grad_norm"],
        b1=optim["b1"],
        b2=optim["b2"],
        eps=optim["eps"],
    )


def check_step(config: ConfigDict, recipe: Recipe) -> None:
    """Raises ValueError where an optimizer of one's own cannot be trained with.

    Some want more than gradients, parameters and the loss, as a function of it. Those
    without a schedule want other parameters scored than those that are trained.

    Args:
        config: the config.
        recipe: what it says is trained.
    """
    if not is_own(config.optim.name):
        return
    optimizer = optax.with_extra_args_support(recipe.optimizer)

    def step(params):
        state = optimizer.init(params)
        updates, _ = optimizer.update(params, state, params, value=jnp.float32(0))
        return state, optax.apply_updates(params, updates)

    params = jax.eval_shape(recipe.model.init, jax.random.key(0))
    try:
        state, _ = jax.eval_shape(step, params)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{_NAME}={config.optim.name} cannot take a step from gradients, "
            f"parameters and the loss (value): {error}"
        ) from error
    is_free = lambda part: isinstance(part, optax.contrib.ScheduleFreeState)
    if any(map(is_free, jax.tree.leaves(state, is_leaf=is_free))):
        raise ValueError(
            f"{_NAME}={config.optim.name} is schedule-free: it wants an average of "
            "parameters scored (schedule_free_eval_params), which nothing here does."
        )


def _make_settings(config: ConfigDict) -> Optimizer:
    name = config.optim.name
    given = options.parse(config.optim.options, _OPTIONS)
    if is_own(name):
        function = imported_function(name, _NAME)
        _check_unheeded(config, ("weight_decay",))
        return OwnOptimizer(
            function,
            tuple(sorted(_own_options(name, function, given).items())),
            config.optim.weight_decay,
        )
    own = "a function of a learning rate, by its import: my_module.my_optimizer"
    cls = options.look_up(name, OPTIMIZERS, _NAME, own=own)
    _check_unheeded(config, cls.heeds)
    for field in Numbers._fields:
        if field in given and (field in cls.heeds or field in _OF_ALL):
            raise ValueError(f"{_OPTIONS}: {field} is set as optim.{field}.")
    return options.construct(cls, given, _OPTIONS)


def _check_unheeded(config: ConfigDict, heeded: tuple[str, ...]) -> None:
    """Raises ValueError for a number that would do nothing, were it not the default."""
    usual = base.get_config().optim
    for field in Numbers._fields:
        if field in (*heeded, *_OF_ALL) or config.optim[field] == usual[field]:
            continue
        raise ValueError(
            f"optim.{field}={config.optim[field]} does nothing with "
            f"{_NAME}={config.optim.name}; set it back to {usual[field]}. Its own "
            f"settings are given in {_OPTIONS}."
        )


def _own_options(name: str, function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options as a function of one's own takes them; refuses what it lacks."""
    try:
        taken = arguments(function)
    except ValueError as error:
        raise ValueError(f"{_NAME}={name!r}: {error}") from None
    known = [one for one in taken if one not in ("weight_decay", *MASKS)]
    kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    values = {}
    for option, value in given.items():
        if option in ("learning_rate", "weight_decay"):
            raise ValueError(f"{_OPTIONS}: {option} is set as optim.{option}.")
        if option in MASKS:
            raise ValueError(
                f"{_OPTIONS}: {option} is given to {name} already: projection kernels."
            )
        if option not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise ValueError(
                f"{_OPTIONS}: {name} has no setting {option!r}.{nearest(option, known)}"
                f" Its settings: {', '.join(known) or 'none'}."
            )
        shown = f"{_OPTIONS}: {option}"
        values[option] = fitted(value, _kind(taken.get(option), value), shown)
    return values


def _kind(parameter: inspect.Parameter | None, value: Any) -> Any:
    """Returns the type that an argument has by its annotation, or by its default."""
    if parameter is None or value is None:
        return object
    if parameter.annotation in (bool, int, float, str):
        return parameter.annotation
    default = parameter.default
    if isinstance(default, bool):
        return bool
    return float if isinstance(default, int | float) else object
