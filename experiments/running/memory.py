"""A device that is out of memory: one line on what takes less."""

_SIGN = "RESOURCE_EXHAUSTED"

_REMEDY = (
    "What needs less: a smaller train.batch_size, or the same in parts "
    "(train.accumulate=4), layers computed again (model.remat=full), model.dtype="
    "bfloat16, shorter train.max_length or eval.lengths, or a mesh of more devices "
    "(mesh.fsdp=-1). python -m experiments.plan tells beforehand what a config needs."
)


def told(error: BaseException) -> str | None:
    """Returns what to tell if an error means that memory is short, else None.

    Args:
        error: what was raised.
    """
    # By its name, since JAX may not be imported yet.
    if type(error).__name__ != "JaxRuntimeError" or _SIGN not in str(error):
        return None
    reason = str(error).strip().split("\n")[0].partition(f"{_SIGN}:")[2].strip()
    return f"the device is out of memory ({reason[:200].rstrip('.')}). {_REMEDY}"
