"""The page on attention runs as it stands, block after block, and its links lead on."""

import pathlib
import re

DOCS = pathlib.Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "attention.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_run_in_order(capsys):
    names = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, "attention.md", "exec"), names)
    shown = capsys.readouterr().out
    for title in ("RoPE", "ALiBi", "T5 bias", "FoX forget gate"):
        assert f"{title} (2, 10, 4, 8)" in shown
    assert "auto: blockwise" in shown


def test_the_page_has_its_blocks_and_links():
    assert len(BLOCKS) == 7
    targets = set(re.findall(r"\]\((?!http)([^)#]+)\)", PAGE))
    assert targets == {"encodings.md", "masks.md", "engines.md"}
    for target in targets:
        assert (DOCS / target).exists(), target
