"""Scores beside those that papers print, and how far each of those is to be trusted.

A score is compared with a figure of the same task, encoding and position scheme; one
of a composition of an encoding and a scale, with those of the encoding. The difference
is given only where both are over the same lengths after training to the same length.
The remark says what else differs: settings, steps, batch, model, and number of runs.
Like the figures, our score is the best over seeds and learning rates.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from experiments.report import published, summaries, tables
from experiments.report.comparable import describe_lengths, listed
from experiments.report.levels import base_name, in_order
from experiments.report.published import Figure
from experiments.report.published_parts import published_part
from experiments.report.run_configs import Flat
from experiments.report.summaries import Cell, Setting

# The encodings over which the papers take the best Transformer.
_TRANSFORMERS = ("none", "sinusoidal", "transformer_xl", "alibi", "rope")
_BETWEEN = "; "  # parts of a remark
_UNKNOWN: Mapping[str, Flat] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A score beside a published figure.

    Attributes:
        task_title: of the task.
        label: of our setting.
        ours: best score, percent.
        runs: number of runs that it is the best of.
        figure: what is published.
        difference: ours - published, percentage points; None if the two cannot be
            compared.
        remark: what differs; empty if nothing that is known.
    """

    task_title: str
    label: str
    ours: float
    runs: int
    figure: Figure
    difference: float | None
    remark: str


def compare(
    cells: Sequence[Cell],
    figures: Iterable[Figure] | None = None,
    configs: Mapping[str, Flat] = _UNKNOWN,
) -> list[Comparison]:
    """Puts every score beside the figures published for it, in the order of tables.

    Args:
        cells: of any tasks and settings.
        figures: published ones; all that are known if None.
        configs: of runs by their id, flat; what differs is said where they are known.
    """
    by_task: dict[str, list[Figure]] = {}
    for figure in published.load() if figures is None else figures:
        by_task.setdefault(figure.task, []).append(figure)
    rows = []
    for task, group in summaries.by_task(in_order(cells)).items():
        for figure in by_task.get(task, []):
            if figure.encoding == "transformer":
                rows += _best_transformer(group, figure, configs)
            else:
                same = [cell for cell in group if is_of(cell.setting, figure)]
                rows += [_beside([cell], figure, configs) for cell in same]
    return rows


def without_figure(cells: Sequence[Cell]) -> str:
    """Says of which cells there is no published score, and why; empty if of none."""
    figures = published.load()
    tasks = {figure.task for figure in figures}
    encodings = {figure.encoding for figure in figures} | {*_TRANSFORMERS}
    schemes = {figure.positions for figure in figures}
    why: dict[str, dict[str, None]] = {}
    for cell in in_order(cells):
        setting = cell.setting
        title = setting.encoding_title or setting.encoding
        moved = (setting.test_positions, setting.test_encoding) != (
            setting.positions,
            setting.encoding,
        )
        if cell.task not in tasks:
            why.setdefault("tasks", {}).setdefault(cell.task_title)
        elif published_part(setting.encoding).name not in encodings:
            why.setdefault("encodings", {}).setdefault(title)
        elif base_name(setting.positions) not in schemes or moved:
            why.setdefault("positions", {}).setdefault(setting.variant)
        elif not any(is_of(setting, f) for f in figures if f.task == cell.task):
            why.setdefault("settings", {}).setdefault(setting.label)
    return "; ".join(
        f"{what} {listed([*names], 8, between=' | ')}" for what, names in why.items()
    )


def is_of(setting: Setting, figure: Figure) -> bool:
    """Returns whether a figure is of a setting's encoding and positions."""
    return (
        published_part(setting.encoding).name == figure.encoding
        and figure.positions in ("", base_name(setting.positions))
        and setting.test_positions == setting.positions
        and setting.test_encoding == setting.encoding
    )


def _beside(
    cells: Sequence[Cell], figure: Figure, configs: Mapping[str, Flat]
) -> Comparison:
    """Puts the best of some cells beside a figure."""
    cell = max(cells, key=lambda cell: -1.0 if np.isnan(cell.best) else cell.best)
    ours, runs = 100 * cell.best, sum(len(one.runs) for one in cells)
    unlike = hindrance(cell, figure)
    remarks = [unlike] if unlike else list(_differences(cell))
    if not unlike:
        config = configs.get(cell.runs[0].run_id, {})
        remarks += unlike_training(figure, cell.runs[0].step, runs, config)
    return Comparison(
        cell.task_title,
        cell.setting.label,
        ours,
        runs,
        figure,
        None if unlike else ours - figure.value,
        _BETWEEN.join(remarks),
    )


