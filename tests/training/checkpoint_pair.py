"""One of two processes that save and read checkpoints together; started by tests.

    python checkpoint_pair.py COORDINATOR NUMBER FOLDER

Prints, a line each, what it found; the other process must print the same.
"""

import pathlib
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ropejax.training import TrainState
from ropejax.training.checkpoint import Checkpoints
from ropejax.training.checkpoint_agreement import gathered, largest


def a_state(mesh, step: int, width: int = 64) -> TrainState:
    """Noise in eight parts, and arrays that every device has whole.

    Placed by a program of each process, so that one may have another width.
    """
    kernel = np.random.default_rng(step).standard_normal((64, width), np.float32)
    make = lambda: TrainState(
        step=jnp.int32(step),
        params={"kernel": jnp.asarray(kernel), "scale": jnp.asarray(kernel[0])},
        opt_state=(jnp.asarray(kernel).astype(jnp.bfloat16),),
        rng=jax.random.key(5),
        length_rng=jax.random.key(6),
    )
    on = lambda *spec: NamedSharding(mesh, PartitionSpec(*spec))
    where = TrainState(
        step=on(),
        params={"kernel": on("data"), "scale": on()},
        opt_state=(on(None, "data"),),
        rng=on(),
        length_rng=on(),
    )
    return jax.jit(make, out_shardings=where)()


def same_bits(found: TrainState, wanted: TrainState) -> bool:
    local = lambda x: [
        np.asarray(shard.data).tobytes() for shard in x.addressable_shards
    ]
    numbers = lambda state: [
        local(x) for x in jax.tree.leaves((state.step, state.params, state.opt_state))
    ]
    return numbers(found) == numbers(wanted)


def main(coordinator: str, number: int, folder: pathlib.Path) -> None:
    jax.distributed.initialize(coordinator, 2, number)
    warnings.showwarning = lambda message, *_, **__: print("warning:", message)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    say = lambda *words: print(*words, flush=True)

    saver = Checkpoints(folder, keep=9)
    for step in (1, 2, 3, 4):
        saver.save(a_state(mesh, step), {"loss": 1.0})
    saver.close()

    say("# one process cannot read the newest")
    saver = Checkpoints(folder, keep=9)
    if number == 1:
        read = saver._about
        saver._about = lambda step: read(step if step < 4 else 99)
    state = saver.latest(like=a_state(mesh, 0))
    say("step", int(state.step), same_bits(state, a_state(mesh, 3)))
    say("steps", saver.steps())
    saver.save(a_state(mesh, 4), {"loss": 1.0})
    saver.close()

    say("# a file of the newest has changed by a bit")
    if number == 0:
        files = (folder / "4" / "state").rglob("*")
        largest_file = max(
            (f for f in files if f.is_file()), key=lambda f: f.stat().st_size
        )
        data = bytearray(largest_file.read_bytes())
        data[len(data) // 2] ^= 1
        largest_file.write_bytes(data)
    largest(0)
    saver = Checkpoints(folder, keep=9)
    state = saver.latest(like=a_state(mesh, 0))
    say("step", int(state.step), same_bits(state, a_state(mesh, 3)))

    say("# one process has another model")
    try:
        saver.latest(like=a_state(mesh, 0, width=64 if number == 0 else 128))
    except ValueError as error:
        say("refused", error)
    saver.close()

    say("# one process does not see the newest")
    saver = Checkpoints(folder, keep=9)
    if number == 1:
        saver.steps = lambda: [1, 2]
    say("step", int(saver.latest(like=a_state(mesh, 0)).step))
    saver.close()
    say("texts", gathered("0" * (number * 5000 + 1)) == ["0", "0" * 5001])
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))
