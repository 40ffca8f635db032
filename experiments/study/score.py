"""Scores the runs of one program, each under its evaluations, together where it can."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict
from rich.console import Console

from experiments.building import build
from experiments.building.build import Experiment
from experiments.evaluation_sets.asked import fixed_sets
from experiments.results.store import ResultsWriter
from experiments.running import labels, scoring
from experiments.running.progress import Bar
from experiments.running.scoring import Scoring
from experiments.study.sweep import StudyRun
from ropejax.evaluation import LengthScore
from ropejax.evaluation_members import evaluate_members
from ropejax.training.population import Population
from ropejax.typing import Params


@dataclasses.dataclass(frozen=True)
class Together:
    """What runs of one program share, and how they are run.

    Attributes:
        experiment: the objects of any one of them.
        population: their program.
        at_once: members a program maps over; 1: one after another.
        mesh: devices over which members are split, or None.
        sets: folder of fixed evaluation sets to score; None: fresh examples.
    """

    experiment: Experiment
    population: Population
    at_once: int
    mesh: Mesh | None = None
    sets: str | None = None


@dataclasses.dataclass(frozen=True)
class Scored:
    """A run that is to be scored.

    Attributes:
        run: the run.
        writer: where its rows go.
        rows_in: where rows of it may be already.
    """

    run: StudyRun
    writer: ResultsWriter
    rows_in: pathlib.Path


def score_all(
    runs: Sequence[Scored],
    params: Sequence[Params],
    together: Together,
    console: Console,
    *,
    after_row: Callable[[str], None],
) -> bool:
    """Scores what has no row yet of each run under each of its evaluations.

    Args:
        runs: the runs.
        params: their models' parameters.
        together: what they share.
        console: where progress is shown.
        after_row: called with a run_id when rows of the run were written.

    Returns:
        Whether all was scored here, and nothing before.
    """
    settings = {repr(one): one for scored in runs for one in scored.run.evaluations}
    all_here = True
    for key, one in settings.items():
        which = [
            at
            for at, scored in enumerate(runs)
            if key in map(repr, scored.run.evaluations)
        ]
        part = _Evaluation(
            [runs[at] for at in which],
            [scoring_of(runs[at].run, one, together) for at in which],
            [params[at] for at in which],
            console,
            after_row,
        )
        all_here &= not any(part.known)
        if together.at_once == 1:
            part.one_by_one()
        else:
            part.at_once(together.at_once)
    return all_here


def scoring_of(
    run: StudyRun, settings: Mapping[str, Any], together: Together
) -> Scoring:
    """Returns how a run is scored under one of its evaluations."""
    config = ConfigDict(dict(run.config) | {"eval": dict(settings)})
    recipe = together.experiment.recipe
    trained = labels.run_labels(run.config, together.experiment)
    evaluation = build.make_evaluation(config, recipe)
    return Scoring(
        recipe.model,
        recipe.task,
        evaluation,
        {
            "run_id": run.run_id,
            "step": run.config["train"]["steps"],
            "test_positions": evaluation.label or trained["positions"],
            "test_encoding": trained["encoding"],
        },
        fixed_sets(recipe.task, evaluation, together.sets) if together.sets else None,
        recipe.sharding,
    )


@dataclasses.dataclass(frozen=True)
class _Evaluation:
    """One evaluation of some runs."""

    runs: Sequence[Scored]
    asked: Sequence[Scoring]
    params: Sequence[Params]
    console: Console
    after_row: Callable[[str], None]

    @functools.cached_property
    def known(self) -> list[dict[int, LengthScore]]:
        """Returns the scores that each run has already."""
        pairs = zip(self.runs, self.asked, strict=True)
        return [scoring.known_scores(asked, run.rows_in) for run, asked in pairs]

    def one_by_one(self) -> None:
        """Scores one run after another."""
        for one, asked, params in zip(self.runs, self.asked, self.params, strict=True):
            scoring.score(asked, params, one.rows_in, one.writer, self.console)
            self.after_row(one.run.run_id)

    def at_once(self, chunk: int) -> None:
        """Scores so many runs at once at each length that one of them lacks."""
        known, first = self.known, self.asked[0]
        missing = [
            length
            for length in first.evaluation.lengths
            if any(length not in scores for scores in known)
        ]
        for start in range(0, len(self.runs) if missing else 0, chunk):
            places = range(start, min(start + chunk, len(self.runs)))
            self._score_chunk(places, missing)

    def _score_chunk(self, places: Sequence[int], missing: Sequence[int]) -> None:
        first = self.asked[0]
        evaluation = first.evaluation
        chosen = [self.params[at] for at in places]
        # On the host, unless that would gather what devices share.
        stack = np.stack if first.sharding is None else jnp.stack
        stacked = jax.tree.map(lambda *leaves: stack(leaves), *chosen)
        title = f"score {len(places)} models"
        with Bar(title, len(missing), console=self.console) as bar:
            then, done = time.perf_counter(), 0

            def on_length(scores: list[LengthScore]) -> None:
                nonlocal then, done
                now = time.perf_counter()
                for at, score in zip(places, scores, strict=True):
                    if score.length in self.known[at]:
                        continue
                    spent = {"wall_time_s": (now - then) / len(places)}
                    self.runs[at].writer.evaluation([self.asked[at].row(score) | spent])
                    self.after_row(self.runs[at].run.run_id)
                then = now
                done = missing.index(scores[0].length) + 1
                bar.show(done)

            def on_bucket(bucket: int) -> None:
                bar.show(done, scoring.compiling(bucket))

            evaluate_members(
                first.model,
                stacked,
                first.task,
                evaluation.positions,
                missing,
                samples=evaluation.samples,
                draws=evaluation.draws,
                seed=evaluation.seed,
                buckets=evaluation.buckets,
                examples=first.examples if first.sets else None,
                on_length=on_length,
                on_bucket=on_bucket,
                sharding=first.sharding,
            )
