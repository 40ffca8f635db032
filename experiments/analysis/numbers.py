"""The numbers of `experiments.analysis`, of one trained run at some lengths."""

import json
import os
import pathlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.building.checks import check_shown
from experiments.running.opening import Run, open_run
from ropejax.analysis import (
    Histogram,
    attention_statistics,
    fraction_unseen,
    met_positions,
    offset_similarity,
    receptive_field,
    training_positions,
)
from ropejax.nn import TransformerSpec
from ropejax.positions.base import Placement
from ropejax.seeds import check_seed
from ropejax.tasks import Batch
from ropejax.training import TrainState
from ropejax.training.placed_rows import check_rows
from ropejax.training.places import check_reach

OFFSETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Shifts of all positions, in tokens, as far as an encoding's positions reach."""

BINS = 40
"""Bars of a histogram of positions."""


def analyse_run(
    folder: str | pathlib.Path,
    *,
    lengths: Iterable[int] | None = None,
    samples: int = 8,
    seed: int = 1,
) -> dict[str, Any]:
    """Analyses a run's newest state, and writes `analysis/analysis.json` in its folder.

    Args:
        folder: the run's workdir.
        lengths: input lengths, in symbols; those of `default_lengths` that the model
            has positions for if None.
        samples: sequences a length.
        seed: of examples and positions.

    Returns:
        What was written: plain numbers and lists by name.

    Raises:
        ValueError: if there is no run, it has no attention, or a length, the number of
            samples or the seed cannot be.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}.")
    check_seed("seed", seed)
    run, state = open_run(folder)
    model = run.experiment.recipe.model
    if not isinstance(model, TransformerSpec):
        raise ValueError(
            f"{folder} holds a run of model.kind={run.config['model']['kind']}; only "
            "the attention of encoders and decoders is analysed."
        )
    longest = run.config["train"]["max_length"]
    chosen = chosen_lengths(run, lengths)
    rng = jax.random.key(seed)
    examples = {
        length: draw(run, jax.random.fold_in(rng, length), length, samples)
        for length in chosen
    }
    found = {
        "title": title_of(run),
        "step": int(state.step),
        "train_max_length": longest,
        "lengths": chosen,
        "samples": samples,
        "seed": seed,
        "attention": attention(model, state, examples),
        "positions": positions(run, state, chosen, rng),
        "receptive_field": reach(model, state, examples),
        "offsets": offsets(model, state, *examples[chosen[0]]),
    }
    path = pathlib.Path(folder) / "analysis" / "analysis.json"
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(found, indent=1) + "\n")
    os.replace(temporary, path)
    return found


def chosen_lengths(run: Run, lengths: Iterable[int] | None) -> list[int]:
    """Returns the lengths to look at, increasing.

    Args:
        run: the run.
        lengths: those asked for; None to choose.

    Raises:
        ValueError: if one that was asked for has no examples, or the model no positions
            for it; or if that is so of all that would be chosen.
    """
    if lengths is not None:
        asked = sorted(set(lengths))
        for length in asked:
            _check_length(run, length)
        return asked
    fitting, left_out = [], None
    for length in sorted(set(default_lengths(run.config["train"]["max_length"]))):
        try:
            _check_length(run, length)
            fitting.append(length)
        except ValueError as error:
            left_out = error
    if not fitting:
        raise left_out
    return fitting


def _check_length(run: Run, length: int) -> None:
    recipe, scheme = run.experiment.recipe, run.experiment.evaluation.positions
    task = recipe.task.tested
    task.check_length(length)
    what = f"inputs of {length} symbols are {task.num_tokens(length)} tokens"
    remedy = "train it with a larger max_position"
    check_reach(
        scheme, recipe.model.pattern, task.num_tokens(length), what=what, remedy=remedy
    )
    check_rows(scheme, task, length, what=what)
    check_shown(recipe.model, task, scheme, length, what)


def default_lengths(train_max: int) -> list[int]:
    """Returns lengths from a quarter of the trained ones to five times as long."""
    parts = (0.25, 0.5, 1, 1.5, 2.5, 5)
    return [max(2, round(part * train_max)) for part in parts]


def title_of(run: Run) -> str:
    """Returns what pictures say of a run: its task, encoding and positions."""
    recipe, config = run.experiment.recipe, run.config
    encoding = config["encoding"]["title"] or recipe.model.pattern[0].encoding.title
    title = f"{recipe.task.title}: {encoding}, {recipe.positions.title.lower()}"
    tested = run.experiment.evaluation.positions
    if tested == recipe.positions:
        return f"{title} positions"
    return f"{title} positions, tested at {tested.title.lower()} ones"


def draw(run: Run, rng, length: int, samples: int) -> tuple[Batch, Placement]:
    """Draws examples of one length and places them as the run's evaluation does."""
    recipe = run.experiment.recipe
    data_rng, positions_rng = jax.random.split(rng)
    rows = jnp.full((samples,), length, jnp.int32)
    batch = recipe.task.tested.sample(data_rng, rows, max_length=length)
    placement = run.experiment.evaluation.positions(
        positions_rng,
        batch.lengths,
        num_tokens=batch.tokens.shape[1],
        num_layers=recipe.model.dims.num_layers,
        tokens=recipe.task.placing_tokens(batch),
    )
    return batch, placement


