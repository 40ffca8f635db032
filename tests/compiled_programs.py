"""Compiled programs kept on disk for a while, for tests that compile one again."""

import contextlib
import pathlib
from collections.abc import Iterator

import jax
from jax.experimental.compilation_cache import compilation_cache


@contextlib.contextmanager
def kept_in(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Keeps every program in `folder`; afterwards all is as it was before."""
    wanted = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    try:
        for name, value in wanted.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        yield folder
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        # Else it stays open for all later tests, and writes what they compile.
        compilation_cache.reset_cache()
