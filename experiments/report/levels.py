"""Tasks by the Chomsky level of their language, as the papers' tables group them."""

from collections.abc import Iterable, Sequence

from experiments.report.summaries import Cell

OTHER = "other tasks"
_FIRST = ("regular", "deterministic context-free", "context-sensitive")


def level_of(task: str) -> str:
    """Returns the level of a task by its name in results, settings and all.

    It is `OTHER` for tasks that are not in the catalogue, such as those of results from
    another version.
    """
    from ropejax.tasks import TASKS  # imports jax, which few uses of a report need

    name = base_name(task)
    return TASKS[name].level.value if name in TASKS else OTHER


def base_name(name: str) -> str:
    """Returns a catalogue name without the settings behind it: `rope(base=8)`."""
    return name.partition("(")[0]


def by_level(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Groups cells by level, in the order of the papers' tables; others come last."""
    groups: dict[str, list[Cell]] = {name: [] for name in _FIRST}
    for cell in cells:
        groups.setdefault(level_of(cell.task), []).append(cell)
    if OTHER in groups:
        groups[OTHER] = groups.pop(OTHER)
    return {name: group for name, group in groups.items() if group}


def in_order(cells: Iterable[Cell]) -> Sequence[Cell]:
    """Lists cells level by level; within a level their order stays."""
    return [cell for group in by_level(cells).values() for cell in group]
