"""The words of a report, alike in Markdown and HTML, and the Markdown page."""

from collections.abc import Iterable, Mapping, Sequence

from experiments.report import (
    comparison,
    gains,
    inventory,
    published,
    run_configs,
    tables,
)
from experiments.report.comparable import describe_lengths, listed
from experiments.report.data import Report
from experiments.report.mean_gain import MeanGain
from experiments.report.summaries import Cell, by_task

MEANING = (
    (
        "Score",
        "token accuracy, averaged over the evaluated lengths from the longest training "
        "length + 1 to the longest test length, each length counting the same.",
    ),
    (
        "Best",
        "the highest score over seeds and learning rates, as published tables give it.",
    ),
    (
        "Mean",
        "over the seeds at the learning rate whose mean is highest, of those with most "
        "seeds (and, where the configs of a cell differ in more, at one choice of "
        "that); in brackets the 95% "
        "interval of that mean, by bootstrap over seeds (percentile, 10,000 draws), "
        "which is too narrow for a few seeds, the range of two or three, and cannot be "
        "known from one.",
    ),
    (
        "Input-blind",
        "the same score for the best predictor that does not see the input (the most "
        "frequent symbol at each output position). A score near it says nothing.",
    ),
    (
        "In range",
        "token accuracy averaged over the training lengths. Blind there: the "
        "input-blind predictor's.",
    ),
    (
        "Exact",
        "share of sequences with every token right, averaged as the score is.",
    ),
    (
        "≥90% to",
        "the longest evaluated length such that accuracy is at least 90% there and at "
        "every evaluated length below; lowest and highest over seeds.",
    ),
    (
        "Perplexity",
        "of tasks on text: e to the mean loss (nats a token) over the lengths of the "
        "score; lower is better.",
    ),
)
EXACT = (
    "Share of sequences with every token right (%), averaged over lengths as the score "
    "is: the best over seeds and learning rates, and the mean over the seeds at the "
    "learning rate with the highest mean token accuracy, with its "
    f"{tables.INTERVAL}. {tables.BOLD}"
)
ANALYSIS = "Analysis of trained models"
GAINS = "Randomized against consecutive positions"
PICTURES: Mapping[str, tuple[str, str]] = {
    "accuracy_by_length": (
        "Accuracy against length",
        "Token accuracy by input length. Lines: mean over seeds; bands: 95% interval "
        "of the mean, by bootstrap (of two or three seeds, their range); shaded: "
        "training lengths (light: of some settings only); dotted: the best input-blind "
        "predictor. Beyond 100 lengths, a point averages neighbours.",
    ),
    "perplexity_by_length": (
        "Perplexity against length",
        "Perplexity of tasks on text by input length, likewise; lower is better.",
    ),
    "accuracy_by_place": (
        "Accuracy against the place in the answer",
        "Token accuracy at each place of the answers of a few lengths, place 1 the "
        "first symbol; of tasks on text, at each place of the window. Lines, bands and "
        "dots as above; of long answers, a point adds up neighbours.",
    ),
    "perplexity_by_place": (
        "Perplexity against the place in the window",
        "Perplexity of tasks on text at each place of windows of a few lengths. Where "
        "it falls along the window, long context is used; where only the first places "
        "are high, they have too little before them. Shaded: training lengths.",
    ),
    "score_heatmap": (
        "Scores",
        "Mean score in %. Colour: the share of what lies between the input-blind "
        "predictor and a perfect score that was gained.",
    ),
    "learning_rate_sensitivity": (
        "Sensitivity to the learning rate",
        "Score by learning rate. Ticks: runs; markers and bars: their mean and its 95% "
        "interval, by bootstrap over seeds; dotted: input-blind.",
    ),
    "seed_sensitivity": (
        "Sensitivity to the seed",
        "Scores of the seeds at the learning rate whose mean is highest. Ticks: seeds; "
        "diamonds and bars: their mean and its 95% interval; stars, where there are "
        "several learning rates: the best run over all; dotted: input-blind.",
    ),
    "training_loss": (
        "Training loss",
        "Training loss, averaged over 1/100 of a run, on a logarithmic axis. Lines: "
        "mean over seeds; bands: from the lowest run to the highest. A run that ended "
        "before its first logged step (train.log_every) has no line and is named.",
    ),
    "training_accuracy": ("Training accuracy", "Training accuracy, likewise."),
}


