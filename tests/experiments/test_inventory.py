"""What runs were made on, and what their configs share."""

import json

import pyarrow as pa
import pytest

from experiments.report import inventory

pytestmark = pytest.mark.fast


def test_runs_are_grouped_by_device_versions_and_code():
    made = [
        ("a", "H200", {"jax": "0.10"}, "c0ffee", False),
        ("b", "H200", {"jax": "0.12"}, "c0ffee", False),
        ("c", "H200", {"jax": "0.12"}, "c0ffee", False),
        ("d", "H200", {"jax": "0.12"}, "c0ffee", True),
        ("e", None, None, None, None),
    ]
    names = ("run_id", "device", "versions", "git_commit", "git_dirty")
    columns = dict(zip(names, zip(*made, strict=True), strict=True))
    columns["versions"] = [v and json.dumps(v) for v in columns["versions"]]
    found = inventory.origins(pa.table({n: list(c) for n, c in columns.items()}))
    assert [(one.name, one.runs) for one in found] == [
        ("A", ("b", "c")),
        ("B", ("a",)),
        ("C", ("d",)),
        ("D", ("e",)),
    ]
    assert found[0].versions == {"jax": "0.12"}
    assert found[2].commit == "c0ffee with changes"
    assert (found[3].device, found[3].commit) == ("unknown", "unknown")


def test_more_than_26_origins_have_two_letters():
    assert [inventory._letters(n) for n in (0, 25, 26, 51, 52, 701, 702)] == [
        *("A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"),
    ]


def test_what_configs_share_and_where_they_differ():
    configs = [
        {"train.seed": 0, "model.layers": 2, "study": "s"},
        {"train.seed": 1, "model.layers": 2, "study": "s", "new": 1},
    ]
    shared, varying = inventory.shared_and_varying(configs)
    assert shared == {"model.layers": 2, "study": "s"}
    assert varying == ["train.seed", "new"]
    assert inventory.shared_and_varying([]) == ({}, [])
