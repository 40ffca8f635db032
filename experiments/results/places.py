"""Counts by place in the answer: one stored row a length, one row a place for people.

A row of kind "place" holds a length's counts as lists, so that a length is there whole
or not at all, and thousands of places take one line. It begins at the first place that
was asked for: of windows of text that slide, only the end is scored.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = {
    "loss": "place_loss",
    "outputs": "place_outputs",
    "correct": "place_correct",
    "scored": "place_tokens",
    "first_wrong": "place_first_wrong",
    "blind_correct": "place_blind_correct",
}
"""Where each array of `ropejax.evaluation_places.PlaceScores` is stored."""


def stored(counted: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the fields of a row from counts by place, by name as in `COLUMNS`."""
    asked = np.flatnonzero(counted["outputs"])
    first = int(asked[0]) if len(asked) else 0
    lists = {COLUMNS[name]: own[first:].tolist() for name, own in counted.items()}
    return {"first_place": 1 + first} | lists


def counted(row: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns the counts by place that a row holds, by name as in `COLUMNS`."""
    before = row["first_place"] - 1
    kind = {"loss": np.float64}
    return {
        name: np.pad(np.array(row[column], kind.get(name, np.int64)), (before, 0))
        for name, column in COLUMNS.items()
    }


def one_row_each(table: pa.Table) -> pa.Table:
    """Turns rows of kind "place", one a length, into one row a place.

    Args:
        table: as `results.read` gives them.

    Returns:
        The columns that are no lists, and for each place:

        * `place`: from 1, the first symbol of the answer (of text, of the window);
        * `correct`, `tokens`, `accuracy`: symbols right, those scored, their share;
        * `loss`, `outputs`: mean cross-entropy in nats, and what it is a mean over;
        * `input_blind`: accuracy of the best predictor that does not see the input;
        * `first_wrong`: sequences whose first mistake is here;
        * `right_so_far`: share of sequences without a mistake up to here.

        Shares and means are null where nothing was counted.
    """
    lists = {name: table[column].combine_chunks() for name, column in COLUMNS.items()}
    many = pc.fill_null(pc.list_value_length(lists["outputs"]), 0).to_numpy()
    of_row = np.repeat(np.arange(len(table)), many)
    starts = np.cumsum(many) - many
    within = np.arange(len(of_row)) - starts[of_row]
    flat = {
        name: pc.list_flatten(own).to_numpy(zero_copy_only=False)
        for name, own in lists.items()
    }
    hidden = {"first_place", *COLUMNS.values()}
    kept = [name for name in table.column_names if name not in hidden]
    places = table.select(kept).take(pa.array(of_row))
    first = table["first_place"].to_numpy()[of_row] if len(table) else of_row
    rows = table["rows"].to_numpy()[of_row] if len(table) else of_row
    so_far = np.cumsum(flat["first_wrong"])
    before = np.concatenate([[0], so_far])[starts][of_row] if len(of_row) else of_row
    new = {
        "correct": pa.array(flat["correct"], pa.int64()),
        "tokens": pa.array(flat["scored"], pa.int64()),
        "accuracy": _ratio(flat["correct"], flat["scored"]),
        "loss": _ratio(flat["loss"], flat["outputs"]),
        "outputs": pa.array(flat["outputs"], pa.int64()),
        "input_blind": _ratio(flat["blind_correct"], flat["scored"]),
        "first_wrong": pa.array(flat["first_wrong"], pa.int64()),
        "right_so_far": _ratio(rows - (so_far - before), rows),
    }
    after = places.column_names.index("length") + 1
    places = places.add_column(after, "place", pa.array(first + within, pa.int64()))
    for name, column in new.items():
        places = places.append_column(name, column)
    return places


def _ratio(part: np.ndarray, whole: np.ndarray) -> pa.Array:
    whole = np.asarray(whole, np.float64)
    known = whole > 0
    shares = np.divide(part, whole, out=np.zeros(len(whole)), where=known)
    return pa.array(shares, pa.float64(), mask=~known)