def lengths(report: Report) -> list[str]:
    """Says, for each task, what it was trained on and scored over."""
    steps: dict[str, set[int]] = {}
    for cell in report.cells:
        for run in cell.chosen:
            line = (
                f"{cell.task_title}{_whole(cell)}: trained on {run.trained_on}, score "
                f"over lengths {describe_lengths(run.test_lengths)}"
            )
            steps.setdefault(line, set()).add(run.step)
    return [
        f"{line}, step {' or '.join(f'{step:,}' for step in sorted(some))}"
        for line, some in steps.items()
    ]


def _whole(cell: Cell) -> str:
    """The settings of a task, which its title may lack."""
    settings = cell.task.partition("(")[2].removesuffix(")")
    return f" ({settings})" if settings and settings not in cell.task_title else ""


def missing(report: Report) -> list[str]:
    """Names what is unfinished: studies, cells with fewer runs, cells with none."""
    lines = [*report.unfinished, *map(str, report.gaps), *report.absent]
    if report.unscored:
        some = listed(report.unscored, at_most=20)
        lines.append(f"started and not evaluated: {some}")
    logged = set(report.training["run_id"].unique().to_pylist())
    trained = [run.run_id for run in report.runs if run.step]
    silent = [run_id for run_id in trained if run_id not in logged]
    if silent:
        some = listed(list(dict.fromkeys(silent)))
        lines.append(
            f"no training curve of {some}: nothing was logged, as when a run is "
            "shorter than train.log_every"
        )
    return lines


def no_analysis(report: Report) -> list[str]:
    """Says how trained models are looked into, where none has been."""
    if report.analyses or not report.analysis_command:
        return []
    return [
        f"none yet: `{report.analysis_command}` draws attention, reach and the "
        "positions met, of one run of each setting (Transformers only)"
    ]


def published_notes(report: Report) -> list[str]:
    """Says what the published figures are of, and how they are known."""
    sources = dict.fromkeys(row.figure.source for row in report.comparisons)
    standings = {row.figure.standing for row in report.comparisons}
    gain = report.gain
    lines = []
    if gain is not None:
        sources.setdefault(gain.figure.source)
        standings.add(gain.figure.standing)
        tasks = f"{gain.tasks} of the {gain.of} tasks"
        of = listed(gain.encodings, 8, between=" | ")
        lines.append(
            "Best randomized above best consecutive encoding, mean over "
            f"{tasks}: {comparison.signed(gain.ours)} points here (of {of}); published "
            f"{comparison.signed(gain.figure.value)} over {gain.of} tasks "
            f"({gain.figure.standing}: {gain.figure.reference}){_apart(gain)}."
        )
    if shared := comparison.shared_remarks(report.comparisons):
        lines.append(f"Of all our scores below: {'; '.join(shared)}.")
    if absent := comparison.without_figure(report.cells):
        lines.append(f"Without a published score here: {absent}.")
    lines += [
        f"{source.citation}, arXiv {source.arxiv}: {source.selection}; trained to "
        f"{source.train_max}, scored over {source.train_max + 1}..{source.test_max}."
        for source in sources
    ]
    lines += [
        f"{name}: {meaning}."
        for name, meaning in published.STANDINGS.items()
        if name in standings
    ]
    return lines


def _apart(gain: MeanGain) -> str:
    if gain.difference is None:
        return ""
    return f"; difference {comparison.signed(gain.difference)}"


