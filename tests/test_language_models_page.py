"""The page on language models runs as it stands, block after block."""

import pathlib
import re

DOCS = pathlib.Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "language_models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_run_in_order(capsys):
    names = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, "language_models.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "(2, 40, 50)" in shown
    assert "(2, 9)" in shown
    assert re.search(r"^ 40 tokens: \d\.\d\d found, \d+\.\d nats$", shown, re.MULTILINE)
    within = re.findall(r"^(.{26}) +(\d+\.\d\d) +(\d+\.\d\d)$", shown, re.MULTILINE)
    losses = {name.strip(): (own, beyond) for name, own, beyond in within}
    assert losses.keys() == names["models"].keys()
    # What leaves short distances alone alters nothing where no distance is long.
    trained = losses["as trained"]
    assert losses["log n"][0] == trained[0]
    assert all(losses[name] != trained for name in losses if name != "as trained")
    assert "llama {'rope_type': 'yarn', 'factor': 4.0" in shown


def test_the_page_has_its_blocks_and_links():
    assert len(BLOCKS) == 10
    targets = set(re.findall(r"\]\((?!http)([^)#]+)\)", PAGE))
    picture = "images/extension_smollm2.png"
    assert targets == {"attention.md", "masks.md", "runs.md", picture}
    for target in targets:
        assert (DOCS / target).exists(), target
