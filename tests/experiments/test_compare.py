"""Two studies beside each other: partners, differences and p by hand."""

import contextlib
import csv
import itertools
import json

import numpy as np
import pytest

from experiments.compare import __main__ as command
from experiments.compare.pairs import pairs
from experiments.report import significance
from tests.experiments.evaluation_rows import cells_of, scored, store

pytestmark = pytest.mark.fast


def _all_splits(first, second):
    """p by the definition, over every split of the scores."""
    scores, size = [*first, *second], len(first)
    seen = abs(np.mean(first) - np.mean(second))
    differences = []
    for chosen in itertools.combinations(range(len(scores)), size):
        rest = [scores[at] for at in range(len(scores)) if at not in chosen]
        differences.append(abs(np.mean([scores[at] for at in chosen]) - np.mean(rest)))
    return np.mean([difference >= seen - 1e-9 for difference in differences])


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ((0.1, 0.2, 0.3), (0.7, 0.8, 0.9), 0.1),  # 2 of 20
        ((0.1, 0.2), (0.5, 0.6, 0.8), 0.1),  # 1 of 10
        ((0.5, 0.5), (0.5, 0.5), 1.0),
        ((0.1, 0.6, 0.3), (0.2, 0.9, 0.4, 0.5), None),
    ],
)
def test_p_is_the_share_of_splits_that_differ_as_much(first, second, p):
    found = significance.permutation_p(first, second)
    assert found == pytest.approx(_all_splits(first, second))
    assert found == pytest.approx(significance.permutation_p(second, first))
    assert p is None or found == pytest.approx(p)


def test_p_of_many_runs_is_near_that_of_all_splits(monkeypatch):
    scores = np.random.default_rng(0).normal(size=14)
    first, second = scores[:7] + 0.6, scores[7:]
    exact = significance.permutation_p(first, second)
    monkeypatch.setattr(significance, "EXACT", 10)
    drawn = significance.permutation_p(first, second)
    error = np.sqrt(exact * (1 - exact) / significance.DRAWS)
    assert drawn == pytest.approx(exact, abs=4 * error)
    assert drawn != exact


def test_one_run_has_no_p_and_holm_leaves_it_out():
    assert significance.permutation_p([0.1], [0.2, 0.3]) is None
    # 4 tests: 4 x 0.01, 3 x 0.02 , 2 x 0.03 (as much as before), 0.5
    values = [0.02, None, 0.5, 0.01, 0.03]
    assert significance.holm(values) == pytest.approx([0.06, None, 0.5, 0.04, 0.06])
    assert significance.holm([0.6, 0.7]) == [1.0, 1.0]
    assert significance.holm([]) == []


def _seeds(name, *right, **changes):
    return [
        scored(f"{name}{seed}", one, seed=seed, **changes)
        for seed, one in enumerate(right)
    ]


def test_settings_of_both_sides_are_partners_and_numbers_are_those_of_their_runs():
    rand = {"positions": "randomized(sort=True)"}
    first = cells_of(*_seeds("a", 50, 52, 54), *_seeds("b", 60, **rand))
    second = cells_of(*_seeds("a", 60, 62, 64), *_seeds("b", 90, 70, **rand))
    (plain, other), alone = pairs(first, second)
    assert alone == []
    assert plain.scores == (
        pytest.approx((0.5, 0.52, 0.54)),
        pytest.approx((0.6, 0.62, 0.64)),
    )
    assert (plain.difference, plain.p, plain.holm) == pytest.approx((0.1, 0.1, 0.1))
    assert plain.low <= 0.1 <= plain.high
    assert (other.low, other.p, other.holm) == (None, None, None)
    assert other.difference == pytest.approx(0.2)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "randomized"},
        {"encoding": "alibi"},
        {"encoding": "rope(theta=5)"},
        {"encoding": "alibi", "positions": "randomized"},
    ],
)
def test_what_differs_in_one_thing_or_is_alone_is_compared(changes):
    other = {"task": "zoo", "task_title": "Zoo"}
    first = cells_of(scored("a", 50), scored("z", 50, **other))
    second = cells_of(scored("a", 70, **changes))
    (pair,), alone = pairs(first, second)
    assert pair.difference == pytest.approx(0.2)
    assert alone == ["Zoo, RoPE, consecutive: on the first side only"]


def test_where_several_could_be_partners_none_is_guessed():
    first = cells_of(scored("a", 50), scored("b", 50, encoding="alibi"))
    second = cells_of(
        scored("c", 70, encoding="t5"), scored("d", 70, encoding="sinusoidal")
    )
    found, alone = pairs(first, second)
    assert found == []
    assert len(alone) == 4


def test_scores_are_over_the_lengths_that_both_sides_have():
    rows = scored("b", 90)
    rows[4]["correct"] = 30  # at length 5
    (pair,), _ = pairs(cells_of(scored("a", 50, lengths=(1, 3, 5))), cells_of(rows))
    assert pair.lengths == (3, 5)
    assert pair.means == pytest.approx((0.5, 0.6))
    found, (line,) = pairs(
        cells_of(scored("a", 50, lengths=(1, 3))), cells_of(rows[3:])
    )
    assert found == []
    assert line.endswith("no length of the score is on both sides")


