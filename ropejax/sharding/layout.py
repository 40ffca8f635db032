"""Where everything about a training run is on a mesh: state, batches, activations.

Modules know nothing of devices. What they get from here is a model whose settings say
where hidden states are kept and which engine attends; arrays are placed from outside,
by the names of their axes.
"""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from ropejax.attention import Cache, SequenceParallel
from ropejax.attention.zigzag import zigzag_order
from ropejax.nn import TransformerSpec
from ropejax.positions.base import Placement
from ropejax.settings import Settings
from ropejax.sharding import checks
from ropejax.sharding.division import Change, UndividedError, remedies
from ropejax.sharding.mesh import abstract_mesh
from ropejax.sharding.names import parameter_names, path_of
from ropejax.sharding.rules import Names, Rules

HIDDEN = ("batch", "length", None)
"""What the axes of hidden states `[B, L, D]` mean."""

CACHED = (None, "layers", "batch", None, "kv_heads", None)
"""What those of cached keys and values mean: loops, repeated layers, `[B, C, K, H]`."""


@dataclasses.dataclass(frozen=True)
class Sharding(Settings):
    """A mesh and the table that cuts arrays over it; hashable.

    Attributes:
        mesh: devices with the axes of `MESH_AXES`, real or abstract.
        rules: logical axes -> mesh axes.
        sequence_form: how attention spreads a sequence: a form of `SequenceParallel`.
        sequence_order: one of `ORDERS`; it alters work, not numbers.

    Raises:
        ValueError: if the sequence is spread over several mesh axes, the mesh's types
            are explicit, an axis of it is of no use or used twice, members of a
            population would spread sequences, or an order is unknown or balances
            nothing.
    """

    mesh: Mesh | AbstractMesh
    rules: Rules = Rules()
    sequence_form: str = "ring"
    sequence_order: str = "consecutive"

    def __post_init__(self):
        SequenceParallel(self.sequence_form)
        checks.check_mesh(self.mesh, self.rules)
        axes = self._axes("length")
        if len(axes) > 1:
            raise ValueError(
                f"a sequence can be spread over one mesh axis, got {axes} for 'length'."
            )
        checks.check_activations(self.rules, self.sizes)
        checks.check_members(self.sizes, self.length_parts)
        checks.check_order(self.sequence_order, self.sequence_form, self.length_parts)

    @property
    def sizes(self) -> dict[str, int]:
        """Size of every mesh axis."""
        return dict(self.mesh.shape)

    @property
    def batch_parts(self) -> int:
        """Into how many parts the rows of a batch are cut."""
        return self.rules.parts("batch", self.sizes)

    @property
    def length_parts(self) -> int:
        """Into how many parts a sequence is cut."""
        return self.rules.parts("length", self.sizes)

    @property
    def devices_a_model(self) -> int:
        """How many devices share one model: all but for members of a population."""
        return self.mesh.size // self.sizes["population"]

    @property
    def members_axis(self) -> str | None:
        """The mesh axis of a population's members, for `jax.vmap(spmd_axis_name=)`.

        None where it has one device.
        """
        return next(iter(self._axes("population")), None)

    @property
    def by_rows(self) -> "Sharding":
        """The same mesh where devices that share a sequence share rows instead.

        That is how tokens are decoded: one at a time, so that none can be spread.
        """
        if not self._axes("length"):
            return self
        rows = self.rules.mesh_axes("batch") + self.rules.mesh_axes("length")
        changes = {"batch": rows, "length": ()}
        rules = Rules.of(dict(self.rules.changes) | changes)
        return dataclasses.replace(self, rules=rules, sequence_order=checks.ORDERS[0])

    def check_one_model(self) -> None:
        """Raises ValueError if an axis of the mesh is for members of a population."""
        checks.check_one_model(self.sizes)

    def check(
        self,
        model: TransformerSpec,
        batch_size: int | None = None,
        accumulate: int = 1,
    ) -> None:
        """Raises ValueError where a model or its batches cannot be spread so.

        Heads, widths or rows may not divide over the mesh; an encoding or a mask may
        need what no device has in this form of sequence parallelism.

        Args:
            model: how the model is made.
            batch_size: rows of a batch; None if they are filled up to divide.
            accumulate: in how many parts they are computed, one after the other.
        """
        try:
            self._check(model, batch_size, accumulate)
        except UndividedError as problem:
            hint = remedies(
                problem,
                partial(self._accepts, model, batch_size, accumulate),
                batch_size=batch_size,
                accumulate=accumulate,
                batch_parts=self.batch_parts,
                sizes=self.sizes,
                all_devices=isinstance(self.mesh, Mesh),
            )
            raise ValueError(f"{problem}{hint}.") from None

    def _accepts(self, model, batch_size, accumulate: int, change: Change) -> bool:
        """Whether nothing is refused with some other numbers."""
        changes = dict(change)
        batch_size = changes.pop("batch_size", batch_size)
        accumulate = changes.pop("accumulate", accumulate)
        sizes = self.sizes | changes
        try:
            mesh = abstract_mesh(sizes, math.prod(sizes.values()))
            dataclasses.replace(self, mesh=mesh)._check(model, batch_size, accumulate)
        except ValueError:
            return False
        return True

    def _check(self, model, batch_size: int | None, accumulate: int) -> None:
        if batch_size is None:
            batch_size = self.batch_parts * accumulate
        checks.check_sizes(model, batch_size, self.rules, self.sizes, accumulate)
        if not isinstance(model, TransformerSpec):
            return
        checks.check_attention(self._attention("auto"), model, self.sizes)
        if self._zigzag and not model.dims.causal:
            raise ValueError(
                "sequence_order='zigzag' balances the work of a causal mask, which "
                "this model does not have; use 'consecutive', or a causal model."
            )

    def padded_length(self, length: int) -> int:
        """Returns the least length from `length` on that divides over its mesh axis."""
        parts = self.length_parts * (2 if self._zigzag else 1)
        return math.ceil(length / parts) * parts

    def model(self, model: TransformerSpec) -> TransformerSpec:
        """Returns the model with its hidden states and its attention on the mesh.

        Its parameters and its numbers are the same. Attention of the members of a
        population, over which `jax.vmap` maps, is left to the compiler: what is cut by
        hand cannot be mapped over a mesh axis yet (JAX 0.10 to 0.12: loops within
        `jax.shard_map` under `spmd_axis_name`).
        """
        if not isinstance(model, TransformerSpec):
            return model
        settings = dataclasses.replace(
            model.settings, hidden_sharding=self.named(self._spec(HIDDEN))
        )
        if not self._axes("population"):
            how = self._attention(settings.implementation)
            settings = dataclasses.replace(settings, implementation=how)
        return dataclasses.replace(model, settings=settings)

    def named(self, spec: PartitionSpec) -> NamedSharding:
        """Returns a cut on this mesh."""
        return NamedSharding(self.mesh, spec)

    def parameters(self, model: TransformerSpec, params: Any) -> Any:
        """Returns the sharding of every parameter.

        Args:
            model: how the model is made.
            params: its parameters, or their shapes.
        """
        one = lambda x, names: self.named(self.rules.spec(names, x.shape, self.sizes))
        return jax.tree.map(one, params, parameter_names(model, params))

    def gathered(self, model: TransformerSpec, params: Any) -> Any:
        """Returns parameters with those outside layers whole in width; under `jax.jit`.

        Looked up in a table that is cut in width (FSDP), rows of the batch would have
        to be exchanged; gathering the table first is what FSDP means. Layers are left
        to the compiler, which gathers one at a time.

        Args:
            model: how the model is made.
            params: its parameters.
        """

        def placed(x, names: Names):
            if "layers" in names:
                return x
            whole = tuple(None if n in {"embed", "rest"} else n for n in names)
            spec = self.rules.spec(whole, x.shape, self.sizes)
            return jax.lax.with_sharding_constraint(x, self.named(spec))

        return jax.tree.map(placed, params, parameter_names(model, params))

    def state(self, model: TransformerSpec, state: Any) -> Any:
        """Returns the sharding of every leaf of a training state.

        A leaf whose path ends with that of a parameter of its shape, as the moments of
        an optimizer do, is where the parameter is; all others are on every device.

        Args:
            model: how the model is made.
            state: anything with `params`; arrays or shapes.
        """
        flat = jax.tree_util.tree_leaves_with_path
        shardings = dict(flat(self.parameters(model, state.params)))
        known = {
            path_of(path): (leaf.shape, shardings[path])
            for path, leaf in flat(state.params)
        }

        def placed(path, leaf) -> NamedSharding:
            parts = path_of(path).split("/")
            for start in range(len(parts)):
                found = known.get("/".join(parts[start:]))
                if found is not None and found[0] == leaf.shape:
                    return found[1]
            return self.named(PartitionSpec())

        return jax.tree_util.tree_map_with_path(placed, state)

    def batch(self, batch: Any) -> Any:
        """Returns a batch held by rows and tokens over the mesh; under `jax.jit` only.

        Args:
            batch: arrays `[B]` or `[B, P]`, which `padded` makes longer if need be.
        """

        def placed(x):
            spec = self._spec(HIDDEN[: x.ndim])
            return jax.lax.with_sharding_constraint(x, self.named(spec))

        return jax.tree.map(placed, self.padded(batch))

    def padded(self, batch: Any) -> Any:
        """Returns a batch whose sequences divide over their mesh axis.

        They are padded at the end with zeros (False in masks), which alters nothing:
        rows know their lengths.

        Args:
            batch: arrays `[B]` or `[B, P]`.
        """

        def longer(x):
            if x.ndim == 1:
                return x
            extra = self.padded_length(x.shape[1]) - x.shape[1]
            return jnp.pad(x, [(0, 0), (0, extra)])

        return jax.tree.map(longer, batch)

    def caches(self, memory: Any) -> Any:
        """Returns what decoding keeps, keys and values held by rows and heads.

        Args:
            memory: any tree with caches of all layers; under `jax.jit` only.
        """

        def placed(x):
            spec = self.rules.spec(CACHED, x.shape, self.sizes)
            return jax.lax.with_sharding_constraint(x, self.named(spec))

        def of_cache(found):
            if not isinstance(found, Cache):
                return found
            return dataclasses.replace(found, k=placed(found.k), v=placed(found.v))

        is_cache = lambda x: isinstance(x, Cache)
        return jax.tree.map(of_cache, memory, is_leaf=is_cache)

    def ordered(self, batch: Any, placement: Placement) -> tuple[Any, Placement]:
        """Returns a batch stored in the order in which devices are to hold its tokens.

        The loss and the metrics are the same, since tokens, targets and masks move
        together, and where tokens are goes with them.

        Args:
            batch: arrays `[B]` or `[B, P]`, held by `batch`.
            placement: where its tokens are.
        """
        if not self._zigzag:
            return batch, placement
        order = jnp.asarray(zigzag_order(batch.tokens.shape[1], self.length_parts))
        moved = jax.tree.map(
            lambda x: jnp.take(x, order, axis=1) if x.ndim > 1 else x, batch
        )
        return self.batch(moved), dataclasses.replace(placement, order=order)

    def everywhere(self, tree: Any) -> Any:
        """Returns arrays held whole by every device; under `jax.jit` only."""
        spec = self.named(PartitionSpec())
        return jax.lax.with_sharding_constraint(tree, spec)

    def _attention(self, engine: str) -> SequenceParallel:
        """The engine for attention on this mesh."""
        one = lambda axes: axes[0] if len(axes) == 1 else None
        return SequenceParallel(
            self.sequence_form,
            axis=one(self._axes("length")),
            batch_axes=self._axes("batch"),
            head_axis=one(self._axes("heads")),
            engine=engine,
            mesh=self.mesh,
        )

    @property
    def _zigzag(self) -> bool:
        return self.sequence_order == "zigzag"

    def _axes(self, name: str) -> tuple[str, ...]:
        """The mesh axes of a logical axis that have more than one device."""
        return tuple(a for a in self.rules.mesh_axes(name) if self.mesh.shape[a] > 1)

    def _spec(self, names: Names) -> PartitionSpec:
        """Of an array whose sizes are known to divide."""
        return PartitionSpec(*(self._axes(n) or None if n else None for n in names))
