"""What a run is called in the results: names for machines, titles for people."""

from collections.abc import Mapping
from typing import Any

from experiments.building.build import Experiment
from experiments.building.options import with_options
from experiments.running.workdir import config_hash
from ropejax.nn.recurrent import RECURRENT
from ropejax.tasks import ALL_TASKS


def run_labels(config: Mapping[str, Any], experiment: Experiment) -> dict[str, Any]:
    """Returns the fields that every row of a run has.

    Args:
        config: the config, plain.
        experiment: its objects.
    """
    recipe = experiment.recipe
    titles = {
        "task": recipe.task.title,
        "encoding": recipe.model.pattern[0].encoding.title,
        "positions": recipe.positions.title.lower(),
    }
    names: dict[str, Any] = {}
    for group, title in titles.items():
        title = title or config[group]["name"]
        text = config[group]["options"]
        names[group] = with_options(config[group]["name"], text)
        names[f"{group}_title"] = config[group].get("title") or with_options(
            title, text
        )
    kind, options = config["model"]["kind"], config["model"]["kind_options"]
    if kind in RECURRENT:  # in tables, it stands where Transformers have their encoding
        title = with_options(recipe.model.title, options)
        names["encoding"] = with_options(kind, options)
        names["encoding_title"] = config["encoding"]["title"] or title
    return names | {
        "study": config["study"] or None,
        "title": config["title"] or None,
        "task_order": _order(config["task"]["name"]),
        "seed": experiment.seed,
        "learning_rate": config["optim"]["learning_rate"],
        "train_min_length": recipe.curriculum.shortest,
        "train_max_length": config["train"]["max_length"],
    }


def _order(task: str) -> int:
    """Returns a task's place in the catalogue; the user's own come behind it."""
    return [*ALL_TASKS, task].index(task)


def run_id(config: Mapping[str, Any]) -> str:
    """Returns a name that only runs with the same settings share."""
    names = [config[group]["name"] for group in ("task", "encoding", "positions")]
    if config["model"]["kind"] in RECURRENT:
        names[1] = config["model"]["kind"]
    return "-".join([*names, f"seed{config['train']['seed']}", config_hash(config)])
