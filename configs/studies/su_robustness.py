r"""How positions are spread, and log n: length extrapolation as position robustness.

Reproduces: the comparisons of Su 2023, "Length extrapolation and position robustness"
(spaces.ac.cn/archives/9444), on two tasks of the benchmark that the article starts
from: randomized positions, tested at random and at evenly spaced ones (which it finds
generally better); "equal-mean" positions in training, whose mean range is the row's own
length, tested at consecutive ones; each with and without scaling queries by log n. The
article gives no numbers for these tasks.

    python -m experiments.study --config=configs/studies/su_robustness.py:form=mini \
        --workdir=runs/su_mini --workers=2
    python -m experiments.report runs/su_mini

Forms:

    full      360 runs of 1,000,000 steps: model and training of ruoss2023.py, 10
              seeds, 3 learning rates
    medium    36 runs of 100,000 steps, 3 seeds, one learning rate
    mini      36 runs of a small model, 3 seeds

Cost, estimated from 1.6e10 operations a second of one x86-64 core (`--dry-run`): full
56,000 core-hours, medium 560, mini 1.0 (half an hour on two cores). Not measured on a
GPU.
"""

from ml_collections import ConfigDict

from configs import arguments
from configs.studies import ruoss2023
from configs.sweep import product, union, zipped

FORMS = ("full", "medium", "mini")
TASKS = ("even_pairs", "reverse_string")
PLAIN = {"encoding.name": "rope", "encoding.options": "", "encoding.title": "RoPE"}
SCALED = {
    "encoding.name": "compose",
    "encoding.options": (
        "rope=Rotary(), scale=LogScale(form=trained, count=all, least=2)"
    ),
    "encoding.title": "RoPE, log n",
}


def get_config(arg: str = "") -> ConfigDict:
    """Returns what all runs share.

    Args:
        arg: `form=full`, `medium` or `mini`.
    """
    form = _form(arg)
    config = ruoss2023.get_config(f"form={form}")
    config.study = f"su_robustness-{form}"
    config.positions.as_published = False
    if form == "mini":
        config.train.batch_size = 32
    return config


def get_sweep(arg: str = "") -> list[dict]:
    """Returns the fields that each run changes.

    Args:
        arg: as for `get_config`.
    """
    form = _form(arg)
    what = {"task.name": TASKS}
    if form == "mini":
        what["train.steps"] = [6000, 2100]
    again = {"train.seed": range(10 if form == "full" else 3)}
    if form == "full":
        again["optim.learning_rate"] = ruoss2023.LEARNING_RATES
    return product(zipped(what), [PLAIN, SCALED], _schemes(), again)


def _schemes() -> list[dict]:
    """Positions in training, each with those at test time."""
    plain = {
        "positions.name": ["consecutive"],
        "positions.options": [""],
        "eval.positions": [None],
    }
    spread = {
        "positions.name": ["randomized", "equal_mean"],
        "positions.options": ["per_sequence=True", ""],
    }
    tested = {
        "randomized": [None, "evenly_spaced"],
        "equal_mean": [None, "consecutive"],
    }
    return union(
        product(plain),
        *(
            product([point], {"eval.positions": tested[point["positions.name"]]})
            for point in zipped(spread)
        ),
    )


def _form(arg: str) -> str:
    form = arguments.parse(arg, form="mini")["form"]
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}.")
    return form
