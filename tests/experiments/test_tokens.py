"""Texts as numbers: the tokenizer's own, and nothing beside them."""

import numpy as np
import pytest

from experiments.tokens import write_tokens
from ropejax.tasks import NextSymbol

pytestmark = pytest.mark.fast


@pytest.fixture
def checkpoint(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"<end>": 0, "a": 1, "rose": 2, "is": 3, "?": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<end> $A", special_tokens=[("<end>", 0)]
    )
    (tmp_path / "model").mkdir()
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    return tmp_path / "model"


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_tokens_of_several_texts_follow_one_another(checkpoint, tmp_path, capsys):
    texts = [
        written(tmp_path / "one.txt", "a rose\nis a daisy"),
        written(tmp_path / "two.txt", "is a rose"),
    ]
    out = tmp_path / "tokens.npy"
    assert write_tokens(checkpoint, texts, out) == 8
    tokens = np.load(out)
    assert tokens.tolist() == [1, 2, 3, 1, 4, 3, 1, 2]  # no <end> that nobody wrote
    assert tokens.dtype == np.int32
    assert "8 tokens, 4 different ones of the 5" in capsys.readouterr().out
    task = NextSymbol(path=str(out), held_out=0.0, vocab_size=5)
    assert task.num_symbols == 5

    other = tmp_path / "apart.npy"
    write_tokens(checkpoint, texts, other, between="<end>")
    assert np.load(other).tolist() == [1, 2, 3, 1, 4, 0, 3, 1, 2, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"between": "<bos>"}, "--between='<bos>': the tokenizer has no such token"),
        ({"out": "tokens.txt"}, r"--out=.*tokens.txt' must end in .npy"),
        ({"out": "there.npy"}, r"--out=.*there.npy' is there already"),
        ({"texts": ["absent.txt"]}, r"absent.txt' cannot be read \(No such file"),
        ({"texts": ["latin.txt"]}, r"latin.txt' cannot be read \(.*decode byte"),
        ({"texts": ["empty.txt"]}, "the text is empty"),
        ({"checkpoint": "."}, r"--checkpoint=.* has no tokenizer.json"),
        ({"checkpoint": "broken"}, r"tokenizer.json cannot be read \("),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    changes, message, checkpoint, tmp_path
):
    written(tmp_path / "one.txt", "a rose")
    written(tmp_path / "empty.txt", "")
    (tmp_path / "latin.txt").write_bytes("Füße".encode("latin-1"))
    np.save(tmp_path / "there.npy", np.arange(3))
    (tmp_path / "broken").mkdir()
    written(tmp_path / "broken" / "tokenizer.json", "{}")
    asked = {"checkpoint": "model", "texts": ["one.txt"], "out": "new.npy", **changes}
    with pytest.raises(ValueError, match=message):
        write_tokens(
            tmp_path / asked["checkpoint"],
            [tmp_path / name for name in asked["texts"]],
            tmp_path / asked["out"],
            between=asked.get("between", ""),
        )
    assert not (tmp_path / "new.npy").exists()
    assert np.load(tmp_path / "there.npy").tolist() == [0, 1, 2]
