"""What each encoding was checked against: the golden numbers of other implementations.

The indices beside the numbers in `tests/golden` say where every case comes from; which
encodings a case concerns is said by its name, in the one table below.
"""

import collections
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "golden"

CONCERNS = (
    (r"rope_", ("rope",)),
    (r"rope_interleaved_ret_interp4_ntk8", ("position_interpolation", "ntk")),
    (r"ropetype_default", ("rope",)),
    (r"ropetype_linear", ("position_interpolation",)),
    (r"ropetype_dynamic", ("dynamic_ntk",)),
    (r"ropetype_yarn", ("yarn",)),
    (r"ropetype_longrope", ("longrope",)),
    (r"ropetype_llama3", ("llama3_rope",)),
    (r"ropetype_proportional", ("p_rope",)),
    (r"ropelegacy", ("dynamic_ntk", "position_interpolation")),
    (
        r"yarnrepo",
        (
            *("position_interpolation", "ntk", "ntk_by_parts", "yarn"),
            *("dynamic_yarn", "dynamic_ntk"),
        ),
    ),
    (r"ntk_mixed", ("su_ntk", "log_scale")),
    (r"rerope", ("rerope",)),
    (r"leaky_rerope", ("leaky_rerope",)),
    (r"selfextend", ("self_extend",)),
    (r"dca", ("dual_chunk",)),
    (r".*_logn", ("log_scale",)),
    (r"xpos", ("xpos",)),
    (r"rope2d", ("rope_2d",)),
    (r"mrope", ("m_rope",)),
    (r"sinusoidal", ("sinusoidal",)),
    (r"shaw", ("shaw",)),
    (r"t5_", ("t5",)),
    (r"transfoxl", ("transformer_xl",)),
    (r"xlnet", ("xlnet",)),
    (r"deberta", ("deberta",)),
    (r"(noisy_)?alibi", ("alibi",)),
    (r"kerple", ("kerple",)),
    (r"sandwich", ("sandwich",)),
    (r"fire", ("fire",)),
    (r"cope", ("cope",)),
    (r"model_(llama_plain|qwen2|gpt_neox|gptj|mistral)", ("rope",)),
    (r"model_llama_yarn", ("yarn",)),
    (r"model_llama_llama3", ("llama3_rope",)),
    (r"model_(bloom|mpt)", ("alibi",)),
    (r"model_t5", ("t5",)),
    (r"model_deberta", ("deberta",)),
    (r"abacus|attn_sinks|mask_", ()),
)
"""The start of a case's name, and encodings that it concerns; all that fit count."""


def golden_cases() -> dict[str, Mapping[str, Any]]:
    """Returns what the indices in `tests/golden` say of each case, by its name."""
    cases: dict[str, Mapping[str, Any]] = {}
    for path in sorted(GOLDEN.glob("*.json")):
        cases |= json.loads(path.read_text())
    return cases


def concerned(case: str) -> tuple[str, ...]:
    """Returns the encodings that a case concerns.

    Raises:
        ValueError: if nothing is known of such a name.
    """
    fitting = [names for start, names in CONCERNS if re.match(start, case)]
    if not fitting:
        raise ValueError(
            f"the golden case {case!r} concerns no known encoding; add the start of "
            "its name to CONCERNS in experiments/catalogue/evidence.py."
        )
    return tuple(dict.fromkeys(name for names in fitting for name in names))


def evidence() -> dict[str, dict[str, int]]:
    """Returns how many cases of each source concern an encoding, by encoding."""
    found: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for case, about in golden_cases().items():
        for name in concerned(case):
            found[name].update(_sources(about["source"]))
    return {name: dict(counted) for name, counted in found.items()}


def _sources(source: Mapping[str, Any]) -> Iterator[str]:
    """Package and version or commit; of each part where a case has several sources."""
    parts = [part for part in source.values() if isinstance(part, Mapping)]
    if parts:
        for part in parts:
            yield from _sources(part)
    elif "commit" in source:
        yield f"{source['package']}@{source['commit'][:7]}"
    else:
        yield f"{source['package']} {source['version']}"
