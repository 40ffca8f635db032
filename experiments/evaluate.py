r"""Scores a trained run at any lengths, also with other positions than in training.

    python -m experiments.evaluate --workdir=runs/reverse --lengths=1:500
    python -m experiments.evaluate --workdir=runs/reverse --positions=evenly_spaced
    python -m experiments.evaluate --workdir=runs/reverse --sets=sets
    python -m experiments.evaluate --workdir=runs/reverse --lengths=50:500:50 \
        --positions="randomized(max_position=1024)" \
        --encoding_options="distance=Rectified(512)"
    python -m experiments.evaluate --workdir=runs/large --mesh=fsdp=-1

Test-time positions have the settings of the training positions where none are given:
evenly spaced ones go as far as those that the model was trained at. Scores are appended
to the run's results, each beside that of the best predictor that does not see the
input. The newest checkpoint is scored; its step is in every row, and what is printed
first says if training is not finished.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict
from rich.console import Console

from experiments import command, lengths
from experiments.building import options, trained_length
from experiments.building.checks import Evaluation, check_scorable
from experiments.building.mesh import parse_sizes
from experiments.building.methods import PARTS
from experiments.building.tested_positions import make_tested
from experiments.evaluation_sets.content import FixedSet
from experiments.report import tables
from experiments.results import store as results
from experiments.running import joining, processes, scoring
from experiments.running.run import Run, open_run, read_run
from experiments.running.shared_folder import check_shared
from ropejax.evaluation import LengthScore
from ropejax.nn import TransformerSpec
from ropejax.seeds import check_seed
from ropejax.tasks import Task

SHOWN_AT_MOST = 12
"""Up to so many lengths, the summary shows just those that were asked for."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument("--workdir", metavar="DIR", help="folder of a trained run")
    parser.add_argument(
        "--lengths",
        metavar="LENGTHS",
        help="both ends included: 1:500, or 1,2,50:100:10 (default: the run's)",
    )
    parser.add_argument(
        "--positions",
        metavar="NAME[(SETTINGS)]",
        help="where tokens are said to be; settings that are not given are those of "
        "training (default: as the run's config says)",
    )
    parser.add_argument(
        "--encoding_options",
        metavar="SETTINGS",
        default="",
        help="settings of the encoding to change, with the same parameters",
    )
    parser.add_argument(
        "--sets",
        metavar="DIR",
        help="score fixed sets of experiments.evaluation_sets, instead of fresh ones: "
        "all lengths that are there, unless --lengths says which",
    )
    for name, what in {
        "samples": "sequences a length",
        "draws": "draws of positions a length; they divide the samples",
        "seed": "of examples and positions",
    }.items():
        parser.add_argument(
            f"--{name}", type=int, metavar="N", help=f"{what} (default: the run's)"
        )
    parser.add_argument(
        "--mesh",
        metavar="AXIS=N,...",
        help="spread model and rows over devices, such as data=2,tensor=2 or fsdp=-1 "
        "(default: one device)",
    )
    joining.add_flags(parser, "score")
    given, rest = command.parse(parser, argv)
    if rest:
        raise command.UsageError(f"{rest[0]!r} is no argument of this command.")
    if not given.workdir:
        raise command.UsageError("--workdir is missing; --help shows examples.")
    command.prepare_jax(given.compile_cache)
    joining.join(given)
    evaluate_run(
        given.workdir,
        lengths_text=given.lengths,
        positions=given.positions,
        encoding_options=given.encoding_options,
        sets=given.sets,
        mesh=None if given.mesh is None else parse_sizes(given.mesh, "--mesh"),
        changes={
            name: getattr(given, name)
            for name in ("samples", "draws", "seed")
            if getattr(given, name) is not None
        },
    )
    return 0


