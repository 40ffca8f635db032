"""Sweeps: which runs a study has, which share a program, in which order."""

import pathlib

import numpy as np
import pytest

from configs import base
from configs.sweep import product, union, where, zipped
from experiments.study import sweep
from experiments.study.cost import CPU_CORE_RATE, Costs, ordered, work_of
from experiments.study.select import select
from experiments.study.sweep import expand
from tests.experiments import tiny_study

pytestmark = pytest.mark.fast
HERE = pathlib.Path(__file__).parent


def runs_of(*points):
    return expand(tiny_study.get_config(), points)[0]


# Lists of points


def test_product_makes_every_combination_and_the_last_part_varies_fastest():
    points = product({"a": [1, 2], "b": ["x", "y"]}, [{"c": 0}, {"d": 0}])
    assert len(points) == 2 * 2 * 2
    assert points[:3] == [
        {"a": 1, "b": "x", "c": 0},
        {"a": 1, "b": "x", "d": 0},
        {"a": 1, "b": "y", "c": 0},
    ]


def test_zipped_keeps_what_belongs_together():
    assert zipped({"a": [1, 2], "b": (3, 4)}) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]


def test_union_keeps_the_first_of_equal_points_and_where_drops_others():
    points = union([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 3}])
    assert points == [{"a": 1}, {"a": 2}, {"a": 3}]
    lists = union([{"a": [1]}, {"b": 1, "a": [1]}], [{"a": [1], "b": 1}, {"a": [2]}])
    assert lists == [{"a": [1]}, {"a": [1], "b": 1}, {"a": [2]}]
    assert where(points, lambda point: point["a"] != 2) == [{"a": 1}, {"a": 3}]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: product({"a": [1]}, {"a": [2]}), "two parts set a"),
        (lambda: product({"a": [1]}, []), "no points"),
        (lambda: product({"a": []}), "no points"),
        (lambda: product({"a": "xy"}), "a must have a list of values, got 'xy'"),
        (lambda: product({"a": 3}), "a must have a list of values, got 3"),
        (lambda: zipped({"a": [1], "b": [1, 2]}), r"equally long, got .*'b': 2"),
        (lambda: where([{"a": 1}], lambda point: point["b"]), "has no 'b'"),
        (lambda: where([{"a": 1}], lambda point: False), "none of the 1 points"),
    ],
)
def test_slips_in_a_sweep_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# From points to runs


def test_a_studys_file_gives_its_runs():
    runs, merged = sweep.load(f"{HERE / 'tiny_study.py'}:seeds=3")
    assert (len(runs), merged) == (2 * 2 * 3, 0)
    assert len({run.run_id for run in runs}) == 12
    first = runs[0]
    assert first.config["optim"]["learning_rate"] == 1e-2
    assert first.config["train"]["length_seed"] == 0
    assert first.run_id.startswith("even_pairs-rope-randomized-seed0-")


def test_fields_of_the_command_line_are_for_all_runs_and_not_against_the_sweep():
    path = str(HERE / "tiny_study.py")
    runs, _ = sweep.load(path, ["--config.train.steps=5"])
    assert {run.config["train"]["steps"] for run in runs} == {5}
    with pytest.raises(ValueError, match=r"train\.seed cannot be set: the sweep"):
        sweep.load(path, ["--config.train.seed=5"])


def test_a_config_without_a_sweep_is_no_study():
    with pytest.raises(ValueError, match="defines no get_sweep"):
        sweep.load(base.__file__)


def test_members_of_a_program_differ_in_seeds_and_numbers_only():
    one, *others = runs_of(
        {},
        {"train.seed": 1},
        {"optim.learning_rate": 0.5, "optim.b1": 0.5},
        {"optim.max_grad_norm": 2.0},
        {"optim.max_grad_norm": 0.0},  # another chain of transformations
        {"optim.weight_decay": 0.1},
        {"model.embed_dim": 16},
        {"train.length_seed": 1},
        {"optim.warmup_steps": 1},
    )
    assert [run.group == one.group for run in others] == [True] * 3 + [False] * 5


