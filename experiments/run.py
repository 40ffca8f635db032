"""One run from start to end: train or resume, score, and write everything down.

From a notebook:

    from configs import che
    from experiments.run import run_experiment

    config = che.get_config("task=even_pairs")
    config.train.steps = 2000
    scores = run_experiment(config, "runs/even_pairs")
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console

from experiments import labels, results, scoring, tables, workdir
from experiments.build import Evaluation, Experiment, build
from experiments.curves import Curves
from experiments.interrupt import Interrupt, StoppedError
from experiments.progress import Bar, figures
from experiments.provenance import provenance
from experiments.results import ResultsWriter
from ropejax.evaluation import LengthScore
from ropejax.training import Progress, TrainState, init_state, train
from ropejax.training.checkpoint import Checkpoints


@dataclasses.dataclass(frozen=True)
class Run:
    """A config, its objects, and the folder where everything about it is.

    Attributes:
        config: all settings, plain.
        experiment: what they describe.
        folder: the run's workdir.
    """

    config: Mapping[str, Any]
    experiment: Experiment
    folder: pathlib.Path

    @property
    def run_id(self) -> str:
        """The run's name in the results."""
        return labels.run_id(self.config)

    def writer(self, study: str | None = None) -> ResultsWriter:
        """Returns a writer of the run's rows."""
        common = labels.run_labels(self.config, self.experiment)
        return ResultsWriter(self.folder, self.run_id, common | {"study": study})


def run_experiment(
    config: ConfigDict | Mapping[str, Any],
    folder: str | pathlib.Path,
    *,
    study: str | None = None,
    console: Console | None = None,
) -> dict[int, LengthScore]:
    """Trains a config to its end, resuming what the folder holds, and scores it.

    Args:
        config: all settings, as `configs.base.get_config` makes them.
        folder: the run's workdir; made if absent.
        study: name of a study that the run belongs to.
        console: where progress is shown; the terminal if None.

    Returns:
        Scores by length.

    Raises:
        ValueError: if the config cannot be, or the folder holds another one.
        StoppedError: after Ctrl-C or SIGTERM; the same call resumes.
    """
    console = console or Console()
    config = workdir.plain(config)
    run = Run(config, build(config), pathlib.Path(folder))
    workdir.check_same(run.folder, config)
    with workdir.locked(run.folder):
        workdir.write_config(run.folder, config)
        with run.writer(study) as writer:
            writer.write("run", config=config, **provenance())
            state = train_run(run, writer, console)
            scores = score_run(run, state, writer, console)
    tables.print_summary(results.read(run.folder), console=console)
    return scores


def train_run(run: Run, writer: ResultsWriter, console: Console) -> TrainState:
    """Trains, from the newest checkpoint if there is one, and returns the last state.

    Raises:
        StoppedError: after Ctrl-C or SIGTERM, with the state saved.
    """
    settings, steps = run.config["train"], run.experiment.steps
    checkpoints = Checkpoints(
        run.folder / "checkpoints",
        keep=settings["keep"],
        metadata={"config": run.config},
    )
    first = max(checkpoints.steps(), default=0)
    if first:
        console.print(f"{run.folder}: resuming at step {first} of {steps}")
    curves = Curves(writer, run.folder / "tensorboard", settings["log_every"], first)

    def on_dispatch(progress: Progress) -> None:
        bar.show(progress.step, figures(curves.add(progress)))
        if not interrupt.asked:
            return
        checkpoints.wait()
        if progress.step not in checkpoints.steps():
            checkpoints.save(progress.state, {"loss": progress.metrics.loss.mean()})
            checkpoints.wait()
        raise StoppedError(
            f"stopped at step {progress.step} of {steps}, all saved in {run.folder}; "
            "the same command goes on from there."
        )

    tell = lambda: console.print("stopping after this dispatch; Ctrl-C again: at once")
    bar = Bar("train", steps, first, console=console)
    try:
        with Interrupt(tell) as interrupt, bar:
            bar.show(first, "compiling")
            return train(
                run.experiment.recipe,
                steps=steps,
                seed=run.experiment.seed,
                steps_per_dispatch=settings["steps_per_dispatch"],
                save_every=settings["save_every"],
                saver=checkpoints,
                on_dispatch=on_dispatch,
            )
    finally:
        curves.close()
        checkpoints.close()


def score_run(
    run: Run, state: TrainState, writer: ResultsWriter, console: Console
) -> dict[int, LengthScore]:
    """Scores a state as the run's config says, and appends rows."""
    settings = run.config["eval"]
    positions = (
        None
        if settings["positions"] is None
        else labels.with_options(settings["positions"], settings["options"])
    )
    asked = make_scoring(run, run.experiment.evaluation, state, positions=positions)
    return scoring.score(asked, state.params, run.folder, writer, console)


def make_scoring(
    run: Run,
    evaluation: Evaluation,
    state: TrainState,
    *,
    positions: str | None = None,
) -> scoring.Scoring:
    """Returns what is to be scored, labelled.

    Args:
        run: the run.
        evaluation: how it is scored.
        state: whose step names the rows.
        positions: name of the test-time scheme; that of training if None.
    """
    trained = labels.run_labels(run.config, run.experiment)
    recipe = run.experiment.recipe
    return scoring.Scoring(
        recipe.model,
        recipe.task,
        evaluation,
        {
            "run_id": run.run_id,
            "step": int(state.step),
            "test_positions": positions or trained["positions"],
            "test_encoding": trained["encoding"],
        },
    )


def open_run(folder: str | pathlib.Path) -> tuple[Run, TrainState]:
    """Returns a run and its newest state, without touching its folder.

    Raises:
        ValueError: if there is no run, or no checkpoint that can be read.
    """
    folder = pathlib.Path(folder)
    config = workdir.read_config(folder)
    if config is None:
        raise ValueError(
            f"{folder} holds no run (no config.json); train one there with "
            "python -m experiments.main --workdir=..."
        )
    run = Run(config, build(config), folder)
    checkpoints = Checkpoints(folder / "checkpoints", read_only=True)
    like = init_state(run.experiment.recipe, run.experiment.seed)
    state = checkpoints.latest(like)
    checkpoints.close()
    if state is None:
        raise ValueError(f"{folder} has no checkpoint yet; train longer.")
    return run, state
