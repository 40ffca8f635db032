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
    mini      18 runs of it, scored to 20 digits, 3,000 steps of 32 rows, 3 seeds: plain
              RoPE and NoPE, FIRE at randomized positions, and beside NoPE Abacus,
              position coupling, index hints

Cost, measured on an x86-64 core (AMD EPYC) that others used too: mini 1.8 core-hours, a
run 3 to 11 minutes. By operations, at 1.6e10 a second of a core, mini takes 1.1, loops
8, medium 16 and full 49 core-hours; scaled by what mini took, 1.6 times that.
Measured, mini form, mean of three seeds: % of exact sums, and in brackets of digits:

    digits               10          12          14          16          20
    Abacus         100 (100)  96 (100)    79  (98)    58  (96)    34  (93)
    coupling       100 (100)  66  (96)    54  (94)    43  (91)    42  (90)
    hints           26  (89)  14  (82)     4  (68)     0  (52)     0  (18)
    RoPE             2  (50)   0  (23)     0  (16)     0  (14)     0  (11)
    FIRE             0  (33)   0  (31)     0  (27)     0  (22)     0  (19)
    NoPE             0  (29)   0  (28)     0  (24)     0  (22)     0  (18)
    blind guess        (18)       (17)        (17)        (14)        (14)

Without ids of digits, 3,000 steps do not suffice for sums of trained lengths either;
after twice as many rows, seed 0, Abacus had 98% of digits right at 14 and 88% at 20.
"""

from ml_collections import ConfigDict

from configs import arguments, arithmetic
from configs.sweep import product, union, zipped

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
        config.train.steps = 3000
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
    shapes = zipped({"model.num_layers": [2, 1], "model.loops": [2, 4]})
    return union(
        [{"model.num_layers": 4, "model.loops": 1, "train.progressive_weight": 0.0}],
        product(shapes, {"train.progressive_weight": [0.0, 0.5, 1.0]}),
    )


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
