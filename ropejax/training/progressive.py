r"""Progressive loss of looped models: an answer after fewer loops counts too.

A model trained after all its loops alone may use each loop for something of its own.
Asked for the answer after a random number of loops, from a random state on the way, it
learns one step that brings any state closer to the answer.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ropejax.nn.looped import LoopSpan
from ropejax.settings import Settings
from ropejax.typing import Rng

_STREAM = 2**32 - 1
"""Sets the draws of loops apart from those of lengths, which use the steps' numbers."""


@dataclasses.dataclass(frozen=True)
class ProgressiveLoss(Settings):
    r"""How the loops of a model enter its loss, and how far back gradients go.

    With `L(n, k)` the mean cross-entropy after `n + k` of `M` loops, of which the first
    `n` are held fixed (no gradient flows through them), and `B` the gradient loops,

        loss = (1 - weight) * L(M - B, B) + weight * L(n, k),
        n ~ U{0 .. M - 1},   k ~ U{1 .. min(M - n, B)},

    with one `n` and `k` a step. Embedded input that is injected into a later loop gets
    a gradient there.

    Attributes:
        weight: of the second term, 0 .. 1; at 1 the first one is not computed, at 0 the
            second.
        gradient_loops: B, the most loops that a gradient goes back through; all if
            None.

    Raises:
        ValueError: if one is out of range.

    References:
        Bansal et al. 2022, arXiv 2202.05826, section 3 (progressive loss; B = M);
        McLeish et al. 2024 (Abacus), arXiv 2405.17399, and mcleish7/arithmetic at
        55af9d5, `crammed_depthrecurrent.py`, where B = M // 2 and weight = 1 unless
        set otherwise.

    Departures:
        B is M unless given, as in Bansal et al. Both terms see the same dropout. Loops
        start from the embedded input; those of McLeish et al. from random states, to
        which it is added.
    """

    weight: float = 0.0
    gradient_loops: int | None = None

    def __post_init__(self):
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight must lie in 0 .. 1, got {self.weight}.")
        if self.gradient_loops is not None and self.gradient_loops < 1:
            raise ValueError(
                f"gradient_loops must be at least 1, got {self.gradient_loops}; None "
                "is all loops."
            )

    def check(self, loops: int) -> None:
        """Raises ValueError unless a model with so many loops can be trained so."""
        if loops < 2:
            raise ValueError(
                "a progressive loss is of looped models, and this one applies its "
                "layers once; set loops=2 or more, or leave the loss out."
            )
        if self.gradient_loops is not None and self.gradient_loops > loops:
            raise ValueError(
                f"gradient_loops={self.gradient_loops} must be at most loops={loops}."
            )

    def most(self, loops: int) -> int:
        """Returns B for a model with so many loops."""
        return loops if self.gradient_loops is None else self.gradient_loops

    def whole(self, loops: int) -> LoopSpan | None:
        """Returns the span of the first term; None if it is all loops as they are."""
        most = self.most(loops)
        return None if most == loops else LoopSpan(loops - most, most, most)

    def draw(self, rng: Rng, loops: int) -> LoopSpan:
        """Returns the span of the second term.

        Args:
            rng: PRNG key of the step: see `step_rng`.
            loops: the model's, M.
        """
        most = self.most(loops)
        before_rng, count_rng = jax.random.split(rng)
        before = jax.random.randint(before_rng, (), 0, loops, jnp.int32)
        longest = jnp.minimum(loops - before, most)
        count = jax.random.randint(count_rng, (), 1, longest + 1, jnp.int32)
        return LoopSpan(before, count, most)


def step_rng(length_rng: Rng, step: Int[Array, ""]) -> Rng:
    """Returns the key of a step's draw of loops.

    It follows from the key of lengths, which members of a population share: what is
    drawn decides what is computed, and stays a real branch where members are mapped
    over.

    Args:
        length_rng: base key of lengths, of the training state.
        step: number of the step.
    """
    return jax.random.fold_in(jax.random.fold_in(length_rng, _STREAM), step)
