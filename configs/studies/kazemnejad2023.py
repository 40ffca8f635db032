r"""Decoder-only models without positions, against four encodings, on small tasks.

Reproduces: Kazemnejad et al. 2023, "The impact of positional encoding on length
generalization in transformers" (arXiv 2305.19466): no encoding (NoPE), sinusoidal,
T5's bias, ALiBi and RoPE; copy and its variants, reverse, sort, summation, polynomials,
LEGO, and addition and parity with and without a scratchpad; trained on lengths 1 to 20,
scored on 1 to 40, 3 seeds.
The paper shows figures only: NoPE ranks first on average over its 10 tasks, T5 next,
then ALiBi, RoPE and sinusoidal; of its scratchpads only that of addition helps.

    python -m experiments.study --config=configs/studies/kazemnejad2023.py:form=mini \
        --workdir=runs/kazemnejad_mini --workers=2
    python -m experiments.report runs/kazemnejad_mini

Forms:

    full      210 runs of the published model (107M parameters), 40,000 steps
    medium    210 runs of a model of 4 layers, 5,000 steps
    mini      45 runs of a model of 2 layers on lengths 1 to 8, scored on 1 to 16: 3
              tasks, 5 encodings, 3 seeds

Cost, measured on an x86-64 core (AMD EPYC) that others used too: mini 0.46 core-hours.
By operations, at 1.6e10 a second of a core (`--dry-run` counts them), mini takes 0.17,
medium 48 and full 141,000 core-hours; if larger models were as slow as small ones, 2.7
times that, which is a matter for accelerators. Not measured on a GPU. Measured, mini
form, mean of three seeds: % of decoded symbols right at lengths 9 to 16, and at 1 to 8
in brackets:

                              NoPE       T5    ALiBi     RoPE  sinusoidal   blind
    copy                   48 (95) 41 (100)  65 (99) 53 (100)    35 (100)      25
    parity                 62 (99)  59 (96) 61 (100)  50 (88)     51 (98)      49
    parity, scratchpad     53 (90)  51 (98)  51 (93)  52 (99)    51 (100)      49

Of the published order, that sinusoidal positions are last shows here; that NoPE is
first of all does not, in three tasks of a model so small.

The paper's tasks on sentences, SCAN and PCFG, are not among these. Lengths are symbols,
but for addition, where they are digits, and scores are of decoded answers: each symbol,
and whole answers.
"""

from ml_collections import ConfigDict

from configs import arguments, decoder
from configs.sweep import product, zipped

FORMS = ("full", "medium", "mini")
ENCODINGS = ("none", "sinusoidal", "t5", "alibi", "rope")
TASKS = (
    ("copy", "vocab_size=16"),
    ("copy", "vocab_size=16, content=runs"),
    ("copy", "vocab_size=64, content=unique"),
    ("reverse_string", "vocab_size=16"),
    ("addition", "order=plain, widths=zeros"),
    ("addition", "order=answer, widths=zeros"),
    ("sort", "base=16, width=1"),
    ("summation", ""),
    ("polynomial", ""),
    ("lego", "num_variables=26"),
    ("parity_check", ""),
    ("parity_scratchpad", "scored=answer"),
    ("parity_scratchpad", "copy_input=True, scored=answer"),
    ("addition_scratchpad", "widths=zeros, scored=answer"),
)
"""Names and settings; scratchpads are scored by the answer alone, as the plain task."""

MINI_TASKS = (
    ("copy", "vocab_size=4"),
    ("parity_check", ""),
    ("parity_scratchpad", "scored=answer"),
)


def get_config(arg: str = "") -> ConfigDict:
    """Returns what all runs share.

    Args:
        arg: `form=full`, `medium` or `mini`.
    """
    form = _form(arg)
    config = decoder.get_config(f"size={'published' if form == 'full' else 'small'}")
    config.study = f"kazemnejad2023-{form}"
    config.train.save_every = 1000
    config.train.keep = 1
    if form == "mini":
        config.model.num_layers = 2
        config.model.embed_dim = 32
        config.optim.learning_rate = 3e-3
        config.train.max_length = 8
        config.train.buckets = 1
        config.train.batch_size = 32
        config.train.steps = 3000
        config.eval.lengths = "1:16"
        config.eval.buckets = "8,16"
    return config


def get_sweep(arg: str = "") -> list[dict]:
    """Returns the fields that each run changes.

    Args:
        arg: as for `get_config`.
    """
    form = _form(arg)
    tasks = MINI_TASKS if form == "mini" else TASKS
    names, options = zip(*tasks, strict=True)
    return product(
        zipped({"task.name": names, "task.options": options}),
        {"encoding.name": ENCODINGS},
        {"train.seed": range(3)},
    )


def _form(arg: str) -> str:
    form = arguments.parse(arg, form="mini")["form"]
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}.")
    return form
