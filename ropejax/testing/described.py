"""What is asked of settings of every kind: that they are described, and are values."""

import dataclasses

from ropejax.settings import Settings


def check_described(settings: Settings, *names: str) -> None:
    """Raises AssertionError unless settings have some texts and are what they hold.

    Args:
        settings: an instance. That its class is a frozen dataclass was seen to when it
            was made (`ropejax.settings`).
        *names: class attributes that must say something.
    """
    for name in names:
        if not getattr(settings, name, ""):
            raise AssertionError(f"{settings!r} has no {name}.")
    same = dataclasses.replace(settings)
    if settings != same or hash(settings) != hash(same):
        raise AssertionError(
            f"Equal settings of {settings!r} do not compare or hash equal."
        )
