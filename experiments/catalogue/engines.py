"""The page on attention engines: what each serves, and why not where it does not."""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from experiments.catalogue import markdown
from experiments.catalogue.masks import example, public
from ropejax import attention, masks
from ropejax.attention.capabilities import ENGINES, obstacle
from ropejax.attention.normalizers import Normalizer
from ropejax.attention.requests import Request
from ropejax.attention.sequence_parallel import FORMS, check_methods
from ropejax.encodings import ENCODINGS, ALiBi, Encoding, Kerple, Rotary, compose

_HEAD = """\
# Attention engines

<!-- Made by `python -m experiments.catalogue --page=engines > docs/engines.md`; do not
edit. -->

`attend(..., implementation=...)` computes one meaning of attention in several ways:

- **dense**: the whole matrix of logits, the readable reference.
- **blockwise**: exact, memory linear in length, anywhere, gradients to everything.
- **fused**: the platform's own kernel, cuDNN's on NVIDIA GPUs, splash attention on
  TPUs.
- **pallas**: a kernel of ropejax for biases of head and position, on NVIDIA GPUs; by
  name only.

"auto" takes fused where it serves, dense for few pairs, and blockwise else; it warns
where a GPU or TPU has to do without its kernel, and where only the whole matrix will
do. An engine that cannot serve a request is refused by name. A request is served if no
table below has an obstacle to a part of it; `ropejax.attention.explain` says so for a
whole request, and this page is what it says of each part alone. "GPU" below is one of
NVIDIA's with bfloat16, "TPU" has bfloat16 too.

Tests compare every engine with dense on a CPU: fused through the plain implementation
of its call, splash attention and pallas in interpret mode; and they lower fused and
pallas for an H200 and a TPU v5e. Neither has run on such a device yet.
"""

FAST = MappingProxyType({"platform": "gpu", "dtype": "bfloat16"})
"""Where every engine has a chance."""

PLATFORMS = ("cpu", "gpu", "rocm", "tpu")
DTYPES = ("float32", "bfloat16", "float16")


class Column(NamedTuple):
    """An engine in a place.

    Attributes:
        engine: its name.
        changes: what the place makes of a request.
    """

    engine: str
    changes: Mapping[str, Any]


COLUMNS = MappingProxyType(
    {
        "dense": Column("dense", {}),
        "blockwise": Column("blockwise", {}),
        "fused, GPU": Column("fused", {"platform": "gpu"}),
        "fused, TPU": Column("fused", {"platform": "tpu"}),
        "pallas, GPU": Column("pallas", {"platform": "gpu"}),
    }
)

WISHES = MappingProxyType(
    {
        "padding": {"padding": True},
        "segments": {"segments": True},
        "segments and padding": {"segments": True, "padding": True},
        "queries and keys not known to be the same tokens": {"aligned": False},
        "the same without a mask": {"aligned": False, "mask": None},
        "dropout": {"extras": ("dropout",)},
        "the log-sum-exp": {"extras": ("a log-sum-exp",)},
        "a factor for each row": {"extras": ("a factor for each row",)},
        "a scale for each head": {"extras": ("a scale that is an array",)},
        "256 channels a head": {"view_width": 256, "value_width": 256},
        "512 channels a head": {"view_width": 512, "value_width": 512},
        "arrays over several devices, outside `jax.shard_map`": {"one_device": False},
        "100 tokens": {"num_queries": 100, "num_keys": 100},
    }
)
"""What else may be asked, under RoPE and a causal mask."""


def normalizers() -> dict[str, Normalizer]:
    """Returns the library's normalizers by name, with their default settings."""
    kinds = {
        name: kind
        for name, kind in vars(attention).items()
        if isinstance(kind, type) and issubclass(kind, Normalizer)
    }
    return {name: kinds[name]() for name in sorted(kinds) if name != "Normalizer"}


def encodings() -> dict[str, Encoding]:
    """Returns the catalogue, and settings that differ from it, by how they are said."""
    found = {
        f"[`{name}`](encodings.md#{name})": encoding()
        for name, encoding in ENCODINGS.items()
    }
    return found | {
        "`ALiBi(learned=True)`": ALiBi(learned=True),
        "`ALiBi(tie_break=True)`": ALiBi(tie_break=True),
        "`compose(Rotary(), ALiBi())`": compose(Rotary(), ALiBi()),
        "`compose(ALiBi(), Kerple())`": compose(ALiBi(), Kerple()),
    }


def requests_by_encoding(mask) -> dict[str, Request]:
    """Returns a request for every encoding, under one mask."""
    return {
        name: Request(encoding, mask, **FAST) for name, encoding in encodings().items()
    }


def requests_by_mask() -> dict[str, Request]:
    """Returns a request for an example of every mask, without an encoding."""
    found = {"no mask": Request(Encoding(), None, **FAST)}
    for kind in public().values():
        mask = example(kind)
        found[f"`{mask!r}`"] = Request(Encoding(), mask, **FAST)
    for mask in (masks.Window(8, 0), masks.Window(8, None), masks.Window(None, 0)):
        found[f"`{mask!r}`"] = Request(Encoding(), mask, **FAST)
    return found


