"""A part of a study: the runs whose fields have given values."""

from collections.abc import Sequence

from experiments.report.conditions import meet
from experiments.running import workdir
from experiments.study.sweep import StudyRun


def select(runs: Sequence[StudyRun], conditions: Sequence[str]) -> list[StudyRun]:
    """Returns the runs that meet all conditions, in their order.

    Args:
        runs: of the study.
        conditions: `FIELD=VALUE` each; of several on one field, one must be met.

    Raises:
        ValueError: if a field or a value does not occur, or no run meets all of them.
    """
    configs = [workdir.flat(run.config) for run in runs]
    met = meet(configs, conditions, "--only", "run of the study")
    return [run for run, keep in zip(runs, met, strict=True) if keep]
