"""Where nothing can be written, a run says so in one line and loses nothing."""

import contextlib
import errno
import os
import resource
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from rich.console import Console

from experiments.results import store as results
from experiments.results.store import ResultsWriter
from experiments.running import storage
from experiments.running.board import Board
from experiments.running.opening import open_run
from experiments.running.run import run_experiment
from experiments.running.storage import StorageError
from experiments.study import __main__ as study
from tests.compiled_programs import kept_in
from tests.experiments.process_pair import ROOT, SMALL, saved_steps

QUIET = Console(quiet=True)
STEPS = 4
TINY = str(ROOT / "tests" / "experiments" / "tiny_study.py")


def config_of(**changes):
    """A run on one device whose checkpoints are its largest files by far."""
    from configs import base

    config = base.get_config()
    fields = SMALL | {
        "model.embed_dim": 32,
        "mesh.data": 1,
        "mesh.fsdp": 1,
        "train.steps": STEPS,
    }
    config.update_from_flattened_dict(fields | changes)
    return config


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """Compiled programs are kept, since every run makes its own."""
    with kept_in(tmp_path_factory.mktemp("compiled")) as folder:
        yield folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The folder of a run that could write all it wanted."""
    folder = tmp_path_factory.mktemp("straight")
    run_experiment(config_of(), folder, console=QUIET, summary=False)
    return folder


@pytest.fixture(scope="module")
def half(tmp_path_factory, straight):
    """The folder of a run of half as many steps, which tests copy.

    It is gone on with here once, so that what that compiles is kept before files are
    limited.
    """
    folder = tmp_path_factory.mktemp("half") / "run"
    settings = {"console": QUIET, "summary": False}
    run_experiment(config_of(**{"train.steps": STEPS // 2}), folder, **settings)
    again = shutil.copytree(folder, folder.with_name("again"))
    run_experiment(config_of(), again, **settings)
    assert numbers(again) == numbers(straight)
    return folder


@contextlib.contextmanager
def limited(size: int):
    """While entered, no file can grow beyond a size: the system says EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def numbers(folder) -> list[bytes]:
    _, state = open_run(folder)
    leaves = jax.tree.leaves((state.step, state.params, state.opt_state))
    return [np.asarray(leaf).tobytes() for leaf in leaves]


def curve(folder) -> list[tuple]:
    rows = results.read(folder, "training").to_pylist()
    return sorted((row["step"], row["loss"], row["grad_norm"]) for row in rows)


def contents(folder) -> dict:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


def test_a_checkpoint_that_does_not_fit_stops_the_run_and_spoils_nothing(
    tmp_path, straight, half
):
    """And the same command goes on once there is space, to the same end."""
    folder = shutil.copytree(half, tmp_path / "run")
    files = contents(folder / "checkpoints" / "2")
    with limited(20_000), pytest.raises(StorageError) as stopped:
        run_experiment(config_of(), folder, console=QUIET)
    told = str(stopped.value)
    assert str(folder) in told
    assert "cannot be written (File too large)" in told
    assert "checkpoints of steps [2] are untouched" in told
    assert "(ulimit -f); the same command then goes on from step 2" in told
    assert "\n" not in told
    assert saved_steps(folder) == [2]
    assert not list((folder / "checkpoints").glob("*tmp*"))
    assert contents(folder / "checkpoints" / "2") == files
    run_experiment(config_of(), folder, console=QUIET)
    assert numbers(folder) == numbers(straight)
    assert curve(folder) == curve(straight)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own that holds 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ("-t", "tmpfs", "-o", "size=2m", "none", str(folder))
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_stops_the_run_and_spoils_nothing(small_disk, straight, half):
    """Real ENOSPC, and then another file is removed."""
    ballast = small_disk / "ballast"
    folder = shutil.copytree(half, small_disk / "run")
    with open(ballast, "wb") as file:
        while room(small_disk) > 30_000:
            file.write(bytes(8_000))
            file.flush()
    with pytest.raises(StorageError, match="No space left on device") as stopped:
        run_experiment(config_of(), folder, console=QUIET)
    told = str(stopped.value)
    assert "Free space on its disk; the same command then goes on from step 2" in told
    assert saved_steps(folder) == [2]
    ballast.unlink()
    run_experiment(config_of(), folder, console=QUIET)
    assert numbers(folder) == numbers(straight)
    assert curve(folder) == curve(straight)


def room(folder) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@pytest.mark.parametrize("name", ["", "checkpoints", "results", "tensorboard"])
def test_a_file_where_a_folder_should_be_is_named(tmp_path, name):
    """Whoever runs it: nothing can be made inside a file, not even by root."""
    folder = tmp_path / "run"
    path = folder / name if name else folder
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(StorageError, match="Remove the file") as stopped:
        run_experiment(config_of(), folder, console=QUIET)
    assert str(path) in str(stopped.value)
    assert "\n" not in str(stopped.value)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("", errno.ENOENT, "Look whether the folder above it is there"),
        ("above", errno.ENOENT, "Look whether the folder above it is there"),
        ("above", errno.EACCES, "Make it writable"),
        ("", errno.ENAMETOOLONG, "Give it a shorter name"),
    ],
)
def test_a_folder_that_cannot_be_made_is_named(tmp_path, name, number, message):
    """As below /proc, which holds no folders; what fails may be one above."""
    folder = tmp_path / "above" / "run"
    failed = tmp_path / name if name else folder
    with (
        pytest.raises(StorageError, match=message) as stopped,
        storage.explained(folder),
    ):
        raise OSError(number, os.strerror(number), str(failed))
    assert str(stopped.value).startswith(f"{failed} cannot be written")


