r"""Trains and scores one model; the same command resumes a run that was stopped.

    python -m experiments.main --workdir=runs/reverse \
        --config=configs/che.py:task=reverse_string,encoding=rope,positions=randomized \
        --config.train.steps=20000

Every field of a config can be set as --config.group.field=value.
"""

from collections.abc import Sequence

from experiments import command, overrides


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument("--config", metavar="FILE[:ARG]", help="what to train")
    parser.add_argument("--workdir", metavar="DIR", help="where everything is written")
    parser.add_argument(
        "--list", action="store_true", help="print names for configs, and stop"
    )
    given, rest = command.parse(parser, argv)
    if given.list:
        return command.print_catalogues()
    for name in ("config", "workdir"):
        if getattr(given, name) is None:
            raise command.UsageError(f"--{name} is missing; --help shows an example.")
    config = overrides.load(given.config, rest)
    command.prepare_jax(given.compile_cache)

    from experiments.run import run_experiment

    run_experiment(config, given.workdir)
    return 0


if __name__ == "__main__":
    command.run(main)
