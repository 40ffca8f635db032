"""What is compared: a summary of each run, and cells of runs.

A *setting* is what a column of a table or a line of a picture stands for. A *cell* is
the runs of one task in one setting: seeds, and learning rates. Its best score is over
all of them, as published; its mean is over the seeds at the learning rate whose mean
is highest, of those with most seeds.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.report import statistics
from experiments.results.same_names import stored_name

RECURRENT = frozenset({"rnn", "lstm", "stack_rnn", "tape_rnn", "delta_net", "mamba"})
"""Models that stand where Transformers have their encoding; they read no positions."""


@dataclasses.dataclass(frozen=True, order=True)
class Setting:
    """What is compared; sorts as tables do: plain positions before others.

    `study` is empty where all runs are of one study. `title` is what a run's config
    calls what sets it apart. `config` holds what else tells settings apart: config
    fields with their values; `task_options` the settings of the task, where tasks of
    one kind share a row. Titles of parts are for show only, and so are `place`, where
    the encoding stands among those of a scheme, and `title_place`, where the title
    does.
    """

    study: str
    group: str
    positions: str
    encoding: str
    test_positions: str
    test_encoding: str
    title: str = ""
    config: str = ""
    task_options: str = ""
    positions_title: str = dataclasses.field(default="", compare=False)
    encoding_title: str = dataclasses.field(default="", compare=False)
    test_positions_title: str = dataclasses.field(default="", compare=False)
    test_encoding_title: str = dataclasses.field(default="", compare=False)
    place: int = dataclasses.field(default=0, compare=False)
    title_place: int = dataclasses.field(default=0, compare=False)

    @property
    def order(self) -> tuple:
        """The key to sort settings by: those of one variant are together."""
        tested = self.test_positions != self.positions, self.test_positions
        scheme = self.positions != "consecutive", self.positions, *tested
        other = self.test_encoding != self.encoding
        titled = self.title_place, self.title
        more = *titled, self.config, self.task_options
        names = self.study, self.group, *scheme, other, *more, self.is_recurrent
        return *names, self.place, self.encoding != "none", self

    @property
    def trained(self) -> "Setting":
        """The same as tested with the positions and encoding of training."""
        return dataclasses.replace(
            self, test_positions=self.positions, test_encoding=self.encoding
        )

    @property
    def is_recurrent(self) -> bool:
        """Whether it is of a recurrent network, in place of an encoding."""
        return self.encoding.partition("(")[0] in RECURRENT

    @property
    def variant(self) -> str:
        """All but the encoding, for people: `randomized, tested with consecutive`.

        Of a recurrent network, `recurrent` stands in place of positions.
        """
        positions = self.positions_title or self.positions
        parts = ["recurrent" if self.is_recurrent else positions]
        if self.test_positions != self.positions:
            tested = self.test_positions_title or self.test_positions
            parts.append(f"tested with {tested}")
        if self.test_encoding != self.encoding:
            tested = self.test_encoding_title or self.test_encoding
            parts.append(f"tested as {tested}")
        more = self.title, self.task_options, self.config, self.group, self.study
        return ", ".join([*parts, *filter(None, more)])

    @property
    def label(self) -> str:
        """The whole, for people: `RoPE, randomized`, or `RNN`."""
        variant = self.variant
        if self.is_recurrent:
            variant = variant.removeprefix("recurrent").removeprefix(", ")
        return ", ".join(filter(None, [self.encoding_title or self.encoding, variant]))


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """The evaluation of a run in one test setting that counts, at its last step.

    Attributes:
        accuracy: token accuracy by length.
        exact_match: share of sequences with every token right, by length.
        input_blind: accuracy of the best input-blind predictor, by length.
        train_min: shortest training length.
        nats: mean cross-entropy by length; empty unless the task is on text.
        samples: numbers of sequences a length, and of position draws, that occur.
        examples: what it was scored on: fresh examples of a seed, or fixed sets.
        sets: hash of the set by length; None where examples are fresh.
        others: lines on its other evaluations, which do not count.
        time: when the evaluation was written: UTC, ISO 8601.
        variant: the optimizer's settings in which runs of its cell differ, besides the
            learning rate, with their values; `comparable.comparable` fills it in.
    """

    run_id: str
    task: str
    task_title: str
    task_order: int
    setting: Setting
    seed: int
    learning_rate: float | None
    step: int
    train_max: int
    test_max: int
    accuracy: dict[int, float]
    exact_match: dict[int, float]
    input_blind: dict[int, float]
    samples: tuple[tuple[int, ...], tuple[int, ...]]
    train_min: int = 1
    nats: dict[int, float] = dataclasses.field(default_factory=dict)
    examples: str = ""
    sets: dict[int, str | None] = dataclasses.field(default_factory=dict)
    others: tuple[str, ...] = ()
    time: str = dataclasses.field(default="", compare=False)
    variant: str = ""

    @property
    def stored_id(self) -> str:
        """Its run_id in its own folder."""
        return stored_name(self.run_id)

    @functools.cached_property
    def test_lengths(self) -> tuple[int, ...]:
        """The evaluated lengths of the score, train_max + 1 .. test_max."""
        return tuple(n for n in self.accuracy if self.train_max < n <= self.test_max)

    def over_test(self, by_length: Mapping[int, float]) -> float:
        """Average over the lengths of the score; NaN if none was evaluated."""
        if not self.test_lengths:
            return float("nan")
        return statistics.score(by_length, self.train_max, self.test_max)

    def in_range(self, by_length: Mapping[int, float]) -> float:
        """Average over the training lengths; NaN if none was evaluated."""
        if not any(self.train_min <= n <= self.train_max for n in by_length):
            return float("nan")
        return statistics.mean_over_lengths(by_length, self.train_min, self.train_max)

    @property
    def trained_on(self) -> str:
        """The training lengths, for people: `1–40`, or one length."""
        ends = dict.fromkeys([self.train_min, self.train_max])
        return "–".join(map(str, ends))

    @functools.cached_property
    def numbers(self) -> dict[str, float]:
        """The figures of the run, as in tables."""
        return {
            "score": self.over_test(self.accuracy),
            "input_blind": self.over_test(self.input_blind),
            "in_range": self.in_range(self.accuracy),
            "in_range_input_blind": self.in_range(self.input_blind),
            "exact_match": self.over_test(self.exact_match),
            "longest": statistics.longest_length(self.accuracy),
            "nats": self._nats(),
        }

    def _nats(self) -> float:
        """Mean loss over the lengths of the score; NaN unless all of them have one."""
        known = all(n in self.nats for n in self.test_lengths)
        return self.over_test(self.nats) if known else float("nan")


@dataclasses.dataclass(frozen=True)
class Cell:
    """The runs of one task in one setting."""

    task: str
    task_title: str
    task_order: int
    setting: Setting
    runs: tuple[RunSummary, ...]

    @functools.cached_property
    def best(self) -> float:
        """Highest score over seeds and learning rates, as published; NaN if none."""
        return self.best_of("score")

    def best_of(self, name: str) -> float:
        """Highest of a figure of `RunSummary.numbers`, likewise."""
        values = [run.numbers[name] for run in self.runs]
        known = [value for value in values if not np.isnan(value)]
        return max(known, default=float("nan"))

    @functools.cached_property
    def chosen(self) -> tuple[RunSummary, ...]:
        """The runs at the learning rate with the highest mean score (the lowest such).

        Only rates with as many seeds as any are looked at: one lucky seed of a rate
        whose others are not done yet, or failed, makes no mean. Runs without a learning
        rate are together. Where configs differ in more, these are the runs at one
        learning rate and one choice of the rest.
        """
        seeds = lambda runs: len({run.seed for run in runs})
        most = max(map(seeds, self.points.values()))
        whole = [runs for runs in self.points.values() if seeds(runs) == most]
        return tuple(max(whole, key=_mean_score))

    @functools.cached_property
    def points(self) -> dict[tuple[float | None, str], list[RunSummary]]:
        """The runs by learning rate and variant: what a mean over seeds is taken of."""
        at: dict[tuple[float | None, str], list[RunSummary]] = {}
        for run in sorted(self.runs, key=lambda r: (r.learning_rate or 0.0, r.variant)):
            at.setdefault((run.learning_rate, run.variant), []).append(run)
        return at

    @property
    def seeds(self) -> int:
        """Number of different seeds among the chosen runs."""
        return len({run.seed for run in self.chosen})

    @functools.cached_property
    def spreads(self) -> dict[str, statistics.Spread]:
        """The figures of `RunSummary.numbers` over the chosen runs."""
        names = np.array(list(self.chosen[0].numbers))
        values = np.array([list(run.numbers.values()) for run in self.chosen])
        known = ~np.isnan(values).any(axis=0)
        together = statistics.spreads(values[:, known]) if known.any() else []
        spreads = dict(zip(names[known].tolist(), together, strict=True))
        spreads |= {name: spread_of(self.chosen, name) for name in names[~known]}
        return {name: spreads[name] for name in names.tolist()}

    @functools.cached_property
    def curve(self) -> dict[int, tuple[float, float, float, int]]:
        """Accuracy by length over the chosen runs: mean, low, high, runs."""
        return statistics.curve_over_runs([run.accuracy for run in self.chosen])

    @property
    def on_text(self) -> bool:
        """Whether there are perplexities."""
        return any(run.nats for run in self.chosen)

    @property
    def perplexity(self) -> float:
        """Over lengths and the chosen runs, averaged in the logarithm; else NaN."""
        return perplexity_of(self.spreads["nats"].mean)

    @functools.cached_property
    def perplexity_curve(self) -> dict[int, float]:
        """By length, averaged in the logarithm over the chosen runs that have it."""
        curve = statistics.mean_curve([run.nats for run in self.chosen])
        return {length: perplexity_of(nats) for length, nats in curve.items()}

    @functools.cached_property
    def blind_curve(self) -> dict[int, float]:
        """Input-blind accuracy by length, averaged over the chosen runs."""
        return statistics.mean_curve([run.input_blind for run in self.chosen])


def perplexity_of(nats: float) -> float:
    """Returns e to a loss, in nats a token; NaN stays NaN."""
    return math.exp(min(nats, 700.0)) if not math.isnan(nats) else nats


_UNKNOWN = statistics.Spread(float("nan"), None, None, None, float("nan"), 0)


def spread_of(runs: Sequence[RunSummary], name: str) -> statistics.Spread:
    """Spread of a figure over those of `runs` that have it."""
    values = [run.numbers[name] for run in runs]
    known = [value for value in values if not np.isnan(value)]
    return statistics.spread(known) if known else _UNKNOWN


def _mean_score(runs: Sequence[RunSummary]) -> float:
    scores = [run.numbers["score"] for run in runs]
    known = [score for score in scores if not np.isnan(score)]
    return float(np.mean(known)) if known else -1.0


def task_key(summary: RunSummary | Cell) -> tuple:
    """The key to sort by tasks, in the order of the papers' tables."""
    return summary.task_order, summary.task_title, summary.task


def group_cells(runs: Sequence[RunSummary]) -> list[Cell]:
    """Group runs by task and setting, in the order of tables."""
    groups: dict[tuple[str, Setting], list[RunSummary]] = {}
    for run in runs:
        groups.setdefault((run.task, run.setting), []).append(run)
    cells = [
        Cell(task, group[0].task_title, group[0].task_order, setting, tuple(group))
        for (task, setting), group in groups.items()
    ]
    return sorted(cells, key=lambda cell: (task_key(cell), cell.setting.order))


def by_task(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Group cells by task, in their order."""
    tasks: dict[str, list[Cell]] = {}
    for cell in cells:
        tasks.setdefault(cell.task, []).append(cell)
    return tasks


def settings_of(cells: Sequence[Cell]) -> list[Setting]:
    """List the settings of `cells`, in the order of tables."""
    return sorted({cell.setting for cell in cells}, key=lambda setting: setting.order)
