"""Which cells of two sides stand beside each other, and how much they differ."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from experiments.report import significance, statistics, summaries, tables
from experiments.report.levels import base_name
from experiments.report.summaries import Cell, RunSummary, Setting


class Score(NamedTuple):
    """What is compared.

    Attributes:
        by_length: the score of a run at each length.
        share: whether it is one, shown in percent; else it is in nats a token.
    """

    by_length: Callable[[RunSummary], Mapping[int, float]]
    share: bool = True


SCORES = MappingProxyType(
    {
        "accuracy": Score(lambda run: run.accuracy),
        "exact": Score(lambda run: run.exact_match),
        "loss": Score(lambda run: run.nats, share=False),
    }
)
"""Name on the command line -> what is compared; `loss` is of tasks on text alone."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A task in a setting of each side.

    Attributes:
        first: cell of the first side.
        second: of the second.
        lengths: those of the score that both have.
        scores: of each side, one a run at its best learning rate, over `lengths`.
        score: what they are.
        low: lower end of the bootstrap 95% interval of the difference of the means,
            second - first; None where a side has one run only.
        high: its upper end.
        p: of the permutation test of that difference; likewise.
        holm: the same, adjusted for all pairs.
    """

    first: Cell
    second: Cell
    lengths: tuple[int, ...]
    scores: tuple[tuple[float, ...], tuple[float, ...]]
    low: float | None
    high: float | None
    p: float | None
    holm: float | None = None
    score: "Score" = dataclasses.field(default_factory=lambda: SCORES["accuracy"])

    @property
    def means(self) -> tuple[float, float]:
        """Mean score of each side."""
        first, second = (sum(some) / len(some) for some in self.scores)
        return first, second

    @property
    def blind(self) -> tuple[float, float]:
        """Mean input-blind score of each side, over the same lengths."""
        first, second = (
            sum(cell.blind_curve[n] for n in self.lengths) / len(self.lengths)
            for cell in (self.first, self.second)
        )
        return first, second

    @property
    def difference(self) -> float:
        """Second - first."""
        first, second = self.means
        return second - first


def pairs(
    first: Sequence[Cell], second: Sequence[Cell], score: Score = SCORES["accuracy"]
) -> tuple[list[Pair], list[str]]:
    """Puts the cells of two sides beside each other, task by task.

    Settings that both have are compared with themselves. Those that differ in one
    thing are next, where it is clear which: in options, in the encoding, or in the
    positions. Where each side has just one setting of a task left,
    those two are compared.

    Args:
        first: cells of one side.
        second: of the other.
        score: what is compared.

    Returns:
        The pairs, in the order of tables, and a line on each cell without a partner.
    """
    here, there = summaries.by_task(first), summaries.by_task(second)
    found: list[Pair] = []
    alone: list[str] = []
    for task in dict.fromkeys([*here, *there]):
        beside, mine, others = _beside(here.get(task, []), there.get(task, []))
        for one, two in beside:
            pair = _pair(one, two, score)
            if pair is None:
                alone.append(f"{_name(one)}: no length of the score is on both sides")
            else:
                found.append(pair)
        alone += [f"{_name(cell)}: on the first side only" for cell in mine]
        alone += [f"{_name(cell)}: on the second side only" for cell in others]
    adjusted = significance.holm([pair.p for pair in found])
    ranked = [
        dataclasses.replace(pair, holm=p)
        for pair, p in zip(found, adjusted, strict=True)
    ]
    return ranked, alone


def _beside(
    first: Sequence[Cell], second: Sequence[Cell]
) -> tuple[list[tuple[Cell, Cell]], list[Cell], list[Cell]]:
    """Finds the partners of cells of one task; and who has none, on each side."""
    beside: list[tuple[Cell, Cell]] = []
    for alike in _ALIKE:
        groups: dict[Any, tuple[list[Cell], list[Cell]]] = {}
        for at, cells in enumerate((first, second)):
            for cell in cells:
                groups.setdefault(alike(cell.setting), ([], []))[at].append(cell)
        alone = [both for both in groups.values() if list(map(len, both)) == [1, 1]]
        beside += [(one, two) for (one,), (two,) in alone]
        taken = {id(cell) for pair in beside for cell in pair}
        first, second = (
            [cell for cell in side if id(cell) not in taken] for side in (first, second)
        )
    return beside, list(first), list(second)


def _whole(setting: Setting) -> Setting:
    """What is compared of a setting: sides are studies, or parts of one."""
    return dataclasses.replace(setting, study="", group="")


def _plain(setting: Setting) -> Setting:
    """The same, without its title, and what a report tells apart where it must."""
    return dataclasses.replace(_whole(setting), title="", config="", task_options="")


def _kinds(setting: Setting) -> tuple[str, ...]:
    """Encoding and positions without their options."""
    return tuple(map(base_name, (setting.encoding, *_positions(setting))))


def _positions(setting: Setting) -> tuple[str, str]:
    return setting.positions, setting.test_positions


_ALIKE = (
    *(_whole, _plain, _kinds, _positions),
    lambda setting: (setting.encoding, setting.test_encoding),
    lambda setting: None,
)
"""What settings must share to be partners, strictest first."""


def _name(cell: Cell) -> str:
    return f"{cell.task_title}, {cell.setting.label}"


def _pair(first: Cell, second: Cell, score: Score) -> Pair | None:
    chosen = first.chosen, second.chosen
    known = lambda run: set(run.test_lengths) & score.by_length(run).keys()
    lengths = set.intersection(*(known(run) for side in chosen for run in side))
    if not lengths:
        return None
    of = lambda run: sum(score.by_length(run)[n] for n in lengths) / len(lengths)
    one, two = (tuple(map(of, side)) for side in chosen)
    low = high = None
    if min(len(one), len(two)) > 1:
        low, high = statistics.difference_interval(two, one)
    p = significance.permutation_p(one, two)
    scored = tuple(sorted(lengths))
    return Pair(first, second, scored, (one, two), low, high, p, score=score)


HEAD = (
    *("Task", "First", "Second", "Blind", "Runs", "First: mean", "Second: mean"),
    *("Second − first [95%]", "p", "p (Holm)"),
)


def text_rows(found: Sequence[Pair]) -> list[list[str]]:
    """Lists pairs for people, shares in percent; names are in `HEAD`."""
    return [
        [
            pair.first.task_title,
            pair.first.setting.label,
            pair.second.setting.label,
            "–".join(dict.fromkeys(map(tables.percent, sorted(pair.blind)))),
            " and ".join(str(len(scores)) for scores in pair.scores),
            *(_mean(scores, pair.score) for scores in pair.scores),
            _difference(pair),
            significance.shown(pair.p),
            significance.shown(pair.holm),
        ]
        for pair in found
    ]


def _mean(scores: Sequence[float], score: Score) -> str:
    spread = statistics.spread(scores)
    if score.share:
        return tables.mean_and_interval(spread)
    ends = "" if spread.low is None else f" [{spread.low:.3f}, {spread.high:.3f}]"
    return f"{spread.mean:.3f}{ends}"


def _difference(pair: Pair) -> str:
    if pair.score.share:
        return tables.signed_with_interval(pair.difference, pair.low, pair.high)
    signed = lambda number: f"{number:+.3f}".replace("-", "−")
    if pair.low is None:
        return signed(pair.difference)
    return f"{signed(pair.difference)} [{signed(pair.low)}, {signed(pair.high)}]"


def records(found: Sequence[Pair]) -> list[dict[str, Any]]:
    """Lists pairs for CSV and JSON, as shares or in nats."""
    return [
        {
            "task": pair.first.task,
            "task_title": pair.first.task_title,
            "first": pair.first.setting.label,
            "second": pair.second.setting.label,
            "first_runs": len(pair.scores[0]),
            "second_runs": len(pair.scores[1]),
            "lengths": len(pair.lengths),
            "first_mean": pair.means[0],
            "second_mean": pair.means[1],
            "first_input_blind": pair.blind[0],
            "second_input_blind": pair.blind[1],
            "difference": pair.difference,
            "low": pair.low,
            "high": pair.high,
            "interval": statistics.interval_of(*map(len, pair.scores)),
            "p": pair.p,
            "p_holm": pair.holm,
        }
        for pair in found
    ]