def requests_by_normalizer() -> dict[str, Request]:
    """Returns a request for every normalizer, without an encoding."""
    return {
        f"`{name}`": Request(Encoding(), masks.Causal(), normalizer, **FAST)
        for name, normalizer in normalizers().items()
    }


def requests_by_wish() -> dict[str, Request]:
    """Returns a request for every further wish, under RoPE."""
    plain = Request(ENCODINGS["rope"](), masks.Causal(), **FAST)
    return {
        wish: dataclasses.replace(plain, **changes) for wish, changes in WISHES.items()
    }


def answers(request: Request) -> dict[str, str]:
    """Returns the obstacle in each column, "" where there is none."""
    return {
        name: obstacle(column.engine, dataclasses.replace(request, **column.changes))
        for name, column in COLUMNS.items()
    }


def page() -> str:
    """Returns the page, in Markdown."""
    causal = requests_by_encoding(masks.Causal())
    full = {
        name: request
        for name, request in requests_by_encoding(None).items()
        if not request.encoding.causal_only
        and answers(request) != answers(causal[name])
    }
    return "\n".join(
        [
            _HEAD,
            *_section("Encodings, causal mask", "encoding", causal),
            *_section("Encodings without a mask, where that differs", "encoding", full),
            *_section("Masks", "mask", requests_by_mask()),
            *_section("Normalizers", "normalizer", requests_by_normalizer()),
            *_section("Further wishes", "wish", requests_by_wish()),
            *_spread(),
            *_places(),
            *_choices(),
        ]
    )


def _section(title: str, subject: str, requests: Mapping[str, Request]) -> list[str]:
    rows = []
    for name, request in requests.items():
        found = answers(request)
        whys = dict.fromkeys(why for why in found.values() if why)
        cells = ["no" if why else "yes" for why in found.values()]
        rows.append([name, *cells, "; ".join(whys)])
    return [f"## {title}", "", *_table([subject, *COLUMNS, "why not"], rows)]


def spread_answers(encoding: Encoding, normalizer: Normalizer) -> dict[str, str]:
    """Returns the obstacle to each form of sequence parallelism, "" if none."""
    found = {}
    for form in FORMS:
        try:
            check_methods(attention.SequenceParallel(form), encoding, normalizer)
            found[form] = ""
        except ValueError as error:
            found[form] = str(error)
    return found


def _spread() -> list[str]:
    """What a sequence over several devices cannot do."""
    softmax = attention.Softmax()
    methods = {name: (e, softmax) for name, e in encodings().items()} | {
        f"`{name}`": (Encoding(), normalizer)
        for name, normalizer in normalizers().items()
    }
    rows = []
    for name, (encoding, normalizer) in methods.items():
        found = spread_answers(encoding, normalizer)
        whys = dict.fromkeys(why for why in found.values() if why)
        if whys:
            cells = ["no" if why else "yes" for why in found.values()]
            rows.append([name, *cells, " ".join(whys)])
    said = (
        "`SequenceParallel(form)` as `implementation` spreads a sequence over a mesh "
        "axis, blockwise on each device. Whatever is not listed is served in every "
        "form; masks that differ by head are refused by `ulysses`, where heads must "
        "divide by the devices."
    )
    columns = ["method", *FORMS, "why not"]
    return [
        "## Sequence parallelism",
        "",
        markdown.wrapped(said),
        "",
        *_table(columns, rows),
    ]


def _places() -> list[str]:
    """Which engines run where, in which dtype, for no encoding and a causal mask."""
    rows = []
    for platform in PLATFORMS:
        for dtype in DTYPES:
            request = Request(
                Encoding(), masks.Causal(), platform=platform, dtype=dtype
            )
            whys = {engine: obstacle(engine, request) for engine in ENGINES}
            rows.append(
                [
                    platform,
                    dtype,
                    *("no" if why else "yes" for why in whys.values()),
                    "; ".join(dict.fromkeys(why for why in whys.values() if why)),
                ]
            )
    columns = ["platform", "dtype", *ENGINES, "why not"]
    return ["## Platforms", "", *_table(columns, rows)]


def _choices() -> list[str]:
    lines = ["## What auto takes", ""]
    for request in _examples():
        choice, *_ = attention.explain(request).splitlines()
        lines.append(
            markdown.wrapped(
                f"- {request.encoding.title}, {request.num_queries} tokens, "
                f"{request.dtype}, {request.platform}: {choice.removeprefix('auto: ')}",
                "  ",
            )
        )
    return [*lines, ""]


def _examples() -> Iterator[Request]:
    for platform, dtype in (("cpu", "float32"), ("gpu", "bfloat16")):
        for name in ("rope", "alibi", "rerope"):
            for length in (512, 8192):
                yield Request(
                    ENCODINGS[name](),
                    masks.Causal(),
                    platform=platform,
                    dtype=dtype,
                    num_queries=length,
                    num_keys=length,
                )


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return [*(f"| {' | '.join(line)} |" for line in cells), ""]
