"""What cannot be spread over a mesh: refused before anything is compiled or written."""

from collections.abc import Mapping

import jax
from jax.sharding import AbstractMesh, Mesh

from ropejax.attention import SequenceParallel
from ropejax.attention.sequence_parallel import check_methods, differs_by_head
from ropejax.encodings.choices import check_choice
from ropejax.nn import LayerKind, TransformerSpec
from ropejax.sharding.division import check_divides
from ropejax.sharding.mesh import MESH_AXES
from ropejax.sharding.rules import Rules
from ropejax.tokens import tokens

ORDERS = ("consecutive", "zigzag")
"""How a sequence is cut over devices: into one run of tokens each, or into two, an
early and a late one, so that under a causal mask all have the same work."""

_POPULATION = "population"


def check_mesh(mesh: Mesh | AbstractMesh, rules: Rules) -> None:
    """Raises ValueError where a mesh, or an axis of it, is of no use to one model.

    Args:
        mesh: devices, real or abstract.
        rules: logical axes -> mesh axes.
    """
    if not isinstance(mesh, Mesh | AbstractMesh):
        raise ValueError(
            f"mesh must be a mesh of devices, got {mesh!r}; make it with "
            "ropejax.sharding.make_mesh or abstract_mesh."
        )
    sizes = dict(mesh.shape)
    if set(sizes) != set(MESH_AXES):
        raise ValueError(
            f"the mesh must have the axes {', '.join(MESH_AXES)}, got "
            f"{', '.join(sizes) or 'none'}; make it with "
            "ropejax.sharding.make_mesh, where axes that are not given are 1."
        )
    if any(t == jax.sharding.AxisType.Explicit for t in mesh.axis_types):
        raise ValueError(
            "training needs a mesh of AxisType.Auto: explicit types refuse the "
            "constraints that hold batches and hidden states in place, and every "
            "contraction over a cut axis would have to name its result's sharding "
            "inside the model, which knows nothing of devices."
        )
    used = {axis for name in rules.names for axis in rules.mesh_axes(name)}
    idle = [axis for axis, size in sizes.items() if size > 1 and axis not in used]
    if idle:
        raise ValueError(
            f"under these rules nothing is cut over the mesh axis {idle[0]!r} "
            f"({sizes[idle[0]]} devices), which would all do the same; set it to 1, or "
            "name it in a rule."
        )


def check_one_model(sizes: Mapping[str, int]) -> None:
    """Raises ValueError where a mesh spreads the members of a population.

    Args:
        sizes: of the mesh, by axis.
    """
    if sizes[_POPULATION] > 1:
        raise ValueError(
            f"the mesh axis 'population' ({sizes[_POPULATION]} devices) is for the "
            "members of a population: one model would only be copied. Train them with "
            "ropejax.training.train_population, or use data or fsdp here."
        )


def check_members(sizes: Mapping[str, int], length_parts: int) -> None:
    """Raises ValueError where members of a population would spread their sequences.

    Args:
        sizes: of the mesh, by axis.
        length_parts: into how many parts a sequence is cut.
    """
    if sizes[_POPULATION] > 1 and length_parts > 1:
        raise ValueError(
            f"members of a population ({sizes[_POPULATION]} devices) cannot spread "
            f"their sequences over {length_parts} devices too; use data, fsdp or "
            "tensor with 'population', or train one model at a time."
        )


def check_activations(rules: Rules, sizes: Mapping[str, int]) -> None:
    """Raises ValueError where two axes of an activation are cut over one mesh axis.

    Args:
        rules: logical axes -> mesh axes.
        sizes: of the mesh, by axis.
    """
    taken: dict[str, str] = {}
    for name in ("batch", "length", "heads"):
        for axis in rules.mesh_axes(name):
            if sizes[axis] > 1 and axis in taken:
                raise ValueError(
                    f"rules: {taken[axis]!r} and {name!r} are both cut over the mesh "
                    f"axis {axis!r}, but arrays have both; give one of them another."
                )
            taken[axis] = name


