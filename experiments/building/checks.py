"""What fits together: refused before anything is compiled, with a remedy."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.building.masks import check_masks
from ropejax.nn import TransformerSpec
from ropejax.positions.base import PositionScheme
from ropejax.seeds import check_seed
from ropejax.sharding import Sharding
from ropejax.tasks import Task
from ropejax.training.applying import apply_model
from ropejax.training.loop import MOST_PER_DISPATCH, MOST_STEPS
from ropejax.training.placed_rows import check_rows
from ropejax.training.places import check_reach
from ropejax.training.reading import check_read
from ropejax.whole_numbers import whole_number


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How a trained model is scored.

    Attributes:
        positions: where tokens are said to be.
        lengths: input lengths, increasing, in symbols.
        samples: sequences a length.
        draws: draws of positions a length.
        seed: of examples and positions.
        buckets: lengths that batches are padded to; chosen from the lengths if None.
        label: what results call the positions; None if they are those of training.
    """

    positions: PositionScheme
    lengths: tuple[int, ...]
    samples: int
    draws: int
    seed: int
    buckets: tuple[int, ...] | None = None
    label: str | None = None


def check_scorable(
    evaluation: Evaluation,
    model: TransformerSpec,
    task: Task,
    sharding: Sharding | None = None,
) -> None:
    """Raises ValueError where a model cannot be scored as asked.

    Args:
        evaluation: how it is to be scored.
        model: the model.
        task: what it is scored on.
        sharding: the mesh that it is scored on; None for one device.
    """
    if (
        evaluation.samples < 1
        or evaluation.draws < 1
        or evaluation.samples % evaluation.draws
    ):
        raise ValueError(
            f"eval.draws={evaluation.draws} must divide "
            f"eval.samples={evaluation.samples}, both at least 1."
        )
    longest = evaluation.lengths[-1]
    if evaluation.buckets and evaluation.buckets[-1] < longest:
        raise ValueError(
            f"the largest of eval.buckets, {evaluation.buckets[-1]}, must hold the "
            f"longest of eval.lengths, {longest}; leave eval.buckets empty to have "
            "them chosen."
        )
    for length in evaluation.lengths:
        task.tested.check_length(length)
    check_places(model, task, evaluation.positions, longest, "test", sharding)


def check_counts(config: ConfigDict) -> None:
    """Raises ValueError unless numbers that count something are in their range."""
    whole_number("train.steps", config.train.steps, least=0, most=MOST_STEPS)
    names = ("batch_size", "max_length", "buckets", "steps_per_dispatch")
    for name in (*names, "accumulate", "log_every", "save_every", "keep"):
        most = MOST_PER_DISPATCH if name == "steps_per_dispatch" else MOST_STEPS
        whole_number(f"train.{name}", config.train[name], least=1, most=most)
    for name in ("num_layers", "embed_dim", "mlp_factor", "loops"):
        if config.model[name] < 1:
            raise ValueError(
                f"model.{name} must be at least 1, got {config.model[name]}."
            )


def check_seeds(config: ConfigDict) -> None:
    """Raises ValueError unless the seeds are those that make keys of their own."""
    check_seed("train.seed", config.train.seed)
    check_seed("eval.seed", config.eval.seed)
    if config.train.length_seed is not None:
        check_seed("train.length_seed", config.train.length_seed)


def check_places(
    model: TransformerSpec,
    task: Task,
    scheme: PositionScheme,
    max_length: int,
    when: str,
    sharding: Sharding | None = None,
) -> None:
    """Raises ValueError where a model cannot read tokens where a scheme places them.

    Args:
        model: the model.
        task: what gives the tokens.
        scheme: where they are placed.
        max_length: the longest input, in symbols.
        when: "training" or "test", for messages.
        sharding: the mesh that pads them to a length it divides; None for one device.
    """
    task.check_length(max_length)
    num_tokens = task.num_tokens(max_length)
    what = f"{when} inputs of {max_length} symbols are {num_tokens} tokens"
    if sharding is not None and sharding.padded_length(num_tokens) > num_tokens:
        num_tokens = sharding.padded_length(num_tokens)
        what += f", padded to {num_tokens} to divide over the mesh"
    _check_whole(model, task, scheme, max_length, when)
    check_shown(model, task, scheme, max_length, what)
    check_reach(
        scheme,
        model.pattern,
        num_tokens,
        what=what,
        remedy="set encoding.options='max_position=...' above that",
    )
    check_read(scheme, model, num_tokens, what=what)
    check_rows(scheme, task, max_length, what=f"{when} inputs of {max_length} symbols")
    try:
        jax.eval_shape(partial(_forward, model, task, scheme, max_length))
    except ValueError as error:
        raise ValueError(
            f"{when} with {model.pattern[0].encoding.title} and "
            f"{scheme.title.lower()} positions: {error}"
        ) from None


def check_shown(
    model: TransformerSpec,
    task: Task,
    scheme: PositionScheme,
    max_length: int,
    what: str,
) -> None:
    """Raises ValueError where a layer's mask is not for such inputs, or shows nothing.

    Args:
        model: the model.
        task: what gives the tokens.
        scheme: where they are placed.
        max_length: the longest input, in symbols.
        what: what its tokens are, for messages.
    """

    def placed():
        batch, placement = _places(model, task, scheme, max_length)
        return placement.tokens(batch.tokens.shape[1])

    check_masks(model, placed, what)


def _check_whole(model, task, scheme, max_length, when):
    """Raises ValueError where a table of positions would be asked for fractions."""
    tables = [one for one in model.pattern if one.encoding.position_limit is not None]
    if not tables:
        return
    try:
        places = partial(_places, model, task, scheme, max_length)
        positions = jax.eval_shape(lambda: places()[1].positions)
    except ValueError:
        return  # that they cannot be placed at all is told with more about it
    if positions is not None and not jnp.issubdtype(positions.dtype, jnp.integer):
        scheme, title = scheme.title.lower(), tables[0].encoding.title
        raise ValueError(
            f"{when} with {title} and {scheme} positions: they are fractions, which "
            f"the table of {title} does not have, however large; choose an encoding "
            "that computes with positions, such as sinusoidal or rope, or another "
            "position scheme."
        )


def _forward(model, task, scheme, max_length):
    """One row through the model; traced to find what does not fit, never run."""
    batch, placement = _places(model, task, scheme, max_length)
    return apply_model(model, model.init(jax.random.key(0)), batch, placement)


def _places(model, task, scheme, max_length):
    rng = jax.random.key(0)
    batch = task.sample(rng, jnp.full((1,), max_length), max_length=max_length)
    placement = scheme(
        rng,
        batch.lengths,
        num_tokens=batch.tokens.shape[1],
        num_layers=model.dims.num_layers,
        tokens=task.placing_tokens(batch),
    )
    return batch, placement
