r"""Trains and scores one model; the same command resumes a run that was stopped.

    python -m experiments.main --workdir=runs/reverse \
        --config=configs/che.py:task=reverse_string,encoding=rope,positions=randomized \
        --config.train.steps=20000

Every field of a config can be set as --config.group.field=value. Without --config, the
run that WORKDIR holds goes on. A run may begin with another one's parameters, here to
go on at four times the length:

    python -m experiments.main --workdir=runs/longer --config=configs/che.py \
        --config.train.init_from=runs/rope --config.train.max_length=160 \
        --config.encoding.name=yarn \
        --config.encoding.options="scale=4, train_length=80"
"""

import pathlib
from collections.abc import Sequence

from ml_collections import ConfigDict

from experiments import command
from experiments.building import overrides
from experiments.running import joining


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument("--config", metavar="FILE[:ARG]", help="what to train")
    parser.add_argument("--workdir", metavar="DIR", help="where everything is written")
    parser.add_argument(
        "--list", action="store_true", help="print names for configs, and stop"
    )
    parser.add_argument(
        "--profile",
        type=command.whole_number,
        default=0,
        metavar="STEPS",
        help="trace so many steps into WORKDIR/profile, for Perfetto and XProf",
    )
    joining.add_flags(parser, "train")
    given, rest = command.parse(parser, argv)
    if given.list:
        return command.print_catalogues()
    if not given.workdir:
        raise command.UsageError("--workdir is missing; --help shows an example.")
    if given.config:
        config = overrides.load(given.config, rest)
    else:
        config = overrides.changed(_config_of_run(given.workdir), rest)
    command.prepare_jax(given.compile_cache)
    joining.join(given)
    _tell_of_trained_lengths(config)

    from experiments.running.run import run_experiment

    run_experiment(config, given.workdir, profile=given.profile)
    return 0


def _config_of_run(folder: str) -> ConfigDict:
    """Returns the config of the run that a folder holds, which then goes on."""
    from configs import base
    from experiments.running.workdir import whole_config

    held = whole_config(pathlib.Path(folder))
    if held is None:
        raise command.UsageError(
            f"--config is missing, and {folder} holds no run to go on with; --help "
            "shows an example."
        )
    config = base.get_config()
    config.update(held)
    return config


def _tell_of_trained_lengths(config: ConfigDict) -> None:
    """Shows once what methods take for the length that was trained."""
    from experiments.building import build, methods, trained_length
    from experiments.building.checks import check_counts
    from experiments.running import processes

    check_counts(config)
    task = methods.make_task(config)
    model = build.make_model(config, task)
    if processes.is_first():
        for line in trained_length.notes(config, task, model):
            print(line)


if __name__ == "__main__":
    command.run(main)
