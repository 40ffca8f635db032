r"""The Chomsky-hierarchy tasks under any encoding and position scheme.

Reproduces: the setting of Ruoss et al. 2023, "Randomized positional encodings boost
length generalization of transformers" (arXiv 2305.16843), table 1: trained on lengths 1
to 40, scored on lengths 41 to 500. For the same benchmark Deletang et al. 2022 (arXiv
2207.02098, appendix A) report the best of 10 seeds and the learning rates 1e-4, 3e-4
and 5e-4, after 1,000,000 steps.

    python -m experiments.main --workdir=runs/reverse \
        --config=configs/che.py:task=reverse_string,encoding=rope,positions=randomized
"""

from ml_collections import ConfigDict

from configs import arguments, base

PUBLISHED_OPTIONS = {"alibi": "tie_break=True"}
"""What the authors' encodings have besides their defaults here."""


def get_config(arg: str = "") -> ConfigDict:
    """Returns the config of one task, encoding and position scheme.

    Args:
        arg: any of `task=NAME,encoding=NAME,positions=NAME`.
    """
    chosen = arguments.parse(
        arg,
        task="reverse_string",
        encoding="rope",
        positions="randomized",
    )
    config = base.get_config()
    config.task.name = chosen["task"]
    config.encoding.name = chosen["encoding"]
    config.encoding.options = PUBLISHED_OPTIONS.get(chosen["encoding"], "")
    config.positions.name = chosen["positions"]
    config.optim.learning_rate = 3e-4
    return config
