"""Masks that differ by head."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from ropejax.masks.base import Mask, Visibility, check_masks, longest_reach


@dataclasses.dataclass(frozen=True)
class PerHead(Mask):
    """A mask for each query head.

    HARD-ALiBi (Jelassi et al. 2024, "Repeat After Me", arXiv 2402.01032) is
    `PerHead((Window(0), Window(1), ..., Causal()))`. With heads cut over devices inside
    `shard_map`, give each shard the masks of its own heads.

    Attributes:
        heads: one mask for each of the N query heads.
    """

    summary: ClassVar[str] = "another mask for each query head"

    heads: tuple[Mask, ...]

    def __post_init__(self):
        check_masks(self.heads)

    @property
    def reach(self) -> int | None:
        """The longest of the heads'."""
        return longest_reach(self.heads)

    @property
    def shows_itself(self) -> bool:
        """True if any head does."""
        return any(mask.shows_itself for mask in self.heads)

    def __call__(self, query, key):
        """Returns True where a query may attend to a key."""
        made = {mask: mask(query, key) for mask in dict.fromkeys(self.heads)}
        for mask, visible in made.items():
            if visible.shape[1] != 1:
                raise ValueError(f"PerHead needs masks of one head each, got {mask!r}.")
        batch = max(visible.shape[0] for visible in made.values())
        shape = (batch, 1, query.length, key.length)
        return jnp.concatenate(
            [jnp.broadcast_to(made[mask], shape) for mask in self.heads], axis=1
        )

    def blocks(self, query_lo, query_hi, key_lo, key_hi):
        """Returns what is certain for blocks of queries against blocks of keys."""
        different = tuple(dict.fromkeys(self.heads))
        known = [m.blocks(query_lo, query_hi, key_lo, key_hi) for m in different]
        some, every = known[0]
        for head in known[1:]:
            some, every = some | head.some, every & head.all
        return Visibility(some, every)
