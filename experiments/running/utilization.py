"""Model FLOPs utilization: what the model asks for, over what the devices could do.

As in Chowdhery et al. 2022 (PaLM, arXiv 2204.02311, appendix B): operations of the
matrix products of the forward and backward pass, every pair of a query and a key among
them, rematerialization not; over the peak of all devices. Of a progressive loss, whose
loops are drawn, it is the mean over the draws.
"""

from collections.abc import Callable

import jax
import numpy as np

from experiments.plan.counting import model_operations
from experiments.plan.hardware import HARDWARE
from ropejax.training import Recipe


class Utilization:
    """Turns lengths and speed into a utilization.

    Args:
        recipe: what is trained.
        peak: operations a second that all devices together can do.
    """

    def __init__(self, recipe: Recipe, peak: float):
        self._recipe, self._peak = recipe, peak
        self._products: dict[int, float] = {}

    def __call__(self, lengths: np.ndarray, steps_per_s: float) -> float:
        """Returns the utilization of steps on these lengths.

        Args:
            lengths: longest length of each step.
            steps_per_s: their speed.
        """
        buckets = np.asarray(self._recipe.buckets)
        asked = [self._of(int(buckets[at])) for at in np.searchsorted(buckets, lengths)]
        return float(np.mean(asked)) * steps_per_s / self._peak

    def _of(self, bucket: int) -> float:
        if bucket not in self._products:
            self._products[bucket] = model_operations(self._recipe, bucket).products
        return self._products[bucket]


def utilization_here(recipe: Recipe) -> Callable[[np.ndarray, float], float] | None:
    """Returns a `Utilization` on this process's devices, None if their peak is unknown.

    Args:
        recipe: what is trained.
    """
    kind = jax.devices()[0].device_kind
    known = [one for one in HARDWARE.values() if kind.startswith(one.device_kinds)]
    if not known:
        return None
    devices = 1 if recipe.sharding is None else recipe.sharding.mesh.size
    dtype = getattr(recipe.model, "settings", None)
    dtype = "float32" if dtype is None else str(dtype.dtype)
    return Utilization(recipe, known[0].tflops(dtype) * 1e12 * devices)
