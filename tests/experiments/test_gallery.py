"""The pictures show what the methods are: each number drawn has a closed form."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.gallery import __main__ as gallery
from experiments.gallery import masks as gallery_masks
from experiments.gallery import numbers as gallery_numbers
from experiments.gallery import pictures as gallery_pictures
from experiments.gallery import rotary as gallery_rotary
from experiments.gallery import rotary_pictures as gallery_rotary_pictures
from experiments.gallery import traits
from experiments.gallery.panels import panels_of
from experiments.gallery.sheet import contact_sheet
from ropejax import encodings, masks
from ropejax.encodings.frequency_map import AttentionFactor

LENGTH = gallery_pictures.LENGTH
PAIRS = gallery_numbers.DIMS.head_dim // 2
FREQUENCIES = 10_000.0 ** (-np.arange(PAIRS) / PAIRS)


def drawn(picture, *variants):
    """Ordinates of the lines that a picture draws, by label."""
    axes = Figure().subplots()
    picture(axes, {encoding.title: encoding for encoding in variants})
    return {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}


def test_the_distance_drawn_for_rerope_is_cut_off_at_the_window():
    shown = drawn(gallery_rotary_pictures.seen_distances, encodings.ReRoPE(window=7))
    np.testing.assert_array_equal(shown["ReRoPE"], np.minimum(np.arange(LENGTH), 7))
    np.testing.assert_array_equal(shown["RoPE"], np.arange(LENGTH))


def test_the_distance_drawn_for_leaky_rerope_has_its_slope():
    leaky = encodings.LeakyReRoPE(window=8, factor=4.0)
    shown = drawn(gallery_rotary_pictures.seen_distances, leaky)["Leaky ReRoPE"]
    r = np.arange(LENGTH)
    np.testing.assert_allclose(shown, np.where(r < 8, r, 8 + (r - 8) / 4))


def test_the_matrix_of_self_extend_counts_groups():
    seen = gallery_rotary.distance_matrix(encodings.SelfExtend(window=8, group=3), 20)
    for i in range(20):
        for j in range(i + 1):
            near = i - j < 8
            assert seen[i, j] == (i - j if near else i // 3 - j // 3 + 8 - 8 // 3)


def test_the_matrix_of_dual_chunk_attention_is_made_of_chunks():
    seen = gallery_rotary.distance_matrix(
        encodings.DualChunk(chunk_size=9, local=3), 30
    )
    for i in range(30):
        for j in range(i + 1):
            chunks = i // 6 - j // 6
            place = [i % 6, min(i % 6 + 6, 9), 9][min(chunks, 2)]
            assert seen[i, j] == place - j % 6


def test_the_decay_bound_is_its_closed_form_at_distance_0_and_bounds_products():
    shown = drawn(gallery_rotary_pictures.decay_bound, encodings.Rotary())["RoPE"]
    assert shown[0] == pytest.approx((PAIRS + 1) / 2)
    distances = np.arange(len(shown))
    random = np.random.default_rng(0)
    content = random.normal(size=(50, PAIRS)) + 1j * random.normal(size=(50, PAIRS))
    products = (content @ np.exp(1j * np.outer(FREQUENCIES, distances))).real
    steps = np.abs(np.diff(content, axis=1, append=0)).max(axis=1)
    assert (np.abs(products) <= steps[:, None] * PAIRS * shown * (1 + 1e-9)).all()


def test_the_bound_grows_by_the_factor_on_both_sides():
    twice = encodings.Rotary(frequencies=AttentionFactor(2.0))
    bounds = [
        gallery_rotary.bound_by_distance(e, 9) for e in (encodings.Rotary(), twice)
    ]
    np.testing.assert_allclose(bounds[1], 4 * bounds[0])


def test_products_of_equal_content_are_mean_cosines_of_the_distance():
    shown = drawn(gallery_rotary_pictures.products, encodings.Rotary())["RoPE"]
    expected = np.cos(np.outer(np.arange(len(shown)), FREQUENCIES)).mean(axis=1)
    np.testing.assert_allclose(shown, expected, atol=1e-5)


def test_products_of_xpos_in_one_pair_fade_as_its_zeta_says():
    shown = gallery_rotary.product_by_distance(
        encodings.XPos(), 64, channels=slice(8, None, PAIRS)
    )
    r = np.arange(65)
    zeta = (2 * 8 / (2 * PAIRS) + 0.4) / 1.4
    expected = np.cos(r * FREQUENCIES[8]) * zeta ** (r / 512)
    np.testing.assert_allclose(shown, expected, atol=1e-5)


def test_frequencies_drawn_are_those_of_the_extension():
    halved = drawn(
        gallery_rotary_pictures.frequency_ratios, encodings.InterpolatedRoPE(scale=2.0)
    )
    np.testing.assert_allclose(halved["Position interpolation"], 0.5)
    kept = drawn(gallery_rotary_pictures.wavelengths, encodings.PRoPE(fraction=0.75))
    np.testing.assert_allclose(
        kept["p-RoPE"], 2 * np.pi / FREQUENCIES[: PAIRS * 3 // 4]
    )
    grown = drawn(
        gallery_rotary_pictures.frequency_ratios,
        encodings.DynamicNTKRoPE(train_length=40),
    )
    assert list(grown) == ["length 40", "length 80", "length 160"]
    for times, ratios in zip((1, 2, 4), grown.values(), strict=True):
        exponent = np.arange(PAIRS) / (PAIRS - 1)
        np.testing.assert_allclose(ratios, times**-exponent, rtol=1e-5)


def test_a_line_a_head_of_alibi_is_minus_its_slope_times_the_distance():
    axes = Figure().subplots()
    gallery_pictures.alone_by_head(axes, {"": encodings.ALiBi()})
    assert len(axes.lines) == 8
    for head, line in enumerate(axes.lines, start=1):
        expected = -(2.0**-head) * np.abs(line.get_xdata())
        np.testing.assert_allclose(line.get_ydata(), expected)


def test_similarity_of_sinusoids_is_a_mean_cosine_of_the_distance():
    vectors = gallery_numbers.position_vectors(encodings.Sinusoidal(), 12)
    similar = gallery_numbers.similarity(vectors)
    width = vectors.shape[1]
    waves = 10_000.0 ** (-np.arange(0, width, 2) / width)
    r = np.arange(12)[:, None] - np.arange(12)
    np.testing.assert_allclose(
        similar, np.cos(r[..., None] * waves).mean(-1), atol=1e-5
    )


def test_values_of_vo_rope_are_seen_turned_by_the_distance():
    seen = gallery_numbers.value_by_distance(encodings.VORotary(), 16)
    expected = np.cos(np.outer(np.arange(17), FREQUENCIES)).mean(axis=1)
    np.testing.assert_allclose(seen, expected, atol=1e-5)


def test_a_product_on_the_grid_is_that_of_both_offsets():
    grid = gallery_rotary.product_on_grid(encodings.AxialRotary(), 3)
    waves = 10_000.0 ** (-2 * np.arange(PAIRS // 2) / PAIRS)
    each = np.cos(np.outer(np.arange(-3, 4), waves)).mean(axis=1)
    np.testing.assert_allclose(grid, (each[:, None] + each) / 2, atol=1e-5)
    mixed = encodings.MixedRotary(directions="axes", max_wavelength=10_000.0)
    np.testing.assert_allclose(
        gallery_rotary.product_on_grid(mixed, 3), grid, atol=1e-5
    )


def test_position_alone_is_what_is_left_of_logits_without_content():
    silent = gallery_numbers.no_content(encodings.Rotary(), 3).values
    np.testing.assert_array_equal(silent, 0)
    assert gallery_numbers.no_content(encodings.BiasedRotary(), 3).values.all()


def test_forgetting_changes_an_example_by_what_was_forgotten_since():
    shown = gallery_numbers.example_logits(encodings.Forgetting(), 8).by_position
    rows, columns = np.triu_indices(8, 1)
    assert np.isnan(shown[rows, columns]).all()
    np.testing.assert_allclose(np.diag(shown), 0, atol=1e-5)
    for i in range(2, 8):
        gates = np.diff(shown[i, : i + 1])
        np.testing.assert_allclose(gates[:-1], np.diff(shown[i - 1, :i]), atol=1e-4)
        assert (gates > 0).all()


def test_without_an_encoding_an_example_is_not_changed():
    changed = gallery_numbers.example_logits(encodings.Encoding(), 8).by_position
    np.testing.assert_array_equal(changed, 0)


def test_every_encoding_has_a_panel_and_no_panel_is_empty_of_meaning():
    titles = {
        name: [title for title, _ in panels_of(gallery.variants_of(name))]
        for name in encodings.ENCODINGS
    }
    assert all(titles.values())
    assert "Distance seen" in titles["rerope"]
    assert "Distance seen, pair by pair" in titles["dual_chunk"]
    assert "Distance seen, pair by pair" not in titles["rerope"]
    assert "Long-term decay, bound" in titles["rope"]
    assert "Position alone, by head" in titles["t5"]
    assert "Position alone, by head" not in titles["rope"]
    assert "Logits of an example" in titles["path"]
    assert titles["log_scale"] == ["Factor on queries"]
    assert titles["urpe"] == ["Factor on weights, by head"]


def test_factors_on_weights_are_the_numbers_of_their_offsets():
    urpe = encodings.URPE(clip=3)
    offsets, values = gallery_numbers.weight_factors(urpe, 5)
    np.testing.assert_array_equal(offsets, np.arange(-5, 6))
    table = np.asarray(gallery_numbers.start(urpe)["table"])
    np.testing.assert_array_equal(values, table[np.clip(offsets, -3, 3) + 3].T)


def test_pictures_are_written_and_lie_on_the_contact_sheet(tmp_path, capsys):
    names = ["rerope", "alibi", "mask_lambda"]
    code = gallery.main(
        [f"--out={tmp_path}", f"--only={','.join(names)}", "--compile_cache="]
    )
    assert code == 0
    paths = [tmp_path / f"{name}.png" for name in names]
    sheet = tmp_path / "contact_sheet.png"
    assert capsys.readouterr().out.split() == [str(p) for p in [*paths, sheet]]
    sizes = [matplotlib.image.imread(path).shape for path in paths]
    assert [wide for _, wide, _ in sizes] == [3 * 480, 2 * 480, 480]
    shown = matplotlib.image.imread(sheet)
    assert shown.shape[0] > sizes[0][0] / 2
    assert shown.std() > 0.05


def test_the_contact_sheet_holds_every_picture_whole_and_in_order():
    sizes = ((20, 40), (30, 20), (20, 60))
    shades = [np.full((*size, 3), n / 4) for n, size in enumerate(sizes)]
    sheet = contact_sheet(shades, width=80)
    for shade, (tall, wide) in zip((0.0, 0.25, 0.5), sizes, strict=True):
        rows, columns, _ = np.nonzero(np.isclose(sheet, shade))
        assert np.ptp(rows) + 1 == tall / 2
        assert np.ptp(columns) + 1 == wide / 2


def test_a_sheet_of_a_few_pictures_is_no_larger_than_they_are():
    sizes = ((20, 40), (30, 20))
    sheet = contact_sheet([np.zeros((*size, 3)) for size in sizes])
    gap = 16
    assert sheet.shape == (15 + 2 * gap, 20 + 10 + 3 * gap, 3)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--only=rope"], "--out is missing"),
        (["--out=x", "--only=rop"], "Did you mean 'rope'"),
        (["--out=x", "--onyl=rope"], "Did you mean '--only'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(argv, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words):
        gallery.main([*argv, "--compile_cache="])
    assert not list(tmp_path.iterdir())


def test_every_mask_has_a_picture():
    public = {
        value
        for value in vars(masks).values()
        if isinstance(value, type) and issubclass(value, masks.Mask)
    }
    drawn = set().union(*map(gallery_masks.kinds_of, gallery_masks.MASKS.values()))
    assert public - {masks.Mask} == drawn


def test_the_picture_of_a_mask_is_its_matrix():
    axes = gallery_masks.mask_figure("lambda").axes[0]
    shown = np.asarray(axes.images[0].get_array())
    i, j = np.indices(shown.shape)
    np.testing.assert_array_equal(shown, (j <= i) & ((j < 4) | (i - j < 8)))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key (index)", "query (index)")
    assert len(gallery_masks.mask_figure("per_head").axes) == 4


def test_what_only_multiplies_content_says_nothing_without_any():
    """FoPE's coefficients are learned, and of queries of zeros they make zeros."""
    found = {
        name: traits.speaks_alone(encodings.ENCODINGS[name]())
        for name in ("fope", "soft_cap", "alibi", "kerple_weighted")
    }
    assert found == {
        "fope": False,
        "soft_cap": False,
        "alibi": True,
        "kerple_weighted": True,
    }
