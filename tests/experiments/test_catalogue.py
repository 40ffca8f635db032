"""The pages of the docs say what the library is, and are up to date."""

import pathlib
import re

import pytest

from experiments.catalogue import __main__ as catalogue
from experiments.catalogue import docstrings as catalogue_docstrings
from experiments.catalogue import evidence as catalogue_evidence
from experiments.catalogue import markdown
from experiments.catalogue.shapes import parameter_shapes
from ropejax import encodings
from ropejax.encodings import ENCODINGS

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def entries():
    sources = catalogue_evidence.evidence()
    return {name: catalogue.describe(name, sources.get(name, {})) for name in ENCODINGS}


@pytest.mark.parametrize(
    "name", ["encodings", "engines", "masks", "positions", "tasks"]
)
def test_the_committed_page_is_up_to_date(name, capsys):
    assert catalogue.main([f"--page={name}", "--compile_cache="]) == 0
    made = capsys.readouterr().out
    committed = (DOCS / f"{name}.md").read_text()
    page = "" if name == "encodings" else f" --page={name}"
    remedy = f"run python -m experiments.catalogue{page} > docs/{name}.md"
    assert made == committed, remedy


def test_every_encoding_has_every_column(entries):
    assert list(entries) == list(ENCODINGS)
    for name, entry in entries.items():
        for column, value in entry._asdict().items():
            empty = {"hooks", "options"} if name == "none" else {"options"}
            assert value or column in empty, (name, column)
        assert set(entry.promises) == set(catalogue.PROMISES)
        assert "dense" in entry.engines


def test_every_option_says_what_it_means(entries):
    silent = [
        f"{name}.{option}"
        for name, entry in entries.items()
        for option, (_, meaning) in entry.options.items()
        if not meaning
    ]
    assert not silent


def test_nearly_every_encoding_gives_a_formula(entries):
    calculating = re.compile(r"`[^`]*[-+*/(\[|][^`]*`")
    words = {name for name, e in entries.items() if not calculating.search(e.formula)}
    assert words <= {"p_rope", "rope_2d", "log_scale"}
    assert entries["alibi"].formula.startswith("`logits - slope_h |i - j|`")
    assert entries["position_interpolation"].formula.endswith("`f / scale`.")
    assert "min(i mod c + c, chunk_size)" in entries["dual_chunk"].formula


def test_hooks_are_those_that_act(entries):
    assert entries["none"].hooks == ()
    assert entries["alibi"].hooks == ("prepare", "bias")
    assert entries["rope"].hooks == ("prepare", "queries", "keys")
    assert entries["rerope"].hooks == ("prepare", "queries", "keys", "product")
    assert entries["shaw"].hooks == ("product", "mix")
    assert entries["vo_rope"].hooks == ("prepare", "values", "outputs")
    assert "carry" in entries["path"].hooks


def test_promises_and_settings_are_those_of_the_defaults(entries):
    assert entries["rerope"].promises["causal only"]
    assert not entries["self_extend"].promises["shift invariant"]
    assert entries["dynamic_ntk"].promises["length dependent"]
    assert not entries["rope"].promises["by distance"]
    assert entries["rerope"].options["window"] == (
        "`20`",
        "longest distance, in tokens.",
    )
    assert entries["yarn"].options["beta_fast"][1].startswith("turns within N")


def test_shapes_are_in_letters():
    shapes = parameter_shapes(encodings.TransformerXL())
    assert shapes == {
        "shared": {"u": "[N, H]", "v": "[N, H]"},
        "layer": {"w": "[D, N, H]"},
    }
    assert parameter_shapes(encodings.PaTH())["layer"]["taps"] == "[3, K H]"
    assert parameter_shapes(encodings.Rotary(trainable="layer"))["layer"] == {
        "log_frequencies": "[H / 2]"
    }


def test_every_golden_case_concerns_an_encoding_or_says_that_it_does_not():
    known = {name for _, names in catalogue_evidence.CONCERNS for name in names}
    assert known <= set(ENCODINGS)
    for case in catalogue_evidence.golden_cases():
        catalogue_evidence.concerned(case)
    assert catalogue_evidence.concerned("rerope_w8_L33_H6_gqa_logn8") == (
        "rerope",
        "log_scale",
    )
    assert catalogue_evidence.concerned("abacus_basic") == ()
    with pytest.raises(ValueError, match="'fourier_H4' concerns no known encoding"):
        catalogue_evidence.concerned("fourier_H4")


def test_sources_are_counted_with_their_versions():
    found = catalogue_evidence.evidence()
    assert found["xpos"] == {"microsoft/torchscale@4d1e0e8": 2}
    assert found["llama3_rope"] == {"transformers 5.24.0": 1}
    source = {"package": "several", "one": {"package": "a", "version": "1"}}
    assert list(catalogue_evidence._sources(source)) == ["a 1"]


def test_docstrings_are_read_as_they_are_written():
    class Base:
        """A base.

        Attributes:
            size: how many, of
                them all.
            name: what it is called.
        """

    class Derived(Base):
        """Says `a_b` and "c".

        It is `x * (1 + r)`,
        wrapped.

        Attributes:
            name: another: one.

        References:
            Somebody `y + z`.
        """

    assert catalogue_docstrings.formula(Derived()) == "It is `x * (1 + r)`, wrapped."
    assert catalogue_docstrings.meanings(Derived()) == {
        "size": "how many, of them all.",
        "name": "another: one.",
    }


def test_lines_are_never_broken_within_code():
    text = "word " * 16 + "`a code that is long` end"
    assert markdown.wrapped(text).splitlines()[1] == "`a code that is long` end"
    table = markdown.options_table({"a": ("`1`", "`x | y`")})
    assert table[-1] == "| `a` | `1` | `x \\| y` |"
