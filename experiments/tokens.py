r"""Texts as the numbers that a pretrained model's tokenizer gives: a `.npy` file.

    python -m experiments.tokens --checkpoint=models/SmolLM2-135M --text=book.txt \
        --out=tokens.npy

The checkpoint is the folder that configs/pretrained.py reads: `tokenizer.json` in it is
used, as Hugging Face's package tokenizers does (`pip install 'ropejax[pretrained]'`).
Several texts follow one another. Nothing is put before, between or behind them, unless
`--between` names one of the tokenizer's own tokens, such as <|endoftext|>.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import command

_FILE = "tokenizer.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns the exit code."""
    parser = command.parser(__doc__)
    parser.add_argument(
        "--checkpoint", metavar="DIR", help=f"folder with {_FILE}", default=""
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        action="append",
        default=[],
        help="a text in UTF-8; given again, further texts",
    )
    parser.add_argument("--out", metavar="FILE", help="what is written", default="")
    parser.add_argument(
        "--between", metavar="TOKEN", default="", help="a token behind each text"
    )
    given = command.options(parser, argv)
    for name in ("checkpoint", "text", "out"):
        if not getattr(given, name):
            raise command.UsageError(f"--{name} is missing; --help shows an example.")
    write_tokens(given.checkpoint, given.text, given.out, between=given.between)
    return 0


def write_tokens(
    checkpoint: str | os.PathLike,
    texts: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    *,
    between: str = "",
) -> int:
    """Writes the tokens of texts as one array, int32, and returns how many there are.

    Args:
        checkpoint: folder with `tokenizer.json`.
        texts: files in UTF-8.
        out: the file to write, `.npy`; it may not be there yet.
        between: a token of the tokenizer that stands behind each text; none if empty.

    Raises:
        ValueError: if a file cannot be read, or the one to write is there, or the
            tokenizer has no such token.
        ImportError: if the package tokenizers is not installed.
    """
    out = pathlib.Path(out)
    if out.suffix != ".npy":
        raise ValueError(f"--out={str(out)!r} must end in .npy, as tasks on text ask.")
    if out.exists():
        raise ValueError(f"--out={str(out)!r} is there already; name another file.")
    tokenizer = _opened(pathlib.Path(checkpoint))
    behind = _token(tokenizer, between)
    parts = [
        np.array(tokenizer.encode(text, add_special_tokens=False).ids + behind)
        for text in map(_read, texts)
    ]
    tokens = np.concatenate(parts).astype(np.int32)
    if not tokens.size:
        raise ValueError(f"--text={', '.join(map(str, texts))}: the text is empty.")
    temporary = out.with_suffix(".part.npy")
    np.save(temporary, tokens)
    os.replace(temporary, out)
    print(
        f"{out}: {tokens.size:,} tokens, {np.unique(tokens).size:,} different ones of "
        f"the {tokenizer.get_vocab_size():,} that there are"
    )
    return int(tokens.size)


def _opened(checkpoint: pathlib.Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ImportError(
            "this needs the package tokenizers: pip install 'ropejax[pretrained]', or "
            "save the tokens with numpy.save yourself."
        ) from error
    path = checkpoint / _FILE
    if not path.is_file():
        raise ValueError(
            f"--checkpoint={str(checkpoint)!r} has no {_FILE}; of another kind of "
            "tokenizer, save the tokens with numpy.save yourself."
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        raise ValueError(f"{path} cannot be read ({error}).") from None


def _token(tokenizer: Any, name: str) -> list[int]:
    if not name:
        return []
    number = tokenizer.token_to_id(name)
    if number is None:
        raise ValueError(f"--between={name!r}: the tokenizer has no such token.")
    return [number]


def _read(path: str | os.PathLike) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"--text={str(path)!r} cannot be read ({reason}).") from None


if __name__ == "__main__":
    command.run(main)
