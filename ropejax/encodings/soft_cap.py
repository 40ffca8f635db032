"""A soft cap: logits bend smoothly towards a limit that they cannot pass.

Nothing keeps a product of queries and keys from growing, and a softmax of large logits
sees one key and learns from none. A hyperbolic tangent leaves small logits as they are
and holds large ones below a cap.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from ropejax.encodings.base import Encoding
from ropejax.encodings.choices import positive
from ropejax.tokens import Tokens
from ropejax.typing import Logits, Params

_HIDES = -5e29
_LARGEST = 1e30


@dataclasses.dataclass(frozen=True)
class SoftCap(Encoding):
    """Caps the scaled and biased logits: `cap * tanh(logits / cap)`.

    It knows no positions; put it together with what does:
    `compose(rope=Rotary(), cap=SoftCap(50.0))`. Biases are added before it, whatever
    the order of parts. Among parts that change logits after the biases (`DAPE`,
    `WeightedKerple`), each works on what the one before it returned: the last one in
    the composition has the last word, so a cap that holds for all stands last. Masks
    come after it, and a logit that hides its key (minus infinity, or below -5e29) stays
    as it is. Factors on rows (`row_scale`) and normalizers work on capped logits,
    factors on queries (`LogScale`) before the cap.

    Attributes:
        cap: the limit, in nats.

    Raises:
        ValueError: if cap is not positive, or out of what float32 can divide by.

    References:
        Gemma Team (2024), "Gemma 2", arXiv:2408.00118, cap 50; transformers@006e869,
        `modeling_gemma2.eager_attention_forward` (the code was read, not the paper).

    Departures:
        None.
    """

    cap: float = 50.0

    title: ClassVar[str] = "Soft cap"
    summary: ClassVar[str] = "logits held within a cap by a hyperbolic tangent"
    reference: ClassVar[str] = "Gemma Team 2024, arXiv:2408.00118"

    def __post_init__(self):
        super().__post_init__()
        positive(cap=self.cap)
        if not 1 / _LARGEST <= self.cap <= _LARGEST:
            raise ValueError(
                f"cap must be between {1 / _LARGEST:.0e} and {_LARGEST:.0e}, got "
                f"{self.cap}: float32 holds no quotients of logits and others; leave "
                "the soft cap out where nothing should be capped."
            )

    def logits(
        self, params: Params, logits: Logits, query: Tokens, key: Tokens
    ) -> Logits:
        """Returns the logits, capped."""
        capped = self.cap * jnp.tanh(logits / self.cap)
        return jnp.where(logits < _HIDES, logits, capped)
