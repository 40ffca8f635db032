"""The page on tasks: what each asks, examples, alphabets, lengths and settings."""

from experiments.catalogue import markdown
from experiments.catalogue.docstrings import described, sections
from ropejax.tasks import MORE_TASKS, TASKS, TEXT_TASKS, Task

_LENGTH = 40

_HEAD = """\
# Tasks

<!-- Made by `python -m experiments.catalogue --page=tasks > docs/tasks.md`; do not
edit. -->

All tasks of `ropejax.tasks`, by the name that configs use (`task.name`). A task draws
rows on the device from a PRNG key and traced lengths, exact at any length; a row
depends on its key and its length alone. Symbols are integers from 0 up; in examples
they are written side by side where each is one character.

A row is the input, then a placeholder for each symbol of the answer, at which models
answer; decoder-only models read the first placeholder and then the answer back
(`ropejax.tasks.Autoregressive`). Tasks with answers in place ask at symbols of the
input itself. `ropejax.testing.check_task` tests one of your own; the README says how to
write it.
"""

_PARTS = (
    ("The benchmark of the Chomsky hierarchy", TASKS),
    ("Tasks of other papers", MORE_TASKS),
    ("Tasks on text", TEXT_TASKS),
)


def page() -> str:
    """Returns the page, in Markdown."""
    lines = [_HEAD]
    for heading, tasks in _PARTS:
        lines += [f"## {heading}", "", *_overview(tasks), ""]
        lines += [_section(name, task()) for name, task in tasks.items()]
    return "\n".join(lines)


def _overview(tasks: dict[str, type[Task]]) -> list[str]:
    rows = [
        ("name", "task", "kind", "asks"),
        ("---", "---", "---", "---"),
        *(
            (f"[`{name}`](#{name})", task.title, _kind(task), task.summary)
            for name, task in tasks.items()
        ),
    ]
    return [f"| {' | '.join(row)} |" for row in rows]


def _kind(task: type[Task] | Task) -> str:
    return task.group if task.level is None else task.level.value


def _section(name: str, task: Task) -> str:
    paragraphs, named = sections(type(task))
    facts = {
        "Symbols": f"{task.input_vocab} in inputs, {task.output_vocab} in answers",
        f"At length {_LENGTH}": _sizes(task),
        "References": named["References"],
        "Departures": named["Departures"],
    }
    said = markdown.sentence(task.title, task.summary)
    lines = [f"### {name}", "", said, ""]
    lines += [markdown.wrapped(part) + "\n" for part in paragraphs]
    if "Examples" in named:
        lines += ["```", *named["Examples"].strip("\n").splitlines(), "```", ""]
    lines += markdown.facts(facts)
    return "\n".join([*lines, *markdown.options_table(described(task)), ""])


def _sizes(task: Task) -> str:
    """How many symbols a row has."""
    inputs, outputs = task.input_length(_LENGTH), task.output_length(_LENGTH)
    if task.in_place:
        return f"{inputs} symbols, answers in place"
    return f"{inputs} symbols in, {outputs} out"
