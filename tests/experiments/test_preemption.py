"""SIGTERM at any moment of a command: it ends with 75, which schedulers look for."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from experiments.running.interrupt import (
    RESTART,
    STOPPED_BY_HAND,
    Interrupt,
    StoppedError,
)

ROOT = pathlib.Path(__file__).parents[2]
START = """
    import hashlib, os, signal, sys, threading, time, warnings
    from experiments import command
    from experiments.running import preemption
    from experiments.running.interrupt import Interrupt, StoppedError
    preemption._GRACE_S = 0.2
    terminate = lambda: os.kill(os.getpid(), signal.SIGTERM)
    soon = threading.Timer(0.2, terminate)
"""
SAID = "stopped by SIGTERM; the same command goes on from there.\n"


def run(code: str) -> tuple[int, str]:
    """Exit code of a command, and what it said."""
    code = textwrap.dedent(START) + textwrap.dedent(code) + "\ncommand.run(main)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    return done.returncode, done.stderr


def test_a_command_that_waits_ends_there_and_then():
    """No error is raised that what is not Python, and waits too, could not bear."""
    code = """
    def main():
        soon.start()
        try:
            time.sleep(60)
        except BaseException:
            print("caught", file=sys.stderr)
    """
    assert run(code) == (RESTART, SAID)


@pytest.mark.parametrize(
    ("name", "number", "end"),
    [
        ("evaluate", "SIGTERM", (RESTART, SAID)),  # it was 143, to schedulers a failure
        ("study", "SIGTERM", (RESTART, SAID)),
        ("evaluate", "SIGINT", (-signal.SIGINT, f"{STOPPED_BY_HAND}\n")),
    ],
)
def test_a_command_that_imports_jax_ends_there_and_then(tmp_path, name, number, end):
    """That takes seconds."""
    stub = f"""
        import os, signal, time
        # Tests that a shell has put into the background are deaf to Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.{number})
        time.sleep(60)
    """
    (tmp_path / "jax.py").write_text(textwrap.dedent(stub))
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == end


def test_a_command_that_computes_outside_of_python_is_not_waited_for():
    code = """
    def main():
        soon.start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # half an hour
    """
    assert run(code) == (RESTART, SAID)


def test_training_that_saves_its_state_is_not_hurried():
    code = """
    def main():
        with Interrupt(lambda: None) as interrupt:
            soon.start()
            while not interrupt.asked:
                time.sleep(0.01)
            time.sleep(0.5)  # longer than others may take
            raise StoppedError("stopped at step 4", interrupt.code)
    """
    assert run(code) == (RESTART, "stopped at step 4\n")


def test_a_child_that_is_ended_does_not_end_its_parent():
    code = """
    def main():
        warnings.simplefilter("ignore")  # of forks beside a thread
        child = os.fork()
        if not child:
            time.sleep(60)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr)
        time.sleep(0.5)
        return 3
    """
    assert run(code) == (3, SAID + f"{RESTART}\n")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, RESTART)]
)
def test_a_wish_that_nobody_heeded_is_heeded_on_leaving(number, code):
    with (
        pytest.raises(StoppedError, match="goes on from there") as stopped,
        Interrupt(lambda: None),
    ):
        signal.raise_signal(number)
    assert stopped.value.code == code


def test_an_error_is_not_hidden_by_a_wish():
    def fails():
        signal.raise_signal(signal.SIGTERM)
        raise KeyError

    with pytest.raises(KeyError), Interrupt(lambda: None):
        fails()
