"""RoPE extensions: frequencies and factors of public code, and their identities."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from ropejax.encodings import (
    Dims,
    LongRoPE,
    Rotary,
    SuNTKRoPE,
    YaRN,
    rotary_from_hf,
)
from ropejax.encodings.angles import rotary_frequencies, rotation_angles
from ropejax.encodings.frequency_map import AttentionFactor, Chain, FrequencyMap
from ropejax.encodings.interpolation import (
    FullTurns,
    HighestFrequencies,
    Llama3Scaling,
    NTKAware,
    PositionInterpolation,
    SuNTK,
)
from ropejax.encodings.length_scaling import (
    DynamicInterpolation,
    DynamicNTK,
    LongRoPEScaling,
)
from ropejax.encodings.rope_base import digits, smallest_base, waves
from ropejax.encodings.yarn_map import (
    ByParts,
    ThreeBands,
    YaRNScaling,
    kept_by_parts,
)
from ropejax.tokens import tokens
from tests.encodings.rotary_cases import (
    golden,
    logits,
    names,
    prepared,
    random,
    swapped,
    turned,
)

BASE = 10_000.0


def scaled(frequency_map, width, length=None, base=BASE):
    """New frequencies of a map, `[R]`."""
    frequencies = rotary_frequencies(width, base)
    if frequency_map.length_dependent:
        length = jnp.array([length])
    ratios = frequency_map.ratios(frequencies, base, length)
    return np.asarray(frequencies * np.asarray(ratios).reshape(-1))


def factor(frequency_map, length=None):
    length = None if length is None else jnp.array([length])
    return float(np.asarray(frequency_map.factor(length)).reshape(()))


@pytest.mark.parametrize("name", names("ropetype_"))
def test_types_of_transformers_have_its_frequencies_and_factor(name):
    arrays, params, tolerance = golden(name)
    config = params["config"]
    rope = rotary_from_hf(config)
    width = rope.rotary_width(params["head_dim"])
    frequencies = rotary_frequencies(width, rope.max_wavelength)
    for row, length in enumerate(params["seq_lens"]):
        if rope.length_dependent:
            # Without a length the source assumes one that it was trained on.
            length = jnp.array([1 if length is None else length])
        ratios = rope.frequencies.ratios(frequencies, rope.max_wavelength, length)
        ours = frequencies * np.asarray(ratios, np.float64).reshape(-1)
        np.testing.assert_allclose(ours, arrays["inv_freq"][row], **tolerance)
        ours = np.asarray(rope.frequencies.factor(length)).reshape(())
        np.testing.assert_allclose(ours, arrays["attention_scaling"][row], rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["ropetype_yarn_qwen2_f4", "ropetype_longrope_phi4style_partial75"]
)
def test_rotations_carry_frequencies_and_factor(name):
    arrays, params, _ = golden(name)
    rope = rotary_from_hf(params["config"])
    head_dim, pairs = params["head_dim"], arrays["inv_freq"].shape[1]
    # One pair of channels (1, 0) shows cosine and sine of its angle.
    x = jnp.zeros((1, len(arrays["positions"]), 1, head_dim)).at[..., :pairs].set(1.0)
    positions = jnp.asarray(arrays["positions"], jnp.int32)[None]
    where = tokens(positions.shape[1], positions=positions)
    ours = turned(rope, x, where)[0][0, :, 0]
    # Few tokens, so LongRoPE is at its short factors, row 0. A frequency that is one
    # float32 step off turns by 6e-8 a token.
    allowed = 2e-6 + 2e-7 * arrays["positions"][:, None]
    for part, which in ((ours[:, :pairs], "cos"), (ours[:, pairs:], "sin")):
        difference = part[:, :pairs] - arrays[f"{which}_f64"][0]
        assert (np.abs(difference) < allowed).all()


@pytest.mark.parametrize("name", names("yarnrepo_"))
def test_extensions_of_the_yarn_repository(name):
    arrays, params, _ = golden(name)
    width, trained = params["head_dim"], params["original_max_position_embeddings"]
    scale, alpha = float(params["scale"]), float(params["alpha"])
    length = params["dynamic_length"]
    bands = ThreeBands(scale, trained)
    cases = {
        "ntk": NTKAware(alpha),
        "ntk_by_parts": bands,
        "ntk_by_parts_nf05_ef075": dataclasses.replace(
            bands, ntk_weight=0.5, kept_weight=0.75
        ),
        "yarn": YaRNScaling(scale, trained),
        "dynamic_yarn": YaRNScaling(train_length=trained, dynamic=True),
        "dynamic_ntk": DynamicNTK(2.0, trained),
        "dynamic_ntk_by_parts": ThreeBands(train_length=trained, dynamic=True),
    }
    for case, frequency_map in cases.items():
        ours = scaled(frequency_map, width, length)
        np.testing.assert_allclose(ours, arrays[f"{case}_inv_freq"], rtol=2e-6)
    for case in ("yarn", "dynamic_yarn"):
        ours = factor(cases[case], length)
        np.testing.assert_allclose(ours, arrays[f"{case}_mscale"], rtol=1e-6)
    cases["linear"] = PositionInterpolation(scale)
    cases["dynamic_linear"] = DynamicInterpolation(trained)
    for case in ("yarn", "linear", "dynamic_linear", "dynamic_yarn", "ntk"):
        frequencies = scaled(cases[case], width, length)
        angles = arrays["positions"][:, None] * frequencies
        ours = np.cos(angles) * factor(cases[case], length)
        allowed = 2e-6 + 2e-7 * arrays["positions"][:, None]
        assert (np.abs(ours - arrays[f"{case}_cos"]) < allowed).all()


def test_legacy_classes_of_transformers():
    arrays, params, tolerance = golden("ropelegacy_431_dyn_lin")
    trained, scale = params["max_position_embeddings"], params["factor"]
    dynamic = scaled(DynamicNTK(scale, trained), 16, params["length"])
    np.testing.assert_allclose(dynamic, arrays["dyn_inv_freq"], rtol=1e-6)
    positions = np.arange(params["length"])[:, None]
    np.testing.assert_allclose(
        np.cos(positions * dynamic), arrays["dyn_cos"], **tolerance
    )
    linear = positions * scaled(PositionInterpolation(scale), 16)
    np.testing.assert_allclose(np.cos(linear), arrays["lin_cos"], **tolerance)
    np.testing.assert_allclose(np.sin(linear), arrays["lin_sin"], **tolerance)


def test_mixed_ntk_of_the_rerope_repository():
    arrays, params, tolerance = golden("ntk_mixed_bojone_D16")
    mixed = SuNTK(params["k"], "mixed", params["b"])
    np.testing.assert_allclose(scaled(mixed, 16), arrays["inv_freq"], rtol=1e-6)
    rope = Rotary(frequencies=mixed)
    _, k = turned(rope, swapped(arrays["k"]), tokens(33))
    np.testing.assert_allclose(swapped(k), arrays["k_rot"], **tolerance)
    q, _ = turned(rope, swapped(arrays["q"]), tokens(33))
    q = swapped(q) * arrays["logn_scale"][:, None]
    np.testing.assert_allclose(q, arrays["q_rot"], rtol=1e-5, atol=2e-5)


@pytest.mark.fast
def test_identities_of_su_forms():
    exact = lambda **settings: scaled(SuNTK(8.0, **settings), 16)
    np.testing.assert_allclose(exact(form="mixed", exponent=1.0), exact(form="fixed"))
    interpolated = scaled(PositionInterpolation(8.0), 16)
    np.testing.assert_allclose(exact(form="mixed", exponent=0.0), interpolated)
    np.testing.assert_allclose(exact(form="old"), rotary_frequencies(16, 8 * BASE))
    # Fixed and NTK-aware both divide the slowest frequency by the scale.
    np.testing.assert_allclose(exact(form="fixed")[-1], interpolated[-1])
    np.testing.assert_allclose(scaled(NTKAware(8.0), 16)[-1], interpolated[-1])
    np.testing.assert_allclose(
        scaled(NTKAware(8.0), 16), rotary_frequencies(16, BASE * 8 ** (16 / 14))
    )


@pytest.mark.parametrize(
    "frequency_map",
    [
        PositionInterpolation(1.0),
        NTKAware(1.0),
        SuNTK(1.0, "old"),
        SuNTK(1.0, "fixed"),
        SuNTK(1.0, "mixed"),
        ByParts(1.0, 64, form="paper"),
        ByParts(1.0, 64, form="code"),
        YaRNScaling(1.0, 64),
        ThreeBands(1.0, 64),
        Llama3Scaling(1.0, 64),
        HighestFrequencies(1.0),
        FullTurns(2**31),
        DynamicNTK(4.0, 64),
        DynamicInterpolation(64),
        YaRNScaling(train_length=64, dynamic=True),
        LongRoPEScaling(train_length=64),
        Chain((PositionInterpolation(2.0), PositionInterpolation(0.5))),
    ],
    ids=lambda m: f"{m.title} {getattr(m, 'form', '')}",
)
def test_at_scale_one_every_extension_is_rope(frequency_map):
    ours = scaled(frequency_map, 16, length=64)
    np.testing.assert_allclose(ours, rotary_frequencies(16), rtol=1e-6)
    np.testing.assert_allclose(factor(frequency_map, 64), 1.0, atol=1e-7)


@pytest.mark.fast
def test_yarn_frequencies_and_factors_of_the_fault_report():
    """B02: the explicit factor is not dropped, the default one has the right size."""
    ratios = YaRNScaling(16.0, 2048).ratios(rotary_frequencies(8), BASE)
    np.testing.assert_allclose(ratios, [1, 1, 0.53125, 0.0625])
    assert YaRNScaling(64.0, attention_factor=1.0).factor() == 1.0
    np.testing.assert_allclose(YaRNScaling(64.0).factor(), 1.415888308)
    defaults = [YaRNScaling(float(s)).factor() for s in (1, 2, 4, 8, 16, 32)]
    expected = [1.0, 1.069314718, 1.138629436, 1.207944154, 1.277258872, 1.34657359]
    np.testing.assert_allclose(defaults, expected, rtol=1e-9)
    assert YaRNScaling(0.5).factor() == 1.0
    weighted = YaRNScaling(40.0, mscale=0.707, mscale_all_dim=1.0)
    m = lambda weight: 0.1 * weight * np.log(40) + 1
    np.testing.assert_allclose(weighted.factor(), m(0.707) / m(1.0))
    np.testing.assert_allclose(weighted.softmax_factor(), m(1.0) ** 2)


def test_logits_carry_the_factor_twice():
    q, k, at = random(1, 4, 2, 8), random(1, 4, 2, 8, seed=1), tokens(4)
    plain = Rotary(frequencies=PositionInterpolation(2.0))
    raised = Chain((PositionInterpolation(2.0), AttentionFactor(1.5)))
    ours = logits(dataclasses.replace(plain, frequencies=raised), q, k, at)
    np.testing.assert_allclose(ours, 2.25 * logits(plain, q, k, at), rtol=1e-5)


def test_paper_and_code_of_ntk_by_parts_differ_in_the_middle_only():
    paper = ByParts(8.0, 4096, form="paper").ratios(rotary_frequencies(128), BASE)
    code = ByParts(8.0, 4096, form="code").ratios(rotary_frequencies(128), BASE)
    turns = rotary_frequencies(128) * 4096 / (2 * np.pi)
    kept = np.clip((turns - 1) / 31, 0, 1)
    np.testing.assert_allclose(paper, kept + (1 - kept) / 8)
    np.testing.assert_allclose(paper[[0, -1]], code[[0, -1]])
    assert np.abs(paper - code).max() > 0.2


@pytest.mark.fast
@pytest.mark.parametrize("truncate", [True, False])
def test_a_ramp_that_lies_outside_all_pairs_does_not_turn_around(truncate):
    """The code's form keeps what the paper's does, where that is all or nothing."""
    for base, trained, kept in ((1e4, 1, 0), (1e4, 6, 0), (10.0, 10**6, 1)):
        known = rotary_frequencies(64, base), base, trained, 32.0, 1.0
        np.testing.assert_array_equal(kept_by_parts(*known, form="paper"), kept)
        np.testing.assert_array_equal(kept_by_parts(*known, truncate=truncate), kept)
    for base in (2.0, 1e2, 1e4):
        for trained in np.geomspace(1, 2**30, 61):
            known = rotary_frequencies(16, base), base, trained
            for fast, slow in ((32.0, 1.0), (1.25, 0.75)):
                parts = kept_by_parts(*known, fast, slow, truncate=truncate)
                assert (np.diff(parts) <= 0).all(), (base, trained, fast)


def test_the_older_bands_divide_all_frequencies_of_very_short_lengths():
    np.testing.assert_allclose(
        scaled(ThreeBands(4.0, 4), 64), rotary_frequencies(64) / 4
    )
    slow = scaled(ThreeBands(4.0, 5), 64)[1:]
    np.testing.assert_allclose(slow, rotary_frequencies(64)[1:] / 4)


def test_partial_frequencies():
    kept = HighestFrequencies(0.25).ratios(rotary_frequencies(256), BASE)
    assert kept.sum() == 32
    assert kept[:32].all()
    frequencies = rotary_frequencies(16)
    turning = FullTurns(100).ratios(frequencies, BASE) > 0
    np.testing.assert_array_equal(turning, 2 * np.pi / frequencies <= 100)
    assert 0 < turning.sum() < 8


def test_pairs_without_frequency_do_not_see_positions():
    rope = Rotary(frequencies=HighestFrequencies(0.5))
    x = random(1, 5, 1, 8)
    ours, _ = turned(rope, x, tokens(5))
    for channels in ((2, 3), (6, 7)):
        np.testing.assert_array_equal(ours[..., channels], x[..., channels])


def test_longrope_switches_at_the_trained_length_and_keeps_first_tokens():
    long, short = (2.0, 3.0, 4.0, 5.0), (1.0, 1.1, 1.2, 1.3)
    rope = LongRoPE(
        long_factors=list(long), short_factors=short, train_length=8, scale=4.0
    )
    for length, factors in ((8, short), (9, long)):
        x = random(1, length, 1, 8)
        at = tokens(length)
        params = prepared(rope, at, x)
        frequencies = rope.frequencies_of_pairs(params, 8)[0]
        np.testing.assert_allclose(frequencies, rotary_frequencies(8) / factors, 1e-6)
        np.testing.assert_allclose(
            params["factor"], np.sqrt(1 + np.log(4) / np.log(8)), rtol=1e-6
        )
    kept = dataclasses.replace(rope, keep_first=3)
    ours, plain = (turned(e, x, at)[0] for e in (kept, Rotary()))
    np.testing.assert_allclose(ours[:, :3], plain[:, :3], atol=1e-6)
    scaled_rest = turned(rope, x, at)[0][:, 3:]
    np.testing.assert_allclose(ours[:, 3:], scaled_rest, atol=1e-6)
    assert rope.shift_invariant
    assert not kept.shift_invariant


def test_longrope_interpolates_factors_with_the_length():
    moving = LongRoPEScaling((2.0, 4.0), train_length=8, scale=5.0, interpolate=True)
    ratios = moving.ratios(rotary_frequencies(4), BASE, jnp.array([8, 24, 40]))
    expected = 1 / np.array([[1.0, 1.0], [1.5, 2.5], [2.0, 4.0]])
    np.testing.assert_allclose(ratios, expected, rtol=1e-6)
    factors = moving.factor(jnp.array([8, 40]))
    np.testing.assert_allclose(factors, [1, np.sqrt(1 + np.log(5) / np.log(8))], 1e-6)


class TestDynamicNTK:
    """B04: all keys turn by the base of the current length, however they came."""

    ROPE = Rotary(frequencies=DynamicNTK(2.0, 16))

    @pytest.mark.fast
    def test_base_follows_the_length(self):
        for length, base in {
            16: 10_000.0,
            17: 11_700.4715,
            20: 17_170.7136,
            24: 25_198.4210,
            32: 43_267.4871,
        }.items():
            ours = scaled(self.ROPE.frequencies, 8, length)
            np.testing.assert_allclose(ours, rotary_frequencies(8, base), rtol=1e-6)

    def test_a_step_equals_the_last_row_of_a_full_pass(self):
        x = jnp.ones((1, 24, 1, 8))
        full = logits(self.ROPE, x, x, tokens(24))[0, 0]
        np.testing.assert_allclose(full[23, 20], 3.963226523, atol=1e-5)
        np.testing.assert_allclose(full[23, 10], 6.834679700, atol=1e-5)
        step = tokens(1, offset=23)
        key = tokens(24)
        params = self.ROPE.prepare({}, {}, step, key, Dims(1, 1, 8, 8))
        last = logits(self.ROPE, x[:, :1], x, step, params, key=key)[0, 0, 0]
        np.testing.assert_allclose(last, full[23], atol=1e-5)

    def test_padding_does_not_count_and_rows_are_on_their_own(self):
        valid = jnp.arange(24)[None] < jnp.array([[17], [24]])
        at = tokens(24, valid=valid)
        params = self.ROPE.prepare({}, {}, at, at, Dims(1, 1, 8, 8))
        both = self.ROPE.frequencies_of_pairs(params, 8)
        for row, length in enumerate((17, 24)):
            alone = scaled(self.ROPE.frequencies, 8, length)
            np.testing.assert_allclose(both[row], alone, rtol=1e-6)

    def test_it_depends_on_the_length_and_says_so(self):
        assert self.ROPE.length_dependent
        x = random(1, 24, 1, 8)
        short = logits(self.ROPE, x[:, :17], x[:, :17], tokens(17))
        long = logits(self.ROPE, x, x, tokens(24))[:, :, :17, :17]
        assert np.abs(short - long).max() > 1e-2

    def test_it_is_refused_without_prepare(self):
        with pytest.raises(ValueError, match="prepare"):
            self.ROPE.queries({}, random(1, 2, 1, 8), tokens(2))

    def test_it_compiles_with_a_traced_length(self):
        x, valid = random(1, 24, 1, 8), jnp.arange(24)[None] < 20
        ours, _ = turned(self.ROPE, x, tokens(24, valid=valid))
        expected, _ = turned(Rotary(max_wavelength=17_170.7136), x, tokens(24))
        np.testing.assert_allclose(ours, expected, atol=1e-4)
        assert np.abs(ours - turned(Rotary(), x, tokens(24))[0]).max() > 1e-2


@pytest.mark.parametrize(
    "build",
    [
        lambda: PositionInterpolation(0.0),
        lambda: SuNTK(2.0, "mixd"),
        lambda: YaRN(form="codes"),
        lambda: YaRN(mscale=1.0),
        lambda: YaRN(mscale=1.0, mscale_all_dim=1.0, attention_factor=1.0),
        lambda: YaRN(beta_fast=1.0, beta_slow=2.0),
        lambda: YaRNScaling(4.0, dynamic=True),
        lambda: Llama3Scaling(low=4.0, high=1.0),
        lambda: HighestFrequencies(1.5),
        lambda: LongRoPEScaling((1.0, -1.0)),
        lambda: LongRoPEScaling((2.0,), interpolate=True),
        lambda: LongRoPE(keep_first=-3),
        lambda: LongRoPE(attention_factor=-1.0),
        lambda: SuNTKRoPE(exponent=-1.0),
        lambda: YaRN(mscale=-1.0, mscale_all_dim=1.0),
        lambda: ByParts(kept_weight=-1.0),
        lambda: ThreeBands(ntk_weight=-1.0),
        lambda: ThreeBands(kept_weight=-1.0),
        lambda: Chain((DynamicNTK(), PositionInterpolation(2.0))),
        lambda: LongRoPE(long_factors=(1.0, 2.0)).check(Dims(1, 1, 8, 8)),
        lambda: Rotary(frequencies=NTKAware(2.0)).check(Dims(1, 1, 2, 2)),
        lambda: Rotary(frequencies=DynamicNTK(), round_frequencies=True),
    ],
)
def test_settings_out_of_range_are_refused(build):
    with pytest.raises(ValueError, match=r"must|needs|give|drop|only|concerns"):
        build()


def test_smallest_bases_are_those_of_the_article():
    np.testing.assert_allclose(smallest_base(1024, step=1.01), 4293.44, rtol=1e-4)
    assert round(smallest_base(2048, step=1.003) / 1e3) == 12
    # Below the bound some distance within the length has a negative sum.
    sums = np.cos(np.arange(1024)[:, None] * rotary_frequencies(128, 4200.0)).sum(1)
    assert sums.min() < 0


@pytest.mark.fast
def test_smallest_bases_of_known_formulas():
    """At distance 2 two pairs give `cos 2 + cos(2 / sqrt(b))`, zero at pi together."""
    np.testing.assert_allclose(
        smallest_base(3, width=4), (2 / (np.pi - 2)) ** 2, rtol=2e-6
    )
    # A pair and its copy at base 1 are enough where one radian a token is.
    assert smallest_base(1, width=2) == 1
    assert smallest_base(2, width=2) == 1
    assert smallest_base(2, width=64) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 3, "width": 2}, "no base keeps"),
        ({"length": 0}, "length must be positive"),
        ({"length": 2.5}, "length must be a whole number"),
        ({"length": float("inf")}, "length must be a whole number"),
        ({"length": 3, "width": 5}, "even width"),
        ({"length": 3, "width": 4.0}, "width must be a whole number"),
        ({"length": 3, "step": 1 + 1e-15}, "finite step"),
        ({"length": 3, "step": float("nan")}, "finite step"),
        ({"length": 3, "step": float("inf")}, "finite step"),
    ],
)
def test_a_search_for_a_base_that_would_not_end_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        smallest_base(**arguments)


def test_digits_and_waves_are_one_view():
    assert digits(jnp.array([425]), 10, 4).tolist() == [[5, 2, 4, 0]]
    with pytest.raises(ValueError, match="31 bits"):
        digits(jnp.array([1]), 10, 12)
    angles = rotation_angles(jnp.arange(50), rotary_frequencies(8))
    ours = waves(np.arange(50), BASE ** (2 / 8), 4)
    np.testing.assert_allclose(np.cos(angles), np.cos(ours), atol=1e-6)


def test_the_default_map_changes_nothing():
    assert (FrequencyMap().ratios(rotary_frequencies(8), BASE) == 1).all()
