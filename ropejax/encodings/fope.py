"""FoPE: every rotated pair turns by a mixture of waves, not by one alone.

What a layer makes of a rotation is no longer one frequency: linear maps and
nonlinearities spread it over others, and frequencies that never completed a turn in
training are badly known. So cosine and sine of each pair are each a sum over all
frequencies that did, with fixed or learned coefficients, and the slow pairs stand
still.
"""

import dataclasses
import math
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ropejax.encodings.angles import rotation_angles
from ropejax.encodings.base import Dims, Views
from ropejax.encodings.choices import check_choice, not_negative, positive
from ropejax.encodings.rotary_base import Rotation
from ropejax.encodings.rotation import combine
from ropejax.tokens import Tokens
from ropejax.typing import Params, Rng

Form = Literal["paper", "plain"]
FORMS = ("paper", "plain")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoPE(Rotation):
    """Turns pair r by sums of waves in place of one cosine and one sine.

    `c = sum_f C[f, r] cos(m w_f)` and `s = sum_f S[f, r] sin(m w_f)` at position m,
    over RoPE's frequencies w_f of at least one turn in the trained length, F of them. A
    pair (a, b) becomes `(a c - b s, a s + b c)`, which is no rotation unless C and S
    are the identity; other pairs stay as they are. A key head and its query heads share
    C and S, which start as the identity and noise.

    Attributes:
        train_length: trained length, in tokens.
        form: "paper": at most half of the pairs turn, and columns of C and S start
            divided by their sums; "plain": all F pairs turn, by C and S as they are
            drawn (Intern-S1-Pro).
        gain: of the noise: its standard deviation is that of Xavier times this.
        learned: train C and S; otherwise, as published, they stay what they were drawn.
        shared: True if all layers share them.

    Raises:
        ValueError: if a setting is out of range, learned frequencies are asked for, or
            (in `check`) no frequency completes a turn in training.

    References:
        Hua et al. (2024), "Fourier position embedding", arXiv:2412.17739, its listing;
        vllm-project/vllm@151a2c7, `FourierRotaryEmbedding` ("plain").

    Departures:
        If more than half of the pairs complete a turn, the listing's identity takes
        every second frequency or so (`step`); so does this. The listing divides by the
        sums at each use, which is the same for fixed coefficients; learned ones are
        free here. Fixed ones get no gradient, but an optimizer's weight decay would
        shrink them.
    """

    train_length: int = 512
    form: Form = "paper"
    gain: float = 0.3
    learned: bool = False
    shared: bool = False

    title: ClassVar[str] = "FoPE"
    summary: ClassVar[str] = "RoPE whose cosines and sines are mixtures of frequencies"
    reference: ClassVar[str] = "Hua et al. 2024, arXiv:2412.17739"
    shift_invariant: ClassVar[bool] = False

    def __post_init__(self):
        """Refuses settings out of range."""
        super().__post_init__()
        check_choice("form", self.form, FORMS)
        positive(train_length=self.train_length)
        not_negative(gain=self.gain)
        if self.trainable != "none" or self.round_frequencies:
            raise ValueError(
                f"{self.title} mixes constant frequencies; leave trainable and "
                "round_frequencies, and set learned=True to train the mixture."
            )

    def check(self, dims: Dims) -> None:
        """Raises ValueError if no frequency completes a turn in training."""
        self.waves(dims.head_dim)

    def waves(self, head_dim: int) -> Float[np.ndarray, " F"]:
        """Returns the frequencies that are mixed, radians a token, fastest first.

        Args:
            head_dim: width of a head.

        Raises:
            ValueError: if there is none.
        """
        spectrum = self.pairs(head_dim).spectrum
        kept = spectrum[spectrum * self.train_length >= 2 * math.pi]
        if not kept.size:
            raise ValueError(
                f"no frequency completes a turn in train_length={self.train_length} "
                "tokens; 7 or more are needed."
            )
        return kept

    def init_shared(self, rng: Rng, dims: Dims) -> Params:
        """Returns all coefficients if shared, else nothing."""
        return self._init(rng, dims) if self.shared else {}

    def init_layer(self, rng: Rng, dims: Dims) -> Params:
        """Returns `{"cos": [F, P, K], "sin": [F, P, K]}` unless shared; P pairs."""
        return {} if self.shared else self._init(rng, dims)

    def prepare(
        self, shared: Params, layer: Params, query: Tokens, key: Tokens, dims: Dims
    ) -> Params:
        """Returns the coefficients, float32."""
        params = {**shared, **layer}
        if not self.learned:
            params = jax.lax.stop_gradient(params)
        return {name: params[name].astype(jnp.float32) for name in ("cos", "sin")}

    def queries(
        self, params: Params, q: Float[Array, "B T N H"], query: Tokens
    ) -> Views:
        """Returns queries turned by the waves of their key heads."""
        return (self._turned(params, q, query),)

    def keys(self, params: Params, k: Float[Array, "B S K H"], key: Tokens) -> Views:
        """Returns keys turned by their waves."""
        return (self._turned(params, k, key),)

    def _init(self, rng: Rng, dims: Dims) -> Params:
        count, pairs = len(self.waves(dims.head_dim)), self._num_turning(dims.head_dim)
        step = -(-count // pairs)
        identity = np.zeros((count, pairs, 1), np.float32)
        turning = np.arange(pairs)[np.arange(pairs) * step < count]
        identity[turning * step, turning] = 1
        shape = (count, pairs, dims.num_kv_heads)
        std = self.gain * math.sqrt(2 / ((count + dims.num_kv_heads) * pairs))
        drawn = {
            name: identity + std * jax.random.normal(one, shape, jnp.float32)
            for name, one in zip(("cos", "sin"), jax.random.split(rng), strict=True)
        }
        if self.form == "plain":
            return drawn
        return {name: x / x.sum(0, keepdims=True) for name, x in drawn.items()}

    def _num_turning(self, head_dim: int) -> int:
        count = len(self.waves(head_dim))
        if self.form == "plain":
            return count
        return min(count, max(self.rotary_width(head_dim) // 4, 1))

    def _turned(self, params: Params, x: Array, where: Tokens) -> Array:
        if where.positions.ndim != 2:
            raise ValueError(
                f"{self.title} takes positions on one axis, got shape "
                f"{where.positions.shape}."
            )
        angles = rotation_angles(where.positions, self.waves(x.shape[-1]))
        mix = lambda wave, by: jnp.einsum("blf,fpk->blkp", wave, by)
        cos = mix(jnp.cos(angles), params["cos"])
        sin = mix(jnp.sin(angles), params["sin"])
        still = self.rotary_width(x.shape[-1]) // 2 - cos.shape[-1]
        beside = [(0, 0)] * 3 + [(0, still)]
        cos, sin = jnp.pad(cos, beside, constant_values=1.0), jnp.pad(sin, beside)
        group = x.shape[2] // cos.shape[2]
        cos, sin = (jnp.repeat(wave, group, axis=2) for wave in (cos, sin))
        return combine(x, cos, sin, layout=self.layout)
