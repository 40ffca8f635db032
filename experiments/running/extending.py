"""What changes for a run that goes on after its `train.steps` was raised."""

from collections.abc import Mapping
from typing import Any


def raised_again(there: Mapping[str, Any] | None, here: Mapping[str, Any]) -> str:
    """Says that a run's learning rate rises where it goes on; empty if it does not.

    Extended under a decaying rate, a run is not the longer one from the start.

    Args:
        there: the config in its folder, plain; None if it is new. One of no steps has
            had no rate yet.
        here: its config now.
    """
    steps, decays = here["train"]["steps"], here["optim"]["final_fraction"] < 1
    before = there["train"]["steps"] if there else 0
    if not 0 < before < steps or not decays:
        return ""
    return (
        f"the learning rate decays over train.steps, which was {before} and is now "
        f"{steps}: it rises again where the run goes on, which is not the same as so "
        "many steps from the start."
    )
