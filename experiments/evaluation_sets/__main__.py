r"""Makes fixed evaluation sets, so that others score on the very same examples.

    python -m experiments.evaluation_sets --tasks=even_pairs,reverse_string \
        --lengths=41,100,500 --samples=512 --data-dir=sets
    python -m experiments.evaluate --workdir=runs/reverse --sets=sets

Each set is a TensorFlow Datasets folder (array_record; TensorFlow is not needed), and
is written whole or not at all; one that is there already is checked and kept. Its hash
is that of its content. Any program with tensorflow-datasets reads it:

    import grain
    import tensorflow_datasets as tfds

    name = "ropejax_evaluation/even_pairs-length_41-samples_512-seed_1"
    source = tfds.data_source(name, split="test", data_dir="sets")
    source[0]  # {"inputs": [...], "targets": [...], "scored": [...]}
    grain.MapDataset.source(source).batch(64)
"""

import pathlib
import re
from collections.abc import Iterable, Sequence

from rich.console import Console

from experiments import command, lengths
from experiments.building import options
from experiments.building.methods import PARTS
from experiments.running import storage


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument(
        "--tasks",
        metavar="TASKS",
        help="names with commas between them, such as even_pairs, "
        "'modular_arithmetic(modulus=7)'; or all",
    )
    parser.add_argument(
        "--lengths",
        metavar="LENGTHS",
        help="both ends included: 41:500, or 41,50:500:50",
    )
    parser.add_argument(
        "--data-dir", "--data_dir", metavar="DIR", help="where sets are written"
    )
    parser.add_argument(
        "--samples",
        type=command.whole_number,
        default=512,
        metavar="N",
        help="examples a set (512)",
    )
    parser.add_argument(
        "--seed",
        type=command.whole_number,
        default=1,
        metavar="N",
        help="of the examples (1)",
    )
    given = command.options(parser, argv)
    for name in ("tasks", "lengths", "data_dir"):
        if getattr(given, name) is None:
            option = name.replace("_", "-")
            raise command.UsageError(f"--{option} is missing; --help shows an example.")
    command.prepare_jax(given.compile_cache)
    with storage.explained(pathlib.Path(given.data_dir), runs=()):
        make_sets(
            given.tasks,
            lengths.parse(given.lengths, "--lengths"),
            given.data_dir,
            samples=given.samples,
            seed=given.seed,
        )
    return 0


def make_sets(
    tasks: str,
    of_lengths: Iterable[int],
    data_dir: str | pathlib.Path,
    *,
    samples: int = 512,
    seed: int = 1,
    console: Console | None = None,
) -> dict[str, str]:
    """Makes the sets of each task at each length, and prints their hashes.

    Args:
        tasks: names, with settings in parentheses where they are not the default.
        of_lengths: input lengths, in symbols.
        data_dir: where sets are; made if absent.
        samples: examples a set.
        seed: of the examples.
        console: where lines are printed; the terminal if None.

    Returns:
        Content hashes by the name of the set.

    Raises:
        ValueError: for an unknown task, a length without examples, or a damaged set.
    """
    from experiments.evaluation_sets.builder import make_set
    from experiments.evaluation_sets.content import SetKey
    from experiments.evaluation_sets.read import read_set

    console = console or Console()
    keys = [
        SetKey(task, length, samples, seed)
        for task in parse_tasks(tasks)
        for length in of_lengths
    ]
    found = {}
    for key in keys:
        there = key.folder(data_dir).exists()
        folder = make_set(key, data_dir)
        found[key.name] = read_set(key, data_dir).sha256
        what = "kept" if there else "made"
        line = f"{what} {folder}  sha256 {found[key.name]}"
        console.print(line, soft_wrap=True, highlight=False)
    return found


def parse_tasks(text: str) -> list:
    """Returns the tasks that a text names.

    Raises:
        ValueError: for text that cannot be read, an unknown task or setting.
    """
    from ropejax.tasks import ALL_TASKS, Task

    if text.strip() == "all":
        return [cls() for cls in ALL_TASKS.values()]
    tasks = []
    # Commas within parentheses belong to a task's settings.
    for part in re.split(r",(?![^()]*\))", text):
        name, settings = options.split(part, "--tasks")
        cls = options.look_up(name, ALL_TASKS, "--tasks", Task)
        given = options.parse(settings, "--tasks", PARTS)
        tasks.append(options.construct(cls, given, "--tasks"))
    return tasks


if __name__ == "__main__":
    command.run(main)
