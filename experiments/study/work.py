"""One worker of a study: takes runs that nobody has, until none is left."""

import contextlib
import dataclasses
import traceback
from collections.abc import Sequence
from functools import partial

import jax
import numpy as np
from jax.sharding import Mesh
from rich.console import Console

from experiments.building import build
from experiments.building.mesh import members_sharding, without_mesh
from experiments.results import store as results
from experiments.running import storage
from experiments.running.interrupt import StoppedError
from experiments.running.progress import clock
from experiments.study.claims import Claims, LostClaimError
from experiments.study.cost import Costs, ordered
from experiments.study.folder import StudyFolder
from experiments.study.score import Together
from experiments.study.sweep import StudyRun
from experiments.study.train import Work, population_of
from ropejax.training.population import AXIS
from ropejax.training.population_size import members_at_once

COMPACT_EVERY = 50
"""Runs that a worker finishes between two compactions of the results."""

PROGRAMS_KEPT = 12
"""Groups whose compiled programs a worker keeps; more would fill its memory."""


@dataclasses.dataclass(frozen=True)
class How:
    """How a worker works.

    Attributes:
        shard: (3, 16) is the third of sixteen: which runs it begins with.
        at_once: members a program maps over; chosen by device if None.
        stale_s: seconds after which another machine's silent worker counts as dead.
        sets: folder of fixed evaluation sets to score; None: fresh examples.
    """

    shard: tuple[int, int] = (1, 1)
    at_once: int | None = None
    stale_s: float = 600.0
    sets: str | None = None


@dataclasses.dataclass(frozen=True)
class Counts:
    """How far a study is.

    Attributes:
        done: runs that are finished.
        running: runs that workers have claimed.
        failed: runs that were given up.
        left: all others.
        seconds: what `running` and `left` cost, of one device.
    """

    done: int
    running: int
    failed: int
    left: int
    seconds: float

    def __str__(self) -> str:
        failed = f"{self.failed} failed, " if self.failed else ""
        return f"{self.done} done, {self.running} running, {failed}{self.left} left"


