"""Rotary position embedding: queries and keys turn, so that only their distance counts.

Each pair of channels of a query at position m turns by `m * frequency`, of a key at n
by `n * frequency`; their product depends on `m - n`. Nothing is added and nothing
learned. Plain RoPE fails beyond the lengths it was trained on, since it then meets
distances it has never seen; `frequencies` and `distance` are the two places where
remedies act, and both may be replaced at test time with the same parameters:
`dataclasses.replace(rope, distance=Rectified(512))`.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ropejax.encodings.base import Views
from ropejax.encodings.distance import Distance, matched
from ropejax.encodings.frequency_map import FrequencyMap
from ropejax.encodings.heads import dot_product
from ropejax.encodings.rotary_base import Rotation
from ropejax.manual_axes import varying_like
from ropejax.tokens import Tokens
from ropejax.typing import Logits, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotaryAttention(Rotation):
    """Rotation of queries and keys under a distance map; base of the named methods."""

    def __post_init__(self):
        """Refuses settings outside their range, those of the maps included."""
        super().__post_init__()
        distance = self.distance
        if self.frequencies.keep_first and self.has_product:
            raise ValueError(
                f"{self.frequencies.title} keeps the first tokens' positions, which "
                f"{distance.title} changes; use one of them."
            )

    @property
    def distance(self) -> Distance:
        """How distances are bent."""
        return Distance()

    @property
    def has_product(self) -> bool:
        """True if `product` is more than the dot product of single views."""
        return type(self.distance).select is not Distance.select

    @property
    def causal_only(self) -> bool:
        """True if the distance map is."""
        return self.distance.causal_only

    @property
    def shift_invariant(self) -> bool:
        """True if the distance map is, and no token's rotation is kept."""
        return self.distance.shift_invariant and not self.frequencies.keep_first

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns queries rotated to each view of their positions."""
        params = self.of_tokens(params, query, q.shape[-1])
        views = self.distance.queries(query.positions)
        return tuple(self.turn(params, q, view) for view in views)

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns keys rotated to each view of their positions."""
        params = self.of_tokens(params, key, k.shape[-1])
        views = self.distance.keys(key.positions)
        return tuple(self.turn(params, k, view) for view in views)

    def product(
        self, params: Params, q: Views, k: Views, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns for each pair the product of the view that the distance map selects.

        A view that no pair of the block needs is not multiplied out (`lax.cond`; under
        `jax.vmap` a condition becomes a selection, and then all views are).
        """
        if not self.has_product:
            return dot_product(q[0], k[0])
        select = self.distance.select(
            query.positions[:, :, None], key.positions[:, None, :]
        )
        shape = (q[0].shape[0], q[0].shape[2], q[0].shape[1], k[0].shape[1])
        nothing = lambda *views: varying_like(jnp.zeros(shape, jnp.float32), views)
        logits = nothing()
        for n, views in enumerate(zip(*matched(q, k), strict=True)):
            wanted = select == n
            each = jax.lax.cond(wanted.any(), dot_product, nothing, *views)
            logits = jnp.where(wanted[:, None], each, logits)
        return logits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary(RotaryAttention):
    """RoPE, with any frequency map and any distance map.

    With pairs as complex numbers and frequencies `f_r = max_wavelength ** (-2 r / H)`,
    logit = `Re sum_r q_r conj(k_r) exp(i (m - n) f_r)` for positions m and n.

    Without rotation at test time (DroPE) the same model runs under `Encoding()`.

    A rotation keeps lengths, so a norm of queries and keys without gains means the same
    before it and behind it, where Llama 4 has one: there is no such option. Llama 4's
    is `LearnedCosine(initial=H ** 0.5, learned=False)` of `ropejax.nn`. Gains, and a
    frequency map with a factor, do not commute with a norm.

    Attributes:
        frequencies: an extension of RoPE: a map of the frequencies and a factor.
        distance: a map of the distances: ReRoPE, Self-Extend and others.
        max_wavelength: the base of the frequencies; this and further settings are
            explained in `Rotation`.

    References:
        Su et al. (2021), RoFormer, arXiv:2104.09864, equations 13-16, 34. DroPE:
        Gelberg et al. (2025), arXiv:2512.12167.

    Departures:
        The default layout is "half" (NeoX, Llama weights on the Hugging Face hub) where
        the paper pairs neighbours; one is the other with channels permuted.

    Example:
        >>> import jax.numpy as jnp
        >>> from ropejax.tokens import tokens
        >>> q = jnp.ones((1, 3, 1, 4))
        >>> Rotary().queries({}, q, tokens(3))[0].shape
        (1, 3, 1, 4)
    """

    frequencies: FrequencyMap = FrequencyMap()
    distance: Distance = Distance()

    summary: ClassVar[str] = "queries and keys turn by angles that grow with position"

    @property
    def title(self) -> str:
        """RoPE, or the names of the maps in use."""
        named = [self.distance.title, self.frequencies.title]
        return " + ".join(name for name in named if name) or "RoPE"

    @property
    def reference(self) -> str:
        """The paper, and those of the maps in use."""
        parts = (self.distance.reference, self.frequencies.reference)
        return "; ".join(p for p in ("Su et al. 2021, arXiv:2104.09864", *parts) if p)
