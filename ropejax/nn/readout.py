"""From the last hidden states to logits: a projection of its own, or the embedding."""

import dataclasses
from types import MappingProxyType
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from ropejax.encodings.choices import positive
from ropejax.nn.parameters import projection_init
from ropejax.settings import Settings, check_finite


@dataclasses.dataclass(frozen=True)
class Readout(Settings):
    """How logits are read out; what does it derives from it.

    Attributes:
        divisor: logits are divided by it, before the cap (Granite's `logits_scaling`).
        cap: the limit that logits l bend towards, `cap tanh(l / cap)`, in nats; None
            for none (Gemma 2 has 30).

    Raises:
        ValueError: if `divisor` or `cap` is not positive or not finite.

    References:
        Gemma Team 2024, "Gemma 2", arXiv 2408.00118.
    """

    divisor: float = dataclasses.field(default=1.0, kw_only=True)
    cap: float | None = dataclasses.field(default=None, kw_only=True)

    summary: ClassVar[str]

    def __post_init__(self):
        check_finite(self)
        positive(divisor=self.divisor)
        if self.cap is not None:
            positive(cap=self.cap)

    def finished(self, logits: Float[Array, "B L V"]) -> Float[Array, "B L V"]:
        """Returns logits divided, and within the cap if any; for `__call__`."""
        if self.divisor != 1:
            logits = logits / self.divisor
        return logits if self.cap is None else self.cap * jnp.tanh(logits / self.cap)

    def check(self, num_symbols: int, num_outputs: int) -> None:
        """Raises ValueError where a model of these alphabets cannot be read out so."""

    def make(
        self, width: int, num_outputs: int, *, rngs: nnx.Rngs
    ) -> nnx.Module | None:
        """Returns the module that holds its parameters; None if it has none.

        Args:
            width: the model's, D.
            num_outputs: output classes, V.
            rngs: keys for the initial parameters.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make.")

    def __call__(
        self, model: Any, x: Float[Array, "B L D"], num_outputs: int
    ) -> Float[Array, "B L V"]:
        """Returns logits, float32.

        Args:
            model: what holds the `embedding`, and what `make` returned as `readout`.
            x: the last hidden states, `[B, L, D]`.
            num_outputs: output classes, V.
        """
        raise NotImplementedError(f"{type(self).__name__} must define __call__.")


@dataclasses.dataclass(frozen=True)
class LinearReadout(Readout):
    """`W x + b`, in float32.

    Attributes:
        bias: whether there is b.
    """

    bias: bool = True

    summary: ClassVar[str] = "a projection of its own"

    def make(self, width: int, num_outputs: int, *, rngs: nnx.Rngs) -> nnx.Module:
        """Returns the projection."""
        return nnx.Linear(
            width,
            num_outputs,
            use_bias=self.bias,
            kernel_init=projection_init,
            rngs=rngs,
        )

    def __call__(self, model, x, num_outputs):
        """Returns logits: see `Readout.__call__`."""
        return self.finished(model.readout(x.astype(jnp.float32)))


@dataclasses.dataclass(frozen=True)
class TiedReadout(Readout):
    """`E x`: the logit of a symbol is the product with its embedding, unscaled.

    Output classes are the first of the symbols, as in tasks on text; there is no bias.

    References:
        Press and Wolf 2017, "Using the Output Embedding to Improve Language Models",
        arXiv 1608.05859.
    """

    summary: ClassVar[str] = "products with the embedding (tied)"

    def check(self, num_symbols: int, num_outputs: int) -> None:
        """Raises ValueError where there are more output classes than symbols."""
        if num_outputs > num_symbols:
            raise ValueError(
                f"num_outputs={num_outputs} are more than num_symbols={num_symbols}, "
                "whose embeddings a tied readout reads; use a readout of its own."
            )

    def make(self, width: int, num_outputs: int, *, rngs: nnx.Rngs) -> None:
        """Returns None: the embedding is all."""
        return

    def __call__(self, model, x, num_outputs):
        """Returns logits: see `Readout.__call__`."""
        vectors = model.embedding[...][:num_outputs]
        return self.finished(x.astype(jnp.float32) @ vectors.T)


READOUTS = MappingProxyType({"linear": LinearReadout, "tied": TiedReadout})
"""Name in configs -> class of settings."""
