"""The README's code runs as it stands, and its files and commands exist."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_python_blocks_run(block):
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.fast
def test_readme_has_its_blocks_and_links_lead_somewhere():
    assert len(BLOCKS) == 5
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.fast
def test_commands_name_modules_that_exist():
    for module in set(re.findall(r"python -m ([\w.]+)", README)):
        path = ROOT / module.replace(".", "/")
        places = (path.with_suffix(".py"), path / "__main__.py")
        assert any(place.exists() for place in places), module
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^make ([\w-]+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
