r"""Trains and scores one model; the same command resumes a run that was stopped.

    python -m experiments.main --workdir=runs/reverse \
        --config=configs/che.py:task=reverse_string,encoding=rope,positions=randomized \
        --config.train.steps=20000

Every field of a config can be set as --config.group.field=value.
"""

import argparse
from collections.abc import Sequence

from ml_collections import ConfigDict

from experiments import command
from experiments.building import overrides


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
        type=int,
        default=0,
        metavar="STEPS",
        help="trace so many steps into WORKDIR/profile, for Perfetto and XProf",
    )
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="train together with other processes, started by the same command; under "
        "Slurm, Open MPI, Kubernetes and on TPU pods nothing more is needed",
    )
    parser.add_argument(
        "--coordinator", metavar="HOST:PORT", help="address of the first process"
    )
    parser.add_argument("--num_processes", type=int, metavar="N", help="how many")
    parser.add_argument("--process_id", type=int, metavar="I", help="this one, from 0")
    parser.add_argument(
        "--heartbeat_s",
        type=int,
        metavar="S",
        help="silence after which a process is taken for dead, and all end (100)",
    )
    given, rest = command.parse(parser, argv)
    if given.list:
        return command.print_catalogues()
    for name in ("config", "workdir"):
        if not getattr(given, name):
            raise command.UsageError(f"--{name} is missing; --help shows an example.")
    config = overrides.load(given.config, rest)
    command.prepare_jax(given.compile_cache)
    _join(given)
    _tell_of_trained_lengths(config)

    from experiments.running.run import run_experiment

    run_experiment(config, given.workdir, profile=given.profile)
    return 0


def _tell_of_trained_lengths(config: ConfigDict) -> None:
    """Shows once what methods take for the length that was trained."""
    from experiments.building import build, methods, trained_length
    from experiments.building.checks import check_counts
    from experiments.running import processes

    check_counts(config)
    task = methods.make_task(config)
    model = build.make_model(config, task, methods.make_encoding(config, task))
    if processes.is_first():
        for line in trained_length.notes(config, task, model):
            print(line)


def _join(given: argparse.Namespace) -> None:
    """Joins the other processes, if the command line says that there are any."""
    where = {
        "coordinator": given.coordinator,
        "num_processes": given.num_processes,
        "process_id": given.process_id,
        "heartbeat_s": given.heartbeat_s,
    }
    where = {name: value for name, value in where.items() if value is not None}
    if not given.distributed:
        if where:
            names = " and ".join(f"--{name}" for name in where)
            raise command.UsageError(f"{names} makes no sense without --distributed.")
        return
    from experiments.running import processes

    processes.initialize(**where)


if __name__ == "__main__":
    command.run(main)
