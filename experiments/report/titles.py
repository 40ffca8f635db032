"""Short titles: settings that are alike in all that a report shows are left out.

Results call a method by its title and all its settings, `Addition(order=reversed,
num_hints=24)`. In a table only what tells it from others of its kind is of use; the
whole stands with the lengths, below the tables, and in `scores.csv`.
"""

import ast
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from experiments.report.levels import base_name
from experiments.report.summaries import RunSummary, Setting

Items = tuple[str, ...]


def shortened(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Gives runs short titles, and joins tasks that are variants of one row.

    Tasks of one kind are one row of the table where no setting has runs of two of
    them, or only under other titles: what tells them apart then stands with the
    setting.
    """
    runs = _joined(runs)
    settings = [run.setting for run in runs]  # equal ones may differ in titles
    tasks = _short((run.task, run.task_title) for run in runs)
    positions = _short((x.positions, x.positions_title) for x in settings)
    encodings = _short((x.encoding, x.encoding_title) for x in settings)
    moved = _at_test(
        ((x.positions, x.test_positions) for x in settings), _position_title
    )
    changed = _at_test(((x.encoding, x.test_encoding) for x in settings), str)

    def titled(one: Setting) -> Setting:
        return dataclasses.replace(
            one,
            positions_title=positions[one.positions, one.positions_title],
            encoding_title=encodings[one.encoding, one.encoding_title],
            test_positions_title=moved[one.positions, one.test_positions],
            test_encoding_title=changed[one.encoding, one.test_encoding],
        )

    return [
        dataclasses.replace(
            run,
            task_title=tasks[run.task, run.task_title],
            setting=titled(run.setting),
        )
        for run in runs
    ]


def told_apart(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Tells names apart that have one title: by their settings, else by themselves.

    A config may give several of them one title, such as `randomized` to two ranges.
    """
    for field in ("positions", "encoding"):
        pairs = [(getattr(r.setting, field), _title(r, field)) for r in runs]
        titles = _apart(pairs)
        runs = [
            dataclasses.replace(
                run,
                setting=dataclasses.replace(
                    run.setting, **{f"{field}_title": titles[pair]}
                ),
            )
            for run, pair in zip(runs, pairs, strict=True)
        ]
    return list(runs)


def _title(run: RunSummary, field: str) -> str:
    return getattr(run.setting, f"{field}_title")


def _apart(named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Returns titles by name and title, no two of different names alike."""
    own: dict[str, dict[str, Items | None]] = {}
    for name, title in named:
        own.setdefault(title, {})[name] = _items(name)
    apart: dict[tuple[str, str], str] = {}
    for title, names in own.items():
        ends = dict.fromkeys(names, "")
        if len(names) > 1 and title and None not in names.values():
            rest = _split(names)[1]
            ends = {n: f" ({', '.join(x)})" if x else "" for n, x in rest.items()}
        one_kind = len({*map(base_name, names)}) == 1
        clear = one_kind and len({*ends.values()}) == len(names)
        apart |= {(n, title): title + ends[n] if clear else "" for n in names}
    return apart


def _joined(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Makes one row of tasks of one kind that no setting has two of."""
    kinds: dict[tuple[str, str], dict[str, set[tuple]]] = {}
    for run in runs:
        tasks = kinds.setdefault(_kind(run), {})
        one = run.setting
        shown = one, one.encoding_title, one.positions_title
        tasks.setdefault(run.task, set()).add(shown)
    rows: dict[str, str] = {}
    own: dict[str, list[str]] = {}
    for (kind, _), tasks in kinds.items():
        items = {task: _items(task) for task in tasks}
        apart = sum(map(len, tasks.values())) == len(set.union(*tasks.values()))
        if len(tasks) > 1 and apart and None not in items.values():
            shared, rest = _split(items)
            rows |= dict.fromkeys(tasks, f"{kind}({', '.join([*shared, '...'])})")
            own |= rest
    return [
        dataclasses.replace(
            run,
            task=rows[run.task],
            task_title=_kind(run)[1],
            setting=dataclasses.replace(
                run.setting, task_options=", ".join(own[run.task])
            ),
        )
        if run.task in rows
        else run
        for run in runs
    ]


def _kind(run: RunSummary) -> tuple[str, str]:
    """Returns a task's name and title without its settings."""
    return base_name(run.task), run.task_title.removesuffix(_settings(run.task))


def _short(named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Returns shorter titles, by name and title, of those that hold settings."""
    short = {pair: pair[1] for pair in named}
    kinds: dict[str, dict[str, Items]] = {}
    for name, title in short:
        items = _items(name)
        if title and title.endswith(_settings(name)) and items is not None:
            kinds.setdefault(title.removesuffix(_settings(name)), {})[name] = items
    for title, own in kinds.items():
        for name, rest in _split(own)[1].items():
            long = name, title + _settings(name)
            short[long] = f"{title} ({', '.join(rest)})" if rest else title
    return short


def _at_test(
    pairs: Iterable[tuple[str, str]], title_of: Callable[[str], str]
) -> dict[tuple[str, str], str]:
    """Returns what test-time names are called, by training and test-time name.

    Of the kind that it was trained with, a model's changed settings are named alone.
    """
    pairs = sorted(set(pairs))
    others = {here for there, here in pairs if base_name(there) != base_name(here)}
    usual = {one: title_of(base_name(one)) + _settings(one) for one in others}
    short = _short(usual.items())
    titles = {}
    for there, here in pairs:
        title = short.get((here, usual.get(here, "")), here)
        if base_name(there) == base_name(here):
            before = _items(there) or ()
            title = ", ".join(x for x in _items(here) or () if x not in before) or here
        titles[there, here] = title
    return titles


def _position_title(name: str) -> str:
    from ropejax.positions import POSITIONS  # imports jax, for seconds

    return POSITIONS[name].title.lower() if name in POSITIONS else name


def _settings(name: str) -> str:
    """Returns the settings behind a name, in their parentheses."""
    return name.removeprefix(base_name(name))


def _items(name: str) -> Items | None:
    """Returns the settings behind a name one by one; None if they cannot be read.

    Those of a part, as of `scale=LogScale(form=natural)`, come one by one too.
    """
    try:
        call = ast.parse(f"_{_settings(name) or '()'}", mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(call, ast.Call) or call.args:
        return None
    return tuple(item for one in call.keywords for item in _parts(one.arg, one.value))


def _parts(name: str | None, value: ast.expr) -> Iterator[str]:
    if not isinstance(value, ast.Call) or value.args or not value.keywords:
        yield f"{name}={ast.unparse(value)}"
        return
    yield f"{name}={ast.unparse(value.func)}"
    for one in value.keywords:
        yield from _parts(f"{name}.{one.arg}", one.value)


def _split(own: Mapping[str, Items]) -> tuple[list[str], dict[str, list[str]]]:
    """Returns what the settings of all names share, and what each has besides."""
    first, *others = own.values()
    shared = [one for one in first if all(one in more for more in others)]
    rest = {name: [x for x in mine if x not in shared] for name, mine in own.items()}
    return shared, rest
