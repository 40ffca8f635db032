"""Scores stand beside the right published figures, where that means a thing."""

import pytest

from experiments.report import comparison, mean_gain, published
from experiments.report.published import SOURCES, Figure
from experiments.report.published_parts import published_part
from tests.experiments.evaluation_rows import cells_of, scored

pytestmark = pytest.mark.fast

LENGTHS = (1, 40, *range(41, 501))


def _scored(run_id, right, **changes):
    """A run trained to 40 and scored over 41..500, as published, at seed 0.

    It is right everywhere below 3, as all rows here: so the score is `right`.
    """
    lengths = changes.pop("lengths", LENGTHS)
    there = {"train_max_length": 40, "test_max_length": 500, "lengths": lengths}
    return scored(run_id, right, **(there | changes))


def _compare(*groups):
    return comparison.compare(cells_of(*groups))


def test_the_best_run_is_put_beside_the_published_figure():
    rows = _compare(
        _scored("a", 60), _scored("b", 80, seed=1), _scored("c", 85, learning_rate=1.0)
    )
    ruoss, deletang = rows
    assert ruoss.ours == pytest.approx(85)
    assert ruoss.runs == 3
    assert (ruoss.figure.value, ruoss.figure.standing) == (51.9, "unverified")
    assert ruoss.difference == pytest.approx(85 - 51.9)
    assert (
        ruoss.remark == "100 steps here, not known there; best of 3 here, of 30 there"
    )
    assert ruoss.figure.reference == "Ruoss et al. 2023, arXiv 2305.16843, Table 1"
    # the best Transformer of the other paper; its figure was quoted elsewhere
    assert (deletang.figure.value, deletang.figure.standing) == (62.3, "secondary")
    assert deletang.figure.reference.endswith(
        "Table 2 (quoted in DeltaFormer, Table 5)"
    )
    text = comparison.text_rows([ruoss])[0]
    assert text[2:7] == ["85.0", "3", "51.9", "+33.1", "unverified"]
    assert len(text) == len(comparison.HEAD)


def test_encoding_and_scheme_decide_which_figure_it_is():
    rows = _compare(
        _scored("a", 60, positions="randomized"),
        _scored("b", 70, encoding="transformer_xl", positions="randomized"),
        _scored("c", 50, encoding="alibi(tie_break=True)"),
    )
    values = {(row.figure.encoding, row.figure.positions): row for row in rows}
    assert values["rope", "randomized"].figure.value == 69.9
    assert values["transformer_xl", "randomized"].figure.value == 95.1
    assert values["alibi", "consecutive"].figure.value == 62.3
    assert all("settings of our own" not in row.remark for row in rows)


def test_what_no_paper_has_is_beside_nothing():
    assert _compare(_scored("a", 50, encoding="fire")) == []
    assert _compare(_scored("a", 50, task="bucket_sort(vocab_size=9)")) == []
    assert _compare(_scored("a", 50, positions="randomized", encoding="none")) == []
    assert _compare(_scored("a", 50, test_positions="evenly_spaced")) == []


def test_settings_of_our_own_and_fewer_lengths_are_remarked_on():
    (row, _) = _compare(
        _scored("a", 50, encoding="rope(max_wavelength=8.0)", lengths=(40, 41, 500))
    )
    assert row.remark.startswith(
        "settings of our own: rope(max_wavelength=8.0); scored at 2 of the 460 lengths;"
    )
    assert row.difference == pytest.approx(50 - 51.9)


def test_another_training_than_the_published_one_is_remarked_on():
    config = {
        "train.batch_size": 32,
        "model.num_layers": 2,
        "model.embed_dim": 64,
        "model.kind": "decoder",
    }
    cells = cells_of(_scored("a", 60, step=4500))
    ruoss, deletang = comparison.compare(cells, configs={"a": config})
    assert ruoss.remark.split("; ") == [
        "4,500 steps here, not known there",
        "batch 32 here, 128 there",
        "2 layers of width 64 here, 5 of 64 there",
        "decoder here, encoder there",
        "best of 1 here, of 30 there",
    ]
    assert deletang.remark.startswith("4,500 steps here, 1,000,000 there; batch 32")
    assert deletang.remark.endswith("best of 1 here, of 150 there")
    # what all remarks say is said once
    shared = comparison.shared_remarks([ruoss, deletang])
    assert shared == ruoss.remark.split("; ")[1:4]
    assert comparison.text_rows([ruoss], shared)[0][-1] == (
        "4,500 steps here, not known there; best of 1 here, of 30 there"
    )
    # trained as published, nothing is left to say
    config |= {"train.batch_size": 128, "model.num_layers": 5, "model.kind": "encoder"}
    assert not [*comparison.unlike_training(deletang.figure, 10**6, 150, config)]


@pytest.mark.parametrize(
    ("encoding", "part", "own"),
    [
        (
            "compose(rope=Rotary(), scale=LogScale(count=all))",
            *("rope", "rope with LogScale(count=all)"),
        ),
        ("compose(base=Rotary())", "rope", ""),
        ("compose(base=ALiBi(tie_break=True))", "alibi", "ALiBi(tie_break=True)"),
        ("compose(a=Rotary(), b=ALiBi())", "", "compose(a=Rotary(), b=ALiBi())"),
        ("compose(scale=LogScale())", "", "compose(scale=LogScale())"),
        ("sinusoidal", "sinusoidal", ""),
    ],
)
def test_a_composition_of_one_encoding_and_scales_stands_beside_that(
    encoding, part, own
):
    assert published_part(encoding) == (part, own)


