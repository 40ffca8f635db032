"""The benchmark of an accelerator, tried at sizes that a CPU can do."""

import json

import pytest

from experiments.benchmark import accelerator


def test_a_part_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    def broken(small):
        """Broken."""
        raise RuntimeError("out of memory")

    monkeypatch.setitem(accelerator.PARTS, "steps", broken)
    out = tmp_path / "found.json"
    options = ["--small", "--parts=steps,attention,decoder", f"--out={out}"]
    found = accelerator.main(options)
    assert found["steps"] == {"failed": "RuntimeError: out of memory"}
    assert "skipped" in found["attention"]
    assert found["decoder"]["wall_s"] > 0
    assert found["decoder"]["compiled_mib"] > 0
    assert json.loads(out.read_text()) == found


@pytest.mark.fast
def test_without_an_accelerator_it_says_how_to_try_it(capsys):
    with pytest.raises(SystemExit):
        accelerator.main([])
    assert "--small" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        accelerator.main(["--small", "--parts=stepps"])
    assert "choose from" in capsys.readouterr().err


@pytest.mark.fast
def test_the_decoder_is_of_the_size_that_it_says():
    import jax

    recipe = accelerator.decoder_recipe(small=False)
    params = jax.eval_shape(recipe.model.init, jax.random.key(0))
    count = sum(x.size for x in jax.tree.leaves(params))
    assert 100e6 < count < 150e6, count
