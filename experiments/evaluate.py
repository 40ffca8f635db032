r"""Scores a trained run at any lengths, also with other positions than in training.

    python -m experiments.evaluate --workdir=runs/reverse --lengths=1:500
    python -m experiments.evaluate --workdir=runs/reverse --positions=evenly_spaced
    python -m experiments.evaluate --workdir=runs/reverse --sets=sets
    python -m experiments.evaluate --workdir=runs/reverse --lengths=40,80 --by-place
    python -m experiments.evaluate --workdir=runs/reverse --lengths=50:500:50 \
        --positions="randomized(max_position=1024)" \
        --encoding_options="distance=Rectified(512)"
    python -m experiments.evaluate --workdir=runs/rope --config.encoding.name=yarn \
        --config.encoding.options="scale=4" --config.model.loops=8
    python -m experiments.evaluate --workdir=runs/large --mesh=fsdp=-1

Test-time positions have the settings of the training positions where none are given:
evenly spaced ones go as far as those that the model was trained at. Whatever needs no
other parameters may differ too, by fields of the config's groups task, encoding and
model; trained lengths that are not given stay those of training. Scores are appended
to the run's results, each beside that of the best predictor that does not see the
input. The newest checkpoint is scored; its step is in every row, and what is printed
first says if training is not finished. `--by-place` counts at each place of the answer
too: where a model fails, and on text how the loss falls along the window.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from configs import base
from experiments import command, lengths
from experiments.building import options, overrides
from experiments.building.checks import Evaluation, check_scorable
from experiments.building.mesh import parse_sizes
from experiments.building.tested_model import make_tested_model
from experiments.building.tested_positions import make_tested
from experiments.evaluation_sets.asked import as_held, fixed_sets
from experiments.report import place_tables, tables
from experiments.results import store as results
from experiments.running import joining, processes, scoring, text_files
from experiments.running.opening import Run, open_run, read_run
from experiments.running.shared_folder import check_shared
from ropejax.evaluation import LengthScore
from ropejax.seeds import check_seed

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
            f"--{name}",
            type=command.whole_number,
            metavar="N",
            help=f"{what} (default: the run's)",
        )
    parser.add_argument(
        "--by-place",
        action="store_true",
        help="count at each place of the answer too (of text: of the window), into the "
        "results and a table; lengths that were scored without are scored again",
    )
    parser.add_argument(
        "--mesh",
        metavar="AXIS=N,...",
        help="spread model and rows over devices, such as data=2,tensor=2 or fsdp=-1 "
        "(default: one device)",
    )
    joining.add_flags(parser, "score")
    given, rest = command.parse(parser, argv)
    if not given.workdir:
        raise command.UsageError("--workdir is missing; --help shows examples.")
    fields = overrides.values(base.get_config(), rest)
    command.prepare_jax(given.compile_cache)
    joining.join(given)
    evaluate_run(
        given.workdir,
        lengths_text=given.lengths,
        positions=given.positions,
        encoding_options=given.encoding_options,
        fields=fields,
        sets=given.sets,
        by_place=given.by_place,
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
    fields: Mapping[str, Any] | None = None,
    changes: Mapping[str, int] | None = None,
    sets: str | pathlib.Path | None = None,
    by_place: bool = False,
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
        fields: fields of the config's groups task, encoding and model that differ, by
            dotted name, such as {"model.loops": 8}.
        changes: `samples`, `draws` and `seed` that differ from the run's config.
        sets: folder of fixed evaluation sets, which also says at which lengths, of how
            many samples and with which seed to score where that is not given; fresh
            examples are drawn if None.
        by_place: count at each place of the answer too.
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
            "fields": fields,
            "mesh": mesh,
            "by_place": by_place,
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
        text_files.check(run.folder, recipe.task)
        evaluation, where = changed_evaluation(run, lengths_text, positions, changes)
        tested = make_tested_model(run.config, recipe, fields or {}, encoding_options)
        model, task = tested.model, tested.task
        if sets is not None:
            evaluation = as_held(task, evaluation, sets, lengths_text, changes)
        check_scorable(evaluation, model, task, recipe.sharding)
        if sets is not None:
            fixed = fixed_sets(task, evaluation, sets)
    if positions is not None:
        console.print(scored_at(run, where), soft_wrap=True, highlight=False)
    if tested.label is not None:
        trained = run.score_labels(0)["test_encoding"]
        told = f"model: {tested.label} (trained as {trained})"
        console.print(told, soft_wrap=True, highlight=False, markup=False)
    hashes = {str(length): one.sha256 for length, one in (fixed or {}).items()}
    processes.check_agreement({"set of length": hashes})
    asked = scoring.Scoring(
        model,
        task,
        evaluation,
        run.score_labels(int(state.step), positions=where, encoding=tested.label),
        fixed,
        recipe.sharding,
        by_place,
    )
    with run.writer() if first else processes.Silent() as writer:
        params = tested.params(state.params, recipe.model)
        scores = scoring.score(asked, params, run.folder, writer, console)
    if not first:
        return scores
    shown = evaluation.lengths if len(evaluation.lengths) <= SHOWN_AT_MOST else None
    rows = scoring.without_other_examples(results.read(run.folder), asked)
    tables.print_summary(rows, lengths=shown, console=console)
    if task.in_place:
        line = ", ".join(f"{n}: {one.perplexity:.4g}" for n, one in scores.items())
        console.print(f"perplexity by length: {line}", highlight=False, soft_wrap=True)
    if by_place:
        few = shown or tables.spread_out(evaluation.lengths)
        place_tables.print_places(task, {n: scores[n] for n in few}, console)
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
        asked = lengths.parse(lengths_text, "--lengths")
        changes = {**changes, "lengths": asked, "buckets": None}
    label = run.test_positions
    if positions is not None:
        name, text = options.split(positions, "--positions")
        trained = run.experiment.recipe.positions
        scheme, label = make_tested(
            run.config, trained, name, text, ("--positions",) * 2
        )
        changes = {**changes, "positions": scheme, "label": label}
    return dataclasses.replace(evaluation, **changes), label


if __name__ == "__main__":
    command.run(main)
