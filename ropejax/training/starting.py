"""Training that begins with parameters of an earlier one: fine-tuning.

Their model must have the same parameters; what has none may differ: positions, the
length, RoPE and its extensions, the task where its alphabets are as large. Steps are
counted anew, and so are the schedule's; the optimizer begins with an empty state.
"""

from functools import partial

import jax
import jax.numpy as jnp

from ropejax.nn.parameters import check_fit, named
from ropejax.training.step import Recipe, TrainState, init_state, placed
from ropejax.typing import Params


def start_from(
    recipe: Recipe,
    params: Params,
    *,
    seed: int = 0,
    length_seed: int | None = None,
    allow_new: bool = False,
) -> TrainState:
    """Returns the state before the first step, with given parameters.

    Args:
        recipe: what is trained, and how.
        params: of a model with the same parameters; they are copied.
        seed: determines data, positions and dropout.
        length_seed: determines the lengths; `seed` if None.
        allow_new: whether the recipe's model may have further parameters, such as
            learned factors on logits; they begin as the model and the seed say.

    Returns:
        The state at step 0, spread over the recipe's mesh if it has one.

    Raises:
        ValueError: if the recipe's model has other parameters, with their names.
    """
    make = partial(init_state, recipe, seed, length_seed)
    wanted = make().params if allow_new else jax.eval_shape(make).params
    params = renamed(params, wanted, allow_new=allow_new)
    return begun(recipe, params, seed, length_seed)


@partial(jax.jit, static_argnames="recipe")
def begun(recipe: Recipe, params: Params, seed, length_seed) -> TrainState:
    """Returns the state before the first step, with parameters that fit the model.

    Args:
        recipe: what is trained, and how.
        params: as the model has them.
        seed: see `start_from`.
        length_seed: see `start_from`.
    """
    state = init_state(recipe, seed, length_seed)
    params = jax.tree.map(jnp.copy, params)  # training reuses the state's buffers
    opt_state = recipe.optimizer.init(params)
    return placed(recipe, state._replace(params=params, opt_state=opt_state))


def renamed(params: Params, wanted: Params, *, allow_new: bool = False) -> Params:
    """Returns parameters in the tree of another model, by their names.

    Args:
        params: arrays.
        wanted: arrays of the same names, or their shapes and dtypes.
        allow_new: take those of `wanted`, arrays then, that are absent.

    Raises:
        ValueError: if names, shapes or dtypes differ.
    """
    check_fit(params, wanted, allow_new=allow_new)
    mine = named(params)
    leaves = [jnp.asarray(mine.get(name, leaf)) for name, leaf in named(wanted).items()]
    return jax.tree.unflatten(jax.tree.structure(wanted), leaves)
