r"""Randomized positions on the Chomsky-hierarchy tasks: the whole table, and ablations.

Reproduces: Ruoss et al. 2023, "Randomized positional encodings boost length
generalization of transformers" (arXiv 2305.16843), table 1: 15 tasks; no encoding, and
five encodings plain and with randomized positions; trained on lengths 1 to 40, scored
on lengths 41 to 500; positions drawn from 2,048; the best of 10 seeds and 3 learning
rates. Steps, seeds and learning rates are those that Deletang et al. 2022 (arXiv
2207.02098, appendix A) give for the same benchmark.

    python -m experiments.study --config=configs/studies/ruoss2023.py:form=mini \
        --workdir=runs/ruoss_mini --workers=2
    python -m experiments.report runs/ruoss_mini

Forms, and the ablations of the paper (each with randomized RoPE; `scale` chooses their
model and training):

    full             4,950 runs of 1,000,000 steps: the protocol
    medium           495 runs of 100,000 steps, 3 seeds, one learning rate, lengths
                     scored every 9th: all of the table, for a cluster
    mini             24 runs of a small model: 4 tasks, plain and randomized, 3 seeds
    range            positions drawn from 1,024, 2,048, 4,096 or 8,192
    test_positions   one model scored at random, evenly spaced and consecutive positions
    draws            one draw a layer or a pass, a sequence or a batch
    sorting          drawn positions sorted, or left in the order drawn
    causal           every token sees all others, or those before it
    depth            fewer and more layers
    learning_rate    lower and higher ones
    what_helps       the mini form's Missing Duplicate and Reverse String at twice the
                     steps, and one thing changed at a time, of all of the above and
                     more: which way to go on with few steps
    further          Missing Duplicate, Reverse String and Bucket Sort with what helped
                     and more steps, within 40 minutes of two cores a task, 3 seeds

Cost, measured on a busy x86-64 server (AMD EPYC): mini 3.4 to 4.0 minutes of a core a
run, 1.5 core-hours in all (1.0 by operations); further 9 to 21 minutes a run of Missing
Duplicate, 12 of Bucket Sort, 31 of Reverse String. Estimated from 1.6e10 operations a
second of a core (`--dry-run`): full 810,000 core-hours, medium 8,100; ablations of mini
scale 0.6 to 2, what_helps 1.3; scaled by what mini took, 1.7 times that. Not measured
on a GPU.
"""

from ml_collections import ConfigDict

from configs import arguments, base, quickstart
from configs.sweep import product, union, zipped

TASKS = (
    "even_pairs",
    "modular_arithmetic",
    "parity_check",
    "cycle_navigation",
    "stack_manipulation",
    "reverse_string",
    "modular_arithmetic_brackets",
    "solve_equation",
    "duplicate_string",
    "missing_duplicate_string",
    "odds_first",
    "binary_addition",
    "binary_multiplication",
    "compute_sqrt",
    "bucket_sort",
)
"""In the order of the paper's table."""

MINI = {
    "even_pairs": (6000, 64),
    "missing_duplicate_string": (6000, 32),
    "reverse_string": (4000, 32),
    "bucket_sort": (4000, 32),
}
"""Tasks of the mini form: steps and batch for which half an hour has time."""

ENCODINGS = ("sinusoidal", "transformer_xl", "alibi", "rope", "learned")
ENCODING_OPTIONS = {"alibi": "tie_break=True"}  # what the authors' have besides
LEARNING_RATES = (1e-4, 3e-4, 5e-4)

FORMS = (
    "full",
    "medium",
    "mini",
    "range",
    "test_positions",
    "draws",
    "sorting",
    "causal",
    "depth",
    "learning_rate",
    "what_helps",
    "further",
)
SMALL = ("what_helps", "further")  # of the mini form's model alone
SCALES = ("full", "medium", "mini")


def get_config(arg: str = "") -> ConfigDict:
    """Returns what all runs share.

    Args:
        arg: `form=...`, and for ablations `scale=full`, `medium` or `mini`.
    """
    form, scale = _chosen(arg)
    config = _small() if scale == "mini" else _published()
    if scale == "medium":
        config.optim.learning_rate = 3e-4
        config.train.steps = 100_000
        config.eval.lengths = "1:40:3,41:500:9,500"
    config.study = f"ruoss2023-{form}" + ("" if form in SCALES else f"-{scale}")
    return config


def get_sweep(arg: str = "") -> list[dict]:
    """Returns the fields that each run changes.

    Args:
        arg: as for `get_config`.
    """
    form, scale = _chosen(arg)
    if form == "what_helps":
        return _what_helps()
    if form == "further":
        return product(_further(), {"train.seed": range(3)})
    what = product({"task.name": TASKS})
    if scale == "mini":
        steps, batches = zip(*MINI.values(), strict=True)
        what = zipped(
            {"task.name": MINI, "train.steps": steps, "train.batch_size": batches}
        )
    again = {"train.seed": range(10 if scale == "full" else 3)}
    if scale == "full" and form != "learning_rate":
        again["optim.learning_rate"] = LEARNING_RATES
    if form in ("full", "medium"):
        return product(what, _columns(), again)
    if form == "mini":
        return product(what, _mini_columns(), again)
    return product(what, _randomized_rope(scale), _ablation(form, scale), again)


def _chosen(arg: str) -> tuple[str, str]:
    chosen = arguments.parse(arg, form="mini", scale="")
    form = chosen["form"]
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}.")
    if form in SCALES:
        if chosen["scale"] not in ("", form):
            raise ValueError(f"form={form} has its own scale; leave scale out.")
        return form, form
    if form in SMALL and chosen["scale"] not in ("", "mini"):
        raise ValueError(f"form={form} is of the mini form's model; leave scale out.")
    scale = chosen["scale"] or "mini"
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    return form, scale


