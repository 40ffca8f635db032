"""Tables and pictures of any number of runs: `python -m experiments.report DIR...`.

Prints the scores as a Markdown table, and writes into `--out`

    report.html         everything on one page that opens offline
    report.md           the same in Markdown, beside the pictures
    table.csv           the paper's table: one row a task; scores.csv: one row a task
                        and setting; sensitivity.csv: a row for each learning rate too;
                        runs.csv: one row a run
    curves.csv          accuracy by length of each setting
    gains.csv           best randomized beside best plain setting of each task
    published.csv       scores beside those that papers print
    scores.tex          the tables tasks x settings, for a paper
    report.json         all of these figures in one file
    accuracy_by_length, score_heatmap, learning_rate_sensitivity, seed_sensitivity,
    training_loss, training_accuracy, perplexity_by_length,
    accuracy_by_place, perplexity_by_place
                        .png and .pdf, or as `--formats` says; those of
                        sensitivity where runs differ in nothing else, those of
                        perplexity for tasks on text, those by place in the answer of
                        runs scored with `experiments.evaluate --by-place`
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Sequence

from experiments.report import by_place, comparison, gains, tables
from experiments.report import data as report_data
from experiments.report import html as report_html
from experiments.report import latex as report_latex
from experiments.report import text as report_text
from experiments.report.data import Report
from experiments.results import records
from experiments.results import store as results

_FORMATS = ("png", "pdf", "svg")


def make_report(
    dirs: results.Folders,
    out: str | pathlib.Path,
    *,
    where: str | Sequence[str] = "",
    formats: Sequence[str] = ("png", "pdf"),
    compact: bool = False,
) -> Report:
    """Write tables and pictures of all runs at or under `dirs` into the folder `out`.

    Args:
        dirs: one folder or several, of runs or studies.
        out: folder to write into; made if absent.
        where: conditions on runs, such as `model.num_layers=4`, or in SQL on their
            evaluation rows, such as `step <= 10000`; all runs if empty.
        formats: of the pictures: any of png, pdf and svg; none draws none.
        compact: first fold the files of finished runs into shards, where allowed.

    Returns:
        What was reported.

    Raises:
        FileNotFoundError: if there are no results.
        ValueError: if there are no evaluations, none of them meets `where`, or `where`
            is faulty.
    """
    report = report_data.gather(dirs, where=where, compact=compact)
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    written = {
        "table": records.table_records(report.cells),
        "scores": records.cell_records(report.cells),
        "sensitivity": records.point_records(report.cells),
        "runs": records.run_records(report.runs),
        "curves": records.curve_records(report.cells),
        "gains": gains.records(report.gains),
        "published": comparison.records(report.comparisons),
    }
    for name, rows in written.items():
        (out / f"{name}.csv").unlink(missing_ok=True)  # of an earlier report
        if rows:
            (out / f"{name}.csv").write_text(records.csv_text(rows))
    lines = {
        "warnings": report.notes,
        "damaged": report.damaged,
        "missing": report_text.missing(report),
    }
    (out / "report.json").write_text(json.dumps(lines | written) + "\n")
    (out / "scores.tex").write_text(report_latex.document(report.cells))
    shown, embedded = _draw(report, out, formats) if formats else ([], {})
    (out / "report.md").write_text(report_text.markdown(report, shown))
    (out / "report.html").write_text(report_html.page(report, embedded))
    return report


def _draw(
    report: Report, out: pathlib.Path, formats: Sequence[str]
) -> tuple[list[str], dict[str, bytes]]:
    """Draw what there is data for; return the files to show, and PNG data by name."""
    # matplotlib is slow
    from experiments.report import plot_style, plots, plots_places, plots_scores

    cells, training, places = report.cells, report.training, report.places
    figures: dict[str, Callable] = {
        "accuracy_by_length": lambda: plots.accuracy_by_length(cells),
        "score_heatmap": lambda: plots_scores.score_heatmap(cells),
    }
    if any(cell.on_text for cell in cells):
        figures["perplexity_by_length"] = lambda: plots.perplexity_by_length(cells)
    if by_place.of_cells(places, cells):
        figures["accuracy_by_place"] = lambda: plots_places.accuracy_by_place(
            places, cells
        )
    if plots_places.on_text(places, cells):
        figures["perplexity_by_place"] = lambda: plots_places.perplexity_by_place(
            places, cells
        )
    if any(len(cell.chosen) > 1 for cell in cells):
        figures["seed_sensitivity"] = lambda: plots_scores.seed_sensitivity(cells)
    if any(len({run.learning_rate for run in cell.runs}) > 1 for cell in cells):
        figures["learning_rate_sensitivity"] = lambda: (
            plots_scores.learning_rate_sensitivity(cells)
        )
    for metric in ("loss", "accuracy"):
        if plots.any_logged(training, cells, metric):
            figures[f"training_{metric}"] = lambda metric=metric: plots.learning_curves(
                training, cells, metric
            )
    embedded = {}
    for name in report_text.PICTURES:
        for suffix in _FORMATS:
            (out / f"{name}.{suffix}").unlink(missing_ok=True)
        if name in figures:
            figure = figures[name]()
            embedded[name] = plot_style.png(figure)
            plot_style.save(figure, out / name, [f for f in formats if f != "png"])
            if "png" in formats:
                (out / f"{name}.png").write_bytes(embedded[name])
    shown = next((f for f in formats if f != "pdf"), "pdf")  # no browser shows PDF here
    return [f"{name}.{shown}" for name in embedded], embedded


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "dirs",
        nargs="+",
        metavar="DIR",
        help="a run's workdir, or any folder above several; searched at any depth",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="where to write (default: FIRST_DIR/report)"
    )
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        action="append",
        default=[],
        help="only runs with a value of a field of their config, for instance "
        "model.num_layers=4; or only evaluation rows that meet a condition in SQL, "
        "such as \"encoding = 'rope' AND step <= 10000\": of what is left, the last "
        "step of a run counts. Given again, all must be met, and of several values of "
        "a field one",
    )
    parser.add_argument(
        "--formats",
        metavar="LIST",
        default="png,pdf",
        help="formats of the pictures: any of png, pdf, svg, with commas; none: no "
        "pictures (default: %(default)s)",
    )
    parser.add_argument(
        "--no-compact",
        dest="compact",
        action="store_false",
        help="leave results/*.jsonl as they are, instead of folding those of finished "
        "runs into parquet shards first",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    formats = [] if options.formats == "none" else options.formats.split(",")
    if unknown := sorted(set(formats) - set(_FORMATS)):
        parser.error(f"--formats: unknown {unknown}; choose from {list(_FORMATS)}")
    out = pathlib.Path(options.out or pathlib.Path(options.dirs[0]) / "report")
    try:
        report = make_report(
            options.dirs,
            out,
            where=options.where,
            formats=formats,
            compact=options.compact,
        )
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(tables.markdown(tables.score_rows(report.cells), 3))
    _tell("warning", [*report.damaged, *report.notes], at_most=20)
    _tell("missing", report_text.missing(report), at_most=5)
    print(f"\nWritten to {out}: {', '.join(sorted(p.name for p in out.iterdir()))}")
    if report.analysis_command and not report.analyses:
        print(f"{report.analysis_command}    looks into trained models for the report")
    return 0


def _tell(what: str, lines: Sequence[str], at_most: int) -> None:
    for line in lines[:at_most]:
        print(f"{what}: {line}", file=sys.stderr)
    if len(lines) > at_most:
        more = len(lines) - at_most
        print(f"{what}: {more} more, named in report.html", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
