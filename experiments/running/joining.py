"""Flags by which a command joins other processes that were started alike."""

import argparse

from experiments import command


def add_flags(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds them to a command's parser.

    Args:
        parser: of the command.
        what: what the processes do together, for the help: "train".
    """
    parser.add_argument(
        "--distributed",
        action="store_true",
        help=f"{what} together with other processes, started by the same command; "
        "under Slurm, Open MPI, Kubernetes and on TPU pods nothing more is needed",
    )
    parser.add_argument(
        "--coordinator", metavar="HOST:PORT", help="address of the first process"
    )
    parser.add_argument(
        "--num_processes", type=command.whole_number, metavar="N", help="how many"
    )
    parser.add_argument(
        "--process_id", type=command.whole_number, metavar="I", help="this one, from 0"
    )
    parser.add_argument(
        "--heartbeat_s",
        type=command.whole_number,
        metavar="S",
        help="silence after which a process is taken for dead, and all end (100)",
    )


def join(given: argparse.Namespace) -> None:
    """Joins the other processes, if the command line says that there are any.

    Args:
        given: the options.

    Raises:
        UsageError: if it says where they are, but not that there are any.
        ValueError: if they cannot be found.
    """
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
