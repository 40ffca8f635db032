"""Public figures of accelerators, for estimates before anything is run there.

Products of bfloat16 numbers, dense, at the makers' peak; float32 products count as JAX
computes them by default: in TF32 on these GPUs, in one bfloat16 pass on these TPUs.
Links are what one chip can send to its neighbours of the same machine or slice.
"""

import dataclasses
import types


@dataclasses.dataclass(frozen=True)
class Hardware:
    """One accelerator.

    Attributes:
        title: its name.
        bfloat16_tflops: peak of matrix products in bfloat16, 1e12 operations a second.
        float32_tflops: the same in float32, at JAX's default precision.
        memory_gb: memory, 1e9 bytes.
        bandwidth_gb_s: of that memory, 1e9 bytes a second.
        link_gb_s: sent to neighbours, all links together, 1e9 bytes a second.
        device_kinds: how `jax.Device.device_kind` begins on it.
        source: where the figures are from.
    """

    title: str
    bfloat16_tflops: float
    float32_tflops: float
    memory_gb: float
    bandwidth_gb_s: float
    link_gb_s: float
    device_kinds: tuple[str, ...]
    source: str

    def tflops(self, dtype: str) -> float:
        """Returns the peak of products in a dtype."""
        return self.bfloat16_tflops if dtype == "bfloat16" else self.float32_tflops


_NVIDIA = "NVIDIA data sheets of the SXM modules, without sparsity"
_GOOGLE = "Google Cloud documentation of the TPU version"

HARDWARE = types.MappingProxyType(
    {
        "h100": Hardware(
            *("NVIDIA H100 SXM", 989, 494, 80, 3350, 450), ("NVIDIA H100",), _NVIDIA
        ),
        "h200": Hardware(
            *("NVIDIA H200 SXM", 989, 494, 141, 4800, 450), ("NVIDIA H200",), _NVIDIA
        ),
        "v5e": Hardware(
            *("TPU v5e", 197, 197, 16, 800, 200), ("TPU v5 lite", "TPU v5e"), _GOOGLE
        ),
        "v5p": Hardware(
            *("TPU v5p", 459, 459, 95, 2765, 600), ("TPU v5p", "TPU v5"), _GOOGLE
        ),
        "v6e": Hardware(
            *("TPU v6e", 918, 918, 32, 1600, 400), ("TPU v6 lite", "TPU v6e"), _GOOGLE
        ),
    }
)
"""By short name; of two that fit a device, the first one counts."""
