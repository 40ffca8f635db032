"""Tables and pictures of any number of runs: `python -m experiments.report DIR...`.

Prints the scores as a Markdown table, and writes into `--out`

    report.md           tables, warnings, what the figures mean, and the pictures
    scores.csv          one row a task and setting; runs.csv: one row a run
    curves.csv          accuracy by length of each setting
    scores.tex          the tables tasks x settings, for a paper
    report.json         all of these figures in one file
    accuracy_by_length, score_heatmap, training_loss, training_accuracy
                        .png and .pdf, or as `--formats` says
"""

import argparse
import contextlib
import json
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from experiments import records, results, summaries, tables
from experiments.disagreements import describe_lengths, disagreements
from experiments.summaries import Cell

_FORMATS = ("png", "pdf", "svg")

_MEANING = """\
- **Score**: token accuracy, averaged over the evaluated lengths from the longest
  training length + 1 to the longest test length, each length counting the same.
- **Best**: the highest score over seeds and learning rates, as published tables give
  it. **Mean**: over the seeds at the learning rate whose mean is highest; in brackets
  the 95% interval of that mean, by bootstrap over seeds (percentile, 10,000 draws),
  which is too narrow for a few seeds, and cannot be known from one.
- **Input-blind**: the same score for the best predictor that does not see the input
  (the most frequent symbol at each output position). A score near it says nothing.
- **In range**: token accuracy averaged over the training lengths; **blind there**: the
  input-blind predictor's.
- **Exact**: share of sequences with every token right, averaged as the score is.
- **≥90% to**: the longest evaluated length such that accuracy is at least 90% there
  and at every evaluated length below; lowest and highest over seeds.
"""
_PICTURES = {
    "accuracy_by_length": "Token accuracy by input length. Lines: mean over seeds; "
    "bands: 95% interval of the mean, by bootstrap; shaded: training lengths; dotted: "
    "the best input-blind predictor. Beyond 100 lengths, a point averages neighbours.",
    "score_heatmap": "Mean score in %. Colour: the share of what lies between the "
    "input-blind predictor and a perfect score that was gained.",
    "training_loss": "Training loss, averaged over 1/100 of a run. Lines: mean over "
    "seeds; bands: from the lowest run to the highest.",
    "training_accuracy": "Training accuracy, likewise.",
}


def make_report(
    dirs: results.Folders,
    out: str | pathlib.Path,
    *,
    where: str = "",
    formats: Sequence[str] = ("png", "pdf"),
) -> tuple[list[Cell], list[str]]:
    """Write tables and pictures of all runs at or under `dirs` into the folder `out`.

    Args:
        dirs: one folder or several, of runs or studies.
        out: folder to write into; made if absent.
        where: SQL condition on evaluation rows, such as `task = 'bucket_sort'`; all
            rows if empty.
        formats: of the pictures: any of png, pdf and svg; none draws none.

    Returns:
        The cells, in the order of the tables, and the warnings.

    Raises:
        FileNotFoundError: if there are no results.
        ValueError: if there are no evaluations, none of them meets `where`, or `where`
            is faulty.
    """
    stores = results.find_stores(dirs)
    evaluation = results.read(stores, "evaluation")
    if not len(evaluation):
        raise ValueError(
            f"no evaluation in {', '.join(map(str, stores))}: looked for rows of kind "
            "'evaluation', which experiments.main writes at the end of a run and "
            "experiments.evaluate at any time"
        )
    if where:
        evaluation = _select(stores, where)
    runs = summaries.summarize_runs(evaluation)
    cells = summaries.group_cells(runs)
    notes = disagreements(cells, results.read(stores, "run", latest=False))
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    written = {
        "scores": records.cell_records(cells),
        "runs": records.run_records(runs),
        "curves": records.curve_records(cells),
    }
    for name, rows in written.items():
        (out / f"{name}.csv").write_text(records.csv_text(rows))
    everything = {"warnings": notes} | written
    (out / "report.json").write_text(json.dumps(everything, indent=1) + "\n")
    (out / "scores.tex").write_text(_latex(cells))
    pictures = []
    if formats:
        pictures = _draw(cells, results.read(stores, "training"), out, formats)
    (out / "report.md").write_text(_markdown(cells, notes, pictures))
    return cells, notes


