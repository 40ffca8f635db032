"""Imports go one way: nothing below knows what stands above it."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# A module may import from its own layer and from those before it.
LAYERS = [
    {
        *("typing", "operations", "seeds", "settings", "overriding", "concrete"),
        *("filling", "number_types", "whole_numbers", "manual_axes", "tokens"),
        *("padding", "masks", "positions"),
    },
    {"encodings"},
    {"attention"},
    {"nn", "tasks"},
    {"training", "sharding"},
    {"evaluation", "evaluation_checks", "evaluation_members", "evaluation_parts"}
    | {"evaluation_places", "evaluation_scores", "input_blind", "analysis"},
    {"testing"},
]
FORBIDDEN = {"experiments", "configs", "ml_collections", "absl", "tests"}


def imported(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def layer(part: str) -> int:
    return next(at for at, names in enumerate(LAYERS) if part in names)


MODULES = sorted((ROOT / "ropejax").rglob("*.py"))


@pytest.mark.fast
@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_library_imports_only_from_its_own_layer_down(path):
    for name in imported(path):
        parts = name.split(".")
        assert parts[0] not in FORBIDDEN, f"{path} imports {name}"
        own = path.relative_to(ROOT / "ropejax").parts[0].removesuffix(".py")
        if parts[0] == "ropejax" and len(parts) > 1 and own != "__init__":
            assert layer(parts[1]) <= layer(own), f"{path} imports {name}"


@pytest.mark.fast
@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.py")), ids=str)
def test_configs_import_nothing_of_the_library(path):
    for name in imported(path):
        assert name.split(".")[0] not in {"ropejax", "experiments", "jax", "flax"}, name


@pytest.mark.fast
def test_no_assert_statements_and_no_files_without_a_subject_in_the_library():
    for path in MODULES:
        tree = ast.parse(path.read_text())
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Assert)], (
            path
        )
        assert path.stem not in {"utils", "helpers", "common", "misc"}, path
