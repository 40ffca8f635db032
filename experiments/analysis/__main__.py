r"""Looks into a trained run: its attention, reach, positions, shifts; draws them.

    python -m experiments.analysis runs/quickstart/randomized-seed0
    python -m experiments.analysis runs/reverse --lengths=10,40,100,200 --samples=4
    python -m experiments.analysis runs/ruoss_mini

Of a study, one run of each setting is looked into: the first seed that is trained.
Writes into the run's folder, under `analysis/`: analysis.json with every number, and
pictures as PNG and PDF,

    attention_entropy    spread of attention by length, of each layer
    attention_distance   how far attended tokens are, by length
    positions            positions and distances met at test, against training
    receptive_field      gradient of outputs by input embeddings
    offsets              likeness of hidden states at shifted positions
"""

import pathlib
from collections.abc import Sequence

from experiments import command, lengths


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument(
        "workdir", metavar="WORKDIR", nargs="?", help="a trained run, or a study"
    )
    parser.add_argument(
        "--lengths",
        metavar="LENGTHS",
        help="input lengths, such as 10,40,100 (default: some to five times training)",
    )
    parser.add_argument(
        "--samples",
        type=command.whole_number,
        default=8,
        metavar="N",
        help="sequences a length (8)",
    )
    parser.add_argument(
        "--seed",
        type=command.whole_number,
        default=1,
        metavar="N",
        help="of examples, positions (1)",
    )
    given = command.options(parser, argv)
    if not given.workdir:
        raise command.UsageError("WORKDIR is missing; --help shows an example.")
    asked = None
    if given.lengths is not None:
        asked = lengths.parse(given.lengths, "--lengths")
    command.prepare_jax(given.compile_cache)

    from experiments.analysis.folders import runs_to_analyse
    from experiments.analysis.numbers import analyse_run
    from experiments.analysis.pictures import draw_all

    chosen = runs_to_analyse(pathlib.Path(given.workdir))
    left_out = []
    for folder in chosen:
        try:
            numbers = analyse_run(
                folder,
                lengths=asked,
                samples=given.samples,
                seed=given.seed,
            )
        except ValueError as error:
            left_out.append(error)
            continue
        for path in draw_all(numbers, folder / "analysis"):
            print(path)
    if len(left_out) == len(chosen):
        raise left_out[0]
    for error in left_out:
        print(f"left out: {error}")
    return 0


if __name__ == "__main__":
    command.run(main)
