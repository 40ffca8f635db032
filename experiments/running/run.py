"""One run from start to end: train or resume, score, and write everything down.

From a notebook:

    from configs import che
    from experiments.running.run import run_experiment

    config = che.get_config("task=even_pairs")
    config.train.steps = 2000
    scores = run_experiment(config, "runs/even_pairs")
"""

import contextlib
import pathlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
from ml_collections import ConfigDict
from rich.console import Console

from experiments.building.build import build
from experiments.report import tables
from experiments.results import store as results
from experiments.results.store import ResultsWriter
from experiments.running import (
    init_from,
    leaving,
    processes,
    scoring,
    storage,
    text_files,
    workdir,
)
from experiments.running.curves import Curves
from experiments.running.extending import raised_again
from experiments.running.first_params import untrained
from experiments.running.interrupt import Interrupt, StoppedError
from experiments.running.nonfinite import diverged, tell_of_counted
from experiments.running.opening import Run
from experiments.running.profiling import Profiler, check_left
from experiments.running.progress import Bar, figures
from experiments.running.provenance import provenance
from experiments.running.shared_folder import check_shared
from experiments.running.utilization import utilization_here
from ropejax.evaluation import LengthScore
from ropejax.training import (
    NonFiniteError,
    Progress,
    TrainState,
    newest_state,
    start_from,
    train,
)
from ropejax.training.checkpoint import Checkpoints
from ropejax.training.checkpoint_agreement import largest


def run_experiment(
    config: ConfigDict | Mapping[str, Any],
    folder: str | pathlib.Path,
    *,
    console: Console | None = None,
    summary: bool = True,
    profile: int = 0,
) -> dict[int, LengthScore]:
    """Trains a config to its end, resuming what the folder holds, and scores it.

    Args:
        config: all settings, as `configs.base.get_config` makes them.
        folder: the run's workdir; made if absent.
        console: where progress is shown; the terminal if None.
        summary: print a table of the scores at the end.
        profile: trace at least so many training steps; 0 for no trace.

    Returns:
        Scores by length.

    Raises:
        ValueError: if the config cannot be, the folder holds another one, or a trace
            would hold no step.
        StoppedError: after Ctrl-C or SIGTERM; the same call resumes.
        DivergedError: before a step that is not finite, if train.nonfinite is "stop".
        LostError: if another process of the run is gone; the same call resumes.
        StorageError: if the folder cannot be written; what was written stays whole.
    """
    config = workdir.plain(config)
    processes.check_agreement(config)
    first = processes.is_first()
    console = (console or Console()) if first else Console(quiet=True)
    run = Run(config, build(config), pathlib.Path(folder))
    task = run.experiment.recipe.task
    processes.check_mesh(run.experiment.recipe.sharding, "--config.mesh.data=-1")
    processes.check_agreement({"SHA-256 of the text": text_files.hash_of(task)})
    with contextlib.ExitStack() as held:
        held.enter_context(storage.explained(run.folder))
        check_shared(run.folder)
        with processes.failing_together():
            workdir.check_same(run.folder, config)
            init_from.check(config, run.folder, run.experiment.recipe.model)
            text_files.check(run.folder, task)
            _check_traceable(run, profile)
            _tell_of_new_schedule(run, console)
            if first:
                held.enter_context(workdir.locked(run.folder))
                workdir.write_config(run.folder, config)
                text_files.record(run.folder, task)
            writer = held.enter_context(run.writer() if first else processes.Silent())
            profiler = Profiler(run.folder / "profile", profile)
        state = train_run(run, writer, console, profiler)
        scores = score_run(run, state, writer, console)
    if summary and first:
        tables.print_summary(results.read(run.folder), console=console)
    return scores


def _check_traceable(run: Run, profile: int) -> None:
    train, done = run.config["train"], workdir.trained_steps(run.folder)
    to_save = train["save_every"] - done % train["save_every"]
    first = min(train["steps_per_dispatch"], to_save)
    check_left(profile, done, run.experiment.steps, first)


def _tell_of_new_schedule(run: Run, console: Console) -> None:
    if said := raised_again(workdir.read_config(run.folder), run.config):
        console.print(f"note: {said}")