def test_rope_with_log_n_is_compared_as_what_it_is():
    scaled = "compose(rope=Rotary(), scale=LogScale())"
    groups = [
        _scored(f"{positions}", right, encoding=scaled, positions=positions)
        for positions, right in (("consecutive", 50), ("randomized", 70))
    ]
    rows = _compare(*groups)
    assert [(row.figure.encoding, row.ours) for row in rows] == [
        ("rope", pytest.approx(50)),
        ("rope", pytest.approx(70)),
        ("transformer", pytest.approx(50)),
    ]
    assert all("of our own: rope with LogScale()" in row.remark for row in rows)
    gain = mean_gain.mean_gain(cells_of(*groups))
    assert gain.ours == pytest.approx(20)
    assert gain.encodings == ("RoPE",)  # the rows' title
    # beside the papers' best Transformer, only where there is no plain one
    plain = _scored("plain", 40)
    (best,) = [
        r for r in _compare(*groups, plain) if r.figure.encoding == "transformer"
    ]
    assert best.ours == pytest.approx(40)


def test_what_has_no_published_score_is_named_with_the_reason():
    cells = cells_of(
        _scored("a", 50, encoding="fire", encoding_title="FIRE"),
        _scored("b", 50, task="copy", task_title="Copy"),
        _scored("c", 50, positions="equal_mean"),
        _scored("d", 50, positions="randomized", encoding="none", encoding_title="No"),
        _scored("e", 50),
    )
    assert comparison.without_figure(cells) == (
        "encodings FIRE; positions equal_mean; settings No, randomized; tasks Copy"
    )
    assert comparison.without_figure(cells_of(_scored("e", 50))) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"train_max_length": 20},
        {"test_max_length": 100, "lengths": range(1, 101)},
        {"lengths": range(1, 101)},
    ],
)
def test_scores_over_other_lengths_have_no_difference(change):
    row = _compare(_scored("a", 50, **change))[0]
    assert row.difference is None
    assert "there" in row.remark
    assert comparison.text_rows([row])[0][5] == "–"


def test_the_best_transformer_is_over_the_encodings_of_the_paper():
    rows = _compare(
        _scored("a", 60),
        _scored("b", 70, encoding="none"),
        _scored("c", 90, encoding="learned"),  # not among those of 2022
        _scored("d", 95, positions="randomized"),
    )
    (row,) = [row for row in rows if row.figure.source.arxiv == "2207.02098"]
    assert row.ours == pytest.approx(70)
    assert row.label.startswith("best of 2: ")
    assert row.runs == 2


def test_a_recurrent_network_is_beside_its_own_row():
    (row,) = _compare(_scored("a", 60, encoding="lstm", positions="consecutive"))
    assert (row.figure.value, row.figure.standing) == (60.9, "secondary")


def test_the_mean_gain_is_over_tasks_with_both():
    tasks = ("reverse_string", "even_pairs")
    groups = [
        _scored(f"{task}{positions}{encoding}", right, **names)
        for task, plain, moved in zip(tasks, (50, 60), (70, 100), strict=True)
        for positions, encoding, right in (
            ("consecutive", "rope", plain),
            ("consecutive", "none", plain - 5),
            ("randomized", "rope", moved),
            ("randomized", "fire", 99),  # in no paper: does not count
        )
        for names in [{"task": task, "positions": positions, "encoding": encoding}]
    ]
    alone = _scored("x", 90, task="bucket_sort")
    gain = mean_gain.mean_gain(cells_of(*groups, alone))
    assert gain.ours == pytest.approx((20 + 40) / 2)
    assert (gain.tasks, gain.of) == (2, 15)
    assert (gain.figure.value, gain.figure.standing) == (12.0, "read")
    assert gain.difference is None
    assert mean_gain.mean_gain(cells_of(alone)) is None


def test_the_difference_of_the_mean_gain_is_given_over_the_same_tasks():
    source = SOURCES["ruoss2023"]
    figures = [
        Figure(source, "t", task, "rope", positions, 50.0, "read", "")
        for task in ("reverse_string",)
        for positions in ("consecutive", "randomized")
    ]
    figures.append(Figure(source, "abstract", "", "", "", 12.0, "read", ""))
    cells = cells_of(_scored("a", 50), _scored("b", 70, positions="randomized"))
    assert mean_gain.mean_gain(cells, figures).difference == pytest.approx(8)


@pytest.mark.parametrize(
    ("difference", "text"),
    [(1.26, "+1.3"), (-0.04, "0.0"), (-2.0, "−2.0"), (None, "–"), (0.0, "0.0")],
)
def test_differences_have_their_sign(difference, text):
    assert comparison.signed(difference) == text


def test_every_known_figure_has_a_standing_that_is_printed():
    cells = cells_of(_scored("a", 50, task="cycle_navigation"))
    standings = {row[6] for row in comparison.text_rows(comparison.compare(cells))}
    assert standings == {"unverified", "read"}
    assert standings <= set(published.STANDINGS)
