r"""Sums of several numbers, written down as running sums, beyond the trained digits.

Reproduces: the recipe of Cho et al. 2024, "Arithmetic transformers can length-
generalize in both operand length and count" (arXiv 2410.15787): the answer is a
scratchpad, the sums of the first 0, 1, 2, ... numbers, digits reversed, and each token
has two learned ids, for its digit and for its number (multi-level position coupling).
The paper trains 6 layers of 8 heads on 2 to 10 numbers of 1 to 10 digits, and reports 2
to 3 times those lengths (abstract, figure 1's caption). Here the model is small, and
all sums have three numbers.

    python -m experiments.main --workdir=runs/running_sums \
        --config=configs/running_sums.py:method=levels

Ways to tell places:

    levels        a table of ids of digits and one of numbers, added to embeddings
    axes          the same ids as two axes of positions, half of each head rotated by
                  each
    rope          RoPE at consecutive positions
    none          no encoding but the causal mask

Lengths are digits of the longest number; the others are padded with zeros.

Cost, measured: 1 to 3 minutes a run on two x86-64 cores that others used too. Measured,
seed 0, 64 sums a length: % of symbols, and in brackets of whole scratchpads:

    digits           5          6          7         10         12
    levels   100 (100)   95  (45)   90  (16)   87  (28)   88   (3)
    axes     100 (100)   90   (2)   81   (0)   67   (0)   64   (0)
    none      65   (0)   58   (0)   50   (0)   40   (0)   40   (0)
    rope      77   (0)   27   (0)   25   (0)   35   (0)   26   (0)
    blind guess  (53)       (53)       (52)       (48)       (48)
"""

from ml_collections import ConfigDict

from configs import arguments, arithmetic, base

METHODS = ("levels", "axes", "rope", "none")
OPERANDS = 3
TRAINED, TESTED = 5, 12


def get_config(arg: str = "") -> ConfigDict:
    """Returns the config of one method.

    Args:
        arg: `method=NAME`.
    """
    method = arguments.parse(arg, method="levels")["method"]
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    config = base.get_config()
    config.study = "running_sums"
    config.task.name = "addition"
    config.task.options = (
        f"operands={OPERANDS}, order=answer, widths=zeros, running_sums=True"
    )
    arithmetic.model(config)
    arithmetic.train(config)
    config.model.loops = 1
    config.model.input_injection = "none"
    config.optim.learning_rate = 3e-3
    config.train.steps = 3000
    config.train.batch_size = 32
    config.train.max_length = TRAINED
    config.eval.lengths = f"1:{TESTED}"
    config.eval.buckets = f"{TRAINED},{TESTED}"
    config.eval.samples = 64
    config.encoding.name = "rope" if method == "rope" else "none"
    if method in ("levels", "axes"):
        digits, operands = TESTED + 4, OPERANDS + 3
        config.positions.name = "coupled_levels"
        config.positions.options = f"max_digits={digits}, max_operands={operands}"
        config.positions.title = "two levels"
    if method == "levels":
        large = arithmetic.AS_LARGE
        config.encoding.name = "compose"
        config.encoding.options = (
            f"digit=Learned(stream=digit, max_position={digits + 1}, {large}), "
            f"operand=Learned(stream=operand, max_position={operands + 1}, {large})"
        )
        config.encoding.title = "Multi-level coupling"
    if method == "axes":
        config.encoding.name = "rope_2d"
        config.encoding.title = "RoPE on two levels"
    return config
