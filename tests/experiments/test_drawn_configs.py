"""Configs that nobody thought of: what is accepted makes a difference.

Fields are set together at random; what `build` refuses is left out. Then each of some
other values, if it is accepted, must change what is trained or scored: the program that
initializes parameters, places tokens, runs the model or takes a step.
"""

import copy
import dataclasses
import functools
import hashlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from configs import base
from experiments.building.build import build
from ropejax.encodings import ENCODINGS
from ropejax.nn import (
    MLPS,
    NORMALIZERS,
    NORMS,
    OUTPUT_GATES,
    QK_NORMS,
    READOUTS,
    ROW_SCALES,
    TOKEN_SHIFTS,
)
from ropejax.nn.patterns import PATTERNS
from ropejax.nn.recurrent import RECURRENT
from ropejax.positions import POSITIONS
from ropejax.tasks import ALL_TASKS
from ropejax.testing.checks import variants
from ropejax.training import CURRICULA
from ropejax.training.applying import apply_model

SMALL = {
    "model.num_layers": 2,
    "model.embed_dim": 16,
    "model.num_heads": 2,
    "train.max_length": 6,
    "train.batch_size": 4,
    "eval.lengths": "1:8",
    "eval.samples": 4,
    "eval.draws": 2,
}
CATALOGUES = {
    "task.name": ALL_TASKS,
    "encoding.name": ENCODINGS,
    "positions.name": POSITIONS,
    "model.pattern": PATTERNS,
    "model.normalizer": NORMALIZERS,
    "model.qk_norm": QK_NORMS,
    "model.row_scale": ROW_SCALES,
    "model.token_shift": TOKEN_SHIFTS,
    "model.output_gate": OUTPUT_GATES,
    "model.norm": NORMS,
    "model.mlp": MLPS,
    "model.readout": READOUTS,
    "train.curriculum": CURRICULA,
}
VALUES = {
    "model.kind": ("encoder", "decoder", "encoder_decoder", *RECURRENT),
    "model.num_layers": (1, 2, 4),
    "model.num_kv_heads": (None, 1),
    "model.head_dim": (None, 4, 6),
    "model.qkv_bias": (False, True),
    "model.out_bias": (False, True),
    "model.mlp_factor": (2, 4),
    "model.mlp_dim": (None, 20),
    "model.activation": ("relu", "gelu", "silu", "tanh"),
    "model.pre_norm": (False, True),
    "model.parallel": (False, True),
    "model.attention_dropout": (0.0, 0.2),
    "model.dropout": (0.0, 0.2),
    "model.loops": (1, 2, 3),
    "model.input_injection": ("none", "loop", "layer"),
    "model.embedding_scale": (None, 1.0),
    "model.dtype": ("float32", "bfloat16"),
    "model.remat": ("none", "full", "dots"),
    "optim.name": ("adam", "sgd", "lion", "adafactor", "muon"),
    "optim.learning_rate": (1e-3, 1e-2),
    "optim.warmup_steps": (0, 2),
    "optim.final_fraction": (1.0, 0.5),
    "optim.weight_decay": (0.0, 0.1),
    "optim.max_grad_norm": (1.0, 0.0, 0.5),
    "optim.b1": (0.9, 0.8),
    "optim.b2": (0.999, 0.9),
    "optim.eps": (1e-8, 1e-6),
    "train.max_length": (4, 6, 7),
    "train.batch_size": (4, 8),
    "train.accumulate": (1, 2),
    "train.buckets": (1, 2, 3),
    "train.length_per_row": (False, True),
    "train.progressive_weight": (0.0, 0.5, 1.0),
    "train.gradient_loops": (None, 1, 2),
    "train.nonfinite": ("stop", "skip", "count"),
    "mesh.data": (1, 2),
    "mesh.fsdp": (1, 2),
    "mesh.sequence": (1, 2),
    "mesh.tensor": (1, 2),
}
OPTIONS = {path: f"{path.removesuffix('.name')}_options" for path in CATALOGUES}
OPTIONS |= {path: path.replace("name", "options") for path in OPTIONS if "name" in path}
FIELDS = (*CATALOGUES, *OPTIONS.values(), *VALUES)


def get(config, path):
    return functools.reduce(lambda found, name: found[name], path.split("."), config)


def with_values(config, values):
    made = copy.deepcopy(config)
    made.update_from_flattened_dict(values)
    return made


