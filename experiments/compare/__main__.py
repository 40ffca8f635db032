r"""Compares two studies, or two parts of one: differences, intervals and p of a test.

    python -m experiments.compare runs/before runs/after
    python -m experiments.compare runs/ruoss_mini --first="positions = 'consecutive'" \
        --second="positions <> 'consecutive'" --out=gain.csv

Each task and setting that both sides have is a row. Where each has one setting on a
task that the other lacks, these two are compared. Of each side count the runs that its
report would count: at the learning rate with the highest mean, over the lengths of the
score that both sides have. So a side that tried more learning rates has had more
chances.

p is that of a two-sided permutation test of runs, which cannot be below 0.1 for three
seeds on each side; p (Holm) allows for the number of rows. The interval is a bootstrap
over runs, of both sides independently, and too narrow for a few of them.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from experiments.compare import pairs as pairing
from experiments.compare.pairs import Pair
from experiments.report import data, levels, placing, run_configs, tables
from experiments.report.comparable import comparable
from experiments.report.summaries import Cell, group_cells
from experiments.report.summarize import COLUMNS, summarize_runs
from experiments.results import records
from experiments.results import store as results

_FORMATS = (".csv", ".json", ".md")


def compare(
    first: results.Folders,
    second: results.Folders,
    *,
    first_where: str = "",
    second_where: str = "",
) -> tuple[list[Pair], list[str]]:
    """Compares the runs of two sides.

    Args:
        first: one folder or several, of runs or studies.
        second: the same, or others.
        first_where: SQL condition on evaluation rows of the first side; all if empty.
        second_where: of the second.

    Returns:
        The pairs of cells, and lines on what was left out on either side.

    Raises:
        FileNotFoundError: if a side has no results.
        ValueError: if a side has no evaluations, or a condition is faulty.
    """
    sides = [_cells(first, first_where), _cells(second, second_where)]
    found, alone = pairing.pairs(*(cells for cells, _ in sides))
    notes = [
        f"{name} side: {note}"
        for name, (_, some) in zip(("first", "second"), sides, strict=True)
        for note in some
    ]
    return found, [*notes, *alone]


def _cells(dirs: results.Folders, where: str) -> tuple[list[Cell], list[str]]:
    stores = results.find_stores(dirs)
    columns = {} if where else {"evaluation": COLUMNS}  # a condition may be on any
    read = results.read_kinds(stores, ("evaluation", "run"), columns=columns)
    evaluation = read["evaluation"]
    if not len(evaluation):
        raise ValueError(f"no evaluation in {', '.join(map(str, stores))}.")
    if where:
        evaluation = data.select(evaluation, where)
    runs = summarize_runs(evaluation, placing.sweeps_of(stores))
    kept, notes = comparable(runs, run_configs.flat_configs(read["run"]))
    return list(levels.in_order(group_cells(kept))), notes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("dir", metavar="FIRST", help="a run's or a study's folder")
    parser.add_argument(
        "other", metavar="SECOND", nargs="?", help="another (default: the same)"
    )
    for name in ("first", "second"):
        parser.add_argument(
            f"--{name}",
            metavar="SQL",
            default="",
            help=f"only evaluation rows of the {name} side that meet this condition, "
            "for instance \"encoding = 'rope'\"",
        )
    parser.add_argument(
        "--out", metavar="FILE", help="write the table too: .csv, .json or .md"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    out = pathlib.Path(options.out) if options.out else None
    if out is not None and out.suffix not in _FORMATS:
        parser.error(f"--out={options.out} must end in one of {', '.join(_FORMATS)}")
    other = options.other or options.dir
    if other == options.dir and options.first == options.second:
        parser.error("both sides are the same: name a SECOND, or --first and --second")
    try:
        found, notes = compare(
            options.dir, other, first_where=options.first, second_where=options.second
        )
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if not found:
        print("error: no task and setting is on both sides", file=sys.stderr)
        return 1
    table = tables.markdown([list(pairing.HEAD), *pairing.text_rows(found)], 3)
    print(table)
    if out is not None:
        rows = pairing.records(found)
        made = {".csv": lambda: records.csv_text(rows), ".md": lambda: table + "\n"}
        as_json = lambda: json.dumps(rows, indent=1) + "\n"
        try:
            out.write_text(made.get(out.suffix, as_json)())
        except OSError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