def _columns() -> list[dict]:
    """No encoding, and five encodings plain and randomized: the table's columns."""
    encodings = zipped(
        {
            "encoding.name": ENCODINGS,
            "encoding.options": [ENCODING_OPTIONS.get(name, "") for name in ENCODINGS],
        }
    )
    schemes = {"positions.name": ["consecutive", "randomized"]}
    none = {"encoding.name": ["none"], "positions.name": ["consecutive"]}
    return union(product(none), product(encodings, schemes))


def _mini_columns() -> list[dict]:
    return zipped(
        {
            "positions.name": ["consecutive", "randomized"],
            "positions.options": ["", "per_sequence=True"],
            "positions.title": ["", "randomized"],
        }
    )


def _randomized_rope(scale: str) -> list[dict]:
    """What ablations change one thing of: RoPE with randomized positions."""
    if scale == "mini":
        return [{"positions.name": "randomized"}]
    return [{"positions.name": "randomized", "encoding.name": "rope"}]


def _ablation(form: str, scale: str) -> list[dict]:
    """The points of an ablation, the method's own setting first or among them."""
    draw = "per_sequence=True" if scale == "mini" else "per_layer=True"
    drawn = {"positions.as_published": [False], "positions.options": [draw]}
    if form == "range":
        drawn["positions.options"] = [
            f"{draw}, max_position={top}" for top in (1024, 2048, 4096, 8192)
        ]
    elif form == "draws":
        drawn["positions.options"] = [
            f"per_layer={layer}, per_sequence={sequence}"
            for layer in (True, False)
            for sequence in (True, False)
        ]
    elif form == "sorting":
        drawn["positions.options"] = [f"{draw}, sort={sort}" for sort in (True, False)]
    elif form == "test_positions":
        drawn["eval.positions"] = [None, "evenly_spaced", "consecutive"]
    elif form == "depth":
        return product(drawn, _depths([1, 2, 4] if scale == "mini" else [2, 5, 8]))
    elif form == "learning_rate":
        drawn["optim.learning_rate"] = (
            [1e-3, 2e-3, 5e-3] if scale == "mini" else list(LEARNING_RATES)
        )
    else:
        masks = {"model.causal": [False, True], "title": ["", "causal"]}
        return product(drawn, zipped(masks))
    return product(drawn)


def _depths(layers: list[int]) -> list[dict]:
    titles = [f"{n} layer{'s' * (n > 1)}" for n in layers]
    return zipped({"model.num_layers": layers, "title": titles})


def _what_helps() -> list[dict]:
    """One change at a time of the mini form's randomized RoPE."""
    tasks = {"missing_duplicate_string": (12_000, 512), "reverse_string": (8_000, 1024)}
    slow = {"optim.learning_rate": 2e-3}  # what deeper and wider models want
    wide = {"model.embed_dim": 64, "model.num_heads": 8}
    points = []
    for task, (steps, fitting) in tasks.items():  # fitting: the least that holds tests
        changes = [
            {},
            slow | {"title": "learning rate 2e-3"},
            slow | {"title": "4 layers at 2e-3", "model.num_layers": 4},
            slow | {"title": "width 64 at 2e-3"} | wide,
            {
                "positions.options": f"per_sequence=True, max_position={fitting}",
                "positions.title": f"randomized to {fitting}",
            },
            {
                "positions.options": "per_sequence=True, per_layer=True",
                "positions.title": "randomized a layer",
            },
            {
                "positions.options": "per_sequence=False",
                "positions.title": "randomized a batch",
            },
            {"encoding.options": "rope=Rotary()", "encoding.title": "RoPE"},
            {
                "title": "short lengths more often",
                "train.curriculum": "reverse_exponential",
                "train.curriculum_options": "base=0.9",
            },
        ]
        common = {
            "task.name": task,
            "train.steps": steps,
            "train.batch_size": 32,
            "positions.name": "randomized",
            "positions.options": "per_sequence=True",
            "positions.title": "randomized",
            "eval.lengths": "1:40:3,40,50,70,100,200,300,400,500",
        }
        points += [common | change for change in changes]
    return points


def _further() -> list[dict]:
    """A point a task: what helped, and as many steps as 40 minutes have time for."""
    return zipped(
        {
            "task.name": ["missing_duplicate_string", "reverse_string", "bucket_sort"],
            "train.steps": [40_000, 22_000, 16_000],
            "model.num_layers": [2, 4, 2],
            "optim.learning_rate": [3e-3, 2e-3, 5e-3],
            "positions.options": [
                f"per_sequence=True, max_position={top}" for top in (512, 1024, 1024)
            ],
            "train.batch_size": [32] * 3,
            "positions.name": ["randomized"] * 3,
            "positions.title": [f"randomized to {top}" for top in (512, 1024, 1024)],
        }
    )


def _published() -> ConfigDict:
    """The model and the training of the protocol."""
    config = base.get_config()
    config.train.steps = 1_000_000
    config.train.steps_per_dispatch = 100
    config.train.log_every = 1000
    config.train.save_every = 10_000
    config.train.keep = 1
    return config


def _small() -> ConfigDict:
    """The quickstart's model and optimizer."""
    config = quickstart.get_config()
    config.positions.title = ""  # made of the settings, in which ablations differ
    config.train.steps_per_dispatch = 50
    config.train.save_every = 1000
    config.train.keep = 1
    config.eval.samples = 128
    return config