def check_order(order: str, form: str, length_parts: int) -> None:
    """Raises ValueError if an order is unknown or balances nothing.

    Args:
        order: one of `ORDERS`.
        form: how attention spreads a sequence.
        length_parts: into how many parts a sequence is cut.
    """
    check_choice("sequence_order", order, ORDERS)
    if order != "zigzag":
        return
    if form != "ring":
        raise ValueError(
            "sequence_order='zigzag' balances the devices of a ring; under "
            f"sequence_form={form!r} it would only move tokens."
        )
    if length_parts == 1:
        raise ValueError(
            "sequence_order='zigzag' needs a sequence that is spread over devices, "
            "but the mesh axis 'sequence' has one; use 'consecutive'."
        )


def check_sizes(
    model: TransformerSpec,
    batch_size: int,
    rules: Rules,
    sizes: Mapping[str, int],
    accumulate: int = 1,
) -> None:
    """Raises ValueError where rows, heads or widths do not divide over a mesh.

    Args:
        model: how the model is made, a Transformer or another.
        batch_size: rows of a batch.
        rules: logical axes -> mesh axes.
        sizes: of the mesh, by axis.
        accumulate: in how many parts the rows are computed, one after the other.
    """
    rows, left = divmod(batch_size, accumulate)
    if left:
        raise ValueError(
            f"accumulate={accumulate} must divide batch_size={batch_size}."
        )
    batch = f"batch_size={batch_size}"
    if accumulate > 1:
        batch += f" / accumulate={accumulate} = {rows}"
    numbers = [(batch, "batch", rows)]
    if isinstance(model, TransformerSpec):
        dims = model.dims
        named = (
            ("num_heads", "heads", dims.num_heads),
            ("num_kv_heads", "kv_heads", dims.num_kv_heads),
            ("embed_dim", "embed", dims.embed_dim),
            ("mlp_dim", "mlp", model.settings.mlp_dim),
        )
        numbers += [(f"{what}={n}", name, n) for what, name, n in named]
    else:  # a model whose parts have no names: rows, and FSDP, are all there is
        cut = [axis for axis in ("sequence", "tensor") if sizes[axis] > 1]
        if cut:
            raise ValueError(
                f"{type(model).__name__} cannot be spread over the mesh axes "
                f"{', '.join(cut)}; use data or fsdp."
            )
    for what, name, number in numbers:
        check_divides(what, number, rules.mesh_axes(name), sizes)


def check_attention(
    how: SequenceParallel, model: TransformerSpec, sizes: Mapping[str, int]
) -> None:
    """Raises ValueError where a Transformer's attention cannot be cut over a mesh.

    Args:
        how: the form of it, and the mesh axes of rows, tokens and heads.
        model: how the model is made.
        sizes: of the mesh, by axis.
    """
    own = () if how.head_axis is None else (how.head_axis,)
    _check_heads("", model, own, sizes)
    if how.axis is None:
        return
    for kind in model.pattern:
        try:
            check_methods(how, kind.encoding, model.settings.normalizer)
        except ValueError as error:
            raise ValueError(f"sequence_form={how.form!r}: {error}") from None
        if how.form == "ulysses":
            _check_alike(kind)
    if how.form == "ulysses":
        _check_heads("under sequence_form='ulysses', ", model, (*own, how.axis), sizes)


def _check_heads(when: str, model, axes: tuple[str, ...], sizes) -> None:
    """Queries and keys are cut together, by heads."""
    for name in ("num_heads", "num_kv_heads"):
        number = getattr(model.dims, name)
        check_divides(f"{when}{name}={number}", number, axes, sizes)


def _check_alike(kind: LayerKind) -> None:
    some = tokens(8)
    if differs_by_head(kind.mask, some, some):
        raise ValueError(
            f"sequence_form='ulysses': the mask {kind.mask} differs from head to head, "
            "which are on different devices; use 'ring' or 'all_gather'."
        )
