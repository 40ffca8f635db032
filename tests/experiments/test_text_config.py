"""Language models by config: one run, scored beyond its length, with perplexity."""

import io
import math
import pathlib
import re
import types

import pytest
from rich.console import Console

from configs import text
from experiments.building.build import build
from experiments.evaluate import evaluate_run
from experiments.running.opening import read_run
from experiments.running.run import run_experiment
from ropejax.nn import GatedMLP, RMSNorm, TiedReadout
from ropejax.tasks import MaskedText, NextSymbol
from ropejax.tasks.text import file_bytes


@pytest.mark.fast
def test_each_task_has_the_model_that_it_is_for(tmp_path):
    follows = build(text.get_config("encoding=alibi")).recipe
    assert follows.task == NextSymbol()
    assert follows.model.dims.causal
    hidden = build(text.get_config("task=masked_text,positions=randomized")).recipe
    assert hidden.task == MaskedText()
    assert not hidden.model.dims.causal
    file = tmp_path / "own text.txt"
    file.write_text("words, and more words. " * 500)
    own = build(text.get_config(f"text={file}")).recipe
    assert own.task == NextSymbol(path=str(file))
    assert own.model.num_outputs == 256
    with pytest.raises(ValueError, match="task must be one of next_symbol, masked"):
        text.get_config("task=copy")
    llama = build(text.get_config("layers=llama")).recipe.model
    assert (llama.settings.norm, llama.settings.mlp) == (RMSNorm(), GatedMLP())
    assert (llama.readout, llama.embedding_scale) == (TiedReadout(), 1.0)
    assert llama.settings.mlp_dim == 168  # of 64 channels
    with pytest.raises(ValueError, match="layers must be one of plain, llama"):
        text.get_config("layers=lama")


def test_a_text_that_has_changed_is_not_trained_or_scored_on(tmp_path, monkeypatch):
    """Lines that were added moved what is held out into what is trained on."""
    file, folder = tmp_path / "text.txt", tmp_path / "run"
    file.write_text("words, and more words. " * 500)
    config = text.get_config(f"text={file}")
    reached = RuntimeError("training")

    def stop(*arguments):
        raise reached

    monkeypatch.setattr("experiments.running.run.train_run", stop)
    opened = lambda folder, mesh: (read_run(folder), types.SimpleNamespace(step=0))
    monkeypatch.setattr("experiments.evaluate.open_run", opened)
    train = lambda: run_experiment(config, folder, console=Console(quiet=True))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="training"):
            train()
    file.write_text("words, and more words. " * 501)
    file_bytes.cache_clear()
    told = r"is not the text that .* trained on \(11500 bytes then, 11523 now\)"
    with pytest.raises(ValueError, match=told):
        train()
    with pytest.raises(ValueError, match=told):
        evaluate_run(folder, console=Console(quiet=True))
    file_bytes.cache_clear()


def test_a_run_reports_perplexity_by_length(tmp_path):
    config = text.get_config("encoding=alibi")
    small = {
        "model.num_layers": 1,
        "model.embed_dim": 8,
        "model.num_heads": 2,
        "optim.warmup_steps": 0,
        "train.steps": 4,
        "train.batch_size": 4,
        "train.max_length": 8,
        "eval.lengths": "8,12",
        "eval.buckets": "12",
        "eval.samples": 8,
        "eval.draws": 1,
    }
    config.update_from_flattened_dict(small)
    printed = io.StringIO()
    run_experiment(config, pathlib.Path(tmp_path), console=Console(quiet=True))
    console = Console(file=printed, width=200)
    scores = evaluate_run(tmp_path, lengths_text="8,12", console=console)
    line = re.search(r"perplexity by length: 8: (\S+), 12: (\S+)", printed.getvalue())
    for found, score in zip(line.groups(), scores.values(), strict=True):
        assert float(found) == pytest.approx(math.exp(score.mean_loss), rel=1e-3)
        assert 1 < float(found) < 40  # 16 equally likely symbols, roughly
        assert score.scored == score.outputs == 8 * score.length