def train_run(
    run: Run, writer: ResultsWriter, console: Console, profiler: Profiler
) -> TrainState:
    """Trains, from the newest checkpoint if there is one, and returns the last state.

    Raises:
        StoppedError: after Ctrl-C or SIGTERM, with the state saved.
        DivergedError: before a step that is not finite, with that step kept.
        LostError: if another process of the run is gone.
    """
    settings, experiment = run.config["train"], run.experiment
    recipe, steps = experiment.recipe, experiment.steps
    seeds = {"seed": experiment.seed, "length_seed": experiment.length_seed}
    curves = None
    checkpoints = Checkpoints(
        run.folder / workdir.CHECKPOINTS,
        keep=settings["keep"],
        metadata=lambda: {
            "config": run.config,
            "curve": {} if curves is None else curves.window(),
        },
    )
    closing = contextlib.ExitStack()
    closing.callback(checkpoints.close)
    closing.callback(profiler.close)

    def on_dispatch(progress: Progress) -> None:
        if curves is not None:
            bar.show(progress.step, figures(curves.add(progress)))
        profiler.after(progress.step)
        tell_of_counted(run.folder, recipe, progress, console)
        if code := asked():
            checkpoints.wait()
            if progress.step not in checkpoints.steps():
                loss = progress.metrics.mean_loss()
                checkpoints.save(progress.state, {"loss": loss})
                checkpoints.wait()
            raise _stopped(run, progress.step, code)

    tell = lambda: console.print("stopping after this dispatch; Ctrl-C again: at once")
    asked = lambda: largest(interrupt.code if interrupt.asked else 0)
    try:
        begin(run, checkpoints, console)
        began = init_from.origin(run.folder)
        writer.write("run", config=run.config, init_from=began, **provenance())
        if steps or largest(len(checkpoints.steps())):
            state = newest_state(recipe, **seeds, saver=checkpoints)
        else:
            state = untrained(run.config, experiment)
        first = int(state.step)
        if first:
            begun = f"resuming at step {first} of" if first < steps else None
            console.print(f"{run.folder}: {begun or 'already trained to'} {steps}")
        if processes.is_first():
            curves = Curves(
                writer,
                run.folder / "tensorboard",
                every=max(1, min(settings["log_every"], steps)),
                first=first,
                learning_rate=experiment.learning_rate,
                utilization=utilization_here(recipe),
                unfinished=lambda step: checkpoints.metadata(step).get("curve"),
            )
            closing.callback(curves.close)
        bar = Bar("train", steps, first, console=console)
        with Interrupt(tell) as interrupt, bar:
            if first < steps:
                bar.show(first, "compiling")
            if not steps:
                return state
            state = train(
                recipe,
                steps=steps,
                steps_per_dispatch=settings["steps_per_dispatch"],
                save_every=settings["save_every"],
                saver=checkpoints,
                on_dispatch=on_dispatch,
                start=state,
            )
            if code := asked():  # while the last state was being saved
                raise _stopped(run, steps, code)
        return state
    except NonFiniteError as error:
        checkpoints.wait()
        raise diverged(run.folder, recipe, error) from None
    except jax.errors.JaxRuntimeError as error:
        if lost := leaving.lost(error):
            closing.pop_all()  # or checkpoints would wait for a process that is gone
            raise lost from error
        raise
    finally:
        closing.close()


def begin(run: Run, checkpoints: Checkpoints, console: Console) -> None:
    """Writes the first checkpoint of a run that begins with another one's parameters.

    Args:
        run: the run.
        checkpoints: its own.
        console: where it is said.
    """
    experiment = run.experiment
    start = partial(
        start_from,
        experiment.recipe,
        seed=experiment.seed,
        length_seed=experiment.length_seed,
        allow_new=init_from.allows_new(run.config),
    )
    init_from.begin(
        run.config,
        run.folder,
        experiment.recipe.model,
        checkpoints,
        start,
        console,
        experiment.recipe.sharding,
    )


def _stopped(run: Run, step: int, code: int) -> StoppedError:
    return StoppedError(
        f"stopped at step {step} of {run.experiment.steps}, all saved in {run.folder}; "
        "the same command goes on from there.",
        code,
    )


def score_run(
    run: Run, state: TrainState, writer: ResultsWriter, console: Console
) -> dict[int, LengthScore]:
    """Scores a state as the run's config says, and appends rows."""
    recipe = run.experiment.recipe
    asked = scoring.Scoring(
        recipe.model,
        recipe.task,
        run.experiment.evaluation,
        run.score_labels(int(state.step), positions=run.test_positions),
        sharding=recipe.sharding,
    )
    return scoring.score(asked, state.params, run.folder, writer, console)