def evaluate_run(
    folder: str | pathlib.Path,
    *,
    lengths_text: str | None = None,
    positions: str | None = None,
    encoding_options: str = "",
    changes: Mapping[str, int] | None = None,
    sets: str | pathlib.Path | None = None,
    mesh: Mapping[str, int] | None = None,
    console: Console | None = None,
) -> dict[int, LengthScore]:
    """Scores a run's newest state, appends rows to its results, and prints a summary.

    Args:
        folder: the run's workdir.
        lengths_text: such as "1:500"; the run's own if None.
        positions: a scheme, such as "evenly_spaced" or "randomized(max_position=512)",
            with what it does not say as in training; that of the run's config if None.
        encoding_options: settings of the encoding to change.
        changes: `samples`, `draws` and `seed` that differ from the run's config.
        sets: folder of fixed evaluation sets, which also says at which lengths, of how
            many samples and with which seed to score where that is not given; fresh
            examples are drawn if None.
        mesh: sizes by axis of the mesh that model and rows are spread over; None for
            one device. Several processes must all call this alike.
        console: where progress and summary are shown; the terminal if None.

    Returns:
        Scores by length.

    Raises:
        ValueError: if there is no run, or what is asked cannot be.
    """
    first = processes.is_first()
    console = (console or Console()) if first else Console(quiet=True)
    changes = dict(changes or {})
    processes.check_agreement(
        {
            "lengths": lengths_text,
            "positions": positions,
            "encoding_options": encoding_options,
            "mesh": mesh,
            "changes": changes,
        }
    )
    with processes.failing_together():
        read_run(folder)
    check_shared(pathlib.Path(folder))
    run, state = open_run(folder, mesh)
    recipe = run.experiment.recipe
    processes.check_mesh(recipe.sharding, "--mesh=data=-1")
    console.print(training_so_far(run, int(state.step)), soft_wrap=True)
    fixed = None
    with processes.failing_together():
        evaluation, where = changed_evaluation(run, lengths_text, positions, changes)
        if sets is not None:
            evaluation = _as_held(recipe.task, evaluation, sets, lengths_text, changes)
        model, encoding = changed_model(run, encoding_options)
        check_scorable(evaluation, model, recipe.task, recipe.sharding)
        if sets is not None:
            fixed = fixed_sets(recipe.task, evaluation, sets)
    if positions is not None:
        console.print(scored_at(run, where), soft_wrap=True, highlight=False)
    hashes = {str(length): one.sha256 for length, one in (fixed or {}).items()}
    processes.check_agreement({"set of length": hashes})
    asked = scoring.Scoring(
        model,
        recipe.task,
        evaluation,
        run.score_labels(int(state.step), positions=where, encoding=encoding),
        fixed,
        recipe.sharding,
    )
    with run.writer() if first else processes.Silent() as writer:
        scores = scoring.score(asked, state.params, run.folder, writer, console)
    if not first:
        return scores
    shown = evaluation.lengths if len(evaluation.lengths) <= SHOWN_AT_MOST else None
    rows = scoring.without_other_examples(results.read(run.folder), asked)
    tables.print_summary(rows, lengths=shown, console=console)
    if recipe.task.in_place:
        line = ", ".join(f"{n}: {one.perplexity:.4g}" for n, one in scores.items())
        console.print(f"perplexity by length: {line}", highlight=False, soft_wrap=True)
    return scores


def training_so_far(run: Run, step: int) -> str:
    """Returns which state of a run is scored, and whether it was trained to its end.

    Args:
        run: the run.
        step: optimizer steps of its newest checkpoint.
    """
    steps = run.experiment.steps
    if step >= steps:
        return f"{run.folder}: scoring step {step}, the end of training"
    return (
        f"{run.folder}: scoring step {step} of {steps}: training is NOT finished, and "
        "these are scores of a model on its way (in the results, `step` says so); "
        "the experiments.main command that began the run goes on with it."
    )


def scored_at(run: Run, label: str | None) -> str:
    """Returns at which positions a run is scored, those of training included.

    Args:
        run: the run.
        label: name and settings of the test-time scheme; None for that of training.
    """
    trained = run.score_labels(0)["test_positions"]
    if label is None:
        return f"positions: as trained, {trained}"
    return f"positions: {label} (trained with {trained})"