def hindrance(cell: Cell, figure: Figure) -> str:
    """Says why a cell's score and a figure are not of one thing; empty if they are."""
    first, source = cell.runs[0], figure.source
    if not first.test_lengths:
        return "no score beyond the training lengths here"
    ours = first.train_max, first.test_max
    theirs = source.train_max, source.test_max
    if ours == theirs and first.test_lengths[-1] == source.test_max:
        return ""
    return (
        f"trained to {ours[0]} and scored over {describe_lengths(first.test_lengths)} "
        f"here, trained to {theirs[0]} and scored over {theirs[0] + 1}..{theirs[1]} "
        "there"
    )


def _differences(cell: Cell) -> Iterable[str]:
    setting, first = cell.setting, cell.runs[0]
    scheme = setting.positions
    own = [
        published_part(setting.encoding).own,
        "" if scheme == base_name(scheme) else scheme,
        setting.title,
        setting.config,
    ]
    if own := [text for text in own if text]:
        yield f"settings of our own: {', '.join(own)}"
    whole = first.test_max - first.train_max
    if len(first.test_lengths) < whole:
        yield f"scored at {len(first.test_lengths)} of the {whole} lengths"


def unlike_training(
    figure: Figure, steps: int, runs: int, config: Flat
) -> Iterable[str]:
    """Says how a model was trained otherwise than that of a figure.

    Args:
        figure: the published one.
        steps: of ours.
        runs: number that ours is the best of.
        config: of ours, flat; what it lacks is not compared.
    """
    source = figure.source
    if source.steps is None:
        yield f"{steps:,} steps here, not known there"
    elif steps != source.steps:
        yield f"{steps:,} steps here, {source.steps:,} there"
    batch = config.get("train.batch_size", source.batch_size)
    if batch != source.batch_size:
        yield f"batch {batch} here, {source.batch_size} there"
    kind = config.get("model.kind", "encoder")
    if figure.encoding in {*_TRANSFORMERS, "learned", "transformer"}:
        theirs = source.layers, source.width
        names = ("model.num_layers", "model.embed_dim")
        size = tuple(config.get(n, x) for n, x in zip(names, theirs, strict=True))
        if size != theirs:
            yield (
                f"{size[0]} layers of width {size[1]} here, {theirs[0]} of "
                f"{theirs[1]} there"
            )
        if kind != "encoder":
            yield f"{kind} here, encoder there"
    of = source.runs * (source.best_of if figure.encoding == "transformer" else 1)
    if runs != of:
        yield f"best of {runs} here, of {of} there"


def _best_transformer(
    cells: Sequence[Cell], figure: Figure, configs: Mapping[str, Flat]
) -> list[Comparison]:
    """Puts our best over the papers' encodings beside their best Transformer.

    What is made of one of them counts only where there is nothing else.
    """
    of = {name: dataclasses.replace(figure, encoding=name) for name in _TRANSFORMERS}
    able = [
        cell
        for cell in cells
        if any(is_of(cell.setting, one) for one in of.values())
        and not np.isnan(cell.best)
    ]
    if not able:
        return []
    plain = [cell for cell in able if not published_part(cell.setting.encoding).own]
    able = plain or able
    row = _beside(able, figure, configs)
    if len(able) == 1:
        return [row]
    return [dataclasses.replace(row, label=f"best of {len(able)}: {row.label}")]


HEAD = (
    *("Task", "Setting", "Ours (best)", "Runs", "Published", "Difference"),
    *("Standing", "Source", "Remark"),
)


def shared_remarks(rows: Sequence[Comparison]) -> list[str]:
    """Lists what the remarks of all comparisons say, if there are several."""
    parts = [row.remark.split(_BETWEEN) for row in rows]
    first, *others = parts if len(parts) > 1 else [[]]
    return [part for part in first if part and all(part in one for one in others)]


def text_rows(
    rows: Sequence[Comparison], without: Sequence[str] = ()
) -> list[list[str]]:
    """Lists comparisons for people, one row each; names are in `HEAD`.

    Args:
        rows: comparisons.
        without: parts of remarks that are said elsewhere.
    """
    return [
        [
            row.task_title,
            row.label,
            "–" if np.isnan(row.ours) else f"{row.ours:.1f}",
            str(row.runs),
            f"{row.figure.value:.1f}",
            signed(row.difference),
            row.figure.standing,
            row.figure.reference,
            _BETWEEN.join(p for p in row.remark.split(_BETWEEN) if p not in without),
        ]
        for row in rows
    ]


def signed(difference: float | None) -> str:
    """Shows a difference in percentage points; a dash if there is none."""
    return tables.signed(None if difference is None else difference / 100)


def records(rows: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Lists comparisons for CSV and JSON; what is not known is None."""
    return [_record(row) for row in rows]


def _record(row: Comparison) -> dict[str, Any]:
    return {
        "task": row.figure.task,
        "task_title": row.task_title,
        "setting": row.label,
        "ours_best_percent": None if np.isnan(row.ours) else row.ours,
        "runs": row.runs,
        "published_percent": row.figure.value,
        "difference": row.difference,
        "standing": row.figure.standing,
        "source": row.figure.reference,
        "remark": row.remark,
    }
