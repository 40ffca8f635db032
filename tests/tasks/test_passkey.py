"""Passkeys in a tokenizer's numbers: rows as texts, files of filler, separators."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import Dims, Encoding
from ropejax.masks import Causal
from ropejax.nn import BlockSettings, LayerKind, TransformerSpec
from ropejax.nn.encoder_decoder import EncoderDecoderSpec
from ropejax.nn.recurrent import LSTM, RecurrentSpec
from ropejax.tasks import Autoregressive
from ropejax.tasks.passkey import Passkey
from ropejax.testing import check_task
from ropejax.training.alphabets import check_alphabets
from tests.tasks.samples import UNOPTIMIZED

pytestmark = pytest.mark.fast

TOKENIZED = Passkey(
    num_digits=3,
    start=(1,),
    filler=(40, 41, 42),
    before=(30, 31),
    after=(32,),
    question=(33, 30, 31),
    digits=tuple(range(10, 20)),
    vocab_size=50,
)
DIMS = Dims(2, 2, 8, 16, 1, causal=True)


def drawn(task, lengths, rows=1):
    lengths = jnp.tile(jnp.atleast_1d(jnp.asarray(lengths)), rows)
    draw = functools.partial(task.sample, max_length=int(lengths.max()))
    draw = jax.jit(draw, compiler_options=UNOPTIMIZED)
    return jax.tree.map(np.asarray, draw(jax.random.key(0), lengths))


def test_a_decoder_reads_text_of_the_tokenizer_alone():
    """No separator: the question's last token is where the first digit is answered."""
    task = Autoregressive(TOKENIZED)
    assert task.num_symbols == task.output_vocab == task.input_vocab == 50
    assert task.answer_tokens == tuple(range(50))
    batch = drawn(task, 20, 8)
    for row, targets, asked in zip(*batch[:3], strict=True):
        text = " ".join(map(str, row.tolist()))
        filler, digit = "((?: 4[012])*)", r" 1\d"
        sentence = rf" 30 31((?:{digit}){{3}}) 32"
        whole = rf"1{filler}{sentence}{filler} 33 30 31((?:{digit}){{2}})"
        told = re.fullmatch(whole, text)
        before, number, after, read_back = (
            list(map(int, part.split())) for part in told.groups()
        )
        assert before + after == [40 + i % 3 for i in range(11)]
        assert targets[asked].tolist() == number
        assert read_back == number[:-1]
        assert row[asked].tolist() == [31, *read_back]
    assert (batch.lengths == 20 + 3).all()


def test_the_sentence_stands_anywhere_or_at_a_depth():
    of = lambda tokens: [row.index(14) for row in tokens.tolist()]
    places = of(drawn(Passkey(), 10, 600).tokens)
    counts = np.bincount(places)
    assert counts.shape == (4,)
    np.testing.assert_allclose(counts, 150, atol=4 * np.sqrt(150))
    for depth, places in ((0.25, {0, 1, 2}), (1.0, {0, 4, 8})):
        assert set(of(drawn(Passkey(depth=depth), [7, 11, 15]).tokens)) == places


def test_the_filler_may_be_a_file(tmp_path):
    text = np.random.default_rng(0).permutation(np.arange(20, 31))
    path = str(tmp_path / "tokens.npy")
    np.save(path, text)
    task = Passkey(path=path, num_digits=2)
    assert (task.input_vocab, task.num_symbols, task.placeholder) == (31, 31, 16)
    rolled = [np.resize(np.roll(text, -at), 26).tolist() for at in range(11)]
    starts = set()
    for row in drawn(task, 30, 40).tokens.tolist():
        at = row.index(14)
        assert row[at + 3] == 15
        starts.add(rolled.index(row[:at] + row[at + 4 : 30]))
    assert len(starts) > 6
    check_task(task, max_length=9, rows=6, oracle=lambda x: x[x.index(14) + 1 :][:2])


def test_inputs_without_room_are_refused_and_short_draws_have_no_filler():
    with pytest.raises(ValueError, match="length 6: .* take 7 symbols; ask for"):
        Passkey().check_length(6)
    batch = drawn(Passkey(), [2, 9])
    assert batch.lengths.tolist() == [12, 14]
    assert batch.tokens[0, :1].tolist() == [14]
    assert batch.tokens[0, 6:8].tolist() == [15, 16]


def test_a_model_with_a_separator_needs_one_that_stands_nowhere_else():
    settings = BlockSettings(8, dropout=0.0)
    plain = TransformerSpec(50, 50, DIMS, settings, (LayerKind(Encoding(), Causal()),))
    check_alphabets(plain, TOKENIZED)
    own = Passkey()
    of = lambda task: (
        EncoderDecoderSpec(50, 50, task.placeholder, DIMS, settings, Encoding()),
        RecurrentSpec(task.num_symbols, 50, LSTM()),
    )
    for model in of(own):
        check_alphabets(model, own)
        larger = dataclasses.replace(own, question=(17,))
        with pytest.raises(ValueError, match="num_symbols|takes the symbol 16"):
            check_alphabets(model, larger)
    for model in of(TOKENIZED):
        with pytest.raises(ValueError, match="read, 31, may also stand in its inputs"):
            check_alphabets(model, TOKENIZED)
