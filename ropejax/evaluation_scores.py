"""Scores of one length: from what was counted on devices to numbers of the host."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ropejax.evaluation_places import PlaceScores, PlaceSums, place_scores
from ropejax.input_blind import blind_correct
from ropejax.training.losses import Sums


class LengthScore(NamedTuple):
    """What was counted at one length.

    Attributes:
        length: input length, in symbols.
        loss: cross-entropy in nats, summed over outputs.
        outputs: number of outputs.
        correct: right symbols among the scored ones.
        scored: number of scored symbols.
        exact: rows whose scored symbols are all right.
        rows: number of rows.
        blind_correct: scored symbols that the best input-blind predictor gets right.
        places: the same at each place of the answer, where `evaluate` was asked for it.
    """

    length: int
    loss: float
    outputs: int
    correct: int
    scored: int
    exact: int
    rows: int
    blind_correct: int
    places: PlaceScores | None = None

    @property
    def accuracy(self) -> float:
        """Fraction of scored symbols that are right."""
        return self.correct / self.scored

    @property
    def exact_match(self) -> float:
        """Fraction of rows without a mistake."""
        return self.exact / self.rows

    @property
    def mean_loss(self) -> float:
        """Mean cross-entropy an output, in nats."""
        return self.loss / self.outputs

    @property
    def perplexity(self) -> float:
        """The number of equally likely symbols that would be as hard to tell."""
        return math.exp(min(self.mean_loss, 700.0))  # beyond that, no number holds it

    @property
    def input_blind(self) -> float:
        """Accuracy of the best predictor that does not see the input."""
        return self.blind_correct / self.scored


def score_of(
    length: int,
    sums: Sums,
    targets: Int[np.ndarray, "S P"],
    places: PlaceSums | None = None,
    where: slice = slice(None),
) -> LengthScore:
    """Turns sums into a score.

    Args:
        length: input length.
        sums: over all rows, counts as integers.
        targets: the right symbol at each token, -1 where none is scored.
        places: sums at each token, or None.
        where: which tokens are places of the answer.
    """
    blind = blind_correct(targets)
    rows = int(sums.rows)
    return LengthScore(
        length=length,
        loss=float(sums.loss),
        outputs=int(sums.outputs),
        correct=int(sums.correct),
        scored=int(sums.scored),
        exact=int(sums.exact),
        rows=rows,
        blind_correct=int(blind.sum()),
        places=None if places is None else place_scores(places, blind, where, rows),
    )