def attention(model: TransformerSpec, state: TrainState, examples) -> dict[str, Any]:
    """Entropy and distance of attention: lists `[length][layer][head]`."""
    found = [
        attention_statistics(model, state.params, *one) for one in examples.values()
    ]
    return {
        name: [np.round(getattr(one, name), 5).tolist() for one in found]
        for name in found[0]._fields
    }


def positions(
    run: Run, state: TrainState, lengths: list[int], rng: jax.Array
) -> dict[str, Any]:
    """Positions and distances: share never seen by length, and coarse histograms.

    A checkpoint that was not trained on has seen what a step of its run would show it.
    """
    recipe, steps = run.experiment.recipe, int(state.step)
    if not steps and not run.config["model"]["pretrained"]:
        return {}
    trained = training_positions(recipe, state, steps=max(steps, 1))
    met = [
        met_positions(
            run.experiment.evaluation.positions,
            recipe.task,
            length,
            jax.random.fold_in(rng, length),
            num_layers=recipe.model.dims.num_layers,
        )
        for length in lengths
    ]
    found: dict[str, Any] = {}
    for name in ("positions", "distances"):
        own, others = getattr(trained, name), [getattr(one, name) for one in met]
        if own is None or others[-1] is None:
            continue
        end = 1 + max(int(one.values[-1]) for one in (own, *others))
        start = min(0, *(int(one.values[0]) for one in (own, *others)))
        edges = np.unique(np.linspace(start, end, BINS + 1).round().astype(int))
        found[name] = {
            "unseen": [fraction_unseen(own, one) for one in others],
            "edges": edges.tolist(),
            "training": _shares(own, edges),
            "test": _shares(others[-1], edges),
        }
    return found


def _shares(histogram: Histogram, edges: np.ndarray) -> list[float]:
    """Share of occurrences in each bin."""
    counts, _ = np.histogram(histogram.values, edges, weights=histogram.counts)
    return (counts / counts.sum()).tolist()


def reach(model: TransformerSpec, state: TrainState, examples) -> dict[str, Any]:
    """Share of the first output's gradient that each token has, mean over rows."""
    run = jax.jit(partial(receptive_field, model))
    found = {}
    for length, (batch, placement) in examples.items():
        query = int(np.argmax(np.asarray(batch.target_mask[0])))
        norms = run(state.params, batch.tokens, placement, jnp.array([query]))
        norms = np.asarray(norms[:, 0], np.float64)
        total = norms.sum(-1, keepdims=True)
        share = np.where(total > 0, norms / np.where(total > 0, total, 1), 0)
        found[str(length)] = {"query": query, "share": share.mean(0).tolist()}
    return found


def offsets(
    model: TransformerSpec, state: TrainState, batch: Batch, placement: Placement
) -> dict[str, Any]:
    """Likeness of hidden states: lists `[offset][layer]`, the embedding first."""
    limits = [kind.encoding.position_limit for kind in model.pattern]
    limit = min((limit for limit in limits if limit is not None), default=None)
    top = batch.tokens.shape[1]
    if placement.positions is not None:
        top = int(np.asarray(placement.positions).max()) + 1
    usable = [at for at in OFFSETS if limit is None or top + at <= limit]
    run = jax.jit(partial(offset_similarity, model))
    found = run(state.params, batch.tokens, placement, jnp.array(usable))
    return {"offsets": usable, "similarity": np.round(found, 6).tolist()}
