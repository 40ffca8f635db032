r"""Compares two studies, or two parts of one: differences, intervals and p of a test.

    python -m experiments.compare runs/before runs/after
    python -m experiments.compare runs/ruoss_mini --first=positions.name=consecutive \
        --second="positions <> 'consecutive'" --out=gain.csv

A side is narrowed by fields of its runs' configs (`model.num_layers=4`), and by
conditions in SQL on evaluation rows.

Each task and setting that both sides have is a row. Where each has one setting on a
task that the other lacks, these two are compared. Of each side count the runs that its
report would count: at the learning rate with the highest mean, over the lengths of the
score that both sides have. So a side that tried more learning rates has had more
chances. Differences are second less first.

p is that of a two-sided permutation test of runs, which cannot be below 0.1 for three
seeds on each side; p (Holm) allows for the number of rows. The interval is a bootstrap
over runs, of both sides independently, and too narrow for a few of them.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence

from experiments.compare import pairs as pairing
from experiments.compare.pairs import Pair
from experiments.report import conditions, levels, placing, run_configs, tables
from experiments.report.comparable import comparable
from experiments.report.run_configs import Flat
from experiments.report.summaries import Cell, group_cells
from experiments.report.summarize import COLUMNS, summarize_runs
from experiments.results import records
from experiments.results import store as results

FIELDS_SHOWN = 3
"""Fields of two sides' configs that a row names at most."""
_FORMATS = (".csv", ".json", ".md")


def compare(
    first: results.Folders,
    second: results.Folders,
    *,
    first_where: str | Sequence[str] = "",
    second_where: str | Sequence[str] = "",
    score: str = "accuracy",
) -> tuple[list[Pair], list[str]]:
    """Compares the runs of two sides.

    Args:
        first: one folder or several, of runs or studies.
        second: the same, or others.
        first_where: conditions on runs of the first side
            (`experiments.report.conditions.parted`); all if empty.
        second_where: of the second.
        score: what is compared, one of `pairs.SCORES`.

    Returns:
        The pairs of cells, and lines on what was left out on either side.

    Raises:
        FileNotFoundError: if a side has no results.
        ValueError: if a side has no evaluations, or a condition is faulty.
    """
    sides = [
        _cells(first, first_where, "--first"),
        _cells(second, second_where, "--second"),
    ]
    of_sides = (cells for cells, *_ in sides)
    found, alone = pairing.pairs(*of_sides, pairing.SCORES[score])
    notes = [
        f"{name} side: {note}"
        for name, (_, some, _) in zip(("first", "second"), sides, strict=True)
        for note in some
    ]
    configs = [known for *_, known in sides]
    return [_told_apart(pair, configs) for pair in found], [*notes, *alone]


def _told_apart(pair: Pair, configs: Sequence[Mapping[str, Flat]]) -> Pair:
    """Names the fields of the configs in which two cells of one label differ."""
    cells = pair.first, pair.second
    if cells[0].setting.label != cells[1].setting.label:
        return pair
    mine = [
        known.get(cell.runs[0].run_id)
        for cell, known in zip(cells, configs, strict=True)
    ]
    fields = run_configs.dividing([config for config in mine if config is not None])
    texts = run_configs.described(mine, fields[:FIELDS_SHOWN])
    more = len(fields) - FIELDS_SHOWN
    ends = f" and {more} fields more" if more > 0 else ""
    first, second = (
        dataclasses.replace(
            cell, setting=dataclasses.replace(cell.setting, config=text + ends)
        )
        for cell, text in zip(cells, texts, strict=True)
    )
    return dataclasses.replace(pair, first=first, second=second)


def _cells(
    dirs: results.Folders, where: str | Sequence[str], flag: str
) -> tuple[list[Cell], list[str], dict[str, Flat]]:
    stores = results.find_stores(dirs)
    any_column = bool(conditions.parted(where)[1])
    columns = {} if any_column else {"evaluation": COLUMNS}
    read = results.read_kinds(stores, ("evaluation", "run"), columns=columns)
    evaluation = read["evaluation"]
    if not len(evaluation):
        raise ValueError(f"no evaluation in {', '.join(map(str, stores))}.")
    configs = run_configs.flat_configs(read["run"])
    evaluation = conditions.kept(evaluation, where, configs, flag)
    runs = summarize_runs(evaluation, placing.sweeps_of(stores))
    kept, notes = comparable(runs, configs)
    return list(levels.in_order(group_cells(kept))), notes, configs


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
            metavar="CONDITION",
            action="append",
            default=[],
            help=f"only runs of the {name} side with a value of a field, such as "
            "model.num_layers=4, or evaluation rows that meet a condition in SQL, such "
            "as \"encoding = 'rope'\"; may be given several times",
        )
    parser.add_argument(
        "--score",
        choices=list(pairing.SCORES),
        default="accuracy",
        help="what is compared: symbols right, exact answers, or of text the loss, in "
        "nats a token, of which less is better (default: accuracy)",
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
    if other == options.dir and not (
        options.first and options.second and options.first != options.second
    ):
        parser.error(
            "both sides share runs: name a SECOND folder, or --first and --second, "
            "each with conditions of its own"
        )
    try:
        found, notes = compare(
            options.dir,
            other,
            first_where=options.first,
            second_where=options.second,
            score=options.score,
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
    table += (
        f"\n\nIn brackets, of means: {tables.INTERVAL}; of differences: a bootstrap "
        "95% interval over the runs of both sides."
    )
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
