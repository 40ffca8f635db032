"""`experiments.main`, in a process that also keeps what it compiles.

JAX lets only the first of several processes write compiled programs to disk, and on a
CPU the others cannot use those, so they compile all of it at every start. A test that
starts many times cannot afford that.
"""

from experiments import command, main


def keep_compiled_programs() -> None:
    """Lets this process write to the cache, whichever one it is."""
    from jax._src import compiler, distributed

    write, state = compiler._cache_write, distributed.global_state

    def as_the_first(*arguments, **named):
        own, state.process_id = state.process_id, 0
        try:
            write(*arguments, **named)
        finally:
            state.process_id = own

    compiler._cache_write = as_the_first


if __name__ == "__main__":
    keep_compiled_programs()
    command.run(main.main)
