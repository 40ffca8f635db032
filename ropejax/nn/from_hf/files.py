"""The folder of a Hugging Face checkpoint: opening one, and writing one.

It needs the package safetensors, of the extra `pretrained`.
"""

import json
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

_INDEX, _SINGLE, _CONFIG = (
    "model.safetensors.index.json",
    "model.safetensors",
    "config.json",
)

_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
"""Types of arrays by their names in the files."""


class StoredTensors(Mapping):
    """Arrays in files of safetensors by name, mapped into memory.

    What is looked at of them is read then, and no more, so that a device that holds a
    part of an array costs that part. (The package safetensors copies whole arrays.)

    Args:
        files: the file of each array.
    """

    def __init__(self, files: Mapping[str, pathlib.Path]):
        self._files = dict(files)
        self._entries = {path: _entries(path) for path in set(self._files.values())}

    def __getitem__(self, name: str) -> np.ndarray:
        path = self._files[name]
        start, entries = self._entries[path]
        entry = entries[name]
        if entry["dtype"] not in _DTYPES:
            raise ValueError(
                f"{name} in {path} is of {entry['dtype']}, and must be of "
                f"{', '.join(_DTYPES)}; dequantize the model."
            )
        shape = tuple(entry["shape"])
        if not math.prod(shape):
            return np.zeros(shape, _DTYPES[entry["dtype"]])
        offset = start + entry["data_offsets"][0]
        return np.memmap(path, _DTYPES[entry["dtype"]], "r", offset, shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def open_checkpoint(
    folder: str | os.PathLike,
) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
    """Returns the config and the arrays of a checkpoint, for `decoder_from_hf`.

    Args:
        folder: with `config.json`, and `model.safetensors` or, of a large model, its
            parts and `model.safetensors.index.json`.

    Raises:
        ValueError: if a file is missing, or the index names an array that its file
            lacks.
        ImportError: if safetensors is not installed.
    """
    folder = pathlib.Path(folder)
    if not (folder / _CONFIG).is_file():
        raise ValueError(
            f"{folder} has no {_CONFIG}; give the folder of a checkpoint that was "
            "downloaded, or saved by save_pretrained."
        )
    config = json.loads((folder / _CONFIG).read_text())
    if (folder / _INDEX).is_file():
        index = json.loads((folder / _INDEX).read_text())["weight_map"]
        files = {name: folder / part for name, part in index.items()}
    elif (folder / _SINGLE).is_file():
        with _opened(folder / _SINGLE) as file:
            files = dict.fromkeys(file.keys(), folder / _SINGLE)
    else:
        raise ValueError(
            f"{folder} has neither {_SINGLE} nor {_INDEX}; save the model with "
            "save_pretrained(folder, safe_serialization=True)."
        )
    for path in sorted(set(files.values())):
        if not path.is_file():
            raise ValueError(f"{_INDEX} names {path.name}, which {folder} lacks.")
        with _opened(path) as file:
            lacking = {n for n, own in files.items() if own == path} - set(file.keys())
        if lacking:
            raise ValueError(
                f"{path} lacks {min(lacking)}, which {_INDEX} says it has."
            )
    return config, StoredTensors(files)


def save_checkpoint(
    folder: str | os.PathLike,
    config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
) -> None:
    """Writes a checkpoint, such as what `to_hf` returned: config.json and one file.

    Args:
        folder: where; it is made if there is none.
        config: as JSON holds it.
        tensors: arrays by name.

    Raises:
        ValueError: if the folder has a checkpoint already.
        ImportError: if safetensors is not installed.
    """
    folder = pathlib.Path(folder)
    for name in (_CONFIG, _SINGLE, _INDEX):
        if (folder / name).exists():
            raise ValueError(
                f"{folder} has a {name} already, which would be lost; give another "
                "folder, or remove it."
            )
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ImportError(
            "writing a checkpoint needs safetensors: pip install 'ropejax[pretrained]'."
        ) from error
    told = json.dumps(dict(config), indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{_SINGLE}.tmp"
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(arrays, partial, metadata={"format": "pt"})  # without, it is not loaded
    os.replace(partial, folder / _SINGLE)
    (folder / _CONFIG).write_text(told)


def _entries(path: pathlib.Path) -> tuple[int, Mapping[str, Any]]:
    """Where the arrays of a file begin, and what its header says of each."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return 8 + size, json.loads(file.read(size))


def _opened(path: pathlib.Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(
            "reading a checkpoint needs safetensors: pip install "
            "'ropejax[pretrained]', or pass arrays by name to decoder_from_hf."
        ) from error
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise ValueError(
            f"{path} is no whole file of safetensors ({error}); download it again, and "
            "if it is a pointer of Git LFS, what it points to."
        ) from None
