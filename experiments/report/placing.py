"""In which order encodings and titles stand in tables and pictures.

As in the sweep of the study, where its folder tells. Else encodings stand as in the
published table of the benchmark, and behind those as in the catalogue, and titles by
letter, runs without one before all others.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Sequence

from experiments.report.levels import base_name
from experiments.report.published_parts import published_part
from experiments.report.summaries import RunSummary, Setting
from experiments.running.workdir import STUDY

PUBLISHED = (
    *("none", "sinusoidal", "transformer_xl", "alibi", "rope", "learned"),
    *("rnn", "stack_rnn", "tape_rnn", "lstm"),
    *("delta_net", "mamba"),
)
"""Ruoss et al. 2023, table 1; Delétang et al. 2022, table 2; later recurrent models."""


def placed(
    runs: Sequence[RunSummary], sweeps: Iterable[Sequence[str]] = ()
) -> list[RunSummary]:
    """Tells each run's setting where its encoding and its title stand.

    Args:
        runs: those of a report.
        sweeps: of each study, the stored ids of its runs in their order.
    """
    place = {run_id: at for ids in sweeps for at, run_id in enumerate(ids)}
    encodings: dict[str, int] = {}
    titles: dict[str, int] = {}
    for run in runs:
        at = place.get(run.stored_id, len(place))
        named = (encodings, run.setting.encoding), (titles, run.setting.title)
        for first, name in named:
            first[name] = min(at, first.get(name, at))
    in_order = sorted(encodings, key=lambda name: (encodings[name], *_usual(name)))
    titled = sorted(titles, key=lambda name: (titles[name], name))

    def moved(setting: Setting) -> Setting:
        return dataclasses.replace(
            setting,
            place=in_order.index(setting.encoding),
            title_place=titled.index(setting.title),
        )

    return [dataclasses.replace(run, setting=moved(run.setting)) for run in runs]


def sweeps_of(stores: Iterable[pathlib.Path]) -> list[list[str]]:
    """Reads the order of runs from the `study.json` beside results, where it is."""
    found = []
    for store in stores:
        try:
            order = json.loads((store.parent / STUDY).read_text())["order"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found.append(order)
    return found


def _usual(name: str) -> tuple[int, int, str]:
    """Where an encoding stands without a sweep: by its kind, compositions behind."""
    from ropejax.encodings import ENCODINGS  # imports jax, for seconds

    known = list(dict.fromkeys([*PUBLISHED, *ENCODINGS]))
    kind = published_part(name).name
    at = known.index(kind) if kind in known else len(known)
    return at, base_name(name) == "compose", name