def drawn_value(rng, config, path):
    """A value of a field that may be accepted."""
    one_of = lambda things: things[int(rng.integers(len(things)))]
    if path in VALUES:
        return one_of(VALUES[path])
    if path in CATALOGUES:
        return one_of(list(CATALOGUES[path]))
    of = next(name for name, options in OPTIONS.items() if options == path)
    try:
        plain = CATALOGUES[of][get(config, of)]()
    except ValueError:  # it has settings that must be given
        return ""
    others = list(variants(plain))
    if not others:
        return ""
    other = one_of(others)
    names = [field.name for field in dataclasses.fields(other)]
    [name] = [n for n in names if getattr(other, n) != getattr(plain, n)]
    return f"{name}={getattr(other, name)!r}"


def accepted(config):
    try:
        return build(config)
    except ValueError:
        return None


def drawn_config(seed):
    """A config with random values of random fields that `build` accepts together."""
    rng = np.random.default_rng([seed, 11])
    config = with_values(base.get_config(), SMALL)
    first = ("task.name", "encoding.name", "positions.name", "model.kind")
    others = rng.permutation([path for path in FIELDS if path not in first])
    for path in (*first, *others[: int(rng.integers(4, 24))]):
        changed = with_values(config, {path: drawn_value(rng, config, path)})
        config = config if accepted(changed) is None else changed
    return config


def programs(experiment):
    """What is trained and scored: programs by what they say, and plain settings."""
    recipe, evaluation = experiment.recipe, experiment.evaluation
    model, task, length = recipe.model, recipe.task, recipe.curriculum.max_length
    shape = jax.ShapeDtypeStruct
    rng = jax.eval_shape(lambda: jax.random.key(0))
    lengths, step = shape((2,), jnp.int32), shape((), jnp.int32)
    params = jax.eval_shape(model.init, rng)

    def placed(rng, lengths, scheme):
        batch = task.sample(rng, lengths, max_length=length)
        placement = scheme(
            rng,
            batch.lengths,
            num_tokens=batch.tokens.shape[1],
            num_layers=model.dims.num_layers,
            tokens=task.placing_tokens(batch),
        )
        return batch, placement

    def forward(params, rng, lengths):
        where = placed(rng, lengths, recipe.positions)
        return apply_model(model, params, *where, rng=rng)

    def update(params, state):
        optimizer = optax.with_extra_args_support(recipe.optimizer)
        return optimizer.update(params, state, params, value=1.0)

    scored = functools.partial(placed, scheme=evaluation.positions)
    return (
        digest(model.init, rng),
        digest(forward, params, rng, lengths),
        digest(scored, rng, lengths),
        digest(recipe.curriculum, rng, step),
        digest(update, params, jax.eval_shape(recipe.optimizer.init, params)),
        (recipe.buckets, recipe.batch_size, recipe.length_per_row, recipe.accumulate),
        (recipe.sharding, recipe.nonfinite, recipe.progressive),
    )


def digest(function, *shapes) -> str:
    """A program as text, and the numbers that it holds."""
    # The first time, what is remembered from then on is made as well.
    closed = [jax.make_jaxpr(lambda *x: function(*x))(*shapes) for _ in range(2)][1]
    held = hashlib.sha1(re.sub("0x[0-9a-f]+", "", str(closed)).encode())
    for array in _numbers(closed):
        held.update(np.asarray(array).tobytes())
    return held.hexdigest()


def _numbers(jaxpr):
    if isinstance(jaxpr, ClosedJaxpr):
        yield from (x for x in jaxpr.consts if isinstance(x, np.ndarray | jax.Array))
        jaxpr = jaxpr.jaxpr
    for equation in jaxpr.eqns:
        for var in equation.invars:
            if isinstance(var, Literal) and isinstance(var.val, np.ndarray):
                yield var.val
        for part in jax.tree.leaves(tuple(equation.params.values())):
            if isinstance(part, ClosedJaxpr | Jaxpr):
                yield from _numbers(part)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_is_accepted_makes_a_difference(seed):
    config, rng = drawn_config(seed), np.random.default_rng([seed, 12])
    before = programs(build(config))
    assert before == programs(build(config))
    for path in rng.permutation(FIELDS)[:20]:
        value = drawn_value(rng, config, path)
        if value == get(config, path):
            continue
        changed = accepted(with_values(config, {path: value}))
        if changed is not None:
            named = f"seed {seed}: {path}={value!r}"
            assert programs(changed) != before, f"{named} of\n{config}"
