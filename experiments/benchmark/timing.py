"""Wall time, CPU time, compile time and memory of a jitted function, measured alike."""

import dataclasses
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import jax
from rich.console import Console


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one call costs.

    Attributes:
        wall_s: median wall time of a call, in seconds.
        cpu_s: median CPU time of a call, all threads, in seconds.
        compile_s: CPU time of tracing, lowering and compiling, in seconds.
        temporary_mib: XLA's temporary buffers, in MiB.
    """

    wall_s: float
    cpu_s: float
    compile_s: float
    temporary_mib: float


def compiled(function: Callable, *args, **options):
    """Compiles ahead of time; returns the program and the CPU seconds that it took.

    Args:
        function: a function of arrays, or one that `jax.jit` made.
        *args: arguments to compile for.
        **options: keyword arguments that are static.

    Returns:
        The compiled program and CPU seconds.
    """
    start = time.process_time()
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    program = jitted.lower(*args, **options).compile()
    return program, time.process_time() - start


def measure(
    program,
    call: Callable[[], object],
    *,
    compile_s: float = 0.0,
    repeats: int = 5,
    budget_s: float = 20.0,
) -> Cost:
    """Times `call` after one warm-up, at most `repeats` times or for `budget_s`.

    Args:
        program: the compiled program that `call` runs, asked for its memory.
        call: a function without arguments; its result is waited for.
        compile_s: what compiling took, to be reported along.
        repeats: calls at the most.
        budget_s: no further call starts after this many seconds.

    Returns:
        Median times, and memory.
    """
    jax.block_until_ready(call())
    walls, cpus, begin = [], [], time.perf_counter()
    while len(walls) < repeats:
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(call())
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        if time.perf_counter() - begin > budget_s:
            break
    memory = program.memory_analysis()
    return Cost(
        statistics.median(walls),
        statistics.median(cpus),
        compile_s,
        memory.temp_size_in_bytes / 2**20 if memory else float("nan"),
    )


def peak_memory_mib() -> float:
    """Returns the largest resident size that this process has had, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def in_own_process(module: str, *arguments: str) -> dict:
    """Runs `python -m module arguments` and returns the JSON on its last line.

    Args:
        module: name of a module with a command line.
        *arguments: passed on.

    Returns:
        The decoded object.

    Raises:
        RuntimeError: if the process fails; with the end of what it printed.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{module} {arguments} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def wide_console() -> Console:
    """Returns a console on stderr, at least 110 columns where it is no terminal."""
    console = Console(stderr=True)
    return console if console.is_terminal else Console(stderr=True, width=110)
