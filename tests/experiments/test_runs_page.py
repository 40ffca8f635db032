"""The page on finished runs runs as it stands, block after block, on a small run."""

import pathlib
import re

import pytest
from rich.console import Console

from configs import che
from experiments.running.run import run_experiment

PAGE = (pathlib.Path(__file__).parents[2] / "docs/runs.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TINY = {
    "model.num_layers": 1,
    "model.embed_dim": 8,
    "model.num_heads": 2,
    "train.steps": 2,
    "train.batch_size": 2,
    "train.max_length": 12,
    "train.buckets": 1,
    "train.log_every": 1,
    "train.save_every": 2,
    "optim.warmup_steps": 0,
    "eval.lengths": "6,12",
    "eval.samples": 4,
    "eval.draws": 1,
}


def test_the_blocks_run_in_order(tmp_path, monkeypatch, capsys):
    config = che.get_config("task=reverse_string")
    config.update_from_flattened_dict(TINY)
    monkeypatch.chdir(tmp_path)
    run_experiment(config, "runs/reverse", console=Console(quiet=True))
    names = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, "runs.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "Reverse String 2 rope" in shown
    assert "hidden states [layers + 1, B, T, D]: (2, 8, 24, 8)" in shown
    assert "weights [layers, B, N, T, S]: (1, 8, 2, 24, 24)" in shown
    # 24 symbols are cut into quarters, which together are all of them.
    assert len(names["places"]) == 24
    quarters = names["places"].in_stretches(4)
    assert quarters.scored.tolist() == [6 * 32] * 4
    assert quarters.correct.sum() == names["score"].correct
    # Each row of weights is one query's.
    assert names["layers"].looked.sum(-1) == pytest.approx(1, abs=1e-5)
    assert names["best"].column("length").to_pylist() == [6, 12]
