"""What else tells the models of a row apart, beside what their names in tables say.

A column is named after encoding, positions and the title of its runs' configs. Where
one of them was also made with other norms, a gate or another optimizer, its score would
be read as the encoding's. What all settings of a title have is what the title stands
for.
"""

from collections.abc import Mapping, Sequence

from experiments.report import run_configs
from experiments.report.run_configs import Flat
from experiments.report.summaries import Cell

_KIND = "model.kind"


def unlike_models(cells: Sequence[Cell], configs: Mapping[str, Flat]) -> list[str]:
    """Names the fields in which a setting's models are not as most of kind and title.

    Args:
        cells: of the table.
        configs: of runs by their id, flat; may lack some.

    Returns:
        A line for each setting that has such fields, with the tasks where it has them.
    """
    rows: dict[tuple[str, str, str], list[tuple[Cell, Flat]]] = {}
    for cell in cells:
        config = configs.get(cell.runs[0].run_id)
        if config is not None:
            kind = run_configs.shown(config, _KIND)
            row = cell.task_title, kind, cell.setting.title
            rows.setdefault(row, []).append((cell, config))
    tasks: dict[str, list[str]] = {}
    for (task, *_), row in rows.items():
        usual = _usual([config for _, config in row])
        for cell, config in row:
            apart = [
                f"{name}={run_configs.shown(config, name)} (most: {value or 'nothing'})"
                for name, value in usual.items()
                if name in config
                and run_configs.shown(config, name) != value
                and f"{name}=" not in cell.setting.config
            ]
            if apart:
                line = f"{cell.setting.label} has {', '.join(apart)}"
                tasks.setdefault(line, []).append(task)
    return [f"{', '.join(some)}: {line}" for line, some in tasks.items()]


def _usual(configs: Sequence[Flat]) -> dict[str, str]:
    """The most common value of each field that makes models different."""
    usual = {}
    for name in run_configs.dividing(configs):
        if not name.startswith("model.") and name != run_configs.OPTIMIZER:
            continue
        values = [run_configs.shown(one, name) for one in configs if name in one]
        usual[name] = max(sorted(set(values)), key=values.count)
    return usual