def test_members_of_another_optimizer_share_a_program_by_what_it_takes_traced():
    lion, own = {"optim.name": "lion"}, {"optim.name": "optax.adamw"}
    decays = {"optim.weight_decay": 0.1}
    changes = ({}, {"train.seed": 1, "optim.learning_rate": 0.5}, decays)
    changes += ({"optim.weight_decay": 0.2}, {"optim.options": "b1=0.8"})
    programs = {}
    for name in (lion, own):
        runs = runs_of(*(name | change for change in changes))
        groups = [run.group for run in runs]
        programs[name["optim.name"]] = [groups.index(group) for group in groups]
    # One's own may compare its weight decay with 0.
    assert programs == {"lion": [0, 0, 2, 2, 4], "optax.adamw": [0, 0, 2, 3, 4]}


def test_equal_points_are_merged_and_counted():
    runs, merged = expand(
        tiny_study.get_config(), [{}, {"train.seed": 0}, {"train.seed": 1}]
    )
    assert (len(runs), merged) == (2, 1)


def test_a_model_scored_at_several_positions_is_trained_once():
    (run,) = runs_of({}, {"eval.positions": "evenly_spaced"})
    assert [one["positions"] for one in run.evaluations] == [None, "evenly_spaced"]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "no points"),
        ([{"task.nam": "x"}], r"sweep sets 'task\.nam': .*task\.name"),
        ([{"train.steps": "many"}], r"train\.steps must be a number, got 'many'"),
        ([{"train.seed": 2.0}], r"must be an integer, got 2\.0; write 2\."),
        (
            [{}, {"train.steps": 99}],
            r"train\.steps, 12 and 99: a longer .* two studies",
        ),
        ([{"train.seed": True}], r"train\.seed must be a number, got True"),
        (
            [{"optim.learning_rate": float("nan")}],
            r"learning_rate must be a finite number",
        ),
        ([{}, {"train.keep": 9}], r"same model .* differ in train\.keep, which alters"),
        ([{}, {"eval.samples": 16}], "could not be told apart"),
        # The positions of training, which need not be said.
        ([{}, {"eval.positions": "randomized"}], r"at the same positions \(randomized"),
    ],
)
def test_points_that_cannot_be_are_refused(points, message):
    with pytest.raises(ValueError, match=message):
        expand(tiny_study.get_config(), points)


def test_numbers_of_numpy_are_taken_as_they_are():
    seeds = {"train.seed": np.arange(2)}
    runs = runs_of(*product(seeds, {"optim.learning_rate": np.logspace(-2, -1, 2)}))
    assert runs == runs_of(
        *product({"train.seed": [0, 1]}, {"optim.learning_rate": [0.01, 0.1]})
    )


def _study(tmp_path, body):
    path = tmp_path / "mine.py"
    path.write_text(
        "from tests.experiments.tiny_study import get_config\n"
        f"def get_sweep(arg=''):\n    {body}\n"
    )
    return str(path)


def test_a_sweep_may_be_a_generator(tmp_path):
    body = "yield {'train.seed': 0}; yield {'train.seed': 1}"
    assert len(sweep.load(_study(tmp_path, body))[0]) == 2


@pytest.mark.parametrize(
    ("body", "got"),
    [
        ("pass", r"got None \(NoneType\)"),
        ("return {'train.seed': 0}", r"got {'train\.seed': 0} \(dict\)"),
        ("return ['train.seed']", r"got 'train\.seed' \(str\)"),
        ("return [{0: 1}]", r"got {0: 1} \(dict\)"),
    ],
)
def test_a_get_sweep_that_gives_no_list_of_points_is_refused(tmp_path, body, got):
    with pytest.raises(ValueError, match=rf"mine\.py must return a list .* {got}"):
        sweep.load(_study(tmp_path, body))


# Order and cost


def test_one_seed_of_everything_comes_before_second_seeds_and_cheap_runs_first():
    points = product(
        {"train.batch_size": [8, 4]},
        {"optim.learning_rate": [0.1, 0.2]},
        {"train.seed": [5, 6]},
    )
    runs = runs_of(*points)
    done = [
        (
            run.config["train"]["seed"],
            run.config["optim"]["learning_rate"],
            run.config["train"]["batch_size"],
        )
        for run in ordered(runs, Costs(runs, {}))
    ]
    assert done == [(s, rate, b) for s in (5, 6) for rate in (0.1, 0.2) for b in (4, 8)]


