"""Which runs of a folder are analysed: the run, or one of each setting of a study."""

import pathlib

from experiments.running import workdir


def runs_to_analyse(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folder of a run; of a study, the first trained seed of each setting.

    Args:
        folder: workdir of a run or of a study.

    Raises:
        ValueError: if it is that of neither, or nothing is trained yet.
    """
    inside = sorted(folder.glob("runs/*/config.json"))
    if (folder / "config.json").exists() or not inside:
        return [folder]  # a run, or none, which reading it tells
    first: dict[str, tuple[int, pathlib.Path]] = {}
    for path in inside:
        config = workdir.read_config(path.parent)
        if config is None:
            continue
        if config["train"]["steps"] and not workdir.trained_steps(path.parent):
            continue
        seed = config["train"]["seed"]
        setting = {**config, "train": {**config["train"], "seed": 0}}
        name = workdir.config_hash(setting)
        first[name] = min(first.get(name, (seed, path.parent)), (seed, path.parent))
    if not first:
        raise ValueError(f"no run of the study in {folder} has a checkpoint yet.")
    return sorted(path for _, path in first.values())
