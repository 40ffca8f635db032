"""Scores as tables for people: Markdown, and the terminal.

Shares are in percent, with one decimal. Beside every score stands that of the best
input-blind predictor over the same lengths: on some tasks it is high, so a bare score
misleads.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from experiments.report import levels, statistics, summaries, summarize
from experiments.report.summaries import Cell, RunSummary, Setting

INTERVAL = "bootstrap 95% interval (of two or three seeds, their range; of one, none)"
BOLD = (
    "Bold: the best of the row, and those whose interval reaches that of the best; "
    "none where these are all, or a cell of the row has one seed only."
)
"""So few seeds do not tell more: three are all above three others by chance one time in
twenty, two above two one time in six."""


def percent(share: float | None) -> str:
    """Show a share in percent: `97.1`; a dash if it is not known."""
    return "–" if share is None or math.isnan(share) else f"{100 * share:.1f}"


def signed(share: float | None) -> str:
    """Show a difference of shares in percentage points, with its sign: `+3.1`."""
    if share is None or math.isnan(share):
        return "–"
    text = f"{100 * share:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def signed_with_interval(share: float, low: float | None, high: float | None) -> str:
    """Formats a difference of shares in percent, with its interval if there is one."""
    if low is None:
        return signed(share)
    return f"{signed(share)} [{signed(low)}, {signed(high)}]"


def mean_and_interval(spread: statistics.Spread) -> str:
    """Show `97.1 [95.0, 98.8]`; for one run, which has no interval, `97.1`."""
    if spread.low is None:
        return percent(spread.mean)
    return f"{percent(spread.mean)} [{percent(spread.low)}, {percent(spread.high)}]"


def longest_range(cell: Cell) -> str:
    """Show the longest lengths with at least 90%, over the chosen runs: `60–500`."""
    lengths = sorted(int(run.numbers["longest"]) for run in cell.chosen)
    ends = dict.fromkeys([lengths[0], lengths[-1]])
    return "–".join(map(str, ends))


def perplexity(cell: Cell) -> str:
    """Show the mean perplexity over the lengths of the score; a dash without one."""
    return four_digits(cell.perplexity)


def four_digits(value: float) -> str:
    """Show a perplexity: `8.320`, `83.20`; a dash if it is not known."""
    if math.isnan(value) or not 1 <= value < 1e6:
        return "–" if math.isnan(value) else f"{value:.4g}"
    return f"{value:.{max(0, 3 - int(math.log10(value)))}f}"


_Column = tuple[str, Callable[[Cell], str]]
_COLUMNS: tuple[_Column, ...] = (
    ("Task", lambda c: c.task_title),
    ("Encoding", lambda c: c.setting.encoding_title or c.setting.encoding),
    ("Positions", lambda c: c.setting.variant),
    ("Best", lambda c: percent(c.best)),
    ("Mean [95%]", lambda c: mean_and_interval(c.spreads["score"])),
    ("Input-blind", lambda c: percent(c.spreads["input_blind"].mean)),
    ("In range", lambda c: percent(c.spreads["in_range"].mean)),
    ("Blind there", lambda c: percent(c.spreads["in_range_input_blind"].mean)),
    ("Exact", lambda c: percent(c.spreads["exact_match"].mean)),
    ("≥90% to", longest_range),
    ("Seeds", lambda c: str(c.seeds)),
)
_PERPLEXITY: _Column = ("Perplexity", perplexity)


def score_rows(cells: Sequence[Cell]) -> list[list[str]]:
    """List the scores of all cells, one row each, under a row of names.

    Perplexity is a column where a task is on text.
    """
    on_text = any(cell.on_text for cell in cells)
    columns = [*_COLUMNS, *[_PERPLEXITY] * on_text]
    head = [name for name, _ in columns]
    return [head, *([show(cell) for _, show in columns] for cell in cells)]


class Text(NamedTuple):
    """A text in a table, and whether it stands out."""

    text: str
    strong: bool = False


def matrix(
    cells: Sequence[Cell],
    show: Callable[[Cell], str],
    settings: Sequence[Setting] | None = None,
    figure: str = "score",
) -> list[list[Text]]:
    """Lay out tasks x settings, as papers do, with the input-blind score beside.

    Args:
        cells: of any tasks and settings; an absent one is a dash.
        show: text of a cell, which begins with a number.
        settings: the columns; those of `cells` if None.
        figure: of `RunSummary.numbers`: what the numbers are of. Those that `BOLD` says
            are strong.

    Returns:
        A row a task: its title, the input-blind score, and the settings in order.
    """
    settings = summaries.settings_of(cells) if settings is None else settings
    rows = []
    for group in summaries.by_task(cells).values():
        texts = {cell.setting: show(cell) for cell in group}
        best = _best(group, show, figure)
        rows.append(
            [
                Text(group[0].task_title),
                Text(input_blind(group)),
                *(Text(texts.get(s, "–"), s in best) for s in settings),
            ]
        )
    return rows


def _best(
    group: Sequence[Cell], show: Callable[[Cell], str], figure: str
) -> set[Setting]:
    """The settings of a task that `BOLD` is of."""
    numbers = [_leading_number(show(cell)) for cell in group]
    known = [
        (number, cell)
        for number, cell in zip(numbers, group, strict=True)
        if number >= 0
    ]
    if not known or any(cell.spreads[figure].low is None for _, cell in known):
        return set()
    top = max(number for number, _ in known)
    reach = min(cell.spreads[figure].low for number, cell in known if number == top)
    best = {c.setting for n, c in known if n == top or c.spreads[figure].high >= reach}
    return best if top > 0 and len(best) < len(known) else set()


def input_blind(cells: Sequence[Cell]) -> str:
    """Show the input-blind score of a task; from lowest to highest if cells differ."""
    # A cell without a score far away has none here either, which orders with nothing.
    blind = [cell.spreads["input_blind"].mean for cell in cells]
    blind = sorted(share for share in blind if not math.isnan(share)) or [math.nan]
    return "–".join(dict.fromkeys([percent(blind[0]), percent(blind[-1])]))


def exact_text(cell: Cell) -> str:
    """Show the best share of sequences that are right throughout, and the mean."""
    mean = mean_and_interval(cell.spreads["exact_match"])
    return f"{percent(cell.best_of('exact_match'))} / {mean}"


def variant_groups(settings: Sequence[Setting]) -> list[tuple[str, int]]:
    """List the schemes under which settings stand side by side, and how many do."""
    groups = itertools.groupby(settings, lambda setting: setting.variant)
    return [(name, len(list(same))) for name, same in groups]


def _leading_number(text: str) -> float:
    head = text.split(" ")[0]
    return -1.0 if head == "–" else float(head)


def best_text(cell: Cell) -> str:
    """Show the best score of a cell, as published tables do."""
    return percent(cell.best)


def mean_text(cell: Cell) -> str:
    """Show the mean score of a cell with its interval."""
    return mean_and_interval(cell.spreads["score"])


def best_and_mean_text(cell: Cell) -> str:
    """Show the best score and, behind it, the mean with its interval."""
    return f"{best_text(cell)} / {mean_text(cell)}"


def markdown_matrix(
    cells: Sequence[Cell],
    show: Callable[[Cell], str],
    *,
    figure: str = "score",
    blind: bool = True,
) -> str:
    """Format `matrix` in Markdown, what is strong in bold.

    Tasks stand under their Chomsky level, where there are several.

    Args:
        cells: as in `matrix`.
        show: as in `matrix`.
        figure: as in `matrix`.
        blind: show the input-blind score, which is one of token accuracy.
    """
    settings = summaries.settings_of(cells)
    rows = [["Task", "Input-blind", *(setting.label for setting in settings)]]
    groups = levels.by_level(cells)
    for level, group in groups.items():
        if len(groups) > 1:
            rows.append([f"*{level}*", *[""] * (1 + len(settings))])
        rows += [
            [f"**{text}**" if strong else text for text, strong in row]
            for row in matrix(group, show, settings, figure)
        ]
    return markdown(rows if blind else [[row[0], *row[2:]] for row in rows])


def markdown(rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """Format rows, the first of names, as an aligned Markdown table.

    Args:
        rows: texts.
        text_columns: number of columns that are aligned left; the others are right.
    """
    rows = [[text.replace("|", "\\|") for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = [i < text_columns for i in range(len(widths))]
    columns = list(zip(left, widths, strict=True))
    rule = ["-" * w if is_left else "-" * (w - 1) + ":" for is_left, w in columns]
    lines = [
        " | ".join(
            text.ljust(w) if is_left else text.rjust(w)
            for text, (is_left, w) in zip(row, columns, strict=True)
        )
        for row in [rows[0], rule, *rows[1:]]
    ]
    return "\n".join(f"| {line} |" for line in lines)


def print_summary(
    rows: pa.Table | Iterable[Mapping[str, Any]],
    lengths: Sequence[int] | None = None,
    console: Any = None,
) -> None:
    """Print accuracy at a few lengths and the scores of some runs, one table a task.

    Beside the scores is the share of sequences that are right throughout, over the same
    lengths as the score; over the trained ones where no other was evaluated.

    Args:
        rows: evaluation rows, as `results.read` gives them, or as
            `ResultsWriter.evaluation` takes them together with `common`.
        lengths: which lengths to show, in tokens; a few of those evaluated if None.
        console: a `rich.console.Console`; the terminal if None.
    """
    import rich.console

    console = console or rich.console.Console()
    cells = summaries.group_cells(summarize.summarize_runs(rows))
    for group in summaries.by_task(cells).values():
        shown = lengths or few_lengths(group[0].chosen[0])
        console.print(_terminal_table(group, shown))


def _terminal_table(group: Sequence[Cell], lengths: Sequence[int]) -> Any:
    import rich.box
    import rich.table

    run = group[0].chosen[0]
    seeds = sorted({cell.seeds for cell in group})
    over = f"; mean of {'–'.join(map(str, seeds))} seeds ± their std" * (seeds[-1] > 1)
    table = rich.table.Table(
        title=f"{group[0].task_title}: token accuracy in % by length{over}; exact: "
        "sequences right throughout",
        box=rich.box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    plural = "s" * (run.train_min != run.train_max)
    table.add_column(f"trained on length{plural} {run.trained_on}")
    tops = {cell.chosen[0].test_max for cell in group}
    alike = len(tops) == 1 and run.test_max > run.train_max
    beyond = f"{run.train_max + 1}–{run.test_max}" if alike else f"over {run.train_max}"
    scored = any(not math.isnan(cell.spreads["score"].mean) for cell in group)
    exact = f"exact\n{beyond if scored else run.trained_on}"
    names = [*map(str, lengths), run.trained_on, beyond, exact, "≥90% to"]
    on_text = any(cell.on_text for cell in group)
    for name in [*names, *["perplexity"] * on_text]:
        table.add_column(name, justify="right", no_wrap=True)
    for cell in group:
        table.add_row(
            cell.setting.label
            + (f", to {cell.chosen[0].test_max}" if len(tops) > 1 else ""),
            *(percent(cell.curve.get(n, (None,))[0]) for n in lengths),
            percent(cell.spreads["in_range"].mean),
            f"[bold]{_mean_and_std(cell.spreads['score'])}[/bold]",
            percent(_exact(cell, beyond=scored)),
            longest_range(cell),
            *[perplexity(cell)] * on_text,
        )
    curve = statistics.mean_curve([cell.blind_curve for cell in group])
    table.add_row(
        "best input-blind guess",
        *(percent(curve.get(n)) for n in lengths),
        _mean_of(group, "in_range_input_blind"),
        _mean_of(group, "input_blind"),
        style="dim",
    )
    return table


def _exact(cell: Cell, *, beyond: bool) -> float:
    """The mean share of sequences that are right throughout, past training or in it."""
    if beyond:
        return cell.spreads["exact_match"].mean
    shares = [run.in_range(run.exact_match) for run in cell.chosen]
    return sum(shares) / len(shares)


def _mean_of(group: Sequence[Cell], name: str) -> str:
    """Show a figure averaged over cells: they may stand on different examples."""
    values = [cell.spreads[name].mean for cell in group]
    known = [value for value in values if not math.isnan(value)]
    return percent(sum(known) / len(known) if known else None)


def _mean_and_std(spread: statistics.Spread) -> str:
    more = "" if spread.std is None else f" ± {percent(spread.std)}"
    return percent(spread.mean) + more


def few_lengths(run: RunSummary, number: int = 4) -> list[int]:
    """Choose the longest training length and some evaluated ones up to the longest."""
    return spread_out(sorted(run.accuracy), run.train_max, number)


def spread_out(
    known: Sequence[int], first: int | None = None, number: int = 4
) -> list[int]:
    """Chooses, of lengths in order, some from about `first` (the least) to the last."""
    ends = known[0] if first is None else first, known[-1]
    wanted = [ends[0] + (ends[1] - ends[0]) * i / (number - 1) for i in range(number)]
    return sorted({min(known, key=lambda n: abs(n - target)) for target in wanted})
