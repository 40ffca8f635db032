"""Where numbers come from: versions, device, and the state of the code."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

import ropejax

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def provenance() -> dict[str, Any]:
    """Returns fields of a "run" row: versions, device, git commit and dirty flag."""
    versions = {"python": platform.python_version(), "ropejax": ropejax.__version__}
    versions |= {name: importlib.metadata.version(name) for name in _PACKAGES}
    device = jax.devices()[0]
    return {
        "versions": versions,
        "device": f"{jax.device_count()} x {device.device_kind} ({device.platform})",
        **_git(Path(ropejax.__file__).parent.parent),
    }


def _git(folder: Path) -> dict[str, Any]:
    """Returns commit and dirty flag; nothing outside a repository or without git."""

    def run(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        ).stdout.strip()

    try:
        commit = run("rev-parse", "HEAD")
        return {"git_commit": commit, "git_dirty": bool(run("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return {}
