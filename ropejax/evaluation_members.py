"""Accuracy by length of all members of a population, on the same examples, at once."""

from collections.abc import Callable, Iterable
from functools import partial

import jax
from jaxtyping import Array, Int

from ropejax.evaluation import Counted, counted_by_length, evaluate_length
from ropejax.evaluation_places import answer_places
from ropejax.evaluation_scores import LengthScore, score_of
from ropejax.filling import last_repeated
from ropejax.nn import TransformerSpec
from ropejax.positions.base import PositionScheme
from ropejax.sharding import Sharding
from ropejax.tasks.base import Batch, Task
from ropejax.typing import Params, Rng


def evaluate_members(
    model: TransformerSpec,
    params: Params,
    task: Task,
    positions: PositionScheme,
    lengths: Iterable[int],
    *,
    samples: int = 512,
    draws: int = 8,
    seed: int = 1,
    buckets: tuple[int, ...] | None = None,
    examples: Callable[[int, int], Batch] | None = None,
    on_length: Callable[[list[LengthScore]], None] | None = None,
    on_bucket: Callable[[int], None] | None = None,
    sharding: Sharding | None = None,
    by_place: bool = False,
) -> list[dict[int, LengthScore]]:
    """Scores every member at each length, without dropout.

    Examples and positions are those that `evaluate` draws from the same seed: made once
    for all members.

    Args:
        model: how the model is made.
        params: parameters of all members, with a leading member axis.
        task: what they were trained on.
        positions: where tokens are said to be at test time.
        lengths: input lengths to score, in symbols.
        samples: rows a length.
        draws: position draws a length; each places `samples / draws` rows.
        seed: determines examples and positions.
        buckets: increasing lengths to which batches are padded; chosen if None.
        examples: a function of a length and a bucket that returns `samples` rows to
            score, padded to the bucket; they are drawn from the task if None.
        on_length: called with the members' scores at each length as they come.
        on_bucket: called with each bucket before its first length, as in `evaluate`.
        sharding: the mesh over whose axis "population" members are spread, and each of
            them over the others; None for one device.
        by_place: also count at each place of the answer, as `evaluate` does.

    Returns:
        Scores keyed by length, one dictionary a member.

    Raises:
        ValueError: as `ropejax.evaluation.evaluate`.
    """
    members = jax.tree.leaves(params)[0].shape[0]
    if sharding is not None:
        sharding.check(model)
        # Copies of the last member, so that devices share evenly.
        extra = -members % sharding.sizes["population"]
        params = jax.tree.map(lambda x: last_repeated(x, extra), params)
    scores: list[dict[int, LengthScore]] = [{} for _ in range(members)]
    for length, (sums, targets, places) in counted_by_length(
        partial(
            _evaluate_length, model, params, sharding=sharding, by_place=bool(by_place)
        ),
        model,
        task,
        positions,
        lengths,
        samples=samples,
        draws=draws,
        seed=seed,
        buckets=buckets,
        padded=None if sharding is None else sharding.padded_length,
        on_bucket=on_bucket,
        examples=examples,
    ):
        where = answer_places(task.tested, length)
        of_member = lambda tree, at: jax.tree.map(lambda x: x[at], tree)
        found = [
            score_of(
                *(length, of_member(sums, at), targets, of_member(places, at), where)
            )
            for at in range(members)
        ]
        for own, score in zip(scores, found, strict=True):
            own[length] = score
        if on_length is not None:
            on_length(found)
    return scores


@partial(
    jax.jit,
    static_argnames=(
        "model",
        "task",
        "positions",
        "bucket",
        "samples",
        "draws",
        "sharding",
        "by_place",
    ),
)
def _evaluate_length(
    model: TransformerSpec,
    params: Params,
    task: Task,
    positions: PositionScheme,
    rng: Rng,
    length: Int[Array, ""],
    *,
    bucket: int,
    samples: int,
    draws: int,
    examples: Batch | None = None,
    sharding: Sharding | None = None,
    by_place: bool = False,
) -> Counted:
    """Sums `[members]`, and the right symbols, which all members share."""

    def one(params):
        return evaluate_length(
            model,
            params,
            task,
            positions,
            rng,
            length,
            bucket=bucket,
            samples=samples,
            draws=draws,
            examples=examples,
            sharding=sharding,
            by_place=by_place,
        )

    along = None if sharding is None else sharding.members_axis
    found = jax.vmap(one, out_axes=(0, None, 0), spmd_axis_name=along)(params)
    return found if sharding is None else sharding.everywhere(found)