def test_the_command_compares_folders_and_parts_of_one(tmp_path, capsys):
    rand = {"positions": "randomized"}
    both = store(tmp_path / "one", *_seeds("a", 50, 52), *_seeds("b", 90, 92, **rand))
    again = store(tmp_path / "two", *_seeds("a", 40, 42))
    out = tmp_path / "table.csv"
    assert command.main([str(both), str(again), f"--out={out}"]) == 0
    shown = capsys.readouterr()
    assert "−10.0" in shown.out
    assert "RoPE, randomized: on the first side only" in shown.err
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert float(row["difference"]) == pytest.approx(-0.1)
    assert float(row["p"]) == pytest.approx(2 / 6)
    parts = ["--first=positions = 'consecutive'", "--second=positions = 'randomized'"]
    out = tmp_path / "table.json"
    assert command.main([str(both), *parts, f"--out={out}"]) == 0
    (row,) = json.loads(out.read_text())
    assert row["difference"] == pytest.approx(0.4)


def test_parts_of_a_study_are_chosen_by_fields_and_named_after_what_differs(
    tmp_path, capsys
):
    configs = {
        f"{name}{seed}": {
            "model": {"num_layers": layers, "causal": False},
            "optim": {"learning_rate": 1e-3},
            "train": {"seed": seed},
        }
        for name, layers in (("a", 2), ("b", 4))
        for seed in (0, 1)
    }
    groups = [*_seeds("a", 50, 52), *_seeds("b", 90, 92)]
    study = str(store(tmp_path / "one", *groups, configs=configs))
    same = "--first=optim.learning_rate=1e-3"  # as a number: it is written 0.001
    parts = ["--first=model.num_layers=2", "--second=model.num_layers='4'"]
    assert command.main([study, same, *parts]) == 0
    shown = capsys.readouterr().out
    assert "RoPE, consecutive, model.num_layers=2" in shown
    assert "RoPE, consecutive, model.num_layers=4" in shown
    assert "+40.0" in shown
    both = [*parts, "--second=train.seed=1", "--second=train.seed=0", "--second=rows>0"]
    assert command.main([study, *both]) == 0
    assert "+40.0" in capsys.readouterr().out
    for slip, said in {
        "model.num_layer=2": "no field 'model.num_layer'. Did you mean --first=model",
        "model.num_layers=3": "no run has that. model.num_layers is 2 or 4.",
        "model.causal=1": "no run has that. model.causal is False.",
        "model.num_layers >= 2": "asked for by itself, FIELD=VALUE",
    }.items():
        assert command.main([study, f"--first={slip}", "--second=model.causal=0"]) == 1
        assert said in capsys.readouterr().err
    one = ["--first=model.num_layers=2", "--first=train.seed=0"]
    other = ["--second=model.num_layers=4", "--second=model.causal=false"]
    assert command.main([study, *one, *other]) == 0


def test_losses_of_text_are_compared_in_nats_and_runs_chosen_by_their_titles(
    tmp_path, capsys
):
    """Of two methods that are right as often, one is surer of it."""
    on_text = lambda nats: {"loss": nats, "perplexity": np.exp(nats)}
    both = store(
        tmp_path,
        *(scored("a0", 50, title="no help", **on_text(2.5)),),
        *(scored("b0", 50, title="YaRN", **on_text(2.25)),),
        configs={
            "a0": {"title": "no help", "train": {"seed": 0}},
            "b0": {"title": "YaRN", "train": {"seed": 0}},
        },
    )
    sides = ["--first=title=no help", "--second=title='YaRN'"]
    assert command.main([str(both), *sides]) == 0
    assert "0.0" in capsys.readouterr().out
    assert command.main([str(both), *sides, "--score=loss"]) == 0
    table = capsys.readouterr().out
    assert "Second − first" in table
    assert all(text in table for text in ("2.500", "2.250", "−0.250"))


BOTH = ["--first=rows > 0", "--second=rows > 1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{one}"], "both sides share runs: name a SECOND folder"),
        (["{one}", "{one}/none"], "is not a folder"),
        (["{one}", "--first=rows > 0"], "both sides share runs"),
        (["{one}", "{one}", "--first=x("], "both sides share runs"),
        (["{one}", "{one}", "--out=a.xls"], "must end in one of .csv, .json, .md"),
        (["{one}", *BOTH[:1], "--second=task = 'x'"], "no evaluation row meets where"),
        (["{one}", *BOTH[:1], "--second=nonsense("], "is no condition on rows"),
        (["{one}", *BOTH, "--out={one}/none/a.csv"], "No such file or"),
    ],
)
def test_slips_are_told_in_a_line(tmp_path, capsys, words, message):
    store(tmp_path, *_seeds("a", 50))
    words = [word.format(one=tmp_path) for word in words]
    with contextlib.suppress(SystemExit):  # of argparse
        assert command.main(words) == 1
    assert message in capsys.readouterr().err
