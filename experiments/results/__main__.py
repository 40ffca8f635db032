r"""Writes results as one table: for pandas, R, a spreadsheet, or a look.

    python -m experiments.results runs/ruoss_mini --out=rows.csv
    python -m experiments.results runs --kind=training --out=curves.parquet
    python -m experiments.results runs --kind=place --out=places.csv
    python -m experiments.results runs --fields=train.steps,model.num_layers --out=a.csv
    python -m experiments.results runs \
        --sql="SELECT encoding, avg(accuracy) FROM evaluation GROUP BY encoding"

A row of kind evaluation is one length of one run; `place` is one place in the answers
of one length, of runs scored with `experiments.evaluate --by-place`; `training` has
logged steps, and `run` configs. Columns are those of experiments/results/schema.py, and
places.py. Without --out, CSV goes to standard output.
"""

import argparse
import pathlib
import sys
import warnings
from collections.abc import Sequence

from experiments.results import export, schema
from experiments.results import store as results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "dirs",
        nargs="+",
        metavar="DIR",
        help="a run's or a study's folder, or one above",
    )
    parser.add_argument(
        "--kind",
        choices=list(schema.KEYS),
        default="evaluation",
        help="kind of rows (default: %(default)s)",
    )
    parser.add_argument(
        "--sql",
        default="",
        help="a query over the tables evaluation, place, training and run, instead",
    )
    parser.add_argument(
        "--fields",
        metavar="LIST",
        default="",
        help="fields of the configs to add as columns, with commas: train.steps",
    )
    parser.add_argument(
        "--out", metavar="FILE", help=f"any of {', '.join(export.FORMATS)}"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    out = pathlib.Path(options.out) if options.out else None
    if out is not None and out.suffix not in export.FORMATS:
        parser.error(f"--out={out} must end in one of {', '.join(export.FORMATS)}")
    fields = [name for name in options.fields.split(",") if name]
    try:
        with warnings.catch_warnings(record=True) as unread:
            warnings.simplefilter("always", results.ResultsWarning)
            table = export.rows(
                options.dirs, options.kind, sql=options.sql, fields=fields
            )
        if out is None:
            export.write_csv(table, sys.stdout.buffer)
        else:
            export.write(table, out)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for one in unread:
        print(f"warning: {one.message}", file=sys.stderr)
    if out is not None:
        print(f"{len(table):,} rows of {table.num_columns} columns: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
