"""Memory of one device in a training step, beside parameters and moments.

Activations are what the forward pass keeps for the backward pass, as JAX's own
derivative says. Beside them stand, for a while: the largest array in between; what
comes of other devices; of layers that are computed again, what one of them would have
kept; of loops around layers, what one of them keeps, until it is put with the others;
and of parameters that are cut over devices which have other rows or tokens (FSDP), one
layer in whole, and its gradient.

Compilers differ. Of small models, compiled for CPUs, a plan's sum is 0.8 to 1.25 of
what the program needs; up to 1.6 was seen where layers are spelled out
(`scan_layers=False`), or a single one is computed again. Not foreseen is, on CPUs, that
products of bfloat16 numbers are computed in float32, and that layers which are spelled
out are not computed again.
"""

import dataclasses
import math

import jax

from experiments.plan.axes import mesh_axes, spread_axes
from experiments.plan.loss import arguments_of, loss_of, one_part, with_settings
from experiments.plan.sending import received_bytes
from ropejax.attention.sequence_parallel import needs_whole_rows
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.operations import largest_array
from ropejax.sharding import Sharding, parameter_names
from ropejax.training import Recipe
from ropejax.training.applying import learns_at_once
from ropejax.typing import Params


def activation_bytes(recipe: Recipe, sharding: Sharding | None, bucket: int) -> float:
    """Returns the bytes of activations in a step, with the largest that come and go.

    Args:
        recipe: what is trained, and how.
        sharding: how it is spread over a mesh; None for one device.
        bucket: the input length that the batch is padded to.
    """
    recipe = one_part(recipe)
    if _in_blocks(recipe, sharding):
        recipe = with_settings(recipe, implementation="blockwise")
    tokens = recipe.task.num_tokens(bucket)
    cut = _Cut(recipe, sharding, tokens)
    kept = _kept_bytes(recipe, cut, bucket, learns_at_once(sharding))
    loss = loss_of(recipe, bucket, at_once=learns_at_once(sharding))
    largest = largest_array(loss, *arguments_of(recipe))
    return (
        kept
        + cut.bytes(largest)
        + received_bytes(recipe, sharding, tokens)
        + _again_bytes(recipe, cut, bucket)
        + _one_loop_bytes(recipe, kept)
    )


def gathered_bytes(recipe: Recipe, sharding: Sharding | None, params: Params) -> float:
    """Returns the bytes of parameters in whole that are held in parts, with gradients.

    Those outside layers are gathered for all of a step, those of layers for one
    repetition of the pattern at a time.

    Args:
        recipe: what is trained, and how.
        sharding: how it is spread over a mesh; None for one device.
        params: shapes of the model's parameters.
    """
    if sharding is None:
        return 0.0
    data = spread_axes(sharding, "batch") + spread_axes(sharding, "length")
    total = 0.0
    names = jax.tree.leaves(
        parameter_names(recipe.model, params), is_leaf=lambda x: isinstance(x, tuple)
    )
    placed = jax.tree.leaves(sharding.parameters(recipe.model, params))
    for leaf, of_leaf, where in zip(
        jax.tree.leaves(params), names, placed, strict=True
    ):
        parts = math.prod(sharding.sizes[a] for a in mesh_axes(where.spec) if a in data)
        if parts == 1:
            continue
        held = math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        rounds = leaf.shape[0] if "layers" in of_leaf else 1
        total += 2 * parts * held / rounds
    return total


def _kept_bytes(
    recipe: Recipe, cut: "_Cut", bucket: int, at_once: bool = False
) -> float:
    """What the forward pass keeps for the backward pass."""
    loss = loss_of(recipe, bucket, at_once=at_once)
    params, state, lengths = arguments_of(recipe)

    def pulled(params, state, lengths):
        return jax.vjp(lambda params: loss(params, state, lengths), params)[1]

    own = {}  # parameters are kept too, but they are there anyhow
    for leaf in jax.tree.leaves(params):
        own[leaf.shape] = own.get(leaf.shape, 0) + 1
    total = 0.0
    for leaf in jax.tree.leaves(jax.eval_shape(pulled, params, state, lengths)):
        if own.get(leaf.shape, 0):
            own[leaf.shape] -= 1
            continue
        total += cut.bytes(leaf)
    return total


def _again_bytes(recipe: Recipe, cut: "_Cut", bucket: int) -> float:
    """What a layer that is computed again has kept by then: the mean over layers."""
    model = recipe.model
    if getattr(getattr(model, "settings", None), "remat", "none") == "none":
        return 0.0
    plain = dataclasses.replace(recipe, progressive=None)
    whole = _kept_bytes(with_settings(plain, remat="none"), cut, bucket)
    stacks = 2 if isinstance(model, EncoderDecoderSpec) else 1
    layers = stacks * model.dims.num_layers * getattr(model, "loops", 1)
    return max(whole - _kept_bytes(plain, cut, bucket), 0.0) / layers


def _one_loop_bytes(recipe: Recipe, kept: float) -> float:
    """What one of several loops keeps: a compiled loop in a loop has it twice."""
    model, progressive = recipe.model, recipe.progressive
    loops, terms = getattr(model, "loops", 1), 1
    if progressive is not None:
        loops = progressive.most(loops)
        terms = 2 if 0 < progressive.weight < 1 else 1
    if loops == 1 or not model.scan_layers:
        return 0.0
    inner = model.dims.num_layers // len(model.pattern)
    return kept / terms / loops if inner > 1 else 0.0


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
