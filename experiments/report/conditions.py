"""Which runs are asked for: by fields of their configs, and SQL on evaluation rows."""

import collections
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from experiments.building.fields import check_name
from experiments.building.nearest import nearest
from experiments.report.run_configs import Flat

SHOWN_AT_MOST = 8
"""Values of a field that a message names."""

_FIELD = re.compile(
    r"\s*(?!evaluation\.)(title|study|[a-z]\w*(?:\.\w+)+)\s*=(?!=)\s*"
    r"('[^']*'|\"[^\"]*\"|(?:(?!\s(?:and|or)\s).)*?)\s*",
    re.DOTALL | re.IGNORECASE,
)

_DOTTED = re.compile(r"[a-z]\w*\.[a-z]\w*")


def parted(conditions: str | Sequence[str]) -> tuple[list[str], list[str]]:
    """Tells conditions on fields of the config from SQL on evaluation rows.

    `model.num_layers=4` and `positions.name='randomized'` are of a field: names with
    dots that are one of the config's groups and a field of it, title or study, and a
    value. Whatever is not of that form is SQL.

    Args:
        conditions: one or several, all of which must be met; an empty one says nothing.

    Returns:
        Those on fields, as `FIELD=VALUE`, and those in SQL.
    """
    given = [conditions] if isinstance(conditions, str) else list(conditions)
    fields, sql = [], []
    for text in filter(str.strip, given):
        found = _FIELD.fullmatch(text)
        if found is None:
            sql.append(text)
        else:
            fields.append(f"{found[1]}={found[2]}")
    return fields, sql


def meet(
    configs: Sequence[Flat],
    conditions: Sequence[str],
    flag: str,
    what: str = "run",
) -> list[bool]:
    """Tells which configs meet conditions on their fields.

    A number is compared as such, `1e-3` is 0.001, and a value may stand in quotes.

    Args:
        configs: flat.
        conditions: `FIELD=VALUE` each; of several on one field, one must be met.
        flag: with which they are given, such as `--only`.
        what: they are of, in messages.

    Raises:
        ValueError: if a field or a value does not occur, or none meets all of them.
    """
    wanted: dict[str, list[str]] = collections.defaultdict(list)
    for condition in conditions:
        field, sign, value = condition.partition("=")
        if not sign:
            raise ValueError(
                f"{flag}={condition!r} must be FIELD=VALUE: task.name=bucket_sort."
            )
        value = _unquoted(value)
        names = dict.fromkeys(name for config in configs for name in config)
        check_name(field, names, f"{flag}=")
        there = dict.fromkeys(str(c[field]) for c in configs if field in c)
        if not any(_has(config, field, value) for config in configs):
            more = len(there) - SHOWN_AT_MOST
            raise ValueError(
                f"{flag}={condition}: no {what} has that.{nearest(value, there)} "
                f"{field} is {' or '.join(list(there)[:SHOWN_AT_MOST])}"
                f"{f' or one of {more} more' if more > 0 else ''}."
            )
        wanted[field].append(value)
    met = [
        all(
            any(_has(config, field, value) for value in values)
            for field, values in wanted.items()
        )
        for config in configs
    ]
    if conditions and not any(met):
        raise ValueError(f"no {what} meets all of {', '.join(conditions)}.")
    return met


def kept(
    evaluation: pa.Table,
    conditions: str | Sequence[str],
    configs: Mapping[str, Flat],
    flag: str = "--where",
) -> pa.Table:
    """Keeps the evaluation rows of runs that meet conditions.

    Args:
        evaluation: rows of kind "evaluation", with all columns that SQL may name.
        conditions: as for `parted`.
        configs: of runs by their id, flat; a run that lacks one meets no field.
        flag: with which they are given.

    Raises:
        ValueError: if no row meets all of them, or one is faulty.
    """
    fields, sql = parted(conditions)
    if fields:
        runs = pc.unique(evaluation["run_id"]).to_pylist()
        known = [run for run in runs if run in configs]
        met = meet([configs[run] for run in known], fields, flag)
        wanted = [run for run, keep in zip(known, met, strict=True) if keep]
        among = pa.array(wanted, pa.string())
        evaluation = evaluation.filter(pc.is_in(evaluation["run_id"], value_set=among))
    for condition in sql:
        evaluation = _select(evaluation, condition)
    return evaluation


def _select(evaluation: pa.Table, where: str) -> pa.Table:
    """Keeps the rows that meet a condition in SQL."""
    import duckdb  # slow to import, and seldom needed

    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as database:
        database.register("evaluation", evaluation)
        try:
            rows = database.sql(f"SELECT * FROM evaluation WHERE {where}")
            table = rows.to_arrow_table()
        except duckdb.Error as error:
            fields = "; a field of the config is asked for by itself, FIELD=VALUE"
            raise ValueError(
                f"where={where!r} is no condition on rows"
                f"{fields * bool(_DOTTED.search(where))}: {error}"
            ) from error
    if not len(table):
        raise ValueError(f"no evaluation row meets where={where!r}")
    return table


def _has(config: Mapping[str, Any], field: str, text: str) -> bool:
    """Whether a field has the value that a text says."""
    if field not in config:
        return False
    value = config[field]
    if isinstance(value, bool) or value is None:
        return text.casefold() == str(value).casefold()
    if isinstance(value, int | float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return text == str(value)


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text
