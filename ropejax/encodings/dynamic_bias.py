"""A bias that a small network makes of the offset: no table, and so no longest one.

A table has a number for every offset that it was trained at, and none for others. A
network of the offset has numbers everywhere, on one axis or on several, and with
logarithms of the distance those far away are not far from what it has seen.
"""

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Shaped

from ropejax.encodings.base import Dims, Encoding
from ropejax.encodings.choices import check_axes, check_choice, positive
from ropejax.encodings.linear import init_linear
from ropejax.encodings.relative_terms import relative_bias
from ropejax.tokens import Tokens, relative_positions
from ropejax.typing import Array, Float, Params, Rng
from ropejax.whole_numbers import whole_number

Spacing = Literal["log", "linear"]
SPACINGS = ("log", "linear")

_NORM_EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class DynamicBias(Encoding):
    """Adds a network of the signed offset to the scaled logits, a number a head.

    `f_h(s(d_1), ..., s(d_A))`, d_a the offset of the key on axis a over `unit`, and
    `s(d) = sign(d) log(1 + |d|)` ("log") or d itself ("linear"). f has `depth` hidden
    layers with a ReLU, A -> hidden -> ... -> N. With `bound` the bias is
    `bound * sigmoid(f_h)`.

    Positions are `[B, L, A]`; plain ones `[B, L]` stand for equal positions on all
    axes. Tokens in order on one axis need the network once an offset; others once a
    pair, with room for `hidden` numbers each: blockwise holds them for a block alone.

    CrossFormer's dynamic position bias is `axes=2, spacing="linear", depth=3,
    norm=True`, that of x-transformers `depth=2` (linear or log). Swin v2's log-spaced
    continuous bias is `axes=2, hidden=512, bound=16.0, unit=(window - 1) / 8`: it has
    `log(1 + |d|) / log(8)`, a factor that the first layer takes in.

    Attributes:
        axes: number of axes, A.
        hidden: width of the hidden layers.
        depth: number of them.
        spacing: "log" or "linear" distances.
        unit: what counts as a distance of 1, in tokens.
        norm: normalize each hidden layer before its ReLU (LayerNorm, with gain and
            offset).
        bound: 0 for none, or biases lie between 0 and this, in nats.
        shared: True if all layers share the network.

    Raises:
        ValueError: if a setting is out of range, or positions have another number of
            axes.

    References:
        Wang et al. (2021), CrossFormer, arXiv:2108.00154; cheerss/CrossFormer@f20000d,
        `DynamicPosBias`. Liu et al. (2021), Swin Transformer V2, arXiv:2111.09883;
        microsoft/Swin-Transformer@055c506, `WindowAttention`. x-transformers,
        `DynamicPositionBias`, in copies of unknown age. The code was read, not the
        papers.

    Departures:
        Offsets there are query minus key, so that kernels of the first layer have the
        other sign. Swin's last layer has no bias. Initial weights are PyTorch's
        default.
    """

    axes: int = 1
    hidden: int = 32
    depth: int = 1
    spacing: Spacing = "log"
    unit: float = 1.0
    norm: bool = False
    bound: float = 0.0
    shared: bool = False

    title: ClassVar[str] = "Dynamic bias"
    summary: ClassVar[str] = "a small network of the offset on one axis or several"
    reference: ClassVar[str] = "Wang et al. 2021, arXiv:2108.00154"

    def __post_init__(self):
        super().__post_init__()
        for name in ("axes", "hidden", "depth"):
            whole_number(name, getattr(self, name), least=1)
        check_choice("spacing", self.spacing, SPACINGS)
        positive(unit=self.unit)
        if not self.bound >= 0:
            raise ValueError(
                f"bound must be positive, or 0 for none, got {self.bound}."
            )

    @property
    def num_axes(self) -> int:
        """Number of axes, A."""
        return self.axes

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns all parameters if shared, else nothing."""
        return self._init(rng, dims) if self.shared else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"hidden0", "hidden1", ..., "out"}` unless shared.

        Each is `{"kernel", "bias"}`, and with `norm` hidden ones `{"gain", "offset"}`.
        """
        return {} if self.shared else self._init(rng, dims)

    def bias(
        self, params: Params, query: Tokens, key: Tokens, scale: float | Array
    ) -> Float[Array, "B N T S"]:
        """Returns the network's output of each pair."""
        on_axes = key.distances is None and query.positions.ndim == 3
        if not on_axes:
            of_equal = lambda d: self.of_offsets(
                params, jnp.repeat(d[..., None], self.axes, axis=-1)
            )
            return relative_bias(of_equal, query, key)
        check_axes(self.title, query.positions, self.axes)
        each = [relative_positions(query, key, axis) for axis in range(self.axes)]
        return self.of_offsets(params, jnp.stack(each, axis=-1))

    def of_offsets(
        self, params: Params, offsets: Shaped[Array, "#B *P A"]
    ) -> Float[Array, "#B N *P"]:
        """Returns the bias of each head at some offsets, float32.

        Args:
            params: what `prepare` returned.
            offsets: key minus query position on each axis, in tokens.
        """
        x = offsets.astype(jnp.float32) / self.unit
        if self.spacing == "log":
            x = jnp.sign(x) * jnp.log1p(jnp.abs(x))
        for layer in range(self.depth):
            of_layer = params[f"hidden{layer}"]
            x = _linear(of_layer, x)
            x = jax.nn.relu(_normalized(of_layer, x) if self.norm else x)
        out = jnp.moveaxis(_linear(params["out"], x), -1, 1)
        return self.bound * jax.nn.sigmoid(out) if self.bound else out

    def _init(self, rng: Rng, dims: Dims) -> Params:
        widths = [self.axes, *[self.hidden] * self.depth, dims.num_heads]
        names = [*(f"hidden{layer}" for layer in range(self.depth)), "out"]
        params = {
            name: init_linear(one, fan_in, fan_out)
            for name, one, fan_in, fan_out in zip(
                names,
                jax.random.split(rng, len(names)),
                widths[:-1],
                widths[1:],
                strict=True,
            )
        }
        if self.norm:
            for name in names[:-1]:
                params[name] |= {
                    "gain": jnp.ones(self.hidden, jnp.float32),
                    "offset": jnp.zeros(self.hidden, jnp.float32),
                }
        return params


def _linear(layer: Params, x: Float[Array, "*P M"]) -> Float[Array, "*P m"]:
    kernel, bias = (layer[name].astype(jnp.float32) for name in ("kernel", "bias"))
    # Offsets of thousands would lose their last digits in fewer bits.
    return jnp.matmul(x, kernel, precision="highest") + bias


def _normalized(layer: Params, x: Float[Array, "*P M"]) -> Float[Array, "*P M"]:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    unit = centred * jax.lax.rsqrt(variance + _NORM_EPSILON)
    gain, offset = (layer[name].astype(jnp.float32) for name in ("gain", "offset"))
    return unit * gain + offset
