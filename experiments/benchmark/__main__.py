"""Benchmarks: what ropejax costs, printed as a table and as JSON.

    python -m experiments.benchmark che
    python -m experiments.benchmark che --part=sampling
    python -m experiments.benchmark encodings
    python -m experiments.benchmark attention
    python -m experiments.benchmark accelerator --out=accelerator.json

Each part runs in a process of its own, so that peak memory is its own. Times are the
median of several calls after compilation: wall time, and CPU time of all threads, which
is the number to compare on a machine that others use too.
"""

import argparse
import importlib
import json
import sys

SUITES = {
    "che": "training step, evaluation and samplers of the Chomsky-hierarchy benchmark",
    "encodings": "every position encoding beside none and RoPE",
    "population": "models x steps a second of populations, by number of members",
    "attention": "attention engines beside jax.nn.dot_product_attention",
    "accelerator": "all of these that a GPU or TPU is wanted for, in minutes",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one suite; what follows its name is the suite's own."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "suite",
        choices=SUITES,
        help="; ".join(f"{name}: {what}" for name, what in SUITES.items()),
    )
    arguments, rest = parser.parse_known_args(argv)
    suite = importlib.import_module(f"experiments.benchmark.{arguments.suite}")
    result = suite.main(rest)
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