class Worker:
    """Works through a study in one process.

    Args:
        folder: the study's.
        runs: all runs of the study.
        how: how to work.
        console: where progress is shown.
    """

    def __init__(
        self,
        folder: StudyFolder,
        runs: Sequence[StudyRun],
        how: How,
        console: Console,
    ):
        self._folder, self._runs, self._how = folder, runs, how
        self._console = console
        self._finished: set[str] = set()
        self._groups: dict[str, Together] = {}
        self._since_compaction = 0

    def work(self) -> Counts:
        """Takes and does runs until none is free, and returns how far the study is.

        Raises:
            StoppedError: after Ctrl-C or SIGTERM; whatever was finished stays.
            StorageError: if the folder cannot be written; likewise.
        """
        heartbeat_s = min(20.0, self._how.stale_s / 5)
        with Claims(
            self._folder.claims, heartbeat_s=heartbeat_s, stale_s=self._how.stale_s
        ) as claims:
            while taken := self._take(claims):
                self._do(taken, claims)
                self._tell(claims)
            counts = count(self._folder, self._runs, claims)
        if counts.done == len(self._runs):
            self._compact()
        return counts

    def _take(self, claims: Claims) -> list[StudyRun]:
        """Claims the most telling run that is free, and others that share its program.

        Whether it is finished is looked up once more when the claim is held: before,
        another worker might have finished it.
        """
        given_up = self._folder.failures()
        self._finished |= self._folder.finished(self._runs)
        busy = claims.active()
        costs = Costs(self._runs, self._folder.costs())
        pending = [
            run
            for run in ordered(self._runs, costs, self._how.shard)
            if run.run_id not in self._finished and run.run_id not in given_up
        ]
        taken: list[StudyRun] = []
        room = 1
        for run in pending:
            if taken and run.group != taken[0].group:
                continue
            if run.run_id in busy or not claims.take(run.run_id):
                continue
            if self._is_finished(run):
                claims.release(run.run_id, done=True)
                continue
            taken.append(run)
            if len(taken) == 1:
                room = self._room(run, pending, claims)
            if len(taken) >= room:
                break
        return taken

    def _is_finished(self, run: StudyRun) -> bool:
        if self._folder.is_finished(run):
            self._finished.add(run.run_id)
        return run.run_id in self._finished

    def _room(self, run: StudyRun, pending: Sequence[StudyRun], claims: Claims) -> int:
        """Returns how many runs of a group to take: those of one program."""
        try:
            together = self._together(run, pending)
        except Exception:
            self._give_up([run], claims)
            return 0
        return together.at_once

    def _together(self, run: StudyRun, pending: Sequence[StudyRun]) -> Together:
        if run.group not in self._groups:
            if len(self._groups) >= PROGRAMS_KEPT:
                self._groups.clear()
                jax.clear_caches()
            alike = sum(other.group == run.group for other in pending)
            self._groups[run.group] = self._made_for(run, alike)
        return self._groups[run.group]

    def _made_for(self, run: StudyRun, alike: int) -> Together:
        """What so many runs of one program share, on the devices that are here."""
        experiment = build.build(without_mesh(run.config))
        devices = jax.local_devices()
        most = min(self._how.at_once or alike, alike)
        sharding = members_sharding(run.config, most, devices)
        if sharding is not None:
            recipe = dataclasses.replace(experiment.recipe, sharding=sharding)
            experiment = dataclasses.replace(experiment, recipe=recipe)
        population = population_of(run.config, experiment)
        made = partial(Together, experiment, population, sets=self._how.sets)
        if sharding is not None:
            fitting = members_at_once(population, most)
            return made(max(sharding.sizes[AXIS], fitting))
        if devices[0].platform == "cpu":
            devices = devices[:1]  # all of them are the same cores
        fitting = members_at_once(population, alike) * len(devices)
        at_once = min(self._how.at_once or fitting, alike)
        devices = devices[:at_once]
        mesh = Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None
        return made(at_once, mesh)

    def _do(self, runs: Sequence[StudyRun], claims: Claims) -> None:
        """Trains and scores claimed runs; marks them as finished, or gives them up."""
        held = [run for run in runs if run.run_id in claims.held]
        if not held:
            return
        together = self._groups[held[0].group]
        try:
            with storage.explained(
                self._folder.path, [self._folder.run(run.run_id) for run in held]
            ):
                with Work(self._folder, held, together, claims, self._console) as work:
                    costs = work.run()
                for run, cost in zip(held, costs, strict=True):
                    self._folder.finish(run, cost)
                    claims.release(run.run_id, done=True)
                    self._finished.add(run.run_id)
        except LostClaimError as lost:
            self._console.print(str(lost))
        except (StoppedError, storage.StorageError):
            raise  # the runs are as good as before
        except Exception:
            self._give_up(held, claims)
        finally:
            for run in held:
                if run.run_id in claims.held:
                    claims.release(run.run_id)
        self._since_compaction += len(held)
        if self._since_compaction >= COMPACT_EVERY:
            self._compact()

    def _give_up(self, runs: Sequence[StudyRun], claims: Claims) -> None:
        why = traceback.format_exc()
        for run in runs:
            self._folder.fail(run.run_id, why)
            claims.release(run.run_id)
            self._console.print(
                f"{run.run_id} failed: {why.strip().splitlines()[-1]}",
                markup=False,
                soft_wrap=True,
            )

    def _compact(self) -> None:
        self._since_compaction = 0
        with contextlib.suppress(FileNotFoundError):
            results.compact(self._folder.results)

    def _tell(self, claims: Claims) -> None:
        counts = count(self._folder, self._runs, claims)
        self._console.print(f"{counts}{time_left(counts)}", highlight=False)


def count(folder: StudyFolder, runs: Sequence[StudyRun], claims: Claims) -> Counts:
    """Returns how far a study is."""
    finished = folder.finished(runs)
    active = claims.active().keys() - finished
    given_up = folder.failures().keys() - finished - active
    costs = Costs(runs, folder.costs())
    open_runs = [run for run in runs if run.run_id not in finished | given_up]
    running = sum(run.run_id in active for run in open_runs)
    return Counts(
        done=len(finished),
        running=running,
        failed=sum(run.run_id in given_up for run in runs),
        left=len(open_runs) - running,
        seconds=sum(costs.seconds(run) for run in open_runs),
    )


def time_left(counts: Counts) -> str:
    """Returns `; about 1:02:03 left` if the runs now running go on as they are."""
    if not counts.running + counts.left:
        return ""
    return f"; about {clock(counts.seconds / max(counts.running, 1))} left"
