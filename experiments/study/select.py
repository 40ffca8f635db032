"""A part of a study: the runs whose fields have given values."""

import collections
from collections.abc import Sequence

from experiments.building.fields import check_name
from experiments.building.fitting import nearest
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
    flat = [workdir.flat(run.config) for run in runs]
    wanted: dict[str, set[str]] = collections.defaultdict(set)
    for condition in conditions:
        field, sign, value = condition.partition("=")
        if not sign:
            raise ValueError(
                f"--only={condition!r} must be FIELD=VALUE: task.name=bucket_sort."
            )
        check_name(field, flat[0], "--only=")
        there = dict.fromkeys(str(config[field]) for config in flat)
        if value not in there:
            raise ValueError(
                f"--only={condition}: no run of the study has that."
                f"{nearest(value, there)} {field} is {' or '.join(list(there)[:8])}."
            )
        wanted[field].add(value)
    kept = [
        run
        for run, config in zip(runs, flat, strict=True)
        if all(str(config[field]) in values for field, values in wanted.items())
    ]
    if not kept:
        raise ValueError(f"no run of the study meets all of {', '.join(conditions)}.")
    return kept