def test_shards_begin_with_parts_that_make_up_the_whole_and_end_with_the_others():
    runs = runs_of(
        *product({"train.batch_size": [1, 2, 4]}, {"train.seed": [0, 1, 2, 3]})
    )
    costs = Costs(runs, {})
    for of in (2, 3, 5):  # five shards of three programs: programs are split
        begun = []
        for number in range(1, of + 1):
            own = ordered(runs, costs, (number, of))
            assert sorted(own, key=id) == sorted(runs, key=id)
            groups = {run.group for run in own[: len(runs) // 3]}
            assert len(groups) == 1 or of != 3
            begun.append(own[0].run_id)
        assert len(set(begun)) == of


def test_work_counts_products_and_softmax_by_hand():
    """One layer of width 8, 2 heads, MLP 32; 5 tokens trained; 3 times 7 tested.

    The lengths tested are 3, 5 and 6, and one token more; all are padded to 6.
    """
    (run,) = runs_of({"task.name": "even_pairs"})

    def forward(tokens):
        products = 2 * tokens * (4 * 8 * 8 + 2 * 8 * 32)  # q, k, v, out; up, down
        logits = 2 * 2 * tokens**2 * 8  # logits and mixing
        return products + logits + 20 * 2 * tokens**2

    work = work_of(run)
    assert work.step == 3 * 4 * forward(5)
    assert work.steps == 12
    assert work.scoring == 8 * 3 * forward(7)
    (short,) = runs_of({"task.name": "even_pairs", "eval.buckets": "4,64"})
    assert work_of(short).scoring == 8 * (forward(5) + 2 * forward(7))


def test_costs_are_measured_where_they_were_and_scaled_elsewhere():
    small, same, large = runs_of({}, {"train.seed": 1}, {"train.batch_size": 8})
    guess = Costs([small, same, large], {})
    assert not guess.is_measured
    work = work_of(small)
    assert guess.seconds(small) == pytest.approx(work.total / CPU_CORE_RATE)
    measured = {small.run_id: {"step_s": 0.5, "score_s": 3.0}}
    costs = Costs([small, same, large], measured)
    assert costs.is_measured
    assert costs.seconds(small) == costs.seconds(same) == pytest.approx(12 * 0.5 + 3)
    assert costs.seconds(large) == pytest.approx(12 * 2 * 0.5 + 3)
    # what a recurrent model took says nothing of a Transformer where one was measured
    rnn, other = runs_of({"model.kind": "rnn"}, {"train.batch_size": 16})
    measured[rnn.run_id] = {"step_s": 70.0, "score_s": None}
    costs = Costs([small, rnn, other], measured)
    assert costs.seconds(other) == pytest.approx(12 * 4 * 0.5 + 3)
    del measured[small.run_id]
    assert Costs([small, rnn, other], measured).seconds(other) > 12 * 70


@pytest.mark.fast
def test_a_part_of_a_study_is_chosen_by_fields():
    runs, _ = sweep.load(str(pathlib.Path(tiny_study.__file__)))
    names = lambda part: [
        (r.config["task"]["name"], r.config["train"]["seed"]) for r in part
    ]
    only = select(runs, ["task.name='even_pairs'", "train.seed=1"])
    assert names(only) == [("even_pairs", 1)] * 2  # two learning rates
    either = select(runs, ["train.seed=1", "train.seed=0"])
    assert either == runs == select(runs, [])
    for condition, message in {
        "even_pairs": "must be FIELD=VALUE",
        "task.nam=even_pairs": "no field 'task.nam'.*task.name",
        "task.name=even_pair": "no run of the study has that.*even_pairs",
        "train.seed=7": "train.seed is 0 or 1",
        "optim.learning_rate=1e-9": "no run of the study has that",
    }.items():
        with pytest.raises(ValueError, match=message):
            select(runs, [condition])
