"""Counts by place: stored a row a length, read a row a place, printed and drawn."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from experiments.report import by_place, place_tables, plots_places
from experiments.results import export, places, store
from ropejax.evaluation_places import PlaceScores
from ropejax.tasks.next_symbol import NextSymbol
from ropejax.tasks.reverse_string import ReverseString
from tests.experiments.evaluation_rows import TRAIN_MAX, cells_of, scored

pytestmark = pytest.mark.fast


def counts(many, rows=8, seed=0):
    """Any counts that may be: each scored row is wrong at one place at the most."""
    draw = np.random.default_rng(seed)
    first_wrong = np.bincount(draw.integers(0, 2 * many, rows), minlength=2 * many)
    first_wrong = first_wrong[:many]
    return {
        "loss": draw.uniform(0, rows, many),
        "outputs": np.full(many, rows),
        "correct": rows - first_wrong,
        "scored": np.full(many, rows),
        "first_wrong": first_wrong,
        "blind_correct": draw.integers(0, rows, many),
    }


def place_rows(run_id, many, *, lengths=(2, 4, 6), in_place=False, **changes):
    """Rows of kind "place" beside those of `scored`, `many` places at each length."""
    common = scored(run_id, 50, **changes)[0]
    kept = {k: v for k, v in common.items() if k not in {"tokens", "exact", "correct"}}
    del kept["input_blind"]
    return [
        kept
        | {"length": n, "rows": 8, "in_place": in_place}
        | places.stored(counts(many, seed=n + common["seed"]))
        for n in lengths
    ]


def written(folder, *groups):
    for rows in groups:
        with store.ResultsWriter(folder, rows[0]["run_id"]) as writer:
            for row in rows:
                writer.write("place", **row)
    return folder


def test_a_row_a_length_comes_back_as_a_row_a_place(tmp_path):
    """Before and after compaction, beside older shards that know no places."""
    with store.ResultsWriter(tmp_path, "a") as writer:
        writer.evaluation(scored("a", 50))
    store.compact(tmp_path)
    late = counts(3, seed=9)
    late["outputs"][:2] = late["scored"][:2] = 0  # the end of a window alone
    rows = place_rows("a", 3, lengths=(2,))
    rows += [rows[0] | {"length": 5} | places.stored(late)]
    written(tmp_path, rows, place_rows("b", 4, lengths=(3,)))
    before = export.rows(tmp_path, "place")
    store.compact(tmp_path)
    table = export.rows(tmp_path, "place")
    assert table.to_pylist() == before.to_pylist()
    assert len(store.read(tmp_path)) == 6  # evaluations are as they were
    found = table.to_pylist()
    assert [(r["run_id"], r["length"], r["place"]) for r in found] == [
        *(("a", 2, 1), ("a", 2, 2), ("a", 2, 3), ("a", 5, 3)),
        *(("b", 3, 1), ("b", 3, 2), ("b", 3, 3), ("b", 3, 4)),
    ]
    given = {("a", 2): counts(3, seed=2), ("a", 5): late, ("b", 3): counts(4, seed=3)}
    so_far = {}
    for row in found:
        key = row["run_id"], row["length"]
        own = {name: array[row["place"] - 1] for name, array in given[key].items()}
        so_far[key] = so_far.get(key, 0) + own["first_wrong"]
        assert row["accuracy"] == own["correct"] / own["scored"]
        assert row["input_blind"] == own["blind_correct"] / own["scored"]
        assert row["loss"] == own["loss"] / own["outputs"]
        assert row["right_so_far"] == pytest.approx(1 - so_far[key] / row["rows"])
    summed = store.query(
        tmp_path, "SELECT length, sum(correct) AS n FROM place GROUP BY 1 ORDER BY 1"
    )
    wanted = [sum(counts(3, seed=2)["correct"]), sum(counts(4, seed=3)["correct"])]
    assert [*map(int, summed["n"].to_pylist())] == [*wanted, late["correct"][2]]
    again = places.counted(store.read(tmp_path, "place").to_pylist()[1])
    assert again["outputs"].tolist() == [0, 0, 8]
    assert len(export.rows(tmp_path, "place", sql="SELECT * FROM place LIMIT 0")) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"place_correct": [1, 2]}, "must be of one size"),
        ({"place_correct": [1, 2.5, 3]}, "place_correct must be a list of integers"),
        ({"place_loss": 3.0}, "place_loss must be a list of numbers"),
        ({"first_place": 0}, "first_place from 1 up"),
        ({"first_place": None}, r"lacks \['first_place'\]"),
    ],
)
def test_lists_that_cannot_be_are_refused(tmp_path, change, message):
    (row,) = place_rows("a", 3, lengths=(2,))
    with pytest.raises(ValueError, match=message):
        written(tmp_path, [row | change])
    assert not (tmp_path / "results").exists()


def test_tables_cut_long_answers_into_eighths():
    own = {name: np.arange(16) for name in counts(16)} | {"scored": np.full(16, 40)}
    long = PlaceScores(**own | {"outputs": np.full(16, 40)}, rows=40)
    short = PlaceScores(**counts(3), rows=8)

    class Score:
        def __init__(self, places):
            self.places = places

    def shown(task):
        console = Console(file=io.StringIO(), width=200)
        scores = {3: Score(short), 16: Score(long)}
        place_tables.print_places(task, scores, console)
        return [line.split() for line in console.file.getvalue().splitlines()]

    lines = shown(ReverseString())
    # Places 1 and 2 have 0 and 1 of 40 right: 1 of 80.
    eighths = [f"{100 * (4 * i + 1) / 80:.1f}" for i in range(8)]
    assert ["16", "right", *eighths] in lines
    assert ["length", *(f"{i}/8" for i in range(1, 9))] in lines
    assert ["length", "1", "2", "3"] in lines
    text = shown(NextSymbol())
    of = lambda first: math.exp(sum(range(first, 16)) / (40 * (16 - first)))
    wanted = f"slide by 16: {of(0):.3f}, by 8: {of(8):.3f}, by 4: {of(12):.3f}"
    assert any(wanted in " ".join(line) for line in text)


def test_pictures_show_each_place_with_its_baseline(tmp_path):
    cells = cells_of(*(scored(f"run{n}", 50, seed=n) for n in (0, 1)))
    rows = [place_rows(f"run{n}", 5, seed=n) for n in (0, 1)]
    # An answer of one symbol has no course; an older step is not the one reported.
    single = place_rows("run0", 1, lengths=(3,))
    older = place_rows("run1", 5, lengths=(5,), seed=1, step=50)
    table = store.read(written(tmp_path, *rows, single, older), "place")
    found = by_place.by_run(table)
    figure = plots_places.accuracy_by_place(found, cells)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [f"Reverse String, length {n}" for n in (2, 4, 6)]
    for axes, length in zip(figure.axes, (2, 4, 6), strict=True):
        line, blind = axes.lines
        mean = np.mean([counts(5, seed=length + s)["correct"] for s in (0, 1)], 0) / 8
        np.testing.assert_allclose(line.get_ydata(), mean)
        mean = np.mean(
            [counts(5, seed=length + s)["blind_correct"] for s in (0, 1)], axis=0
        )
        np.testing.assert_allclose(blind.get_ydata(), mean / 8)
        assert line.get_xdata().tolist() == [1, 2, 3, 4, 5]
    assert not plots_places.on_text(found, cells)
    with pytest.raises(ValueError, match="--by-place"):
        plots_places.perplexity_by_place(found, cells)

    text = written(tmp_path / "text", place_rows("run0", 100, in_place=True))
    found = by_place.by_run(store.read(text, "place"))
    figure = plots_places.perplexity_by_place(found, cells)
    (line,) = figure.axes[0].lines
    loss = counts(100, seed=2)["loss"]
    of = lambda first: math.exp(loss[first : first + 3].sum() / 24)
    np.testing.assert_allclose(line.get_ydata()[:2], [of(0), of(3)])
    assert line.get_xdata()[:2].tolist() == [2, 5]
    shaded = figure.axes[0].patches[0].get_extents()
    shaded = shaded.transformed(figure.axes[0].transData.inverted())
    assert (shaded.x0, shaded.x1) == pytest.approx((0, TRAIN_MAX))

    diverged = place_rows("run0", 100, in_place=True)
    diverged[1]["place_loss"] = [math.nan] * 100
    text = written(tmp_path / "diverged", diverged)
    found = by_place.by_run(store.read(text, "place"))
    figure = plots_places.perplexity_by_place(found, cells)
    assert [len(axes.lines) for axes in figure.axes] == [1, 0, 1]
