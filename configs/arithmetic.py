r"""Addition of numbers longer than those trained on, by a looped decoder.

Reproduces: the recipe of McLeish et al. 2024, "Transformers can do arithmetic with the
right embeddings" (arXiv 2405.17399): numbers least significant digit first, a decoder
whose layers are looped with the input injected, Abacus digits beside another encoding.
The paper reports 92.9% exact sums of unseen lengths for Abacus with input injection and
99.1% with looped layers (secondary; to 100 digits from 20, on one GPU for a day). Here
the model is small: numbers to 10 digits in training, to 30 in the test. Expected is the
paper's order: digits' ids (`abacus`, `coupled`) past the trained lengths, FIRE and RoPE
little beyond them; measured in the mini form of configs/studies/arithmetic.py, where
after 2,500 steps of 32 sums to 10 digits Abacus and NoPE had 53% of sums of 14 digits
right, and RoPE none from 12 on.

The paper's looped models are trained by the progressive loss, which here is off unless
asked for: `--config.train.progressive_weight=1.0`, and with half of the loops learning,
as in its code, `--config.train.gradient_loops=1`.

    python -m experiments.main --workdir=runs/abacus \
        --config=configs/arithmetic.py:method=abacus,base=none

Methods, each beside a base encoding (rope, fire or none), but for `coupled`:

    plain         the base encoding at consecutive positions
    randomized    the base encoding at randomized positions (with FIRE: Zhou et al.
                  2024, arXiv 2402.09371, which adds index hints)
    abacus        a learned vector for each digit's place in its number, ids moved by a
                  random offset in training (McLeish et al. 2024)
    coupled       learned positions that digits of equal significance share (Cho et al.
                  2024, arXiv 2405.20671)
    hints         plain, with a symbol for its significance before each digit (Zhou et
                  al. 2023, arXiv 2310.16028)

Lengths are digits: 30 is sums of two numbers of up to 30 digits, one of them with 30,
padded with zeros.
"""

from ml_collections import ConfigDict

from configs import arguments, base

METHODS = ("plain", "randomized", "abacus", "coupled", "hints")
BASES = {"rope": "Rotary()", "fire": "FIRE(threshold=32.0)", "none": ""}
"""Encodings beside which methods stand. FIRE's threshold is its length scale: that of
training, in place of the paper's 512 for its contexts of 2,048."""

AS_LARGE = "init_std=0.125"
"""Tables of digits start as large as embeddings are here, rather than at 0.02."""

TRAINED, TESTED = 10, 30


def get_config(arg: str = "") -> ConfigDict:
    """Returns the config of one method.

    Args:
        arg: any of `method=NAME,base=NAME,order=reversed`, the order that of
            `ropejax.tasks.Addition`: "reversed", "answer" or "plain".
    """
    chosen = arguments.parse(arg, method="abacus", base="none", order="reversed")
    config = base.get_config()
    config.study = "arithmetic"
    config.task.name = "addition"
    model(config)
    train(config)
    for name, value in fields(**chosen).items():
        config.update_from_flattened_dict({name: value})
    return config


def fields(
    method: str, base: str, order: str = "reversed", tested: int = TESTED
) -> dict[str, str]:
    """Returns the fields in which methods differ, by name.

    Args:
        method: one of `METHODS`.
        base: one of `BASES`.
        order: of digits.
        tested: digits of the longest numbers in the test, for which there are ids; each
            way to count digits has about as many ids, all of which are trained.

    Raises:
        ValueError: for an unknown name.
    """
    for name, known in (("method", METHODS), ("base", tuple(BASES))):
        given = {"method": method, "base": base}[name]
        if given not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(known)}, got {given!r}."
            )
    task = f"order={order}, widths=zeros"
    title = {"rope": "RoPE", "fire": "FIRE", "none": "NoPE"}[base]
    named = f"base={BASES[base]}" if BASES[base] else ""
    point = {
        "task.options": task,
        "encoding.name": "compose" if named else "none",
        "encoding.options": named,
        "encoding.title": title,
        "positions.name": "consecutive",
        "positions.options": "",
        "positions.title": "",
        "eval.positions": None,
        "eval.options": "",
    }
    if method == "randomized":
        return point | {
            "positions.name": "randomized",
            "positions.options": "max_position=256, per_sequence=True",
            "positions.title": "randomized",
        }
    if method == "abacus":
        digits = f"digits=Learned(stream=digit, max_position=256, {AS_LARGE})"
        return point | {
            "encoding.name": "compose",
            "encoding.options": ", ".join(filter(None, (digits, named))),
            "encoding.title": f"Abacus and {title}",
            "positions.name": "abacus",
            "positions.options": f"max_offset={tested - TRAINED}, per_sequence=True",
            "positions.title": "digits' places",
            "eval.positions": "abacus",
            "eval.options": "max_offset=0",
        }
    if method == "coupled":
        least_first = order == "reversed"
        return point | {
            "encoding.name": "learned",
            "encoding.options": f"max_position={tested + 5}, {AS_LARGE}",
            "encoding.title": "Position coupling",
            "positions.name": "coupled",
            "positions.title": "coupled",
            "positions.options": (
                f"max_position={tested + 4}, operands_least_first={least_first}, "
                f"answer_least_first={order != 'plain'}"
                + (", last_unread=True" if order == "plain" else "")
            ),
        }
    if method == "hints":
        return point | {
            "task.options": f"{task}, num_hints={tested + 4}",
            "encoding.title": f"{title}, index hints",
        }
    return point


def model(config: ConfigDict) -> None:
    """Sets a small looped decoder: two layers, twice, the input added to each."""
    config.model.kind = "decoder"
    config.model.num_layers = 2
    config.model.loops = 2
    config.model.input_injection = "layer"
    config.model.embed_dim = 64
    config.model.num_heads = 4
    config.model.activation = "gelu"
    config.model.pre_norm = True
    config.model.dropout = 0.0


def train(config: ConfigDict) -> None:
    """Sets lengths, steps and how sums are scored."""
    config.positions.as_published = False
    config.optim.learning_rate = 1e-3
    config.optim.b2 = 0.98
    config.optim.warmup_steps = 300
    config.optim.final_fraction = 0.1
    config.train.steps = 10_000
    config.train.batch_size = 64
    config.train.max_length = TRAINED
    config.train.buckets = 2
    config.train.save_every = 1000
    config.train.keep = 1
    config.eval.lengths = f"1:{TRAINED},12:{TESTED}:2"
    config.eval.buckets = f"{TRAINED},{2 * TRAINED},{TESTED}"
    config.eval.samples = 128
    config.eval.draws = 4
