"""Whether the fixed sets that a study is to be scored on are there."""

from collections.abc import Sequence

from experiments import lengths
from experiments.building import build
from experiments.building.mesh import without_mesh
from experiments.study.sweep import StudyRun


def check_sets(runs: Sequence[StudyRun], data_dir: str) -> None:
    """Looks for the sets of all runs, and reads none.

    Args:
        runs: of the study.
        data_dir: where sets are.

    Raises:
        ValueError: if any is missing, with the command that makes those of its task.
    """
    from experiments.evaluation_sets.read import check_held  # imports TFDS: a second

    tasks, asked = {}, set()
    for run in runs:
        name = str((run.config["task"], run.config["model"]["kind"]))
        for one in run.evaluations:
            asked.add((name, one["lengths"], one["samples"], one["seed"]))
        tasks.setdefault(name, run)
    made = {
        name: build.build(without_mesh(run.config)).recipe.task
        for name, run in tasks.items()
    }
    said = []
    for name, text, samples, seed in sorted(asked):
        try:
            wanted = lengths.parse(text)
            check_held(made[name], wanted, data_dir, samples=samples, seed=seed)
        except ValueError as error:
            said.append(str(error))
    if said:
        more = f"\n{len(said) - 1} more tasks lack sets too." if len(said) > 1 else ""
        raise ValueError(said[0] + more)
