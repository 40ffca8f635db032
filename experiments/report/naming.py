"""What settings are called beside each other: what all of them share is said once."""

import dataclasses
from collections.abc import Sequence

from experiments.report.summaries import Setting

PLAIN = "consecutive"


def named_apart(settings: Sequence[Setting]) -> tuple[dict[Setting, str], str]:
    """Names settings for one picture.

    Where all have titles of their own, and differ in nothing else but the encoding, the
    titles name them. Else, where all have one encoding, or all that are not recurrent
    one scheme, only the rest is named. Plain consecutive positions that all have are
    not worth a word.

    Args:
        settings: those that a picture shows.

    Returns:
        The name of each, and what they share besides; empty if that goes without
        saying.
    """
    schemed = [one for one in settings if not one.is_recurrent]
    encodings = {_encoding(one) for one in settings}
    variants = {one.variant for one in schemed}
    titles = {one: one.title for one in settings}
    if len(settings) > 1 and all(titles.values()):
        rest = {dataclasses.replace(one, title="").variant for one in settings}
        if len(rest) == 1 and len(set(titles.values())) == len(titles):
            shared = [*(encodings if len(encodings) == 1 else ()), *rest - {PLAIN}]
            return titles, ", ".join(shared)
    if len(settings) > 1 and len(encodings) == 1:
        return {one: one.variant for one in settings}, encodings.pop()
    if len(settings) > 1 and len(variants) == 1:
        plain = all(one.positions == one.variant == PLAIN for one in schemed)
        names = {
            one: one.label if one.is_recurrent else _encoding(one) for one in settings
        }
        return names, "" if plain else variants.pop()
    return {one: one.label for one in settings}, ""


def _encoding(setting: Setting) -> str:
    return setting.encoding_title or setting.encoding
