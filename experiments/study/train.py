"""Trains and scores some runs of one program, each in its folder, all at once."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict
from rich.console import Console

from experiments.building import build
from experiments.building.build import Experiment
from experiments.building.optimizers import make_family, numbers_of
from experiments.results.store import ResultsWriter
from experiments.running import init_from, labels, text_files, workdir
from experiments.running.curves import Curves
from experiments.running.first_params import untrained
from experiments.running.interrupt import Interrupt, StoppedError
from experiments.running.progress import Bar, figures
from experiments.running.provenance import provenance
from experiments.study.claims import Claims
from experiments.study.folder import StudyFolder
from experiments.study.score import Scored, Together, score_all
from experiments.study.sweep import StudyRun
from ropejax.training import Progress, TrainState, init_state
from ropejax.training.checkpoint import Checkpoints
from ropejax.training.members import Member
from ropejax.training.population import Population, init_member
from ropejax.training.population_loop import MemberProgress, train_population
from ropejax.typing import Params


def population_of(config: Mapping[str, Any], experiment: Experiment) -> Population:
    """Returns the program that trains a config, whatever its seed and numbers."""
    return Population(experiment.recipe, make_family(config))


def member_of(config: Mapping[str, Any]) -> Member:
    """Returns the seed and the numbers of a config."""
    return Member(config["train"]["seed"], numbers_of(config))


@dataclasses.dataclass
class _Open:
    """One run while it is worked on."""

    run: StudyRun
    checkpoints: Checkpoints
    curves: Curves
    writer: ResultsWriter
    first: int
    scored: Scored


class Work:
    """Some runs of one program while this process has them; a context manager.

    Args:
        folder: the study's.
        runs: runs of one group, which this process has claimed.
        together: what they share.
        claims: where they were claimed.
        console: where progress is shown.
    """

    def __init__(
        self,
        folder: StudyFolder,
        runs: Sequence[StudyRun],
        together: Together,
        claims: Claims,
        console: Console,
    ):
        self._folder, self._runs, self._together = folder, runs, together
        self._claims, self._console = claims, console
        self._exit = contextlib.ExitStack()
        self._open: list[_Open] = []
        self._timed: list[tuple[int, float]] = []
        self._scored_s: float | None = None

    def __enter__(self) -> "Work":
        with contextlib.ExitStack() as exit_stack:
            for run in self._runs:
                self._open.append(self._opened(run, exit_stack))
            self._exit = exit_stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._exit.close()

    def _opened(self, run: StudyRun, exit_stack: contextlib.ExitStack) -> _Open:
        folder, config = self._folder.run(run.run_id), run.config
        has_rows = folder.exists()
        model = self._together.experiment.recipe.model
        workdir.check_same(folder, config)
        init_from.check(config, folder, model)
        task = self._together.experiment.recipe.task
        text_files.check(folder, task)
        exit_stack.enter_context(workdir.locked(folder))
        workdir.write_config(folder, config)
        text_files.record(folder, task)
        curves = None
        checkpoints = Checkpoints(
            folder / "checkpoints",
            keep=config["train"]["keep"],
            metadata=lambda: {
                "config": dict(config),
                "curve": {} if curves is None else curves.window(),
            },
        )
        exit_stack.callback(checkpoints.close)
        start = self._begun(config)
        init_from.begin(config, folder, model, checkpoints, start, self._console)
        first = max(checkpoints.steps(), default=0)
        common = labels.run_labels(config, self._together.experiment)
        common["seed"] = config["train"]["seed"]
        writer = ResultsWriter(self._folder.path, run.run_id, common)
        exit_stack.enter_context(writer)
        curves = Curves(
            writer,
            folder / "tensorboard",
            every=max(1, min(config["train"]["log_every"], config["train"]["steps"])),
            first=first,
            learning_rate=build.make_schedule(ConfigDict(config)),
            unfinished=lambda step: checkpoints.metadata(step).get("curve"),
        )
        exit_stack.callback(curves.close)
        # A run that is new has no rows to look for in a store of thousands.
        rows_in = self._folder.results if has_rows else folder
        scored = Scored(run, writer, rows_in)
        return _Open(run, checkpoints, curves, writer, first, scored)

    def _begun(self, config: Mapping[str, Any]) -> Callable[[Params], TrainState]:
        """Makes the state before the first step of given parameters."""
        length_seed = config["train"]["length_seed"]

        def start(params: Params) -> TrainState:
            return init_member(
                self._together.population,
                member_of(config),
                length_seed,
                params,
                allow_new=init_from.allows_new(config),
            )

        return start

    def run(self) -> list[dict[str, Any]]:
        """Trains and scores all runs, and returns what each cost.

        Raises:
            StoppedError: after Ctrl-C or SIGTERM in training, with everything saved;
                scoring just ends, since each score is saved as it comes.
            LostClaimError: if another worker has taken a run over.
        """
        where = provenance()
        for one in self._open:
            began = init_from.origin(self._folder.run(one.run.run_id))
            one.writer.write("run", config=one.run.config, init_from=began, **where)
        states = self._train()
        self._score(states)
        cost = self._cost() | {"device": where["device"]}
        return [dict(cost) for _ in self._open]

    def _train(self) -> list[TrainState]:
        settings = self._runs[0].config["train"]
        steps = settings["steps"]
        if not steps:
            return [self._untrained(one) for one in self._open]
        at_once = self._together.at_once
        first = min(one.first for one in self._open)
        say = self._console.print
        tell = lambda: say("stopping after this dispatch; Ctrl-C again: at once")
        bar = Bar(self._title("train"), steps, first, console=self._console)
        with Interrupt(tell) as interrupt, bar:
            if first < steps:
                bar.show(first, "compiling")
            while True:
                try:
                    return train_population(
                        self._together.population,
                        [member_of(run.config) for run in self._runs],
                        steps=steps,
                        length_seed=settings["length_seed"],
                        at_once=at_once,
                        mesh=self._together.mesh,
                        steps_per_dispatch=settings["steps_per_dispatch"],
                        save_every=settings["save_every"],
                        savers=[one.checkpoints for one in self._open],
                        on_dispatch=lambda now: self._after(now, bar, interrupt),
                    )
                except jax.errors.JaxRuntimeError as error:
                    if "RESOURCE_EXHAUSTED" not in str(error) or at_once == 1:
                        raise
                    at_once //= 2
                    say(f"out of memory; {at_once} models at once from here on")

    def _untrained(self, one: _Open) -> TrainState:
        """The state that a run which trains nothing begins with."""
        experiment = dataclasses.replace(
            self._together.experiment, seed=one.run.config["train"]["seed"]
        )
        if not one.checkpoints.steps():
            return untrained(one.run.config, experiment)
        like = init_state(experiment.recipe, experiment.seed, experiment.length_seed)
        return one.checkpoints.latest(like)

    def _after(self, progress: MemberProgress, bar: Bar, interrupt: Interrupt) -> None:
        """Writes curves, and stops if asked to or if a claim was lost."""
        steps = progress.metrics.loss.shape[0] * len(progress.members)
        self._timed.append((steps, progress.seconds))
        for place, at in enumerate(progress.members):
            metrics = progress.metrics.of_member(place)
            seconds = progress.seconds / len(progress.members)
            line = self._open[at].curves.add(
                Progress(progress.step, metrics, None, seconds)
            )
            self._claims.check(self._runs[at].run_id)
        bar.show(progress.step, figures(line))
        if interrupt.asked:
            self._save(progress)
            raise StoppedError(
                f"stopped at step {progress.step}, all saved in {self._folder.path}; "
                "the same command goes on from there.",
                interrupt.code,
            )

    def _save(self, progress: MemberProgress) -> None:
        for place, at in enumerate(progress.members):
            checkpoints = self._open[at].checkpoints
            checkpoints.wait()
            if progress.step not in checkpoints.steps():
                loss = progress.metrics.of_member(place).mean_loss()
                checkpoints.save(progress.state(place), {"loss": loss})
        for at in progress.members:
            self._open[at].checkpoints.wait()

    def _score(self, states: Sequence[TrainState]) -> None:
        start = time.perf_counter()
        scored = score_all(
            [one.scored for one in self._open],
            [state.params for state in states],
            self._together,
            self._console,
            after_row=self._claims.check,
        )
        # What an earlier process scored was not timed here.
        self._scored_s = time.perf_counter() - start if scored else None

    def _cost(self) -> dict[str, Any]:
        """Device seconds a run, without the dispatch that compiled."""
        timed = sorted(self._timed, key=lambda one: one[1] / one[0])[:-1]
        steps = sum(count for count, _ in timed)
        seconds = sum(seconds for _, seconds in timed)
        scored = self._scored_s
        return {
            "step_s": seconds / steps if steps else None,
            "score_s": None if scored is None else scored / len(self._runs),
            "members": len(self._runs),
        }

    def _title(self, what: str) -> str:
        one = self._runs[0].run_id
        more = len(self._runs) - 1
        return f"{what} {one}" + (f" and {more} more" if more else "")
