"""Which old messages stay word for word when the rest of their time is summed up.

A *scorer* says how much a message matters, from what it is, where it stands and among how many;
`Importance` is the one with documented weights. It decides what is selected and nothing else: what
is selected stays in its place, and a summariser reads the rest in the order in which it was said.

    weight of the role x recency ^ age            system 10, user and tool 5, assistant 3; 0.95
    + 2 where something is asked, + 4 where tools are called
    + 1.5 for each word of a short list that occurs, + 1 for every hundred characters, at most 3

Messages that somebody marked as important come first whatever they score. A call goes with its
results: what cannot be parted is selected together, or not.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct, ValidationError, convert

from weft.errors import ConfigError
from weft.history import Row
from weft.model import Refusal, Text, ToolCall, ToolResult, side, texts

from .chunks import cut_units
from .layout import Count, count_tokens

Scorer = Callable[[Row, int, int], float]
"""From a row, its number and how many there are, to how much it matters."""

KEYWORDS = ("error", "fail", "bug", "fix", "decision", "agreed", "constraint", "requirement")
ASKING = ("?", "？")


class Importance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scorer by weights; the defaults are the preset. Raises `ConfigError` on a wrong weight."""

    system: float = 10.0
    user: float = 5.0
    assistant: float = 3.0
    tool: float = 5.0
    recency: float = 0.95
    question: float = 2.0
    calls: float = 4.0
    keyword: float = 1.5
    keywords: tuple[str, ...] = KEYWORDS
    length: float = 1.0
    length_most: float = 3.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float | int) and value < 0:
                raise ConfigError(f"{name} must not be negative: {value}")
        if self.recency > 1:
            raise ConfigError(f"recency is a part that is left, from 0 to 1, not {self.recency}")

    def __call__(self, row: Row, number: int, total: int) -> float:
        said = _words(row)
        bonus = self.question if any(mark in said for mark in ASKING) else 0.0
        if any(isinstance(block, ToolCall) for block in row.message.blocks):
            bonus += self.calls
        found = _keyword_pattern(self.keywords).findall(said) if self.keywords else ()
        bonus += self.keyword * len({word.lower() for word in found})
        bonus += min(self.length_most, self.length * len(said) / 100)
        return self._weight(row) * self.recency ** (total - 1 - number) + bonus

    def _weight(self, row: Row) -> float:
        results = any(isinstance(block, ToolResult) for block in row.message.blocks)
        weights = {"system": self.system, "user": self.user, "assistant": self.assistant}
        spoken = "tool" if results or row.message.role == "tool" else side(row.message.role)
        return self.tool if spoken == "tool" else weights.get(spoken, self.user)


def read_importance(weights: Mapping[str, Any]) -> Importance:
    """The preset with some weights of one's own; raises `ConfigError` naming the wrong one."""
    try:
        return convert(dict(weights), Importance)
    except ValidationError as error:
        raise ConfigError(f"scoring: {error}") from None


def choose_verbatim(rows: Sequence[Row], scorer: Scorer, room: int, count: Count) -> list[int]:
    """The numbers of the rows that stay, those that matter most first to be asked, in order."""
    units: list[tuple[bool, float, list[int]]] = []
    number = 0
    for unit in cut_units(rows):
        numbers = list(range(number, number + len(unit)))
        number += len(unit)
        marked = any(row.priority == "important" for row in unit)
        score = max(scorer(rows[at], at, len(rows)) for at in numbers)
        units.append((marked, score, numbers))
    chosen: list[int] = []
    for _, _, numbers in sorted(units, key=lambda unit: (not unit[0], -unit[1])):
        size = count_tokens([rows[at] for at in numbers], count)
        if size <= room:
            room -= size
            chosen += numbers
    return sorted(chosen)


def _words(row: Row) -> str:
    """What is said in a row: no reminders, no checkpoints, no thinking."""
    spoken = (b for b in row.message.blocks if isinstance(b, Text | Refusal | ToolResult))
    return "\n".join(texts(spoken))


@cache
def _keyword_pattern(keywords: tuple[str, ...]) -> re.Pattern[str]:
    """Whole words only: a prefix is no fix."""
    return re.compile(rf"\b({'|'.join(map(re.escape, keywords))})\b", re.IGNORECASE)
