"""Everything that a report says, gathered from the results of any number of runs."""

import contextlib
import dataclasses
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from experiments.report import (
    analyses,
    by_place,
    comparison,
    conditions,
    inventory,
    levels,
    missing,
    placing,
    run_configs,
)
from experiments.report import disagreements as disagreeing
from experiments.report.analyses import Analysis
from experiments.report.awaited import awaited
from experiments.report.comparable import comparable, unlike_settings, unlike_tasks
from experiments.report.comparison import Comparison
from experiments.report.gains import Gain, gains
from experiments.report.inventory import Origin
from experiments.report.mean_gain import MeanGain, mean_gain
from experiments.report.missing import Gap
from experiments.report.run_configs import Flat
from experiments.report.summaries import Cell, RunSummary, group_cells
from experiments.report.summarize import COLUMNS, summarize_runs
from experiments.report.unlike_models import unlike_models
from experiments.results import same_names
from experiments.results import store as results
from experiments.results.shards import describe_damage


@dataclasses.dataclass(frozen=True)
class Report:
    """What there is to say about some runs.

    Attributes:
        cells: the runs that are counted, by task and setting.
        left_out: the runs that are not: `notes` say why.
        notes: lines on runs that differ, and on lengths without a score.
        damaged: lines on text and files that could not be read.
        gaps: cells with fewer runs than others.
        absent: lines on tasks that a setting has no run on.
        unscored: ids of runs that were started and have no evaluation.
        unfinished: lines on studies that are not done, and on runs given up.
        gains: best randomized beside best plain setting, by task.
        comparisons: scores beside published ones.
        gain: mean gain of randomized positions, beside the published one.
        configs: of runs by their id, flat.
        origins: devices and versions.
        training: rows of kind "training" of the runs.
        places: what runs gave by place in the answer, where they were scored so.
        analyses: pictures that `experiments.analysis` drew of runs.
        analysis_command: a command that draws such; empty if nothing is there for it.
    """

    cells: list[Cell]
    left_out: list[RunSummary]
    notes: list[str]
    damaged: list[str]
    gaps: list[Gap]
    absent: list[str]
    unscored: list[str]
    unfinished: list[str]
    gains: list[Gain]
    comparisons: list[Comparison]
    gain: MeanGain | None
    configs: Mapping[str, Flat]
    origins: list[Origin]
    training: pa.Table
    places: by_place.ByRun
    analyses: list[Analysis]
    analysis_command: str

    @property
    def runs(self) -> list[RunSummary]:
        """The runs that are counted, in the order of tables."""
        return [run for cell in self.cells for run in cell.runs]


def gather(
    dirs: results.Folders,
    *,
    where: str | Sequence[str] = "",
    compact: bool = False,
) -> Report:
    """Reads all runs at or under `dirs`.

    Args:
        dirs: one folder or several, of runs or studies.
        where: conditions on runs (`conditions.parted`); all runs if empty.
        compact: first fold the files of finished runs into shards, where allowed.

    Raises:
        FileNotFoundError: if there are no results.
        ValueError: if there are no evaluations, none of them meets `where`, or `where`
            is faulty.
    """
    stores = results.find_stores(dirs)
    with _unreadable() as damaged:
        if compact:
            with contextlib.suppress(PermissionError):  # of others: only read them
                results.compact(stores)
        # older rows too, so that runs in several folders are found
        kinds = ("evaluation", "training", "run", "damaged", "place")
        columns = {
            "training": ("loss", "accuracy"),
            "evaluation": COLUMNS,
            "place": by_place.COLUMNS,
        }
        if conditions.parted(where)[1]:  # of any column
            del columns["evaluation"]
        tables = results.read_kinds(stores, kinds, latest=False, columns=columns)
    every_run = tables["run"]
    evaluation = results.keep_latest(tables["evaluation"], "evaluation")
    if not len(evaluation):
        raise ValueError(
            f"no evaluation in {', '.join(map(str, stores))}: looked for rows of kind "
            "'evaluation', which experiments.main writes at the end of a run and "
            "experiments.evaluate at any time"
        )
    every = set(pc.unique(evaluation["run_id"]).to_pylist())
    configs = run_configs.flat_configs(every_run)
    evaluation = conditions.kept(evaluation, where, configs)
    runs = summarize_runs(evaluation, placing.sweeps_of(stores))
    kept, notes = comparable(runs, configs)
    cells = list(levels.in_order(group_cells(kept)))
    counted = {run.run_id for run in runs}
    latest = results.keep_latest(every_run, "run")
    scored = _scored(tables["evaluation"])
    to_come = awaited(stores, scored)
    return Report(
        cells=cells,
        left_out=_without(runs, kept),
        notes=[
            *disagreeing.extended(every_run),
            *disagreeing.in_several_folders(tables["evaluation"]),
            *notes,
            *disagreeing.disagreements(cells, configs),
            *unlike_settings(cells),
            *unlike_models(cells, configs),
            *unlike_tasks(cells),
            *missing.missing_lengths(cells, configs),
        ],
        damaged=_damaged(damaged, tables["damaged"]),
        gaps=missing.missing_runs(cells, to_come),
        absent=missing.missing_cells(cells, to_come),
        unscored=missing.without_evaluation(latest, every),
        unfinished=missing.of_studies(stores, scored),
        gains=gains(cells),
        comparisons=comparison.compare(cells, configs=configs),
        gain=mean_gain(cells),
        configs=configs,
        origins=inventory.origins(_of_runs(latest, counted)),
        training=_of_runs(results.keep_latest(tables["training"], "training"), counted),
        places=by_place.by_run(results.keep_latest(tables["place"], "place")),
        analyses=analyses.find(dirs),
        analysis_command=analyses.command(stores),
    )


def _scored(evaluation: pa.Table) -> set[tuple[str, str]]:
    pairs = evaluation.group_by(["store", "run_id"]).aggregate([]).to_pylist()
    return {(one["store"], same_names.stored_name(one["run_id"])) for one in pairs}


def _of_runs(table: pa.Table, run_ids: set[str]) -> pa.Table:
    wanted = pa.array(sorted(run_ids), pa.string())
    return table.filter(pc.is_in(table["run_id"], value_set=wanted))


def _without(
    runs: Sequence[RunSummary], kept: Sequence[RunSummary]
) -> list[RunSummary]:
    there = {(run.run_id, run.setting) for run in kept}
    return [run for run in runs if (run.run_id, run.setting) not in there]


def _damaged(found: Sequence[str], rows: pa.Table) -> list[str]:
    """Joins what reading complained of and the damage that shards remember."""
    columns = (rows[name].to_pylist() for name in ("store", "source", "line", "text"))
    remembered = [
        describe_damage(pathlib.Path(store) / source, line, text)
        for store, source, line, text in zip(*columns, strict=True)
    ]
    return list(dict.fromkeys([*found, *remembered]))


@contextlib.contextmanager
def _unreadable() -> Iterator[list[str]]:
    """Collects what could not be read, each thing once, instead of showing it."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", results.ResultsWarning)
        yield texts
    for one in caught:
        if issubclass(one.category, results.ResultsWarning):
            texts.append(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
