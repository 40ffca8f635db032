"""Replays one training step alone, and says where its numbers stop being finite.

    python -m experiments.replay --workdir=runs/reverse               where it stopped
    python -m experiments.replay --workdir=runs/reverse --step=1234   any step

Data, positions and dropout of a step follow from the run's seed and the step, so any
step is replayed bit for bit: from the newest checkpoint before it.
"""

import dataclasses
import pathlib
import traceback
from collections.abc import Sequence

from experiments import command

_ROWS = 12


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code is 1 if something is not finite."""
    parser = command.parser(__doc__)
    parser.add_argument("--workdir", metavar="DIR", help="folder of a run")
    parser.add_argument(
        "--step",
        type=command.whole_number,
        metavar="N",
        help="which step, counted from 0",
    )
    given = command.options(parser, argv)
    if not given.workdir:
        raise command.UsageError("--workdir is missing; --help shows an example.")
    command.prepare_jax(given.compile_cache)
    return 1 if replay(pathlib.Path(given.workdir), given.step) else 0


def replay(folder: pathlib.Path, step: int | None = None) -> bool:
    """Prints what one step computes, and returns whether something is not finite."""
    from experiments.running.opening import read_run

    run = read_run(folder)
    state = _state_before(run, step)
    return _show(run.experiment.recipe, state)


def _state_before(run, step: int | None):
    """Returns the state before a step, trained up to it where no checkpoint has it."""
    from ropejax.training import init_state
    from ropejax.training.checkpoint import Checkpoints
    from ropejax.training.loop import dispatch

    experiment = run.experiment
    state = init_state(experiment.recipe, experiment.seed, experiment.length_seed)
    if step is None:
        kept = Checkpoints(run.folder / "nonfinite" / "state", read_only=True)
        state = kept.latest(like=state)
        if state is None:
            raise ValueError(
                f"no step of {run.folder} has stopped training; name one with --step."
            )
        return state
    steps = run.config["train"]["steps"]
    if not steps:
        raise ValueError(f"{run.folder} trains nothing (train.steps=0): no step there.")
    if not 0 <= step < steps:
        raise ValueError(f"--step must lie in 0 .. {steps - 1}, got {step}.")
    checkpoints = Checkpoints(run.folder / "checkpoints", read_only=True)
    before = [at for at in checkpoints.steps() if at <= step]
    if before:
        state = checkpoints.at(before[-1], like=state)
    elif run.config["train"]["init_from"] or run.config["model"]["pretrained"]:
        raise ValueError(
            f"{run.folder} began with parameters from elsewhere, and its checkpoint of "
            f"step 0 is gone; there are those of steps {checkpoints.steps()}."
        )
    capacity = run.config["train"]["steps_per_dispatch"]
    while int(state.step) < step:
        done = int(state.step)
        count = min(capacity, step - done)
        state, _ = dispatch(experiment.recipe, state, count, capacity=capacity)
        if int(state.step) < done + count:
            raise ValueError(
                f"training stops before step {int(state.step)}, which is not finite; "
                f"replay it with --step={int(state.step)}."
            )
    return state


def _show(recipe, state) -> bool:
    """Prints loss, and parameters by their gradients; then the first bad operation."""
    import jax
    import jax.numpy as jnp
    from rich.console import Console
    from rich.table import Table

    from experiments.running.nonfinite import batch_of
    from ropejax.training.step import gradients, step_loops

    console = Console()
    batch, placement, rng = batch_of(recipe, state)
    drawn = batch, placement, rng, step_loops(recipe, state)
    take = jax.jit(lambda params, drawn: gradients(recipe, params, *drawn))
    grads, sums = take(state.params, drawn)
    loss = float(sums.loss / sums.outputs)
    console.print(
        f"step {int(state.step)}: {batch.tokens.shape[0]} rows of "
        f"{int(batch.lengths.max())} tokens, loss {loss:.6g} nats"
    )
    rows = []
    flat = jax.tree_util.tree_leaves_with_path
    for (path, param), (_, grad) in zip(flat(state.params), flat(grads), strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        norm = float(jnp.linalg.norm(grad.astype(jnp.float32)))
        bad = int(jnp.sum(~jnp.isfinite(grad)))
        rows.append((name, float(jnp.abs(param).max()), norm, bad, grad.size))
    rows.sort(key=lambda row: (-row[3], -row[2] if row[2] == row[2] else float("-inf")))
    table = Table()
    for column in ("parameter", "largest value", "gradient norm", "not finite"):
        table.add_column(column, justify="left" if column == "parameter" else "right")
    for name, largest, norm, bad, size in rows[:_ROWS]:
        table.add_row(name, f"{largest:.3g}", f"{norm:.3g}", f"{bad} of {size}")
    console.print(table)
    if len(rows) > _ROWS:
        told = told_of_others([row[3] for row in rows[_ROWS:]])
        console.print(told, highlight=False)
    any_bad = any(row[3] for row in rows) or not jnp.isfinite(loss)
    if not any_bad:
        console.print("Everything is finite.")
        return False
    console.print(_first_bad(recipe, state.params, drawn), soft_wrap=True)
    return True


def told_of_others(not_finite: Sequence[int]) -> str:
    """Returns a line on the parameters that the table leaves out.

    Args:
        not_finite: of each, how many numbers of its gradient are not finite.
    """
    bad = sum(count > 0 for count in not_finite)
    told = f"{bad} of them not finite" if bad else "with smaller gradients"
    return f"and {len(not_finite)} more parameters, {told}"


def _first_bad(recipe, params, drawn) -> str:
    """Says which operation first gives a NaN or an infinity, and where."""
    import jax

    try:
        return _first_of(one_by_one(recipe), params, drawn)
    except jax.errors.JaxRuntimeError:  # as where nothing fits but what is made again
        return _first_of(recipe, params, drawn)


def one_by_one(recipe):
    """Returns a recipe of the same numbers, with no operation inside another one.

    What a loop over layers or parts of a batch computes, and what is computed again in
    the backward pass, would only be told as the loop.

    Args:
        recipe: the `ropejax.training.Recipe` of a run.
    """
    model, settings = recipe.model, getattr(recipe.model, "settings", None)
    own = {field.name for field in dataclasses.fields(model)}
    if "scan_layers" in own:
        model = dataclasses.replace(model, scan_layers=False)
    if hasattr(settings, "remat"):
        settings = dataclasses.replace(settings, remat="none")
        model = dataclasses.replace(model, settings=settings)
    return dataclasses.replace(recipe, model=model, accumulate=1)


def _first_of(recipe, params, drawn) -> str:
    import jax

    from ropejax.training.step import gradients

    take = jax.jit(lambda params, drawn: gradients(recipe, params, *drawn))
    try:
        with jax.debug_nans(True), jax.debug_infs(True):
            jax.block_until_ready(take(params, drawn))
    except FloatingPointError as error:
        ours = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if f"{pathlib.Path('ropejax')}/" in frame.filename
        ]
        where = f", from {ours[-1].filename}:{ours[-1].lineno}" if ours else ""
        return f"First: {str(error).splitlines()[0]}{where}"
    return "Operation by operation, nothing is NaN or infinite; it is so when fused."


if __name__ == "__main__":
    command.run(main)
