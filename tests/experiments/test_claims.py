"""Claims: one holder at a time, whoever dies, sleeps or races."""

import multiprocessing
import os
import pathlib
import threading
import time

import pytest

from experiments.study import claims as claims_module
from experiments.study.claims import Claims, LostClaimError

pytestmark = pytest.mark.fast
NAME = "even_pairs-rope-seed0-01234567"


def forever(folder, name, ready):
    """Takes a name, and holds it until killed."""
    with Claims(folder) as claims:
        ready.send(claims.take(name))
        time.sleep(600)


def take_all(folder, names, results):
    with Claims(folder) as claims:
        results.send([name for name in names if claims.take(name)])
        results.recv()


def on_another_machine(monkeypatch, name="elsewhere"):
    monkeypatch.setattr(claims_module, "machine", lambda: name)


def age(folder, seconds):
    """Makes all claims as old as if nobody had touched them since."""
    for path in pathlib.Path(folder).iterdir():
        then = time.time() - seconds
        os.utime(path, (then, then))


def test_a_claimed_name_is_refused_to_others_until_it_is_given_back(tmp_path):
    with Claims(tmp_path) as one, Claims(tmp_path) as other:
        assert one.take(NAME)
        assert not other.take(NAME)
        assert not one.take(NAME)
        assert other.take(NAME + "1")
        assert one.held == [NAME]
        assert one.active().keys() == {NAME, NAME + "1"}
        one.release(NAME)
        assert other.take(NAME)
        one.beat()
        assert other.active()[NAME].number == 1


def test_who_is_at_work_is_found_by_one_look_however_many_there_are(
    tmp_path, monkeypatch
):
    """On a shared file system, each look at a folder and its clock takes a while."""
    with Claims(tmp_path) as here:
        for number in range(20):
            assert here.take(f"{NAME}{number}")
        on_another_machine(monkeypatch)
        looks = []
        listed, now = os.listdir, Claims._now
        monkeypatch.setattr(os, "listdir", lambda p: looks.append(p) or listed(p))
        monkeypatch.setattr(Claims, "_now", lambda self: looks.append(0) or now(self))
        with Claims(tmp_path) as claims:
            assert len(claims.active()) == 20
        assert looks == [tmp_path, 0]


def test_what_is_done_leaves_no_file(tmp_path):
    with Claims(tmp_path) as one:
        assert one.take(NAME)
        one.release(NAME)
        assert one.take(NAME)
        one.release(NAME, done=True)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_workers_claim_is_free_at_once_on_the_same_machine(tmp_path):
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=forever, args=(tmp_path, NAME, there))
    process.start()
    try:
        assert here.recv()
        with Claims(tmp_path) as claims:
            assert not claims.take(NAME)
            assert claims.active()[NAME].pid == process.pid
            process.kill()
            process.join()
            assert claims.active() == {}
            assert claims.take(NAME)
    finally:
        process.kill()


def test_another_machines_claim_is_stale_only_after_its_time(tmp_path, monkeypatch):
    """Its lock is not believed: not every shared file system passes locks on."""
    with Claims(tmp_path, stale_s=100.0) as claims:
        with monkeypatch.context() as patch, Claims(tmp_path) as dead:
            on_another_machine(patch)
            assert dead.take(NAME)
            os.close(dead._held.pop(NAME)[1])  # killed: its lock is gone, its file not
        age(tmp_path, 90)
        assert not claims.take(NAME)
        age(tmp_path, 110)
        assert claims.take(NAME)


def test_a_machine_that_slept_takes_no_claim_from_its_own_living_workers(tmp_path):
    with (
        Claims(tmp_path, stale_s=100.0) as one,
        Claims(tmp_path, stale_s=100.0) as other,
    ):
        assert one.take(NAME)
        age(tmp_path, 3600)
        assert not other.take(NAME)


def test_where_locks_do_not_work_time_alone_tells(tmp_path, monkeypatch):
    def unsupported(file, operation):
        raise OSError("no locks available")

    monkeypatch.setattr(claims_module.fcntl, "flock", unsupported)
    with (
        Claims(tmp_path, stale_s=100.0) as one,
        Claims(tmp_path, stale_s=100.0) as other,
    ):
        assert one.take(NAME)
        assert not other.take(NAME)
        age(tmp_path, 110)
        assert other.take(NAME)


def test_a_sleeper_that_wakes_up_sees_that_it_lost_its_claim(tmp_path, monkeypatch):
    with Claims(tmp_path, stale_s=100.0) as sleeper:
        assert sleeper.take(NAME)
        age(tmp_path, 110)
        on_another_machine(monkeypatch)
        with Claims(tmp_path, stale_s=100.0) as other:
            assert other.take(NAME)
            sleeper.check(NAME)  # not known before its heart beats
            sleeper.beat()
            with pytest.raises(LostClaimError, match="has taken it over"):
                sleeper.check(NAME)
            sleeper.release(NAME)
            assert other.active()[NAME].number == 1
            other.check(NAME)


def test_a_heart_that_beats_keeps_a_claim_young(tmp_path, monkeypatch):
    with Claims(tmp_path, heartbeat_s=0.05, stale_s=100.0) as claims:
        assert claims.take(NAME)
        age(tmp_path, 110)
        on_another_machine(monkeypatch)
        end = time.monotonic() + 20
        while claims.active() == {}:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_claim_without_an_author_is_not_believed_for_long(tmp_path):
    """A process that was killed between making the file and writing who it is."""
    (tmp_path / f"{NAME}@0").touch()
    with Claims(tmp_path, heartbeat_s=20.0, stale_s=600.0) as claims:
        assert not claims.take(NAME)
        age(tmp_path, 61)
        assert claims.take(NAME)


def test_of_workers_that_race_for_stale_claims_each_name_gets_one(tmp_path):
    """Four processes take forty names left behind, all at once."""
    names = [f"run{at}" for at in range(40)]
    with Claims(tmp_path) as dead:
        for name in names:
            assert dead.take(name)
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(4)]
    workers = [
        context.Process(target=take_all, args=(tmp_path, names, there))
        for _, there in pipes
    ]
    try:
        for worker in workers:
            worker.start()
        got = [name for here, _ in pipes for name in here.recv()]
        assert sorted(got) == sorted(names)
        for here, _ in pipes:
            here.send("end")
    finally:
        for worker in workers:
            worker.join(30)
            worker.kill()


def test_threads_of_one_process_do_not_share_a_name(tmp_path):
    with Claims(tmp_path) as claims:
        got = []
        barrier = threading.Barrier(8)

        def take():
            barrier.wait()
            got.append(claims.take(NAME))

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(got) == 1


def test_hearts_that_beat_too_slowly_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at most a third"):
        Claims(tmp_path, heartbeat_s=10.0, stale_s=20.0)
