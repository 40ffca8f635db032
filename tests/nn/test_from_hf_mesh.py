"""A checkpoint is read onto a mesh: each device has its part, and reads no more."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from ropejax.nn.from_hf import decoder_from_hf, open_checkpoint
from ropejax.sharding import Sharding, make_mesh
from tests.nn.hf_checkpoints import checkpoint_of, config_of

# Grouped heads, layers of two kinds, one projection of all queries, keys and values
# head by head, gains that are kept less one.
CASES = ("llama", "gemma2", "gpt_neox", "gpt2", "phi3")


@pytest.mark.parametrize("model_type", CASES)
def test_parameters_on_a_mesh_are_those_on_one_device(model_type, monkeypatch):
    config = config_of(model_type)
    tensors = checkpoint_of(config)
    _, wanted = decoder_from_hf(config, tensors)
    sharding = Sharding(make_mesh({"fsdp": 2, "data": 4}))
    moved, put = [], jax.device_put

    def seen(x, device):
        moved.append(np.asarray(x).nbytes)
        return put(x, device)

    monkeypatch.setattr(jax, "device_put", seen)
    spec, params = decoder_from_hf(config, tensors, shardings=sharding.parameters)
    monkeypatch.undo()
    asked = sharding.parameters(spec, wanted)
    cut = 0
    leaves = map(jax.tree.leaves, (params, wanted, asked))
    for one, whole, place in zip(*leaves, strict=True):
        assert one.sharding == place
        np.testing.assert_array_equal(one, whole)
        cut += one.addressable_shards[0].data.shape != whole.shape
    assert cut > 5
    # No host array is larger than what one device holds of one parameter.
    held = [leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(params)]
    assert sorted(moved) == sorted(held * 8)


def test_a_file_that_is_none_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama")))
    (tmp_path / "model.safetensors").write_text("version https://git-lfs\n" * 5)
    with pytest.raises(ValueError, match=r"model\.safetensors is no whole file of"):
        open_checkpoint(tmp_path)


def test_arrays_of_a_folder_are_mapped_and_not_copied(tmp_path):
    config = config_of("llama")
    tensors = checkpoint_of(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors")
    _, stored = open_checkpoint(tmp_path)
    for name, array in tensors.items():
        assert isinstance(stored[name], np.memmap)
        assert stored[name].dtype == array.dtype
        np.testing.assert_array_equal(stored[name], array)
    sharding = Sharding(make_mesh({"fsdp": 4, "tensor": 2}))
    _, params = decoder_from_hf(config, stored, shardings=sharding.parameters)
    _, wanted = decoder_from_hf(config, tensors)
    jax.tree.map(np.testing.assert_array_equal, params, wanted)
