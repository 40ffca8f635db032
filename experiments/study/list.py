"""What a study would do: its runs in their order, its programs, and what they cost."""

import collections
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from experiments.building import build
from experiments.building.mesh import without_mesh
from experiments.report import run_configs
from experiments.running import labels, workdir
from experiments.running.progress import clock
from experiments.study.cost import CPU_CORE_RATE, Costs, ordered
from experiments.study.folder import StudyFolder
from experiments.study.sweep import StudyRun


def show(
    folder: StudyFolder,
    runs: Sequence[StudyRun],
    merged: int,
    shard: tuple[int, int],
    workers: int,
    console: Console,
) -> None:
    """Prints groups, order, costs and what is done; builds each program's objects.

    Raises:
        ValueError: if the config of a group cannot be.
    """
    measured = folder.costs()
    costs = Costs(runs, measured)
    in_order = ordered(runs, costs, shard)
    groups = collections.defaultdict(list)
    for run in in_order:
        groups[run.group].append(run)
    table = Table("runs", "done", "first at", "device-hours", "what")
    places = {run.run_id: at for at, run in enumerate(in_order, start=1)}
    total = left = 0.0
    done = 0
    already = folder.finished(runs)
    names = _names([members[0] for members in groups.values()])
    for members in groups.values():
        finished = [run for run in members if run.run_id in already]
        seconds = sum(costs.seconds(run) for run in members)
        total += seconds
        left += seconds - sum(costs.seconds(run) for run in finished)
        done += len(finished)
        table.add_row(
            str(len(members)),
            str(len(finished)),
            str(places[members[0].run_id]),
            f"{seconds / 3600:.3g}",
            names[members[0].run_id],
        )
    console.print(table)
    again = f", after {merged} that said the same again were merged" if merged else ""
    console.print(
        f"{len(runs)} runs of {len(groups)} programs{again}; {done} done, "
        f"{len(runs) - done} left. Every program's config was built and fits."
    )
    source = (
        "measured by finished runs of this study"
        if costs.is_measured
        else f"estimated, at {CPU_CORE_RATE:.1e} operations a second of one CPU core, "
        "compilation not counted; no run of this study is finished yet"
    )
    console.print(
        f"Cost: {total / 3600:.3g} device-hours in all, {left / 3600:.3g} left "
        f"({source}); about {clock(left / workers)} with {workers} of such devices.",
        highlight=False,
    )
    console.print("First runs: " + ", ".join(run.run_id for run in in_order[:5]))


def _names(runs: Sequence[StudyRun]) -> dict[str, str]:
    """Names runs as tables do, and those that are still alike by what sets them apart.

    Raises:
        ValueError: if a config cannot be.
    """
    alike = collections.defaultdict(list)
    for run in runs:
        alike[_title(run)].append(run)
    names = {}
    for title, some in alike.items():
        configs = [workdir.flat(run.config) for run in some]
        apart = run_configs.described(configs, run_configs.dividing(configs))
        for run, more in zip(some, apart, strict=True):
            ways = len(run.evaluations)
            scored = f"scored {ways} ways" if ways > 1 else ""
            names[run.run_id] = ", ".join(filter(None, [title, more, scored]))
    return names


def _title(run: StudyRun) -> str:
    try:
        experiment = build.build(without_mesh(run.config))
    except ValueError as error:
        raise ValueError(f"{run.run_id}: {error}") from None
    names = labels.run_labels(run.config, experiment)
    parts = [names[f"{group}_title"] for group in ("task", "encoding", "positions")]
    return " / ".join([*parts, *filter(None, [names["title"]])])
