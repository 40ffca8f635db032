"""Published figures say what they are of, and how far they may be trusted."""

import collections

import numpy as np
import pytest

from experiments.report import published
from ropejax.encodings import ENCODINGS
from ropejax.positions import POSITIONS
from ropejax.tasks import TASKS

pytestmark = pytest.mark.fast

HEAD = "source,where,task,encoding,positions,value,standing,via\n"


def test_all_tasks_encodings_and_schemes_are_there_under_their_names():
    figures = [figure for figure in published.load() if figure.task]
    tables = collections.Counter(figure.source.arxiv for figure in figures)
    assert tables == {"2305.16843": 15 * 11, "2207.02098": 15 * 5}
    assert {figure.task for figure in figures} == set(TASKS)
    networks = {"rnn", "stack_rnn", "tape_rnn", "lstm"}
    for figure in figures:
        assert figure.encoding in {*ENCODINGS, *networks, "transformer"}
        assert figure.positions in ({""} if figure.encoding in networks else POSITIONS)


def test_only_what_was_read_says_so():
    """Of both tables' figures one is in a text that was read; six rows are quoted."""
    by_standing = collections.defaultdict(list)
    for figure in published.load():
        by_standing[figure.standing].append(figure)
    read = {(f.task, f.encoding, f.value, f.where) for f in by_standing["read"]}
    assert read == {
        ("cycle_navigation", "transformer", 61.9, "text"),
        ("", "", 12.0, "abstract"),
    }
    quoted = by_standing["secondary"]
    assert len(quoted) == 6 * 5
    assert {figure.via for figure in quoted} == {"quoted in DeltaFormer, Table 5"}
    assert {figure.source.arxiv for figure in quoted} == {"2207.02098"}
    assert len(by_standing["unverified"]) == 165 + 75 - 31


def test_the_recalled_table_has_the_mean_gain_of_the_abstract():
    """The abstract states 12.0 points; the recalled figures give 12.03."""
    best = collections.defaultdict(list)
    for figure in published.load():
        if figure.source.arxiv == "2305.16843" and figure.task:
            best[figure.task, figure.positions].append(figure.value)
    gains = [
        max(best[task, "randomized"]) - max(best[task, "consecutive"]) for task in TASKS
    ]
    assert np.mean(gains) == pytest.approx(12.03, abs=0.005)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ruos,t,a,rope,,5,read,", "line 2: source must be one of .*'ruos'"),
        ("ruoss2023,t,a,rope,,5,sure,", "line 2: standing must be one of .*'sure'"),
        ("ruoss2023,t,a,rope,,500,read,", "value must be in percent, 0..100, got 500"),
        ("ruoss2023,t,a,rope,,5,secondary,", "must say what quotes it"),
        ("ruoss2023,t,a,rope,,5,read,\n" * 2, "line 3: .* is there already"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path, line, message):
    path = tmp_path / "published.csv"
    path.write_text(HEAD + line)
    with pytest.raises(ValueError, match=message):
        published.load(path)
