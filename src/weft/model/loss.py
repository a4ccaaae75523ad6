"""What a translation could not say. A drop is a value, never a silence."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

Level = Literal["meaning", "form"]


class Loss(Struct, frozen=True, gc=False):
    """One thing that did not travel.

    `path` is the caller's own (`messages[2].content[0]`). `level` is `meaning` where the model or
    the user could notice, `form` for spelling: null or absent, string or list, an added default.
    """

    path: str
    what: str
    why: str
    level: Level = "meaning"


SHOWN_PATHS = 3
"""Paths of a group that a line names; the rest are counted."""


def loss_lines(losses: Iterable[Loss]) -> list[str]:
    """The losses as lines for a person: equal ones are one line, those of meaning come first.

    A long session repeats the same few losses in every message.
    """
    groups: dict[tuple[Level, str, str], list[str]] = {}
    for loss in losses:
        groups.setdefault((loss.level, loss.what, loss.why), []).append(loss.path)
    ordered = sorted(groups.items(), key=lambda group: group[0][0] != "meaning")
    return [_line(level, what, why, paths) for (level, what, why), paths in ordered]


def _line(level: Level, what: str, why: str, paths: list[str]) -> str:
    if len(paths) == 1:
        return f"{level}: {paths[0]}: {what} ({why})"
    distinct = list(dict.fromkeys(paths))
    more = f" and {len(distinct) - SHOWN_PATHS} more" if len(distinct) > SHOWN_PATHS else ""
    places = ", ".join(distinct[:SHOWN_PATHS]) + more
    return f"{level}: {len(paths)} times {what} ({why}): {places}"
