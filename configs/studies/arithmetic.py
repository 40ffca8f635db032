r"""Addition beyond the trained number of digits, by what tells digits their place.

Reproduces: the comparisons of McLeish et al. 2024 (Abacus; arXiv 2405.17399), Cho et
al. 2024 (position coupling; arXiv 2405.20671), and Zhou et al. 2023 and 2024 (index
hints, FIRE with randomized positions; arXiv 2310.16028 and 2402.09371), with one model
and one budget, on sums written reversed, with the answer alone reversed, or not at all.
Their numbers are of larger models: 99.1% exact sums of unseen lengths for looped layers
with Abacus (secondary), 100% to 200 digits from 30 for position coupling (abstract).

    python -m experiments.study --config=configs/studies/arithmetic.py:form=mini \
        --workdir=runs/arithmetic_mini --workers=2
    python -m experiments.report runs/arithmetic_mini

Forms:

    full      108 runs: 12 ways to tell places, 3 orders of digits, 3 seeds; the model
              and training of configs/arithmetic.py, 10,000 steps, to 10 digits
    medium    36 runs of it: reversed digits
    loops     21 runs of it: Abacus beside NoPE, 4 layers, 2 applied twice, and 1 four
              times; trained after all loops, by the progressive loss (that of the
              looped models of McLeish et al.), and by half of each
    mini      18 runs of it, scored to 20 digits, 2,500 steps of 32 rows, 3 seeds: plain
              RoPE and NoPE, FIRE at randomized positions, and beside NoPE Abacus,
              position coupling, index hints

Cost, measured on two x86-64 cores (AMD EPYC) that others used too: mini 1.1 core-hours,
36 minutes, a run 2 to 7. By operations, at 1.6e10 a second of a core, mini takes 0.94,
loops 8, medium 16 and full 49 core-hours.
Measured, mini form, mean of three seeds: % of exact sums, and in brackets of digits:

    digits               10          12          14          16          20
    Abacus         100 (100)   68  (97)    53  (95)    42  (93)     9  (86)
    coupling       100 (100)   68  (97)    55  (96)    39  (93)    43  (93)
    hints            5  (80)    2  (73)     0  (65)     0  (57)     0  (21)
    RoPE             1  (47)    0  (19)     0  (15)     0  (12)     0  (10)
    FIRE             0  (25)    0  (25)     0  (23)     0  (20)     0  (18)
    NoPE             0  (27)    0  (25)     0  (21)     0  (20)     0  (18)
    blind guess        (18)       (17)        (17)        (14)        (14)

Without ids of digits, 2,500 steps do not suffice for sums of trained lengths either;
after 3,000 steps, Abacus had 34% of sums right at 20 digits and coupling 42%, and seeds
differed as much.
"""

from ml_collections import ConfigDict

from configs import arguments, arithmetic
from configs.sweep import product

FORMS = ("full", "medium", "loops", "mini")
ORDERS = ("reversed", "answer", "plain")
MINI_TESTED = 20
MINI = (
    ("plain", "rope"),
    ("plain", "none"),
    ("randomized", "fire"),
    ("abacus", "none"),
    ("coupled", "none"),
    ("hints", "none"),
)


def get_config(arg: str = "") -> ConfigDict:
    """Returns what all runs share.

    Args:
        arg: `form=full`, `medium`, `loops` or `mini`.
    """
    form = _form(arg)
    config = arithmetic.get_config()
    config.study = f"arithmetic-{form}"
    if form == "mini":
        config.optim.learning_rate = 3e-3
        config.train.steps = 2500
        config.train.batch_size = 32
        config.eval.lengths = f"2:{MINI_TESTED}:2"
        config.eval.buckets = f"{arithmetic.TRAINED},{MINI_TESTED}"
        config.eval.samples = 64
    return config


def get_sweep(arg: str = "") -> list[dict]:
    """Returns the fields that each run changes.

    Args:
        arg: as for `get_config`.
    """
    form = _form(arg)
    orders = ORDERS if form == "full" else ORDERS[:1]
    ways = MINI if form == "mini" else _ways()
    tested = MINI_TESTED if form == "mini" else arithmetic.TESTED
    points = [
        arithmetic.fields(method, base, order, tested)
        for order in orders
        for method, base in ways
    ]
    seeds = {"train.seed": range(3)}
    if form == "loops":
        return product([arithmetic.fields("abacus", "none")], _loops(), seeds)
    return product(points, seeds)


def _loops() -> list[dict]:
    """Four layers in all, with fewer and fewer parameters, and how they are trained."""
    shapes = {"2 layers twice": (2, 2), "1 layer four times": (1, 4)}
    losses = {0.0: "", 0.5: ", half progressive", 1.0: ", progressive"}
    points = [("4 layers", 4, 1, 0.0)]
    points += [
        (shape + loss, layers, loops, weight)
        for shape, (layers, loops) in shapes.items()
        for weight, loss in losses.items()
    ]
    names = ("title", "model.num_layers", "model.loops", "train.progressive_weight")
    return [dict(zip(names, point, strict=True)) for point in points]


def _ways() -> list[tuple[str, str]]:
    """Methods and base encodings that go together."""
    with_base = ("plain", "randomized", "abacus", "hints")
    pairs = [(method, base) for method in with_base for base in arithmetic.BASES]
    # Without any encoding there is nothing for positions to change.
    pairs.remove(("randomized", "none"))
    return [*pairs, ("coupled", "none")]


def _form(arg: str) -> str:
    form = arguments.parse(arg, form="mini")["form"]
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}.")
    return form
