"""What runs of a study cost: measured where it has measured, else estimated.

A run's work is counted in floating-point operations of its matrix products and its
softmax, for padded shapes. Runs that were finished here tell how many of those a device
does a second; before any was, a rate measured elsewhere stands in, and is said to.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from experiments import lengths
from experiments.building.blocks import make_layers
from experiments.building.methods import make_task
from experiments.building.recurrent import is_recurrent, make_dims, make_mixer
from experiments.study.sweep import StudyRun
from ropejax.nn.recurrent import MIXERS
from ropejax.training import even_buckets
from ropejax.training.buckets import bucket_of, grid_buckets

CPU_CORE_RATE = 1.6e10
"""Operations a second of one x86-64 core: training steps of the Chomsky-hierarchy
benchmark at length 40 (`experiments.benchmark che`) took 0.50 and 1.28 CPU seconds."""

SOFTMAX = 20  # operations an attention logit, beside the products


@dataclasses.dataclass(frozen=True)
class Operations:
    """Operations of a run.

    Attributes:
        step: of one training step, on average.
        steps: training steps.
        scoring: of its evaluations.
    """

    step: float
    steps: int
    scoring: float

    @property
    def total(self) -> float:
        """Operations in all."""
        return self.step * self.steps + self.scoring


def work_of(run: StudyRun) -> Operations:
    """Returns how much a run has to compute."""
    config = ConfigDict(run.config)
    task, train = make_task(config), config.train
    forward = lambda length: _forward(config, task.num_tokens(length))
    buckets = even_buckets(train.max_length, train.buckets)
    # Lengths are uniform, near enough, so buckets are equally frequent.
    step = _passes(config) * train.batch_size * statistics.mean(map(forward, buckets))
    scoring = sum(
        settings["samples"] * sum(map(forward, _padded(settings)))
        for settings in run.evaluations
    )
    return Operations(step, train.steps, scoring)


def _padded(settings: Mapping[str, Any]) -> list[int]:
    """Returns the lengths of an evaluation, as long as their batches are."""
    wanted = lengths.parse(settings["lengths"])
    given = settings["buckets"]
    buckets = lengths.parse(given) if given else grid_buckets(wanted)
    return [min(bucket_of(n, buckets), max(wanted)) for n in wanted]


def _passes(config: ConfigDict) -> float:
    """Returns how many forward passes a step is worth; a backward one counts as two."""
    loops, weight = config.model.loops, config.train.progressive_weight
    last = loops if config.train.gradient_loops is None else config.train.gradient_loops
    whole = loops + 2 * last
    # Of what is drawn (`ropejax.training.progressive`), the mean over n and k.
    most = [min(loops - before, last) for before in range(loops)]
    drawn = statistics.mean(n + 3 * (1 + k) / 2 for n, k in enumerate(most))
    return ((weight < 1) * whole + (weight > 0) * drawn) / loops


def _forward(config: ConfigDict, tokens: int) -> float:
    model = config.model
    width, heads = model.embed_dim, model.num_heads
    if model.kind in MIXERS:
        return _layered(config) * tokens
    if is_recurrent(config):  # a gate has two square matrices
        gates = 4 if model.kind == "lstm" else 1
        return 4 * gates * model.num_layers * width**2 * tokens
    layers = make_layers(config)
    inner, expanded = heads * layers.head_dim, layers.settings["mlp_dim"]
    if layers.settings.get("gated"):
        projections = (6 * expanded + 2 * inner) * width * tokens
        attention = (2 * inner + 2 * expanded + SOFTMAX * heads) * tokens**2
    else:
        matrices = layers.settings["mlp"].num_projections
        projections = (8 * inner + 2 * matrices * expanded) * width * tokens
        attention = (4 * inner + SOFTMAX * heads) * tokens**2
    return model.num_layers * model.loops * (projections + attention)


def _layered(config: ConfigDict) -> float:
    """Operations of a token in a model whose layers have no attention."""
    dims, mixer = make_dims(config), make_mixer(config)
    mlp = make_layers(config).settings
    projections = 2 * mlp["mlp"].num_projections * dims.embed_dim * mlp["mlp_dim"]
    return dims.num_layers * (mixer.operations(dims) + projections)


# Pure, slow to work out, and asked for again after each run.
_WORK: dict[tuple[str, str], Operations] = {}


class Costs:
    """Seconds of one device that runs cost, from what finished ones did.

    Args:
        runs: all runs of the study.
        measured: what finished runs cost (`StudyFolder.costs`).
        rate: operations a second where nothing was measured.
    """

    def __init__(
        self,
        runs: Sequence[StudyRun],
        measured: Mapping[str, Mapping[str, Any]],
        rate: float = CPU_CORE_RATE,
    ):
        self._by_group: dict[str, list[float]] = {}
        rates: dict[str, list[float]] = {}  # recurrent ones are of another order
        for run in runs:
            cost = measured.get(run.run_id)
            if cost and cost.get("step_s"):
                step_s = cost["step_s"]
                self._by_group.setdefault(run.group, []).append(step_s)
                rates.setdefault(_kind(run), []).append(self.work(run).step / step_s)
        self.is_measured = bool(rates)
        every = [one for some in rates.values() for one in some]
        self._rate = statistics.median(every) if every else rate
        self._rates = {kind: statistics.median(some) for kind, some in rates.items()}
        scoring = [
            (self.work(run).scoring, measured[run.run_id]["score_s"])
            for run in runs
            if measured.get(run.run_id, {}).get("score_s")
        ]
        self._scoring_rate = (
            statistics.median(work / seconds for work, seconds in scoring)
            if scoring
            else self._rate
        )

    def work(self, run: StudyRun) -> Operations:
        """Returns a run's operations."""
        key = run.group, repr(run.evaluations)
        if key not in _WORK:
            _WORK[key] = work_of(run)
        return _WORK[key]

    def seconds(self, run: StudyRun) -> float:
        """Returns what a run costs, in seconds of one device (a CPU: of one core)."""
        work = self.work(run)
        steps = self._by_group.get(run.group)
        rate = self._rates.get(_kind(run), self._rate)
        step_s = statistics.median(steps) if steps else work.step / rate
        return work.steps * step_s + work.scoring / self._scoring_rate


def _kind(run: StudyRun) -> str:
    return run.config["model"]["kind"]


def ordered(
    runs: Sequence[StudyRun], costs: Costs, shard: tuple[int, int] = (1, 1)
) -> list[StudyRun]:
    """Returns runs in the order to do them: what tells most for its cost comes first.

    The first run of a cell of the table tells more than another one of a cell that has
    some, so one seed of everything comes before second seeds, and within a seed one
    choice of numbers before others; among equals, cheap runs come first. A shard begins
    with its own part, and then helps with the rest.

    Args:
        runs: the runs.
        costs: what they cost.
        shard: (3, 16) is the third of sixteen.
    """
    number, of = shard
    names = dict.fromkeys(run.group for run in runs)
    groups = {group: at for at, group in enumerate(names)}

    def is_others(at: int, run: StudyRun) -> bool:
        # Whole groups where there are enough, so that each program compiles once.
        part = groups[run.group] if len(groups) >= of else at
        return part % of != number - 1

    keyed = [
        ((is_others(at, run), run.rank, costs.seconds(run), at), run)
        for at, run in enumerate(runs)
    ]
    return [run for _, run in sorted(keyed, key=lambda one: one[0])]
