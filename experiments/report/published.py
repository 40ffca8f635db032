"""Scores that papers print for the tasks of this project, and how they are known.

The figures are in `published.csv`, in percent. Each has a standing:

    read        read in the paper itself
    secondary   quoted by another document, which `via` names
    unverified  recalled, and not checked against the paper: for orientation only

An unverified figure is no reference: nothing may be accepted or refused by it, and
whoever checks it against the paper changes its standing in the file.
"""

import csv
import dataclasses
import pathlib
from collections.abc import Mapping
from types import MappingProxyType

FILE = pathlib.Path(__file__).with_suffix(".csv")

STANDINGS: Mapping[str, str] = MappingProxyType(
    {
        "read": "read in the paper",
        "secondary": "quoted by another document",
        "unverified": "recalled, not checked against the paper: no reference",
    }
)


@dataclasses.dataclass(frozen=True)
class Source:
    """A paper, and what its scores are of.

    Attributes:
        citation: authors and year.
        arxiv: its number there.
        train_max: longest training length, tokens.
        test_max: longest length of the score, tokens.
        selection: what the figures are the best or the mean of.
        steps: optimizer steps; None where they could not be read.
        batch_size: sequences a step.
        layers: of a Transformer, which is an encoder.
        width: of a Transformer, channels.
        runs: number of runs that a figure is the best of.
        best_of: number of encodings that those of "transformer" are the best of.
    """

    citation: str
    arxiv: str
    train_max: int
    test_max: int
    selection: str
    steps: int | None
    batch_size: int
    layers: int
    width: int
    runs: int
    best_of: int = 1


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "ruoss2023": Source(
            "Ruoss et al. 2023",
            "2305.16843",
            train_max=40,
            test_max=500,
            selection="best over seeds and learning rates (their numbers, recalled and "
            "not checked: 10 and 3)",
            steps=None,
            batch_size=128,  # this and the model: of the released code
            layers=5,
            width=64,
            runs=30,
        ),
        "deletang2022": Source(
            "Delétang et al. 2022",
            "2207.02098",
            train_max=40,
            test_max=500,
            selection="best over 10 seeds, 3 learning rates and, for the Transformer, "
            "5 encodings; 1,000,000 steps of batch 128",
            steps=1_000_000,
            batch_size=128,
            layers=5,
            width=64,
            runs=30,
            best_of=5,
        ),
    }
)


@dataclasses.dataclass(frozen=True)
class Figure:
    """One published number.

    Attributes:
        source: the paper.
        where: its table, or other place.
        task: name of the task here; empty for a figure over all tasks.
        encoding: name of the encoding here; "transformer" for the best of several, or
            a recurrent network.
        positions: name of the position scheme here; empty where there is none.
        value: percent; for a figure over all tasks, percentage points.
        standing: one of `STANDINGS`.
        via: where it was read, if not in the table itself.
    """

    source: Source
    where: str
    task: str
    encoding: str
    positions: str
    value: float
    standing: str
    via: str

    @property
    def reference(self) -> str:
        """Paper, table and where the figure was read, for people."""
        place = f"{self.source.citation}, arXiv {self.source.arxiv}, {self.where}"
        return f"{place} ({self.via})" if self.via else place


def load(path: pathlib.Path = FILE) -> tuple[Figure, ...]:
    """Reads the figures.

    Raises:
        ValueError: for an unknown source or standing, a value that is no percentage, or
            a figure that is there twice.
    """
    figures: dict[tuple, Figure] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            figure = _figure(row, f"{path.name}, line {line}")
            key = row["source"], row["task"], row["encoding"], row["positions"]
            if key in figures:
                raise ValueError(f"{path.name}, line {line}: {key} is there already")
            figures[key] = figure
    return tuple(figures.values())


def _figure(row: Mapping[str, str], where: str) -> Figure:
    for name, known in (("source", SOURCES), ("standing", STANDINGS)):
        if row[name] not in known:
            raise ValueError(
                f"{where}: {name} must be one of {sorted(known)}, got {row[name]!r}"
            )
    value = float(row["value"])
    if not 0 <= value <= 100:
        raise ValueError(f"{where}: value must be in percent, 0..100, got {value}")
    if row["standing"] == "secondary" and not row["via"]:
        raise ValueError(f"{where}: a secondary figure must say what quotes it (via)")
    rest = {name: row[name] for name in ("where", "task", "encoding", "positions")}
    return Figure(
        SOURCES[row["source"]],
        value=value,
        standing=row["standing"],
        via=row["via"],
        **rest,
    )
