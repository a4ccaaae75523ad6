"""Which old messages stay verbatim when the rest is summarised.

A *scorer* returns how important a message is, from the row, its number and the number of rows.
`Importance` is the default, with documented weights. It only selects: selected messages stay in
their place, and the others are summarised in order.

    weight of the role x recency ^ age            system 10, user and tool 5, assistant 3; 0.95
    + 2 for a question, + 4 for tool calls
    + 1.5 for each keyword that occurs, + 1 for every hundred characters, at most 3

Messages that are marked as important come first, whatever they score. A call and its results are
selected together, or not at all.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct, ValidationError, convert

from weft.errors import ConfigError
from weft.history import Row
from weft.model import Refusal, Text, ToolCall, ToolResult, side, texts

from .layout import Count, count_tokens
from .pairs import cut_units

Scorer = Callable[[Row, int, int], float]
"""Takes a row, its number and the number of rows; returns its importance."""

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
            raise ConfigError(f"recency must be between 0 and 1, not {self.recency}")

    def __call__(self, row: Row, number: int, total: int) -> float:
        text = _words(row)
        bonus = self.question if any(mark in text for mark in ASKING) else 0.0
        if any(isinstance(block, ToolCall) for block in row.message.blocks):
            bonus += self.calls
        keywords = _keyword_pattern(self.keywords).findall(text) if self.keywords else ()
        bonus += self.keyword * len({word.lower() for word in keywords})
        bonus += min(self.length_most, self.length * len(text) / 100)
        return self._weight(row) * self.recency ** (total - 1 - number) + bonus

    def _weight(self, row: Row) -> float:
        results = any(isinstance(block, ToolResult) for block in row.message.blocks)
        weights = {"system": self.system, "user": self.user, "assistant": self.assistant}
        speaker = "tool" if results or row.message.role == "tool" else side(row.message.role)
        return self.tool if speaker == "tool" else weights.get(speaker, self.user)


def read_importance(weights: Mapping[str, Any]) -> Importance:
    """The defaults with some other weights; raises `ConfigError` with the wrong one."""
    try:
        return convert(dict(weights), Importance)
    except ValidationError as error:
        raise ConfigError(f"scoring: {error}") from None


def choose_verbatim(rows: Sequence[Row], scorer: Scorer, room: int, count: Count) -> list[int]:
    """The numbers of the rows that stay, in order; the most important are selected first."""
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
    """The text of a row, without reminders, checkpoints and thinking."""
    blocks = (b for b in row.message.blocks if isinstance(b, Text | Refusal | ToolResult))
    return "\n".join(texts(blocks))


@cache
def _keyword_pattern(keywords: tuple[str, ...]) -> re.Pattern[str]:
    """Matches whole words only: `prefix` is not `fix`."""
    return re.compile(rf"\b({'|'.join(map(re.escape, keywords))})\b", re.IGNORECASE)
