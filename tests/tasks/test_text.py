"""Text tasks: the made-up language against plain Python, masking by BERT's rules."""

import collections
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.evaluation_scores import LengthScore, score_of
from ropejax.input_blind import scored_targets
from ropejax.tasks import TEXT_TASKS, draws
from ropejax.tasks.language import Language
from ropejax.tasks.masked_text import MaskedText
from ropejax.tasks.next_symbol import NextSymbol
from ropejax.tasks.text import TextTask
from ropejax.training.losses import batch_sums, token_losses
from tests.tasks.samples import UNOPTIMIZED

LENGTHS = np.array([1, 2, 3, 9, 10, 30, 47, 48] + [48] * 600)
LONG = 48


@functools.cache
def drawn(task, max_length=LONG, rows=None):
    sample = jax.jit(
        functools.partial(task.sample, max_length=max_length),
        compiler_options=UNOPTIMIZED,
    )
    lengths = np.minimum(LENGTHS[:rows], max_length)
    return jax.tree.map(np.asarray, sample(jax.random.key(0), jnp.asarray(lengths)))


@functools.cache
def texts(language, length, rows):
    draw = jax.jit(
        jax.vmap(lambda rng: language.text(rng, length)), compiler_options=UNOPTIMIZED
    )
    return np.asarray(draw(jax.random.split(jax.random.key(0), rows)))


def spelled(language):
    """The words as tuples of letters, class by class."""
    table, lengths = jax.tree.map(np.asarray, language.words())
    words = [
        tuple(row[: n - 1]) for row, n in zip(table.tolist(), lengths, strict=True)
    ]
    size = language.num_words
    return [words[at : at + size] for at in range(0, len(words), size)]


def written(language, rng, length):
    """The text from the same random words, phrase after phrase, in plain Python."""
    rngs = jax.random.split(rng, 3)
    shares = [1 / rank for rank in range(1, language.num_words + 1)]
    bounds = np.cumsum(shares) / sum(shares)
    classes, phrases, text = spelled(language), [], []
    size = len(classes)
    raw = [np.asarray(draws.words(key, 200)).tolist() for key in rngs]
    word_random, repeat_random, source_random = np.array(raw) / 2**32
    while len(text) < length:
        at = len(phrases)
        if at and repeat_random[at] < language.repeat:
            phrase = phrases[int(source_random[at] * at)]
        else:
            ranks = [
                np.searchsorted(bounds, word_random[at * size + one], "right")
                for one in range(size)
            ]
            phrase = [words[rank] for words, rank in zip(classes, ranks, strict=True)]
        phrases.append(phrase)
        for word in phrase:
            text += [*word, 0]
    return text[:length]


@pytest.mark.parametrize(
    "language",
    [Language(), Language(num_letters=3, num_words=5, num_classes=2, repeat=0.8)],
)
def test_texts_agree_with_plain_python(language):
    long = texts(language, 60, 4)
    for rng, text in zip(jax.random.split(jax.random.key(0), 4), long, strict=True):
        assert text.tolist() == written(language, rng, 60)


def test_a_language_is_its_number_and_its_words_are_spelled_with_letters():
    language = Language()
    words = sum(spelled(language), [])
    assert {len(word) for word in words} == set(range(1, 6))
    assert {letter for word in words for letter in word} == set(range(1, 16))
    assert spelled(dataclasses.replace(language, repeat=0.0)) == spelled(language)
    assert spelled(dataclasses.replace(language, number=1)) != spelled(language)


def test_words_follow_zipfs_law_and_phrases_repeat_as_often_as_told():
    language = Language(num_letters=2000, num_words=50, num_classes=3, repeat=0.4)
    classes = spelled(language)
    first, repeated = collections.Counter(), []
    for text in texts(language, 60, 3000).tolist():
        words = " ".join(map(str, text)).split(" 0")
        words = [tuple(int(x) for x in word.split()) for word in words[:-1]]
        first[classes[0].index(words[0])] += 1
        repeated.append(words[3:6] == words[:3])
    share = np.array([first[rank] for rank in range(50)]) / 3000
    law = 1 / np.arange(1, 51)
    np.testing.assert_allclose(share, law / law.sum(), atol=0.03)
    # The second phrase can repeat the first alone; by chance it hardly ever does.
    assert np.mean(repeated) == pytest.approx(0.4, abs=0.03)


TASKS = [
    *(MaskedText(), MaskedText(num_letters=2, rate=0.4, masked=0.5)),
    *(NextSymbol(), NextSymbol(last=4)),
]


@pytest.mark.parametrize("task", TASKS)
def test_rows_do_not_depend_on_padding_and_answers_are_in_place(task):
    batch, narrow = drawn(task), drawn(task, 11, 5)
    for name in ("tokens", "targets", "target_mask", "score_mask"):
        wide, small = getattr(batch, name)[:5], getattr(narrow, name)
        np.testing.assert_array_equal(wide[:, :11], small)
        assert not wide[:, 11:].any()
    np.testing.assert_array_equal(batch.lengths, LENGTHS)
    np.testing.assert_array_equal(batch.target_mask, batch.score_mask)
    assert not batch.targets[~batch.target_mask].any()
    assert not batch.target_mask[np.arange(LONG) >= LENGTHS[:, None]].any()
    assert task.num_tokens(LONG) == LONG
    assert set(np.unique(batch.tokens)) == set(range(task.input_vocab))


