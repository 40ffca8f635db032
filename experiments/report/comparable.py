"""Which runs may be averaged: those that did the same, and each once.

* Runs whose configs differ in more than seed, learning rate and other settings of an
  optimizer are settings of their own: columns of the table, named after the difference.
  So are kinds of Transformers (encoder, decoder) where a task has several of them.
* The runs of one cell (a task in a setting) must agree in what makes a score: steps
  trained, longest training length, and the lengths that were scored. The largest group
  that does is kept; a run that was scored at more lengths is cut to theirs, and the
  others are left out, both named.
* Two runs of the same config and seed are one result, made twice: the later counts.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from experiments.report import run_configs
from experiments.report.run_configs import Flat
from experiments.report.summaries import Cell, RunSummary, Setting, group_cells

_OPTIMIZER = "optim."  # fields over which a cell's best is taken, but for its name
_KIND = "model.kind"
_FACTS: dict[str, Callable[[RunSummary], Any]] = {
    "steps trained": lambda run: run.step,
    "longest training length": lambda run: run.train_max,
    "longest test length": lambda run: run.test_max,
    "scored lengths": lambda run: run.test_lengths,
}


def comparable(
    runs: Sequence[RunSummary], configs: Mapping[str, Flat]
) -> tuple[list[RunSummary], list[str]]:
    """Keeps, in each cell, the runs that may be averaged.

    Args:
        runs: all of them.
        configs: of runs by their id, flat; may lack some.

    Returns:
        The runs kept, with their `variant`, and a line for people on whatever was left
        out.
    """
    kept: list[RunSummary] = []
    notes: list[str] = []
    for cell in group_cells(_divided(runs, configs)):
        alike, left_out = _largest_group(_told_apart(cell.runs, configs))
        once, repeated = _each_once(alike)
        kept += once
        where = f"{cell.task_title}, {cell.setting.label}"
        notes += [f"{where}: {line}" for line in [*left_out, *repeated]]
    return kept, notes


def _divided(
    runs: Sequence[RunSummary], configs: Mapping[str, Flat]
) -> list[RunSummary]:
    """Makes settings of what differs within a cell; alike in all tasks of a setting."""
    names: dict[Setting, dict[str, None]] = {}
    for cell in group_cells(runs):
        known = [configs[run.run_id] for run in cell.runs if run.run_id in configs]
        fields = [
            n
            for n in run_configs.dividing(known)
            if not n.startswith(_OPTIMIZER) or n == run_configs.OPTIMIZER
        ]
        names.setdefault(cell.setting, {}).update(dict.fromkeys(fields))
    for setting in _of_several_kinds(runs, configs):
        names[setting].setdefault(_KIND)
    divided = []
    for cell in group_cells(runs):
        mine = [configs.get(run.run_id) for run in cell.runs]
        texts = run_configs.described(mine, list(names[cell.setting]))
        divided += [
            dataclasses.replace(
                run, setting=dataclasses.replace(run.setting, config=text)
            )
            for run, text in zip(cell.runs, texts, strict=True)
        ]
    return divided


def _of_several_kinds(
    runs: Sequence[RunSummary], configs: Mapping[str, Flat]
) -> set[Setting]:
    """Returns settings of tasks that encoders and decoders are compared on.

    A recurrent kind stands where Transformers have their encoding, so it is named.
    """
    found: dict[str, dict[str, set[Setting]]] = {}
    for run in runs:
        kind = configs.get(run.run_id, {}).get(_KIND)
        if kind not in (None, run.setting.encoding.partition("(")[0]):
            kinds = found.setdefault(run.task, {})
            kinds.setdefault(kind, set()).add(run.setting)
    several = [kinds for kinds in found.values() if len(kinds) > 1]
    return {setting for kinds in several for each in kinds.values() for setting in each}


def _told_apart(
    runs: Sequence[RunSummary], configs: Mapping[str, Flat]
) -> list[RunSummary]:
    """Writes down which settings of the optimizer a run of a cell has."""
    mine = [configs.get(run.run_id) for run in runs]
    fields = run_configs.dividing([config for config in mine if config is not None])
    texts = run_configs.described(mine, fields)
    return [
        dataclasses.replace(run, variant=text)
        for run, text in zip(runs, texts, strict=True)
    ]


def _largest_group(runs: Sequence[RunSummary]) -> tuple[list[RunSummary], list[str]]:
    groups: dict[tuple, list[RunSummary]] = {}
    for run in runs:
        facts = tuple(fact(run) for fact in _FACTS.values())
        groups.setdefault(facts, []).append(run)

    def preference(facts: tuple) -> tuple:
        step, _, test_max, lengths = facts
        different = {(r.seed, r.learning_rate, r.variant) for r in groups[facts]}
        return bool(lengths), len(different), step, test_max, len(lengths)

    best = max(groups, key=preference)
    kept, lines = list(groups[best]), []
    step, train_max, test_max, lengths = best
    for facts, others in groups.items():
        if facts == best:
            continue
        if facts[:2] == (step, train_max) and lengths and {*lengths} <= {*facts[3]}:
            kept += [_cut(run, test_max, lengths) for run in others]
            lines.append(
                f"scored at more lengths than the other {len(groups[best])}, whose "
                f"{_show(lengths)} count for all: {listed(others)}"
            )
            continue
        what = "; ".join(
            f"{name} {_show(theirs)}, not {_show(ours)}"
            for name, theirs, ours in zip(_FACTS, facts, best, strict=True)
            if theirs != ours
        )
        lines.append(
            f"left out, not to be averaged with the other {len(groups[best])}: {what} "
            f"({listed(others)})"
        )
    return kept, lines


def _cut(run: RunSummary, test_max: int, lengths: tuple[int, ...]) -> RunSummary:
    """Leaves a run the scores at its training lengths, and at those of the score."""
    wanted = {n for n in run.accuracy if n <= run.train_max} | {*lengths}
    cut = lambda values: {n: value for n, value in values.items() if n in wanted}
    return dataclasses.replace(
        run,
        test_max=test_max,
        accuracy=cut(run.accuracy),
        exact_match=cut(run.exact_match),
        input_blind=cut(run.input_blind),
        nats=cut(run.nats),
    )


def _each_once(runs: Sequence[RunSummary]) -> tuple[list[RunSummary], list[str]]:
    same: dict[tuple, list[RunSummary]] = {}
    for run in runs:
        key = run.seed, run.learning_rate, run.variant
        same.setdefault(key, []).append(run)
    kept, lines = [], []
    for (seed, _, _), group in same.items():
        *earlier, latest = sorted(group, key=lambda run: (run.time, run.run_id))
        kept.append(latest)
        if earlier:
            lines.append(
                f"seed {seed} has {len(group)} runs of the same config: the latest, "
                f"{latest.run_id}, counts; left out: {listed(earlier)}"
            )
    return kept, lines


def unlike_settings(cells: Sequence[Cell]) -> list[str]:
    """Names what a row of the table compares that was not made alike.

    Returns:
        A line for each task and fact in which its cells differ.
    """
    tasks: dict[str, list[Cell]] = {}
    for cell in cells:
        tasks.setdefault(cell.task_title, []).append(cell)
    lines: dict[str, list[str]] = {}
    for task, group in tasks.items():
        for name, fact in (_FACTS | {"examples": lambda run: run.examples}).items():
            values: dict[Any, list[str]] = {}
            for cell in group:
                values.setdefault(fact(cell.runs[0]), []).append(cell.setting.label)
            if len(values) > 1:
                text = "; ".join(
                    f"{_show(value)} ({listed(some, between=' | ')})"
                    for value, some in values.items()
                )
                lines.setdefault(f"settings differ in {name}: {text}", []).append(task)
    return [f"{listed(some)}: {line}" for line, some in lines.items()]


def unlike_tasks(cells: Sequence[Cell]) -> list[str]:
    """Names lengths in which tasks differ whose scores are in one table.

    Returns:
        A line for each of the longest training and test length that is not the same
        throughout.
    """
    lines = []
    for name in ("longest training length", "longest test length"):
        values: dict[int, dict[str, None]] = {}
        for cell in cells:
            of_tasks = values.setdefault(_FACTS[name](cell.runs[0]), {})
            of_tasks.setdefault(cell.task_title)
        tasks = [set(titles) for titles in values.values()]
        if len(values) > 1 and len(set.union(*tasks)) > 1:
            text = "; ".join(
                f"{value} ({listed(list(titles))})" for value, titles in values.items()
            )
            lines.append(f"scores of tasks stand on unlike lengths: {name} {text}")
    return lines


def _show(value: int | tuple[int, ...]) -> str:
    return ranges(value) if isinstance(value, tuple) else str(value)


def describe_lengths(lengths: Sequence[int]) -> str:
    """Describe sorted lengths: `41..500`, or `41..500 (24 of 460)` with gaps."""
    if not lengths:
        return "none"
    whole = lengths[-1] - lengths[0] + 1
    gaps = "" if len(lengths) == whole else f" ({len(lengths)} of {whole})"
    return f"{lengths[0]}..{lengths[-1]}{gaps}"


def ranges(lengths: Iterable[int]) -> str:
    """Writes increasing whole numbers briefly: `41..43, 50`; `none` if there are none.

    Steady steps are shown as such: `45..100 by 5`.
    """
    rest = list(lengths)
    parts = []
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        count = 1
        while count < len(rest) and rest[count] - rest[count - 1] == step:
            count += 1
        if count < 3:
            parts.append(str(rest.pop(0)))
            continue
        by = "" if step == 1 else f" by {step}"
        parts.append(f"{rest[0]}..{rest[count - 1]}{by}")
        rest = rest[count:]
    return ", ".join(parts) or "none"


def listed(
    items: Sequence[RunSummary | str], at_most: int = 3, between: str = ", "
) -> str:
    """Names a few runs or other things, and says how many more there are."""
    names = [item if isinstance(item, str) else item.run_id for item in items]
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return between.join(names[:at_most]) + more