def test_a_folder_whose_name_is_too_long_is_named(tmp_path):
    """To ask whether there is such a folder is an error in itself."""
    folder = tmp_path / ("n" * 300)
    with (
        pytest.raises(StorageError, match=r"too long\)\. Give it a shorter name"),
        storage.explained(folder),
    ):
        folder.mkdir()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_run_in_a_folder_that_holds_none_ends_in_one_line():
    folder = "/proc/no_such_folder/run"
    with pytest.raises(StorageError, match="/proc/no_such_folder.* cannot be written"):
        run_experiment(config_of(), folder, console=QUIET)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Make it writable, or choose another"):
            run_experiment(config_of(), tmp_path / "run", console=QUIET)
    finally:
        tmp_path.chmod(0o700)


# What is half written


def test_rows_that_do_not_fit_are_all_absent_and_later_ones_whole(tmp_path):
    """The lengths of one evaluation are there together, or none of them is."""
    common = {"task": "t", "encoding": "e", "positions": "p", "seed": 0, "step": 1}
    writer = ResultsWriter(tmp_path, "one", common | {"train_max_length": 4})
    scored = {"correct": 1, "tokens": 2, "exact": 0, "rows": 1, "input_blind": 0.5}
    rows = lambda first: [{"length": first + at} | scored for at in range(20)]
    writer.evaluation(rows(0))
    size = writer.path.stat().st_size
    with limited(size + size // 2), pytest.raises(OSError, match="too large"):
        writer.evaluation(rows(100))
    assert writer.path.stat().st_size == size
    writer.evaluation(rows(200))
    writer.close()
    lengths = [row["length"] for row in results.read(tmp_path).to_pylist()]
    assert sorted(lengths) == [*range(20), *range(200, 220)]


def test_a_point_that_does_not_fit_is_an_error_of_who_writes_it(tmp_path):
    """A thread that writes would die, and the run wait for it."""
    board = Board(tmp_path, purge_step=1)
    (path,) = tmp_path.iterdir()
    with limited(path.stat().st_size + 50):
        board.add(1, {"train/loss": 1.0})
        with pytest.raises(OSError, match="File too large"):
            board.add(2, {"train/loss": 1.0})
    board.close()


# The command


def test_the_command_says_one_line_and_ends_with_its_own_code(tmp_path):
    (tmp_path / "run").write_text("")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "experiments.main", "--config=configs/base.py"),
            *(f"--workdir={tmp_path / 'run'}", "--compile_cache="),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == storage.CODE == 74
    assert done.stderr.startswith(f"error: {tmp_path / 'run'} cannot be written")
    assert done.stderr.count("\n") == 1


def test_other_errors_are_left_alone(tmp_path):
    with pytest.raises(OSError, match="No space"), storage.explained(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/elsewhere/file")
    with pytest.raises(FileNotFoundError), storage.explained(tmp_path):
        (tmp_path / "nothing").read_text()
    with pytest.raises(ValueError, match="mine"), storage.explained(tmp_path):
        raise ValueError("mine")


# Studies


def test_a_full_disk_stops_a_study_and_gives_no_run_up(small_disk, tmp_path, capsys):
    """With one worker or two; once there is space, the same command ends the study."""
    words = [f"--config={TINY}:tasks=1", "--compile_cache="]
    assert study.main([*words, f"--workdir={tmp_path / 'straight'}"]) == 0
    ballast = small_disk / "ballast"
    folder = small_disk / "study"
    with open(ballast, "wb") as file:
        while room(small_disk) > 60_000:
            file.write(bytes(8_000))
            file.flush()
    with pytest.raises(StorageError, match="No space left on device") as stopped:
        study.main([*words, f"--workdir={folder}"])
    told = str(stopped.value)
    assert "Free space on its disk; the same command then goes on" in told
    assert not list(folder.glob("failed/*"))
    assert not list(folder.rglob("*orbax-checkpoint-tmp*"))
    again = [*words, f"--workdir={folder}", "--workers=2"]
    with pytest.raises(StorageError, match="No space left on device") as stopped:
        study.main(again)
    assert "\n" not in str(stopped.value)
    ballast.unlink()
    assert study.main([*words, f"--workdir={folder}"]) == 0
    scores = [
        sorted(
            (row["run_id"], row["length"], row["correct"])
            for row in results.read(made).to_pylist()
        )
        for made in (folder, tmp_path / "straight")
    ]
    assert scores[0] == scores[1]
    assert len(scores[0]) == 4 * 3  # two rates, two seeds; three lengths


@pytest.mark.parametrize("cut", ["", "train 12/12\n    r", "train 12/12\n"])
def test_a_log_that_the_full_disk_cut_off_too_is_made_sense_of(tmp_path, cut):
    """A worker's last words are in its log, which lies on the disk that is full."""
    log = tmp_path / "worker.log"
    log.write_text(cut)
    told = study._reason(log, tmp_path)
    assert told.startswith(f"{tmp_path} cannot be written (No space left on device")
    assert f"{log} is cut off" in told
    log.write_text(cut + "\nerror: a folder cannot be written.\n")
    assert study._reason(log, tmp_path) == "a folder cannot be written."
