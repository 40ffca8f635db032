"""What a study would do: its runs in their order, its programs, and what they cost."""

import collections
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from experiments.building import build
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
    table = Table("runs", "done", "first at", "core-hours", "what")
    places = {run.run_id: at for at, run in enumerate(in_order, start=1)}
    total = left = 0.0
    done = 0
    for members in groups.values():
        try:
            build.build(members[0].config)
        except ValueError as error:
            raise ValueError(f"{members[0].run_id}: {error}") from None
        finished = [run for run in members if folder.is_finished(run)]
        seconds = sum(costs.seconds(run) for run in members)
        total += seconds
        left += seconds - sum(costs.seconds(run) for run in finished)
        done += len(finished)
        table.add_row(
            str(len(members)),
            str(len(finished)),
            str(places[members[0].run_id]),
            f"{seconds / 3600:.3g}",
            _describe(members[0]),
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


def _describe(run: StudyRun) -> str:
    config = run.config
    names = [config[group]["name"] for group in ("task", "encoding", "positions")]
    scored = f", scored {len(run.evaluations)} ways" if len(run.evaluations) > 1 else ""
    return " / ".join(names) + scored