def test_the_next_symbol_is_asked_for_everywhere():
    batch = drawn(NextSymbol())
    for row, length in enumerate(LENGTHS.tolist()):
        tokens, targets = batch.tokens[row, :length], batch.targets[row, :length]
        assert batch.target_mask[row].sum() == length
        np.testing.assert_array_equal(tokens[1:], targets[:-1])


def test_the_last_symbols_alone_count_as_in_windows_that_slide():
    """Of the same text, so that each has all symbols before it as context."""
    whole, slid = drawn(NextSymbol()), drawn(NextSymbol(last=4))
    np.testing.assert_array_equal(slid.tokens, whole.tokens)
    at = np.arange(LONG)
    wanted = (at < LENGTHS[:, None]) & (at >= LENGTHS[:, None] - 4)
    np.testing.assert_array_equal(slid.score_mask, wanted)
    np.testing.assert_array_equal(slid.targets, np.where(wanted, whole.targets, 0))


@pytest.mark.parametrize("task", [MaskedText(), MaskedText(rate=0.4, masked=0.5)])
def test_places_are_masked_by_berts_rules(task):
    batch = drawn(task)
    source = NextSymbol(
        **{f.name: getattr(task, f.name) for f in dataclasses.fields(TextTask)}
    )
    kinds = collections.Counter()
    for row, length in enumerate(LENGTHS.tolist()):
        rng = jax.random.fold_in(jax.random.key(0), row)
        asked = batch.target_mask[row]
        # Half up; `round` would go to the even number.
        assert asked.sum() == max(1, int(length * task.rate + 0.5))
        assert task.num_asked(length) == asked.sum()
        tokens, targets = batch.tokens[row], batch.targets[row]
        if row < 8:
            text = source.text(jax.random.split(rng, 4)[0], length, LONG)
            np.testing.assert_array_equal(np.asarray(text)[asked], targets[asked])
            np.testing.assert_array_equal(
                np.asarray(text)[:length][~asked[:length]],
                tokens[:length][~asked[:length]],
            )
        hidden = tokens[asked] == task.mask
        kept = tokens[asked] == targets[asked]
        kinds["mask"] += hidden.sum()
        kinds["kept"] += kept.sum()
        kinds["other"] += (~hidden & ~kept).sum()
    total = sum(kinds.values())
    # A uniform symbol is, one time in 16, the right one.
    expected = {
        "mask": task.masked,
        "other": task.random * 15 / 16,
        "kept": 1 - task.masked - task.random * 15 / 16,
    }
    for kind, share in expected.items():
        assert kinds[kind] / total == pytest.approx(share, abs=0.02), kind
    # All places are equally likely.
    places = batch.target_mask[8:].mean(0)
    np.testing.assert_allclose(places, task.num_asked(48) / 48, atol=0.09)


def test_the_input_blind_baseline_is_the_most_frequent_symbol():
    """Spaces; but every text begins with a letter."""
    task = MaskedText()
    batch = jax.tree.map(lambda x: x[8:], drawn(task))
    logits = jnp.zeros((600, LONG, task.output_vocab)).at[..., 0].set(3.0)
    told = token_losses(logits, batch.targets, batch.target_mask)
    sums = batch_sums(told, batch)
    score = score_of(48, sums, np.asarray(scored_targets(batch)))
    spaces = (batch.targets == 0)[batch.target_mask].mean()
    assert score.accuracy == pytest.approx(spaces)
    assert score.scored == 600 * 7
    assert spaces - 0.03 < score.input_blind < spaces + 0.1


@pytest.mark.fast
def test_perplexity_is_the_exponential_of_the_mean_loss():
    """Of a model that knows nothing, the number of symbols."""
    score = LengthScore(4, 8 * np.log(16), 8, 0, 8, 0, 2, 0)
    assert score.perplexity == pytest.approx(16)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.bin"
    content = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8)
    path.write_bytes(content.tobytes())
    return str(path), content.tobytes()


def test_windows_of_a_file_are_cut_anywhere(file):
    path, content = file
    batch = drawn(NextSymbol(path=path, held_out=0))
    starts = []
    for row, length in enumerate(LENGTHS.tolist()):
        window = [*batch.tokens[row, :length], batch.targets[row, length - 1]]
        if length > 8:  # long enough to be found in one place
            starts.append(content.index(bytes(window)))
    assert np.mean(starts) == pytest.approx(len(content) / 2, rel=0.1)
    assert min(starts) < 100
    assert max(starts) > len(content) - 150
    masked = drawn(MaskedText(path=path), rows=8)
    assert set(np.unique(masked.tokens)) <= set(range(257))


