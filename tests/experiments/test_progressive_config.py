"""The progressive loss by config, and runs of configs that had no such fields."""

import copy
import json

import pytest

from configs import base
from experiments.building.build import build
from experiments.running import workdir
from experiments.study import cost
from ropejax.training.progressive import ProgressiveLoss

LOOPED = {"model.loops": 4, "model.input_injection": "loop"}


def config_with(changes):
    config = base.get_config()
    small = {"train.max_length": 6, "eval.lengths": "12", "model.num_layers": 1}
    config.update_from_flattened_dict(small | changes)
    return config


def test_the_loss_reaches_the_recipe():
    recipe = lambda changes: build(config_with(LOOPED | changes)).recipe
    assert recipe({}).progressive is None
    both = {"train.progressive_weight": 0.5, "train.gradient_loops": 2}
    assert recipe(both).progressive == ProgressiveLoss(0.5, 2)
    assert recipe({"train.gradient_loops": 2}).progressive == ProgressiveLoss(0.0, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.progressive_weight": 0.5}, "this one applies its layers once"),
        (
            {"train.gradient_loops": 1, "model.kind": "encoder_decoder"},
            "train.progressive_weight, train.gradient_loops: .* applies its layers",
        ),
        (LOOPED | {"train.progressive_weight": -1.0}, "weight must lie in 0 .. 1"),
        (LOOPED | {"train.gradient_loops": 5}, "must be at most loops=4"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(config_with(changes))


@pytest.mark.fast
def test_costs_count_the_loops_that_are_run():
    passes = lambda changes: cost._passes(config_with(LOOPED | changes))
    assert passes({}) == 3
    assert passes({"train.gradient_loops": 1}) == (4 + 2) / 4
    # n = 0, 1, 2, 3 and k = 1: n forward, and one loop there and back.
    drawn = (1.5 + 3) / 4
    alone = {"train.gradient_loops": 1, "train.progressive_weight": 1.0}
    assert passes(alone) == drawn
    assert passes(alone | {"train.progressive_weight": 0.5}) == drawn + 6 / 4


@pytest.mark.fast
def test_runs_of_configs_without_the_fields_keep_their_names_and_are_found(tmp_path):
    config = workdir.plain(config_with({}))
    earlier = copy.deepcopy(config)
    for name in workdir.ADDED:
        group, dot, field = name.partition(".")
        if dot:
            del earlier[group][field]
        else:
            del earlier[name]
    assert workdir.config_hash(earlier) == workdir.config_hash(config)
    changed = workdir.plain(config_with({"train.progressive_weight": 0.5}))
    assert workdir.config_hash(changed) != workdir.config_hash(config)
    (tmp_path / "config.json").write_text(json.dumps(earlier))
    assert workdir.read_config(tmp_path) == config
    workdir.check_same(tmp_path, config)
    with pytest.raises(ValueError, match=r"progressive_weight is 0.0 there and 0.5"):
        workdir.check_same(tmp_path, changed)
