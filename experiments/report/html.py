"""The report as one HTML page that opens anywhere: nothing is loaded from elsewhere.

Pictures are in the page as data, the style is in it, and the one script (inline, 20
lines) sorts a table when its head is clicked; without scripts the page says the same.
"""

import base64
import html
from collections.abc import Callable, Iterable, Mapping, Sequence

from experiments.report import gains, levels, run_configs, summaries, tables
from experiments.report import text as report_text
from experiments.report.data import Report
from experiments.report.html_style import SCRIPT, STYLE
from experiments.report.summaries import Cell

_WORDS = {"Task", "Setting", "Standing", "Source", "Remark"}
_SHRUNK = 0.6  # pictures have more dots than an ordinary screen shows
_ANALYSES = 12  # runs whose analysis is in the page
_LONG = 40  # rows of a table that is folded away
_FOLDED = 12  # lines shown at once
_SHORT = 14  # letters of a name that is not broken


def page(report: Report, pictures: Mapping[str, bytes]) -> str:
    """Writes the page.

    Args:
        report: what to say.
        pictures: PNG files by name, those of `report_text.PICTURES`.
    """
    sections = {
        "Table": _paper_table(report.cells),
        report_text.GAINS: _gains(report),
        **{
            report_text.PICTURES[name][0]: _picture(name, data)
            for name, data in pictures.items()
        },
        "Beside published scores": _published(report),
        report_text.ANALYSIS: _analyses(report),
        "Exact match": _exact(report.cells),
        "All scores": _scores(report.cells),
        "Missing": _lines(report_text.missing(report)) or "<p>Nothing.</p>",
        "Runs": _runs(report),
        "What the figures mean": _meaning(report),
    }
    sections = {title: body for title, body in sections.items() if body}
    links = " ".join(f'<a href="#{_id(t)}">{_text(t)}</a>' for t in sections)
    bodies = "\n".join(
        f'<section id="{_id(title)}"><h2>{_text(title)}</h2>\n{body}\n</section>'
        for title, body in sections.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Length generalization</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>Length generalization</h1>
<p>{_text(report_text.facts(report))}.</p>
<nav>{links}</nav>
</header>
<main>
{_warnings(report)}
{bodies}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _text(text: str) -> str:
    return html.escape(text)


def _id(title: str) -> str:
    return "-".join(title.lower().split())


def _lines(lines: Sequence[str]) -> str:
    """Lists lines; what goes beyond a few is folded away."""
    if not lines:
        return ""
    items = [f"<li>{_text(line)}</li>" for line in lines]
    first = f"<ul>{''.join(items[:_FOLDED])}</ul>"
    if len(items) <= _FOLDED:
        return first
    rest = "".join(items[_FOLDED:])
    more = f"{len(items) - _FOLDED} more"
    return f"{first}\n<details><summary>{more}</summary><ul>{rest}</ul></details>"


def _warnings(report: Report) -> str:
    boxes = {
        "Damaged results, left out": report.damaged,
        "Runs that are not alike, and what was left out": report.notes,
    }
    return "\n".join(
        f'<div class="notes"><p><strong>{title}</strong></p>{_lines(lines)}</div>'
        for title, lines in boxes.items()
        if lines
    )


_BEST_AND_MEAN = (
    "Token accuracy (%) beyond the training lengths: the best over seeds and learning "
    "rates; below it the mean over the seeds at the learning rate with the highest "
    f"mean, with its {tables.INTERVAL}. {tables.BOLD}"
)


def _paper_table(
    cells: Sequence[Cell],
    show: Callable[[Cell], str] = tables.best_and_mean_text,
    caption: str = _BEST_AND_MEAN,
    *,
    figure: str = "score",
    blind: bool = True,
) -> str:
    """Makes tasks x settings; `blind` shows the input-blind score beside."""
    settings = summaries.settings_of(cells)
    before = ["Task", "Input-blind"][: 1 + blind]
    over = [f'<th colspan="{len(before)}"></th>']
    for name, count in tables.variant_groups(settings):
        over.append(f'<th class="over" colspan="{count}">{_text(name)}</th>')
    names = [setting.encoding_title or setting.encoding for setting in settings]
    head = "".join(
        f'<th scope="col"{_left(place == 0)}>{_breakable(name)}</th>'
        for place, name in enumerate([*before, *names])
    )
    groups = levels.by_level(cells)
    bodies = []
    for level, group in groups.items():
        rows = []
        if len(groups) > 1:
            width = len(before) + len(settings)
            rows.append(f'<tr><th class="level" colspan="{width}">{_text(level)}</th>')
        for row in tables.matrix(group, show, settings, figure):
            texts = row[1:] if blind else row[2:]
            title = f'<th scope="row">{_text(row[0].text)}</th>'
            rows.append(f"<tr>{title}{''.join(map(_score, texts))}")
        bodies.append(f"<tbody>{'</tr>'.join([*rows, ''])}</tbody>")
    return (
        f'<div class="scroll"><table class="paper"><caption>{caption}</caption><thead>'
        f"<tr>{''.join(over)}</tr><tr>{head}</tr></thead>{''.join(bodies)}</table></div>"
    )


def _exact(cells: Sequence[Cell]) -> str:
    how = {"figure": "exact_match", "blind": False}
    return _paper_table(cells, tables.exact_text, report_text.EXACT, **how)


def _score(cell: tables.Text) -> str:
    best, slash, mean = cell.text.partition(" / ")
    shown = f"<strong>{_text(best)}</strong>" if cell.strong else _text(best)
    below = mean.replace(" [", " / [").split(" / ") if slash else []
    lines = "".join(f"<small>{_text(line)}</small>" for line in below)
    return f"<td>{shown}{lines}</td>"


def _breakable(name: str) -> str:
    """Lets a line end before the settings behind a name, and between them only.

    A short name stays in one line.
    """
    if len(name) <= _SHORT:
        name = name.replace(" ", "\N{NO-BREAK SPACE}")
    return _text(name).replace("(", "<wbr>(").replace("=", "=<wbr>")


def _left(is_left: bool) -> str:
    return ' class="text"' if is_left else ""


def _table(rows: Sequence[Sequence[str]], text: Iterable[int], caption: str) -> str:
    """Makes a table that can be sorted; `text` are the columns aligned left."""
    left = set(text)
    head, *body = rows
    heads = "".join(
        f'<th scope="col"{_left(i in left)}>{_text(name)}</th>'
        for i, name in enumerate(head)
    )
    lines = "\n".join(
        f"<tr>{''.join(f'<td{_left(i in left)}>{_mark(t)}</td>' for i, t in row)}</tr>"
        for row in map(enumerate, body)
    )
    return (
        f'<div class="scroll"><table class="sortable"><caption>{_text(caption)}'
        f"</caption><thead><tr>{heads}</tr></thead><tbody>\n{lines}\n</tbody></table>"
        "</div>"
    )


def _mark(text: str) -> str:
    known = text in {"read", "secondary", "unverified"}
    return f'<span class="{text}">{text}</span>' if known else _text(text)


def _gains(report: Report) -> str:
    if not report.gains:
        return ""
    caption = (
        f"In %: best / mean over seeds with its {tables.INTERVAL}; gains in "
        "percentage points. The settings are those whose best run is highest. p: of a "
        "permutation test of the runs, not below 0.1 for three seeds each."
    )
    rows = [list(gains.HEAD), *gains.text_rows(report.gains)]
    return _table(rows, (0, 2, 4), caption)


def _published(report: Report) -> str:
    notes = _lines(report_text.published_notes(report))
    if not report.comparisons:
        return notes
    caption = (
        "Our best score beside the published figure, in %; the difference in "
        "percentage points; and how the published figure is known."
    )
    rows = report_text.published_rows(report)
    left = [at for at, name in enumerate(rows[0]) if name in _WORDS]
    return notes + _table(rows, left, caption)


def _picture(name: str, data: bytes) -> str:
    title, caption = report_text.PICTURES[name]
    shown = _image(title, data)
    return f"<figure>{shown}<figcaption>{_text(caption)}</figcaption></figure>"


def _analyses(report: Report) -> str:
    """Shows what `experiments.analysis` drew; only the first run is unfolded."""
    parts = [_lines(report_text.no_analysis(report))]
    for place, one in enumerate(report.analyses):
        images = "".join(
            f"<figure>{_image(path.stem.replace('_', ' '), path.read_bytes())}</figure>"
            for path in one.pictures
            if place < _ANALYSES
        )
        body = images or "<p>Its pictures are in its folder.</p>"
        state = " open" if place == 0 else ""
        parts.append(
            f"<details{state}><summary>{_text(one.run)}</summary>{body}</details>"
        )
    return "\n".join(filter(None, parts))


def _image(title: str, data: bytes) -> str:
    encoded = base64.b64encode(data).decode()
    width = int.from_bytes(data[16:20], "big")  # of a PNG, in its first chunk
    shown = f'alt="{_text(title)}" width="{round(_SHRUNK * width)}"'
    return f'<img {shown} src="data:image/png;base64,{encoded}">'


def _scores(cells: Sequence[Cell]) -> str:
    rows = tables.score_rows(cells)
    caption = f"In %, in brackets the {tables.INTERVAL}. Click a head to sort."
    table = _table(rows, range(3), caption)
    if len(rows) <= _LONG:
        return table
    return f"<details><summary>{len(rows) - 1} cells</summary>{table}</details>"


def _runs(report: Report) -> str:
    letters = {run: one.name for one in report.origins for run in one.runs}
    shared, varying = report_text.configs_of(report)
    named = {"train.seed", "optim.learning_rate", "task.name", "encoding.name"}
    varying = [name for name in varying if name not in named | {"positions.name"}]
    head = ["Run", "Task", "Setting", "Seed", "Learning rate", "Steps", "Score"]
    rows = [[*head, "In range", "Made on", *varying]]
    for run in report.runs:
        config = report.configs.get(run.run_id, {})
        rate = "–" if run.learning_rate is None else f"{run.learning_rate:g}"
        rows.append(
            [
                *(run.run_id, run.task_title, run.setting.label, str(run.seed), rate),
                *(str(run.step), tables.percent(run.numbers["score"])),
                tables.percent(run.numbers["in_range"]),
                letters.get(run.run_id, "–"),
                *(run_configs.shown(config, name) for name in varying),
            ]
        )
    made = [["", "Runs", "Device", "Code", "Versions"]]
    made += [
        [
            *(one.name, str(len(one.runs)), one.device, one.commit),
            ", ".join(f"{name} {version}" for name, version in one.versions.items()),
        ]
        for one in report.origins
    ]
    same = "".join(
        f"<tr><th><code>{_text(name)}</code></th>"
        f'<td class="text">{_text(str(value))}</td></tr>'
        for name, value in shared.items()
    )
    parts = [
        _table(made, (0, 2, 3, 4), "What the runs were made on.") if made[1:] else "",
        f"<details><summary>What all configs share ({len(shared)} fields)</summary>"
        f"<table><tbody>{same}</tbody></table></details>"
        if shared
        else "",
        f"<details><summary>Every run ({len(rows) - 1})</summary>"
        f"{_table(rows, (0, 1, 2, 8), 'In %. Click a head to sort.')}</details>",
    ]
    return "\n".join(filter(None, parts))


def _meaning(report: Report) -> str:
    terms = "".join(
        f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>"
        for name, text in report_text.MEANING
    )
    return f"<dl>{terms}</dl>{_lines(report_text.lengths(report))}"