def published_rows(report: Report) -> list[list[str]]:
    """Lists the comparisons under their names; what all remark is in the notes."""
    shared = comparison.shared_remarks(report.comparisons)
    rows = comparison.text_rows(report.comparisons, shared)
    if not any(row[-1] for row in rows):
        return [list(comparison.HEAD[:-1]), *(row[:-1] for row in rows)]
    return [list(comparison.HEAD), *rows]


def facts(report: Report) -> str:
    """Counts what a report is of, in one line."""
    runs = report.runs
    numbers = {
        "run": len({run.run_id for run in runs}),
        "task": len({cell.task for cell in report.cells}),
        "setting": len({cell.setting for cell in report.cells}),
        "seed": len({run.seed for run in runs}),
        "learning rate": len({run.learning_rate for run in runs}),
    }
    named = [f"{n} {name}{'s' * (n != 1)}" for name, n in numbers.items()]
    left = len(report.left_out)
    return ", ".join(named) + (f"; {left} more left out" if left else "")


def markdown(report: Report, pictures: Sequence[str]) -> str:
    """Writes the page in Markdown.

    Args:
        report: what to say.
        pictures: names of the files to show, with their suffix.
    """
    cells = report.cells
    scores = tables.markdown(tables.score_rows(cells), 3)
    parts = ["# Length generalization", scores, f"In brackets: {tables.INTERVAL}."]
    parts += _section("Warnings", report.notes)
    parts += _section("Damaged results", report.damaged)
    if len(by_task(cells)) > 1:
        parts += [
            "## Best score over seeds and learning rates",
            tables.BOLD,
            tables.markdown_matrix(cells, tables.best_text),
            "## Best, and mean over seeds with 95% interval",
            f"In brackets: {tables.INTERVAL}. {tables.BOLD}",
            tables.markdown_matrix(cells, tables.best_and_mean_text),
            "## Exact match",
            EXACT,
            tables.markdown_matrix(
                cells, tables.exact_text, figure="exact_match", blind=False
            ),
        ]
    if report.gains:
        rows = [list(gains.HEAD), *gains.text_rows(report.gains)]
        parts += [f"## {GAINS}", tables.markdown(rows)]
    if notes := published_notes(report):
        parts += ["## Beside published scores", _bullets(notes)]
    if report.comparisons:
        parts.append(tables.markdown(published_rows(report), 2))
    if pictures:
        parts.append("## Pictures")
        for file in pictures:
            name = file.partition(".")[0]
            parts.append(f"![{name}]({file})\n\n{PICTURES[name][1]}")
    drawn = [
        f"{one.run}: {', '.join(map(str, one.pictures))}" for one in report.analyses
    ]
    parts += _section(ANALYSIS, drawn or no_analysis(report))
    parts += _section("Missing", missing(report))
    parts += _section("Runs", origin_lines(report))
    parts += _section("Lengths", lengths(report))
    meaning = [f"**{name}**: {text}" for name, text in MEANING]
    return "\n\n".join([*parts, "## What the figures mean", _bullets(meaning)]) + "\n"


def origin_lines(report: Report) -> list[str]:
    """Says what the runs ran on, and what their configs share."""
    lines = [
        f"{one.name}: {len(one.runs)} run{'s' * (len(one.runs) > 1)} on "
        f"{one.device}, commit {one.commit}; "
        + ", ".join(f"{name} {version}" for name, version in one.versions.items())
        for one in report.origins
    ]
    shared, varying = configs_of(report)
    if varying:
        lines.append(f"configs differ in {', '.join(varying)}")
    if shared:
        same = (f"{name}={run_configs.shown(shared, name)}" for name in shared)
        lines.append(f"configs share {', '.join(same)}")
    return lines


def configs_of(report: Report) -> tuple[Mapping[str, object], list[str]]:
    """Returns what the configs of the counted runs share, and what varies."""
    ids = dict.fromkeys(run.run_id for run in report.runs)
    configs = [report.configs[name] for name in ids if name in report.configs]
    return inventory.shared_and_varying(configs)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", _bullets(lines)] if lines else []


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
