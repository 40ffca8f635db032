r"""Recurrent networks and Transformers on the Chomsky-hierarchy tasks.

Reproduces: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (arXiv
2207.02098), table 2: RNN, Stack-RNN, Tape-RNN, LSTM, and the Transformer, whose column
is the best of five encodings: none, sinusoidal, relative (Transformer-XL), ALiBi and
RoPE; 15 tasks; trained on lengths 1 to 40 for 1,000,000 steps, scored on lengths 41 to
500; the best of 10 seeds and 3 learning rates.

    python -m experiments.study --config=configs/studies/deletang2022.py:form=mini \
        --workdir=runs/deletang_mini --workers=2
    python -m experiments.report runs/deletang_mini

Forms:

    full      4,050 runs of 1,000,000 steps: the protocol
    medium    405 runs of 100,000 steps, 3 seeds, one learning rate, every 9th length
    mini      18 runs of small models, 3 seeds: RNN, LSTM and Transformers without
              encoding and with RoPE on Parity Check, Stack-RNN and RoPE on Reverse
              String (which no Transformer can do that does not know places)

Cost, estimated from 1.6e10 operations a second of one x86-64 core (`--dry-run`): full
590,000 core-hours, medium 5,900, mini 0.26; of recurrent networks, whose steps wait for
each other, a fifth is counted. The mini form took 33 minutes of one worker on a machine
(AMD EPYC, two cores) that others used too. Not measured on a GPU. Measured, mini form,
3 seeds, % of symbols right beyond the trained lengths, and in brackets at them:

                   RNN        LSTM       Stack-RNN  no encoding  RoPE
    Parity Check   100 (100)  100 (100)             49.8 (56.3)  50.2 (56.6)
    Reverse String                       100 (100)               50.3 (88.1)
"""

from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from configs import arguments, deletang
from configs.studies import ruoss2023
from configs.sweep import product, union, zipped

FORMS = ("full", "medium", "mini")
ENCODINGS = ("none", "sinusoidal", "transformer_xl", "alibi", "rope")
MINI_LENGTHS = "1:40:3,40,50:100:10,125:200:25,250:500:50"
"""Half of those of ruoss2023's mini form: scoring took as long as training."""
MINI_TRANSFORMERS = (
    ("none", "parity_check"),
    ("rope", "parity_check"),
    ("rope", "reverse_string"),
)
MINI_RECURRENT = (
    ("rnn", "parity_check"),
    ("lstm", "parity_check"),
    ("stack_rnn", "reverse_string"),
)


def get_config(arg: str = "") -> ConfigDict:
    """Returns what all runs share.

    Args:
        arg: `form=full`, `medium` or `mini`.
    """
    form = _form(arg)
    config = ruoss2023.get_config(f"form={form}")
    config.study = f"deletang2022-{form}"
    config.positions.name = "consecutive"
    config.positions.options = ""
    config.positions.title = ""
    config.encoding.title = ""
    if form == "mini":
        config.train.batch_size = 32
        config.train.steps = 4000
        config.eval.lengths = MINI_LENGTHS
    return config


def get_sweep(arg: str = "") -> list[dict]:
    """Returns the fields that each run changes.

    Args:
        arg: as for `get_config`.
    """
    form = _form(arg)
    seeds = {"train.seed": range(10 if form == "full" else 3)}
    rates = {"optim.learning_rate": ruoss2023.LEARNING_RATES}
    if form == "mini":
        transformers = [
            {"task.name": task, "encoding.name": encoding, "encoding.options": ""}
            for encoding, task in MINI_TRANSFORMERS
        ]
        recurrent = [
            {"task.name": task} | dict(_recurrent(arg, architecture, "mini"))
            for architecture, task in MINI_RECURRENT
        ]
        return product(union(transformers, recurrent), seeds)
    options = [ruoss2023.ENCODING_OPTIONS.get(name, "") for name in ENCODINGS]
    encodings = {"encoding.name": ENCODINGS, "encoding.options": options}
    recurrent = [
        dict(_recurrent(arg, architecture, "full"))
        for architecture in deletang.ARCHITECTURES
    ]
    models = union(zipped(encodings), recurrent)
    again = seeds | (rates if form == "full" else {})
    return product({"task.name": ruoss2023.TASKS}, models, again)


def _recurrent(arg: str, architecture: str, size: str) -> Iterator[tuple[str, Any]]:
    """Yields the fields that make the study's model and training a recurrent one's."""
    ours = get_config(arg)
    theirs = deletang.get_config(f"architecture={architecture},size={size}")
    alter = ("encoding", "model", "optim", "train")
    same = ("train.steps_per_dispatch", "train.log_every", "train.save_every")
    if size == "full":  # a form has its own training, and sweeps learning rates
        same += ("train.steps", "optim.learning_rate")
    for group in alter:
        for field, value in theirs[group].items():
            name = f"{group}.{field}"
            if name not in (*same, "train.keep") and value != ours[group][field]:
                yield name, value


def _form(arg: str) -> str:
    form = arguments.parse(arg, form="mini")["form"]
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}.")
    return form
