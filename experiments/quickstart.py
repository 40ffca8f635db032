"""Trains one small model with plain and one with randomized positions; compares them.

    make quickstart             about 6 minutes on 2 cores
    make quickstart SEEDS=3     means and spreads over 3 seeds
    make quickstart SHORT=1     seconds: shows that everything works, and no effect

Both models learn whether a string's first and last symbols are equal (Even Pairs) on
strings of up to 40 symbols, and are asked about strings of up to 500.
"""

import os
import pathlib
import time
from collections.abc import Sequence

from rich.console import Console

from configs import quickstart
from experiments import command

POSITIONS = ("consecutive", "randomized")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument(
        "--seeds",
        type=command.whole_number,
        default=1,
        metavar="N",
        help="runs a position scheme",
    )
    parser.add_argument(
        "--short", action="store_true", help="seconds, no effect to see"
    )
    parser.add_argument(
        "--workdir",
        metavar="DIR",
        help="where everything is written (default: runs/quickstart, or "
        "runs/quickstart_short)",
    )
    given = command.options(parser, argv)
    if given.seeds < 1:
        raise command.UsageError(f"--seeds must be at least 1, got {given.seeds}.")
    command.prepare_jax(given.compile_cache)
    default = "runs/quickstart_short" if given.short else "runs/quickstart"
    quick(pathlib.Path(given.workdir or default), given.seeds, short=given.short)
    return 0


def quick(folder: pathlib.Path, seeds: int, *, short: bool) -> None:
    """Trains and scores all runs of the quickstart, and prints and draws the result."""
    from experiments.report import plots, summaries, summarize, tables
    from experiments.results import store as results
    from experiments.running.run import run_experiment

    console = Console()
    start = time.monotonic()
    if short:
        console.print(
            "This is the shortened quickstart: it shows that everything works. Its "
            "models are trained far too little; expect no difference between them.\n"
        )
    for seed in range(seeds):
        for positions in POSITIONS:
            arg = f"positions={positions},short={'yes' if short else 'no'}"
            config = quickstart.get_config(arg)
            config.train.seed = seed
            console.print(f"[bold]{positions} positions, seed {seed}[/bold]")
            run = folder / f"{positions}-seed{seed}"
            run_experiment(config, run, console=console, summary=False)
    rows = results.read(folder)
    console.print()
    tables.print_summary(rows, console=console)
    cells = summaries.group_cells(summarize.summarize_runs(rows))
    figure = plots.accuracy_by_length(cells)
    pictures = plots.save(figure, folder / "accuracy_by_length", ("png",))
    minutes = (time.monotonic() - start) / 60
    console.print(f"{minutes:.1f} minutes, {os.cpu_count()} cores. Look at")
    console.print(f"  {pictures[0]}    accuracy by length, training range shaded")
    console.print(f"  {folder}/*/results    every score, one row a length")
    console.print(f"  tensorboard --logdir {folder}    training curves")
    console.print(
        "The same command shows this again without training; remove the folder to "
        "train anew."
    )


if __name__ == "__main__":
    command.run(main)
