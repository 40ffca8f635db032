"""What a training step will cost, found from shapes alone: nothing is compiled or run.

* Operations are counted from the program's text: `experiments.plan.counting`.
* Memory is that of arrays which must be there at once: `experiments.plan.memory`.
* Communication is what the usual algorithms send: `experiments.plan.sending`.
"""

import dataclasses
import math
from typing import NamedTuple

import jax

from experiments.plan.counting import step_operations as step_operations
from experiments.plan.hardware import Hardware
from experiments.plan.memory import activation_bytes, gathered_bytes
from experiments.plan.sending import check_known, sent_bytes
from experiments.plan.updating import update_operations
from ropejax.operations import Operations
from ropejax.sharding import Sharding
from ropejax.training.step import Recipe, init_state
from ropejax.typing import Params


class Shape(NamedTuple):
    """The cost of a step in one bucket.

    Attributes:
        bucket: the input length that it is padded to.
        tokens: tokens a sequence, placeholders included.
        operations: of the whole step, all devices together, but the update's; the
            mean where a progressive loss draws what is computed.
        activation_bytes: kept for the backward pass, and the largest that come and go,
            on one device.
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
        gradient_bytes: on one device; twice where parts of a batch add theirs up.
        optimizer_bytes: on one device.
        gathered_bytes: parameters in whole, a layer at a time, and their gradients, on
            a device that has parts of them.
        shapes: a step's cost in each bucket.
        update_operations: of the optimizer in each step, all devices together: those
            that hold the same part all compute the same.
    """

    devices: int
    parameters: int
    parameter_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    gathered_bytes: float
    shapes: tuple[Shape, ...]
    update_operations: Operations = Operations()

    @property
    def peak_bytes(self) -> float:
        """Memory of one device at the longest bucket: backward pass, or update."""
        held = self.parameter_bytes + self.optimizer_bytes
        backward = self.gradient_bytes + self.gathered_bytes + self.activation_bytes
        return held + max(backward, self.update_bytes)

    @property
    def activation_bytes(self) -> float:
        """Activations at the longest bucket."""
        return max(shape.activation_bytes for shape in self.shapes)

    @property
    def update_bytes(self) -> float:
        """Gradients, and the copy that compilers may make of the optimizer's state.

        They do where they cannot tell that each number is read before it is replaced.
        """
        return self.parameter_bytes + self.optimizer_bytes


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
        gradient_bytes=params_bytes * (2 if recipe.accumulate > 1 else 1),
        optimizer_bytes=sum(map(local, _leaves(state, "opt_state"))),
        gathered_bytes=gathered_bytes(recipe, sharding, state.params),
        shapes=tuple(
            _shape(alone, sharding, state, bucket) for bucket in recipe.buckets
        ),
        update_operations=update_operations(recipe, sharding),
    )


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
    seconds = lambda found, dtype: (
        found.products / (hardware.tflops(dtype) * 1e12 * plan.devices)
    )
    update_s = seconds(plan.update_operations, "float32")  # as parameters are
    return Roofline(
        compute_s=seconds(shape.operations, dtype) + update_s,
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
    tokens = recipe.task.num_tokens(bucket)
    return Shape(
        bucket=bucket,
        tokens=tokens,
        operations=step_operations(recipe, bucket),
        activation_bytes=activation_bytes(recipe, sharding, bucket),
        sent_bytes=sent_bytes(recipe, sharding, tokens, state.params),
    )


def _count(params: Params) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(params))
