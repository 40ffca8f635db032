"""What is still to come: the runs of sweeps, where folders of studies tell of them."""

import dataclasses
import pathlib
from collections.abc import Container, Sequence

from experiments.report import placing
from experiments.report.levels import base_name
from experiments.report.summaries import Setting


@dataclasses.dataclass(frozen=True)
class Awaited:
    """The tasks and settings that sweeps have more runs of than were evaluated.

    Attributes:
        run_ids: of the runs that were not; they begin with the names of the task, the
            encoding and the positions.
    """

    run_ids: frozenset[str]

    def __contains__(self, cell: tuple[str, Setting]) -> bool:
        task, setting = cell
        names = map(base_name, (task, setting.encoding, setting.positions))
        begun = f"{'-'.join(names)}-seed"
        return any(run_id.startswith(begun) for run_id in self.run_ids)


def awaited(
    stores: Sequence[pathlib.Path], scored: Container[tuple[str, str]]
) -> Awaited | None:
    """Returns what the sweeps of studies have besides what was evaluated.

    Args:
        stores: results folders; `study.json` may lie beside one.
        scored: results folder and stored id of each run that has an evaluation.

    Returns:
        None where a folder does not tell what its sweep has.
    """
    left: set[str] = set()
    for store in stores:
        sweeps = placing.sweeps_of([store])
        if not sweeps:
            return None
        left.update(name for name in sweeps[0] if (str(store), name) not in scored)
    return Awaited(frozenset(left))
