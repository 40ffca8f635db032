"""From the sizes of a model to its initial parameters, and back to the model."""

import functools
from typing import Any

import jax
from flax import nnx

from ropejax.nn.parameters import check_fit
from ropejax.typing import Params, Rng


class Keys:
    """Gives modules the keys that `nnx.Rngs(rng)` gives them, counted in Python.

    `nnx.Rngs` counts in an array. While a function is traced, as models' init is, each
    of its updates makes JAX write an error message that nobody reads: half of the time
    that it takes to trace a model.

    Args:
        rng: PRNG key, from which all follow.
    """

    def __init__(self, rng: Rng):
        self._rng = rng
        self._given = 0

    def params(self) -> Rng:
        """Returns a key that was not given before."""
        self._given += 1
        return jax.random.fold_in(self._rng, self._given - 1)


@functools.partial(jax.jit, static_argnums=(0, 1))
def initial(model: type[nnx.Module], spec: Any, rng: Rng) -> Params:
    """Returns initial parameters of a model: a tree of dicts, float32.

    Args:
        model: makes a module of a spec and `rngs`.
        spec: its sizes.
        rng: PRNG key.
    """
    return nnx.to_pure_dict(nnx.split(model(spec, rngs=Keys(rng)))[1])


def bound(model: type[nnx.Module], spec: Any, params: Params) -> nnx.Module:
    """Returns a model with given parameters; the arguments are those of `initial`.

    Raises:
        ValueError: if they are not the model's, with the names that differ.
    """
    try:
        return nnx.merge(_structure(model, spec), params)
    except ValueError:
        make = functools.partial(initial, model, spec)
        check_fit(params, jax.eval_shape(make, jax.random.key(0)))
        raise


@functools.lru_cache(maxsize=256)
def _structure(model: type[nnx.Module], spec: Any) -> nnx.GraphDef:
    """What a model is without its parameters: found once, not in every trace of it."""
    make = lambda: model(spec, rngs=Keys(jax.random.key(0)))
    return nnx.split(nnx.eval_shape(make))[0]