def _select(stores: Sequence[pathlib.Path], where: str) -> pa.Table:
    import duckdb  # slow to import, and seldom needed

    try:
        rows = results.query(stores, f"SELECT * FROM evaluation WHERE {where}")
    except duckdb.Error as error:
        raise ValueError(f"where={where!r} is no condition on rows: {error}") from error
    if not len(rows):
        raise ValueError(f"no evaluation row meets where={where!r}")
    return rows


def _draw(
    cells: Sequence[Cell], training: pa.Table, out: pathlib.Path, formats: Sequence[str]
) -> list[str]:
    """Draw what there is data for; return the files to show."""
    from experiments import plots  # matplotlib is slow to import

    figures: dict[str, Callable] = {
        "accuracy_by_length": lambda: plots.accuracy_by_length(cells),
        "score_heatmap": lambda: plots.score_heatmap(cells),
    }
    for metric in ("loss", "accuracy"):
        if training[metric].null_count < len(training):
            figures[f"training_{metric}"] = lambda metric=metric: plots.learning_curves(
                training, cells, metric
            )
    for name, figure in figures.items():
        plots.save(figure(), out / name, formats)
    shown = next((f for f in formats if f != "pdf"), "pdf")  # no browser shows PDF here
    return [f"{name}.{shown}" for name in figures]


def _seeds(cells: Sequence[Cell]) -> str:
    ends = dict.fromkeys([min(c.seeds for c in cells), max(c.seeds for c in cells)])
    return f"{'–'.join(map(str, ends))} seeds" if ends != {1: None} else "1 seed"


def _latex(cells: Sequence[Cell]) -> str:
    score = f"Token accuracy (%) beyond the training lengths, {_seeds(cells)}"
    captions = {
        "best": (tables.best_text, f"{score}: best over seeds and learning rates."),
        "mean": (tables.mean_text, f"{score}: mean over seeds, with 95% interval."),
    }
    return "\n\n".join(
        tables.latex_matrix(cells, show, caption, f"tab:{name}")
        for name, (show, caption) in captions.items()
    ).join(["% needs the packages booktabs and graphicx\n", "\n"])


def _markdown(cells: Sequence[Cell], notes: Sequence[str], pictures: Sequence) -> str:
    parts = ["# Length generalization", tables.markdown(tables.score_rows(cells), 3)]
    if notes:
        parts += ["## Warnings", "\n".join(f"- {note}" for note in notes)]
    if len(summaries.by_task(cells)) > 1:
        parts += [
            "## Best score over seeds and learning rates",
            tables.markdown_matrix(cells, tables.best_text),
            "## Mean score over seeds, with 95% interval",
            tables.markdown_matrix(cells, tables.mean_text),
        ]
    if pictures:
        parts.append("## Pictures")
        for file in pictures:
            name = file.partition(".")[0]
            parts.append(f"![{name}]({file})\n\n{_PICTURES[name]}")
    lengths = dict.fromkeys(
        f"- {cell.task_title}: trained to {run.train_max}, score over lengths "
        f"{describe_lengths(run.test_lengths)}, step {run.step}"
        for cell in cells
        for run in cell.chosen
    )
    parts += ["## Lengths", "\n".join(lengths), "## What the figures mean", _MEANING]
    return "\n\n".join(parts)


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
        metavar="SQL",
        default="",
        help="only evaluation rows that meet this condition, for instance "
        "\"encoding = 'rope' AND step <= 10000\"; of what is left, a run's last step "
        "counts",
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
        with _warnings_as_lines():
            if options.compact:
                with contextlib.suppress(PermissionError):  # of others: only read them
                    results.compact(options.dirs)
            cells, notes = make_report(
                options.dirs, out, where=options.where, formats=formats
            )
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(tables.markdown(tables.score_rows(cells), 3))
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)
    print(f"\nWritten to {out}: {', '.join(sorted(p.name for p in out.iterdir()))}")
    return 0


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show warnings about unreadable results, each once, without a line of source."""
    seen = set()

    def show(text: object, *_: object, **__: object) -> None:
        if str(text) not in seen:
            print(f"warning: {text}", file=sys.stderr)
        seen.add(str(text))

    with warnings.catch_warnings():
        warnings.simplefilter("always", results.ResultsWarning)
        warnings.showwarning = show
        yield


if __name__ == "__main__":
    sys.exit(main())
