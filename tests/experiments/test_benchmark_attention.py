"""The benchmark of attention runs at tiny sizes, and says what it left out."""

import pytest

from experiments.benchmark import attention as benchmark
from experiments.benchmark import attention_gpu as on_gpu
from ropejax.attention.capabilities import obstacle
from ropejax.attention.requests import Request
from ropejax.encodings import ALiBi, Encoding, Rotary
from ropejax.masks import Causal


def test_the_benchmark_compares_and_reports(capsys):
    found = benchmark.main(["--lengths=16", "--only-jax-nn", "--longest=64"])
    row = found["beside jax.nn"][16]
    assert set(row) == {"forward", "gradient"}
    ours = row["gradient"]["blockwise"]
    assert ours["of_peak"] == ours["gflops"] / 157
    longest = found["longest"]
    assert longest["length"] == 64
    assert longest["memory_growth"] > 1
    assert longest["peak_memory_mib"] > 10
    assert found["gpu"] == {
        "skipped": "this section needs an NVIDIA GPU, and JAX has cpu"
    }
    assert "16" in capsys.readouterr().err


@pytest.mark.fast
@pytest.mark.parametrize(
    "option",
    [*(f"--lengths={given}" for given in ("a", "", "0", "8,-5")), "--longest=x"],
)
def test_lengths_that_are_none_are_refused(option, capsys):
    with pytest.raises(SystemExit):
        benchmark.main([option])
    assert "must be a positive number of tokens" in capsys.readouterr().err


def test_the_long_option_is_the_length_that_is_promised(monkeypatch):
    monkeypatch.setattr(benchmark, "beside_jax_nn", lambda length: {})
    monkeypatch.setattr(benchmark, "forward_alone", lambda length: length)
    monkeypatch.setattr(benchmark, "show", lambda result: None)
    options = ["--lengths=16", "--only-jax-nn"]
    assert benchmark.main([*options, "--long"])["longest"] == 131_072
    assert "longest" not in benchmark.main(options)


def test_what_is_measured_on_a_gpu_is_what_the_engines_serve_there():
    sizes = on_gpu.Sizes()
    for encoding, engine in (
        (Encoding(), "fused"),
        (Rotary(), "fused"),
        (ALiBi(), "fused"),
        (ALiBi(), "pallas"),
    ):
        request = Request(
            encoding,
            Causal(),
            platform="gpu",
            dtype="bfloat16",
            num_queries=sizes.length,
            num_keys=sizes.length,
            view_width=sizes.width,
            value_width=sizes.width,
        )
        assert not obstacle(engine, request)
    assert set(on_gpu.GOALS) < set(on_gpu.programs(sizes))