def changed_evaluation(
    run: Run,
    lengths_text: str | None,
    positions: str | None,
    changes: Mapping[str, Any],
) -> tuple[Evaluation, str | None]:
    """Returns the run's evaluation with settings changed, and its scheme's label."""
    evaluation = run.experiment.evaluation
    if "seed" in changes:
        check_seed("--seed", changes["seed"])
    if lengths_text is not None:
        changes = {**changes, "lengths": lengths.parse(lengths_text), "buckets": None}
    label = run.test_positions
    if positions is not None:
        name, text = options.split(positions, "--positions")
        trained = run.experiment.recipe.positions
        scheme, label = make_tested(
            run.config, trained, name, text, ("--positions",) * 2
        )
        changes = {**changes, "positions": scheme, "label": label}
    return dataclasses.replace(evaluation, **changes), label


def _as_held(
    task: Task,
    evaluation: Evaluation,
    data_dir: str | pathlib.Path,
    lengths_text: str | None,
    changes: Mapping[str, Any],
) -> Evaluation:
    """Returns the evaluation with what was not given taken from the sets that are held.

    Samples and seed are the run's own where there are such sets.

    Raises:
        ValueError: if there are only others, and of more than one kind.
    """
    from experiments.evaluation_sets.read import held_lengths  # imports TFDS: a second

    held = {
        (samples, seed): of_lengths
        for (samples, seed), of_lengths in held_lengths(task, data_dir).items()
        if samples == changes.get("samples", samples)
        and seed == changes.get("seed", seed)
    }
    if not held:
        return evaluation  # `fixed_sets` tells how to make them
    own = (evaluation.samples, evaluation.seed)
    if own not in held and len(held) > 1:
        kinds = ", ".join(f"--samples={one} --seed={seed}" for one, seed in held)
        raise ValueError(
            f"{data_dir} has several kinds of sets of this task, and none with the "
            f"run's {own[0]} samples and seed {own[1]}; add one of: {kinds}."
        )
    samples, seed = own if own in held else next(iter(held))
    found = {"samples": samples, "seed": seed}
    if lengths_text is None:
        found |= {"lengths": held[samples, seed], "buckets": None}
    if "draws" not in changes:
        found["draws"] = math.gcd(evaluation.draws, samples)
    return dataclasses.replace(evaluation, **found)


def fixed_sets(
    task: Task, evaluation: Evaluation, data_dir: str | pathlib.Path
) -> dict[int, FixedSet]:
    """Returns the fixed set of each length, with the evaluation's samples and seed.

    Raises:
        ValueError: if one is missing, with the command that makes it, or damaged.
    """
    from experiments.evaluation_sets.read import read_sets  # imports TFDS: a second

    return read_sets(
        task,
        evaluation.lengths,
        data_dir,
        samples=evaluation.samples,
        seed=evaluation.seed,
    )


def changed_model(run: Run, text: str) -> tuple[TransformerSpec, str | None]:
    """Returns the run's model with settings of its encoding changed, and their label.

    Raises:
        ValueError: if the model would need other parameters than those trained.
    """
    model = run.experiment.recipe.model
    task = run.experiment.recipe.task
    own = trained_length.defaults(ConfigDict(run.config), task)
    given = options.parse(text, "--encoding_options", PARTS, own)
    if not given:
        return model, None
    if not isinstance(model, TransformerSpec):
        raise ValueError(
            f"--encoding_options={text!r} is for Transformers of one part; this run "
            f"has model.kind={run.config['model']['kind']}."
        )
    pattern = tuple(
        kind._replace(
            encoding=options.change(kind.encoding, given, "--encoding_options")
        )
        for kind in model.pattern
    )
    changed = dataclasses.replace(model, pattern=pattern)
    shapes = [jax.eval_shape(spec.init, jax.random.key(0)) for spec in (model, changed)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"--encoding_options={text!r} needs other parameters than were trained; "
            "train a run with encoding.options set so instead."
        )
    own = run.config["encoding"]
    together = ", ".join(filter(None, [own["options"], text]))
    return changed, options.with_options(own["name"], together)


if __name__ == "__main__":
    command.run(main)