@pytest.mark.fast
@pytest.mark.parametrize("dtype", [np.uint16, np.int64])
def test_the_symbols_of_a_file_of_numbers_are_its_numbers(tmp_path, dtype):
    """As many as the largest says, and no placeholder: what a tokenizer knows."""
    path = str(tmp_path / "tokens.npy")
    ids = np.array([7, 300, 2, 40_000], dtype)
    np.save(path, ids)
    task = NextSymbol(path=path, held_out=0)
    assert task.num_symbols == task.output_vocab == 40_001
    batch = task.sample(jax.random.key(0), [3], max_length=3)
    np.testing.assert_array_equal(batch.tokens, ids[None, :3])
    np.testing.assert_array_equal(batch.targets, ids[None, 1:])
    assert MaskedText(path=path, held_out=0).input_vocab == 40_002  # and the mask
    of_tokenizer = NextSymbol(path=path, held_out=0, vocab_size=49_152)
    assert of_tokenizer.num_symbols == of_tokenizer.output_vocab == 49_152
    with pytest.raises(ValueError, match="vocab_size=40000 must be above .* 40000"):
        NextSymbol(path=path, vocab_size=40_000)
    with pytest.raises(ValueError, match=r"vocab_size=300 is for a .npy file"):
        NextSymbol(vocab_size=300)
    with pytest.raises(ValueError, match=r"4 numbers for training .* length 4 read 5"):
        task.check_length(4)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.ones((2, 3), np.int32), r"holds int32\[2, 3\]; a text is two or more"),
        (np.ones(4, np.float32), r"holds float32\[4\]"),
        (np.array([1, -1]), "numbers from -1 to 1"),
        (np.array([0, 2**31 - 1]), "below 2\\*\\*31 - 1"),
        (np.array([None, 1]), "no file of NumPy"),
        (b"not numpy's", "no file of NumPy"),
    ],
)
def test_files_of_numbers_that_are_no_text_are_refused(tmp_path, content, message):
    path = tmp_path / "tokens.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    with pytest.raises(ValueError, match=message):
        NextSymbol(path=str(path))


@pytest.mark.fast
def test_the_last_window_of_a_file_is_whole(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"abcd")
    task = NextSymbol(path=str(path), held_out=0)
    batch = task.sample(jax.random.key(0), jnp.full(40, 3), max_length=3)
    assert set(map(bytes, np.asarray(batch.tokens, np.uint8))) == {b"abc"}
    assert set(map(bytes, np.asarray(batch.targets, np.uint8))) == {b"bcd"}
    with pytest.raises(ValueError, match=r"4 bytes for training .* of length 4 read 5"):
        task.check_length(4)
    MaskedText(path=str(path), held_out=0).check_length(4)  # nothing comes next


@pytest.mark.fast
def test_training_never_reads_what_is_held_out_and_tests_nothing_else(tmp_path):
    path = tmp_path / "halves"
    path.write_bytes(b"a" * 30 + b"b" * 10)
    task = NextSymbol(path=str(path), held_out=0.25)
    read = lambda one: np.asarray(
        one.sample(jax.random.key(0), jnp.full(50, 9), max_length=9).tokens
    )
    assert set(read(task).flat) == {ord("a")}
    assert set(read(task.tested).flat) == {ord("b")}
    assert task.tested.tested == task.tested
    task.check_length(29)
    with pytest.raises(ValueError, match=r"10 bytes for test \(held_out=0.25\)"):
        task.tested.check_length(10)
    assert NextSymbol().tested == NextSymbol()  # every text is drawn anew


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaskedText(rate=0.0), "rate must be above 0 and at most 1, got 0.0"),
        (lambda: MaskedText(rate=0.0625), "number of thousandths, .* take 0.062"),
        (lambda: MaskedText(masked=float("nan")), "masked=nan and random=0.1"),
        (lambda: MaskedText(masked=0.8, random=0.3), "together at most 1"),
        (lambda: NextSymbol(repeat=1.0), "repeat must lie in 0 .. 1, 1 excluded"),
        (lambda: NextSymbol(num_letters=1), "num_letters=1"),
        (lambda: NextSymbol(num_words=0), "num_words must be at least 1"),
        (lambda: NextSymbol(last=0), "last must be at least 1 symbol"),
        (lambda: NextSymbol(held_out=1.0), "held_out must lie in 0 .. 1"),
        (lambda: NextSymbol(held_out=0.2), "are for a file; give its path"),
        (lambda: NextSymbol(path=__file__, part="last"), "part must be training or"),
        (lambda: NextSymbol(path=__file__, held_out=1e-9), "leaves 0 bytes"),
        (lambda: NextSymbol(path="nothing.txt"), "path='nothing.txt' is no file"),
        (
            lambda: NextSymbol(path=__file__, repeat=0.1),
            "made-up language mean nothing",
        ),
    ],
)
def test_settings_without_meaning_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.fast
@pytest.mark.parametrize("cls", TEXT_TASKS.values())
def test_documentation_is_complete(cls):
    for section in ("Examples:", "References:", "Departures:", "arXiv"):
        assert section in cls.__doc__
    for field in dataclasses.fields(cls):
        assert f"{field.name}: " in cls.__doc__
