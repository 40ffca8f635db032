"""A fixed evaluation set as a TensorFlow Datasets builder, and how it is written.

It is written and read as array_record, which needs no TensorFlow (TFDS's parquet loses
rows), one folder for a task at a length:

    DIR/ropejax_evaluation/even_pairs-length_41-samples_512-seed_1/1.0.0/

Other frameworks read it by `tfds.data_source`, an example a row:

    inputs   int32 [X]   symbols of the input
    targets  int32 [Y]   the right answer
    scored   bool  [Y]   where accuracy is counted
"""

import contextlib
import fcntl
import io
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

import ropejax
from experiments.evaluation_sets.content import (
    VERSION,
    Row,
    SetKey,
    content_hash,
    task_text,
)

SPLIT = "test"


class RopejaxEvaluation(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """The TFDS builder; its config is named by the `SetKey` that it is made for.

    It is not registered: by name, TFDS reads the files, here as anywhere else.
    """

    VERSION = tfds.core.Version(VERSION)

    def __init__(self, *, key: SetKey, **kwargs):
        self.key = key
        config = tfds.core.BuilderConfig(name=key.name, version=VERSION)
        super().__init__(config=config, file_format="array_record", **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        symbols = lambda dtype: tfds.features.Tensor(shape=(None,), dtype=dtype)
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"{self.key.task.title}: {self.key.task.summary}.",
            features=tfds.features.FeaturesDict(
                {
                    "inputs": symbols(np.int32),
                    "targets": symbols(np.int32),
                    "scored": symbols(np.bool_),
                }
            ),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager) -> dict[str, Iterator[tuple[int, Row]]]:
        return {SPLIT: self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, Row]]:
        rows = list(self.key.rows())
        yield from enumerate(rows)
        self.info.metadata.update(describe(self.key), sha256=content_hash(rows))


def describe(key: SetKey) -> dict[str, Any]:
    """Returns what is written beside a set, in its metadata.json."""
    return {
        "task": task_text(key.task),
        "length": key.length,
        "samples": key.samples,
        "seed": key.seed,
        "input_symbols": key.task.input_vocab,
        "output_symbols": key.task.output_vocab,
        "ropejax": ropejax.__version__,
    }


def make_set(key: SetKey, data_dir: str | pathlib.Path) -> pathlib.Path:
    """Writes a set, whole or not at all, and returns its folder; a finished one stays.

    Args:
        key: which set.
        data_dir: where sets are; made if absent.
    """
    data_dir, folder = pathlib.Path(data_dir).resolve(), key.folder(data_dir)
    with _alone(data_dir), tempfile.TemporaryDirectory() as unused:
        for left_over in folder.parent.glob(f"{VERSION}.incomplete*"):
            shutil.rmtree(left_over)
        if not folder.exists():
            builder = RopejaxEvaluation(key=key, data_dir=data_dir)
            tfds.disable_progress_bar()
            with contextlib.redirect_stdout(io.StringIO()):
                builder.download_and_prepare(download_dir=unused)
    return folder


@contextlib.contextmanager
def _alone(data_dir: pathlib.Path) -> Iterator[None]:
    """Waits until no other process writes sets there."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with open(data_dir / ".lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
