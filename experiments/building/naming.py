"""The library's messages name a setting; a config's say where in the config it is."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ml_collections import ConfigDict


@contextmanager
def named_in(config: ConfigDict, group: str) -> Iterator[None]:
    """Puts a group before the fields that a ValueError names: `model.dropout`.

    Args:
        config: the config.
        group: the group whose fields are made into objects.

    Raises:
        ValueError: that which came, with its names as the config has them.
    """
    try:
        yield
    except ValueError as error:
        fields = "|".join(config[group])
        told = str(error)
        if not re.match(rf"(?:{fields})\b(?![.:])", told):
            raise  # it says where it is
        # The name that the message begins with, and those with their values behind.
        name = rf"^(?:{fields})\b|(?<![\w.])(?:{fields})(?==)"
        told = re.sub(name, lambda match: f"{group}.{match[0]}", told)
        raise ValueError(told) from None
