"""What a training step will cost, found from shapes alone: nothing is compiled or run.

* Operations are counted from the program's text with the dense attention engine, so
  they hold every pair of a query and a key, as is usual for model FLOPs utilization; an
  engine that skips what a mask rules out does less.
* Activations are what the forward pass keeps for the backward pass, as JAX's own
  derivative says, the largest array in between, and what comes of other devices.
* Communication is what the usual algorithms send: `experiments.plan.sending`.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.plan.hardware import Hardware
from experiments.plan.sending import check_known, received_bytes, sent_bytes
from ropejax.attention.sequence_parallel import needs_whole_rows
from ropejax.operations import Operations, count_operations, largest_array
from ropejax.sharding import Sharding
from ropejax.training.losses import batch_sums
from ropejax.training.step import Recipe, apply_model, draw_batch, init_state
from ropejax.typing import Params


class Shape(NamedTuple):
    """The cost of a step in one bucket.

    Attributes:
        bucket: the input length that it is padded to.
        tokens: tokens a sequence, placeholders included.
        operations: of the whole step, all devices together, but the optimizer's.
        activation_bytes: kept for the backward pass, on one device.
        sent_bytes: what a device sends, by mesh axis.
    """

    bucket: int
    tokens: int
    operations: Operations
    activation_bytes: float
    sent_bytes: dict[str, float]


class Plan(NamedTuple):
    """The cost of training.

    Attributes:
        devices: how many.
        parameters: how many numbers are learned.
        parameter_bytes: on one device.
        gradient_bytes: on one device.
        optimizer_bytes: on one device.
        shapes: a step's cost in each bucket.
    """

    devices: int
    parameters: int
    parameter_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    shapes: tuple[Shape, ...]

    @property
    def peak_bytes(self) -> float:
        """Memory of one device at the longest bucket."""
        fixed = self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes
        return fixed + max(shape.activation_bytes for shape in self.shapes)


class Roofline(NamedTuple):
    """Seconds that a step takes at the least, by what limits it, on one device.

    Attributes:
        compute_s: matrix products at their peak.
        memory_s: reading and writing what must be.
        links_s: sending, one mesh axis after the other.
    """

    compute_s: float
    memory_s: float
    links_s: float

    @property
    def overlapped_s(self) -> float:
        """All three at once: nobody is faster."""
        return max(self)

    @property
    def in_turn_s(self) -> float:
        """One after the other."""
        return sum(self)


def make_plan(recipe: Recipe) -> Plan:
    """Returns what training costs on the recipe's mesh, which may be abstract.

    Raises:
        ValueError: if the sharding's rules leave it to the compiler what devices do.
    """
    sharding = recipe.sharding
    if sharding is not None:
        check_known(sharding)
    alone = dataclasses.replace(recipe, sharding=None)
    state = jax.eval_shape(lambda: init_state(alone, 0))
    local = _local_bytes(sharding, recipe, state)
    parameters = _count(state.params)
    params_bytes = sum(map(local, _leaves(state, "params")))
    return Plan(
        devices=1 if sharding is None else sharding.mesh.size,
        parameters=parameters,
        parameter_bytes=params_bytes,
        gradient_bytes=params_bytes,
        optimizer_bytes=sum(map(local, _leaves(state, "opt_state"))),
        shapes=tuple(
            _shape(alone, sharding, state, bucket) for bucket in recipe.buckets
        ),
    )


def step_operations(recipe: Recipe, bucket: int) -> Operations:
    """Returns the operations of a step in a bucket, but the optimizer's.

    Args:
        recipe: what is trained, and how.
        bucket: the input length that the batch is padded to.
    """
    # Spelled out, attention has loops of known lengths.
    part, lengths = _part(_with_engine(recipe, "dense"))
    state = jax.eval_shape(lambda: init_state(part, 0))
    grad = jax.grad(_loss(part, bucket))
    return count_operations(grad, state.params, state, lengths).times(recipe.accumulate)


def roofline(plan: Plan, shape: Shape, hardware: Hardware, dtype: str) -> Roofline:
    """Returns the least time of a step in a bucket.

    Parameters are read twice and written once, gradients written and read, moments read
    and written, activations written and read.

    Args:
        plan: the costs of training.
        shape: those of a step in the bucket.
        hardware: what it runs on.
        dtype: of the computation.
    """
    moved = 3 * plan.parameter_bytes + 2 * plan.gradient_bytes
    moved += 2 * plan.optimizer_bytes + 2 * shape.activation_bytes
    peak = hardware.tflops(dtype) * 1e12 * plan.devices
    return Roofline(
        compute_s=shape.operations.products / peak,
        memory_s=moved / (hardware.bandwidth_gb_s * 1e9),
        links_s=sum(shape.sent_bytes.values()) / (hardware.link_gb_s * 1e9),
    )


def _leaves(state, name: str) -> list:
    """Path and shape of each array of one part of the state."""
    flat = jax.tree_util.tree_leaves_with_path(state)
    mine = jax.tree_util.GetAttrKey(name)
    return [(path, leaf) for path, leaf in flat if path[0] == mine]


def _local_bytes(sharding: Sharding | None, recipe: Recipe, state):
    """Returns a function of (path, array): the bytes that one device holds of it."""
    where = {}
    if sharding is not None:
        tree = sharding.state(recipe.model, state)
        where = dict(jax.tree_util.tree_leaves_with_path(tree))

    def local(entry) -> float:
        path, leaf = entry
        shape = leaf.shape
        if path in where:
            shape = where[path].shard_shape(shape)
        return math.prod(shape) * leaf.dtype.itemsize

    return local


def _shape(recipe, sharding, state, bucket: int) -> Shape:
    """The cost of a step in one bucket."""
    part, lengths = _part(recipe)
    tokens = recipe.task.num_tokens(bucket)
    return Shape(
        bucket=bucket,
        tokens=tokens,
        operations=step_operations(recipe, bucket),
        activation_bytes=_activations(part, sharding, state, lengths, bucket),
        sent_bytes=sent_bytes(recipe, sharding, tokens, state.params),
    )


def _part(recipe: Recipe) -> tuple[Recipe, jax.ShapeDtypeStruct]:
    """The recipe of rows that are computed at once, on one device; their lengths."""
    rows = recipe.batch_size // recipe.accumulate
    part = dataclasses.replace(recipe, batch_size=rows, accumulate=1, sharding=None)
    return part, jax.ShapeDtypeStruct((rows,), jnp.int32)


def _loss(recipe: Recipe, bucket: int):
    """The loss of a batch in a bucket, a function of (params, state, lengths)."""

    def loss(params, state, lengths):
        batch, placement, rng = draw_batch(recipe, state, lengths, bucket)
        logits = apply_model(recipe.model, params, batch, placement, rng=rng)
        sums = batch_sums(logits, batch)
        return sums.loss / sums.outputs

    return loss


def _with_engine(recipe: Recipe, engine: str) -> Recipe:
    """The recipe with another attention engine."""
    if not hasattr(recipe.model, "settings"):
        return recipe
    settings = dataclasses.replace(recipe.model.settings, implementation=engine)
    model = dataclasses.replace(recipe.model, settings=settings)
    return dataclasses.replace(recipe, model=model)


def _activations(recipe, sharding, state, lengths, bucket: int) -> float:
    """Bytes that a device keeps from the forward pass, and its largest array."""
    if _in_blocks(recipe, sharding):
        recipe = _with_engine(recipe, "blockwise")
    loss = _loss(recipe, bucket)

    def pulled(params, state, lengths):
        return jax.vjp(lambda params: loss(params, state, lengths), params)[1]

    cut = _Cut(recipe, sharding, recipe.task.num_tokens(bucket))
    kept = jax.tree.leaves(jax.eval_shape(pulled, state.params, state, lengths))
    own = {}  # parameters are kept too, but they are there anyhow
    for leaf in jax.tree.leaves(state.params):
        own[leaf.shape] = own.get(leaf.shape, 0) + 1
    total = 0.0
    for leaf in kept:
        if own.get(leaf.shape, 0):
            own[leaf.shape] -= 1
            continue
        total += cut.bytes(leaf)
    total += received_bytes(recipe, sharding, recipe.task.num_tokens(bucket))
    return total + cut.bytes(largest_array(loss, state.params, state, lengths))


def _in_blocks(recipe: Recipe, sharding: Sharding | None) -> bool:
    """Whether devices have parts of sequences, and no weights of whole ones."""
    if sharding is None or sharding.length_parts == 1:
        return False
    normalizer = recipe.model.settings.normalizer
    return not any(
        needs_whole_rows(kind.encoding, normalizer) for kind in recipe.model.pattern
    )


class _Cut:
    """How arrays inside a step are cut, told by the sizes of their axes."""

    def __init__(self, recipe: Recipe, sharding: Sharding | None, tokens: int):
        dims = recipe.model.dims
        self.sizes = [("batch", recipe.batch_size), ("length", tokens)]
        if hasattr(recipe.model, "settings"):
            self.sizes.append(("heads", dims.num_heads))
            self.sizes.append(("kv_heads", dims.num_kv_heads))
            self.sizes.append(("mlp", recipe.model.settings.mlp_dim))
        self.sharding = sharding

    def bytes(self, leaf) -> float:
        """Bytes of an array on one device."""
        size = float(math.prod(leaf.shape) * leaf.dtype.itemsize)
        if self.sharding is None:
            return size
        left, taken = list(leaf.shape), set()
        for name, number in self.sizes:
            axes = set(self.sharding.rules.mesh_axes(name))
            if number in left and not axes & taken:  # heads or the MLP's width
                left.remove(number)
                taken |= axes
                size /= self.sharding.rules.parts(name, self.sharding.sizes)
        return size


def _count(params: Params) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(params))
