r"""RoPE extended without training: one checkpoint under every method, by length.

Reproduces: the question that papers on extending RoPE begin with, as a table: what
is the perplexity of a pretrained model beyond its trained length, as it is and under
position interpolation (Chen et al. 2023, arXiv 2306.15595), NTK-aware scaling, YaRN
(Peng et al. 2023, 2309.00071), ReRoPE and Leaky ReRoPE (Su 2023,
spaces.ac.cn/archives/9708), Self-Extend (Jin et al. 2024, 2401.01325), dual chunks
(An et al. 2024, 2402.17463), StreamingLLM (Xiao et al. 2023, 2309.17453), LM-Infinite
(Han et al. 2023, 2308.16137), queries scaled by log n, and no positions (DroPE without
its recalibration, 2512.12167)? Each paper answers with models and texts of its own.

    python -m experiments.tokens --checkpoint=DIR --text=book.txt --out=tokens.npy
    python -m experiments.study --workdir=runs/extension --config=\
    configs/studies/extension.py:checkpoint=DIR,text=tokens.npy,scale=2
    python -m experiments.report runs/extension

Lengths go from N / 4 to `scale` N, the checkpoint's trained length being N tokens;
methods are set for that. Windows and chunks are those that their authors take: N / 2
for ReRoPE and Self-Extend, 3/4 and 1/8 of N for dual chunks. Nothing is trained, so a
run is its scores: each of `samples` windows of the text at each length. What encodings
do to layers without RoPE, and a checkpoint's own extension: configs/pretrained.py.

Cost: reading the text as often as there are methods. On SmolLM2-135M, trained on 8,192
tokens, with `samples=1,scale=2`: 48 minutes of two shared x86-64 cores. Measured, the
perplexity of 16,384 tokens: as trained 23.6; queries times log n 24.0; interpolation
26.7; first tokens and a window 13.7; NTK and dynamic NTK 8.45; YaRN 8.27; ReRoPE 8.08,
dual chunks 8.06, and Leaky ReRoPE, Self-Extend and LM-Infinite 8.04; no positions 390.
"""

from ml_collections import ConfigDict

from configs import arguments, pretrained
from configs.sweep import product


def get_config(arg: str = "") -> ConfigDict:
    """Returns what all runs share.

    Args:
        arg: `checkpoint=DIR,text=FILE`, and perhaps `trained=TOKENS`, where that is
            not as the checkpoint's config says, `scale=2` and `samples=4`.
    """
    chosen, trained, scale = _chosen(arg)
    config = pretrained.get_config(
        f"checkpoint={chosen['checkpoint']},text={chosen['text']},trained={trained}"
    )
    config.study = "extension"
    lengths = [trained // 4, trained // 2, trained]
    lengths += [trained * (2 + part) // 2 for part in range(1, 2 * (scale - 1) + 1)]
    config.eval.lengths = ",".join(map(str, lengths))
    config.eval.buckets = config.eval.lengths
    config.eval.samples = arguments.whole("samples", chosen["samples"])
    return config


def get_sweep(arg: str = "") -> list[dict]:
    """Returns the fields that each run changes.

    Args:
        arg: as for `get_config`.
    """
    _, trained, scale = _chosen(arg)
    half = trained // 2
    slower = 2 * scale - 1  # (scale N - N / 2) / (N - N / 2): all within N
    window = f"Lambda(4, {trained - 4})"
    log_n = f"rope=Rotary(), scale=LogScale(train_length={trained})"
    return product(
        [
            _method("as trained", "pretrained"),
            _method("position interpolation", "position_interpolation", scale=scale),
            _method("NTK-aware", "ntk", scale=scale),
            _method("dynamic NTK", "dynamic_ntk", train_length=trained),
            _method("YaRN", "yarn", scale=scale, train_length=trained),
            _method("ReRoPE", "rope", distance=f"Rectified({half})"),
            _method("Leaky ReRoPE", "rope", distance=f"Leaky({half}, factor={slower})"),
            _method("Self-Extend", "rope", distance=f"Grouped({half}, {slower})"),
            _method(
                "dual chunks",
                "rope",
                distance=f"Chunked({3 * trained // 4}, {trained // 8})",
            ),
            _method("first tokens and a window", "pretrained", mask=window),
            _method(
                "LM-Infinite",
                "rope",
                mask=window,
                distance=f"Rectified({trained - 4})",
            ),
            _method("log n", "compose", text=log_n),
            _method("no positions", "none"),
        ]
    )


def _method(title: str, name: str, *, mask: str = "", text: str = "", **settings):
    """The fields of one method."""
    options = ", ".join(f"{name}={value}" for name, value in settings.items())
    return {
        "title": title,
        "encoding.name": name,
        "encoding.options": text or options,
        "model.mask": mask,
    }


def _chosen(arg: str) -> tuple[dict[str, str], int, int]:
    chosen = arguments.parse(
        arg, checkpoint="", text="", trained="", scale="2", samples="4"
    )
    trained = pretrained.trained_on(chosen)
    scale = arguments.whole("scale", chosen["scale"])
    if trained % 8 or scale < 2:
        raise ValueError(
            "trained must be a multiple of 8 tokens, and scale at least 2, got "
            f"trained={trained} and scale={scale}."
        )
    return chosen, trained, scale
