r"""How positions are spread, and log n: length extrapolation as position robustness.

Reproduces: the comparisons of Su 2023, "Length extrapolation and position robustness"
(spaces.ac.cn/archives/9444): randomized positions, tested at random and at evenly
spaced ones (which it finds generally better); "equal-mean" positions in training, whose
mean range is the row's own length, tested at consecutive ones; each with and without
scaling queries by log n. The tasks are two of the benchmark that the article starts
from, and masked language modelling, as there trained on 64 symbols and tested to 512:
of text in a made-up language (ropejax/tasks/language.py), or of a file of your own. The
article gives no numbers for these; it finds equal-mean positions with log n best.

    python -m experiments.study --config=configs/studies/su_robustness.py:form=mini \
        --workdir=runs/su_mini --workers=2
    python -m experiments.report runs/su_mini

On a text of your own: `--config=configs/studies/su_robustness.py:form=mini,text=FILE`.

Forms:

    full      540 runs of 1,000,000 steps: model and training of ruoss2023.py, 10
              seeds, 3 learning rates
    medium    54 runs of 100,000 steps, 3 seeds, one learning rate
    mini      54 runs of a small model, 3 seeds

Cost, measured on two x86-64 cores (AMD EPYC) that others used too: mini 1.1 core-hours,
37 minutes. By operations, at 1.6e10 a second of a core (`--dry-run`), mini takes 1.0,
medium 1,040 and full 104,000 core-hours. Not measured on a GPU. Measured, mini form,
mean of three seeds: % of symbols right beyond the trained lengths, without and with
log n:

    trained, and tested, at         even_pairs  reverse_string  masked_text
    consecutive                    50.3   50.4     51.0   50.8  52.2   50.7
    randomized, random             84.4   99.8     57.1   55.9  49.1   50.3
    randomized, evenly spaced      87.4  100.0     57.4   56.3  55.8   57.0
    equal-mean, consecutive        50.4   49.9     52.7   52.4  59.7   54.7
    equal-mean, equal-mean         52.3   50.1     53.7   52.8  53.4   50.8
    blind guess                    51.2            49.9         16.8

Evenly spaced positions at test are better than random ones in every column, and
equal-mean training is best on text, as in the article. Without log n one seed of three
learns Even Pairs at randomized positions wholly, and with it all three do; of the same
runs on another machine one of three was not learned either way: so small a difference
as that of rounding decides there.
"""

from ml_collections import ConfigDict

from configs import arguments
from configs.studies import deletang2022, ruoss2023
from configs.sweep import product, union, zipped

FORMS = ("full", "medium", "mini")
TASKS = {"even_pairs": 4500, "reverse_string": 1700, "masked_text": 2000}
"""Tasks, and steps of the mini form, for which half an hour has time."""
TEXT_TRAINED, TEXT_TESTED = 64, "64:128:16,160:256:32,320:512:64"
"""Lengths of text in training, and in the test."""
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
        arg: `form=full`, `medium` or `mini`; and `text=FILE`, a text to mask.
    """
    form, _ = _chosen(arg)
    config = ruoss2023.get_config(f"form={form}")
    config.study = f"su_robustness-{form}"
    config.positions.as_published = False
    if form == "mini":
        config.train.batch_size = 32
        config.eval.samples = 32
        config.eval.lengths = deletang2022.MINI_LENGTHS
    return config


def get_sweep(arg: str = "") -> list[dict]:
    """Returns the fields that each run changes.

    Args:
        arg: as for `get_config`.
    """
    form, text = _chosen(arg)
    again = {"train.seed": range(10 if form == "full" else 3)}
    if form == "full":
        again["optim.learning_rate"] = ruoss2023.LEARNING_RATES
    tasks = [_task(name, form, text) for name in TASKS]
    return product(tasks, [PLAIN, SCALED], _schemes(), again)


def _task(name: str, form: str, text: str) -> dict:
    """The fields of a task: text has lengths of its own."""
    fields = {"task.name": name}
    if form == "mini":
        fields["train.steps"] = TASKS[name]
    if name == "masked_text":
        fields |= {
            "task.options": f"path={text!r}" if text else "",
            "train.max_length": TEXT_TRAINED,
            "train.curriculum": "fixed",
            "train.buckets": 1,
            "eval.lengths": TEXT_TESTED,
            "eval.buckets": "64,128,256,512",
        }
    return fields


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


def _chosen(arg: str) -> tuple[str, str]:
    chosen = arguments.parse(arg, form="mini", text="")
    if chosen["form"] not in FORMS:
        raise ValueError(
            f"form must be one of {', '.join(FORMS)}, got {chosen['form']!r}."
        )
    return chosen["form"], chosen["text"]
