"""Which old turns stay when a model summarises the rest, and how long the summary may be.

The cut-off is chosen before any summary exists:

- by the number of exchanges to keep (by default the last one), or
- by a budget. The summary gets a fifth of what is free, or at least a minimum. The newest exchanges
  that fit beside it stay. If too few whole exchanges fit, one is cut between rounds.

A summary may have a fifth of the tokens that it replaces, within fixed limits, and never more than
it replaces. Earlier summaries may have a quarter of a budget. If they have more, they are merged.

Before the cut-off, a *scorer* may select messages that stay verbatim. It returns how important a
message is, from the row, its number and the number of rows. Selected messages stay in their place,
and the others are summarised in order. `Importance` is the default, with these weights:

    weight of the role x recency ^ age            system 10, user and tool 5, assistant 3; 0.95
    + 2 for a question, + 4 for tool calls
    + 1.5 for each keyword that occurs, + 1 for every hundred characters, at most 3

Messages with the priority `important` come first, whatever they score. A call and its results are
selected together, or not at all.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from msgspec import Struct, ValidationError, convert, structs

from weft.errors import BudgetExceeded, CompactRefused, ConfigError
from weft.history import Row, is_visible
from weft.model import Refusal, Text, ToolCall, ToolResult, side, texts

from .batches import is_summary
from .layout import Layout, choose_position, count_tokens, cut_units
from .plan import Count

SUMMARY_SHARE = 0.2
"""The share of the replaced tokens, or of the free tokens of a budget, that a summary gets."""

MIN_SUMMARY = 300
MAX_SUMMARY = 4096
"""The limits of that share, in tokens."""

MIN_SMALL_SUMMARY = 60
"""The minimum for a short thread or a small budget, where `MIN_SUMMARY` is too much."""

VERBATIM_SHARE = 0.4
"""The share of a summary for what is kept verbatim beside the model's text: the user's messages,
open tasks, last commands and the last answer. It is the user's share of an extract."""

MAX_VERBATIM_SHARE, MAX_VERBATIM = 0.25, 20_000
"""Without a budget, that part has at most this share of the tokens that the summary replaces, and
at most so many tokens. In a coding session the user's messages have less than 1 %."""

OLD_SUMMARIES_SHARE = 0.25
"""The share of a budget that earlier summaries may have before they are merged."""

FRAME_TOKENS = 64
"""The tokens of the lines above and below the summaries."""

Scorer = Callable[[Row, int, int], float]
"""Takes a row, its number and the number of rows; returns its importance."""

KEYWORDS = ("error", "fail", "bug", "fix", "decision", "agreed", "constraint", "requirement")
QUESTION_MARKS = ("?", "？")


class Cutoff(Struct, frozen=True):
    """A position in the rows, what is folded before it, and how long its summary may be.

    - `summaries`: the earlier summaries that are folded
    - `turns`: all other visible rows that are folded
    - `limit`: the most tokens of the new summary
    - `total_limit`: the most tokens of old and new summaries together; `None` without a budget
    - `verbatim_limit`: the most tokens of what is kept verbatim beside the summaries
    """

    layout: Layout
    position: int
    summaries: tuple[Row, ...]
    turns: tuple[Row, ...]
    limit: int
    total_limit: int | None = None
    verbatim_limit: int = 0

    @property
    def kept_tokens(self) -> int:
        """The tokens of the rows that are not folded."""
        return count_tokens(self.layout.kept_rows(self.position), self.layout.count)

    @property
    def summary_tokens(self) -> int:
        """The tokens of the earlier summaries that are folded."""
        return count_tokens(self.summaries, self.layout.count)

    def max_tokens_after(self, new_tokens: int) -> int:
        """The most tokens of the thread afterwards, if the new summary has `new_tokens`."""
        summaries = self.summary_tokens + new_tokens
        if self.total_limit is not None:
            summaries = min(summaries, self.total_limit)
        return self.kept_tokens + FRAME_TOKENS + summaries + self.verbatim_limit


def choose_cutoff(
    layout: Layout,
    *,
    keep: int | None,
    budget: int | None,
    max_output: int,
    verbatim_tokens: int = 0,
) -> Cutoff | None:
    """The cut-off that keeps `keep` exchanges, or as much as fits the budget.

    Returns `None` if there is nothing to fold. Raises `BudgetExceeded` if even the smallest result
    is too large. `max_output` is the model's output limit. `verbatim_tokens` of the budget are
    reserved for messages that stay verbatim.
    """
    for name, number in (("keep", keep), ("budget", budget), ("verbatim", verbatim_tokens)):
        if number is not None and number < 0:
            raise CompactRefused(f"must not be negative: {number}", field=name)
    if keep is None and budget is not None:
        if count_tokens(layout.rows, layout.count) <= budget:
            return None
        position = _fitting_position(layout, budget, verbatim_tokens)
    elif keep is None:
        position = _default_position(layout)
    else:
        position = layout.cutoff_keeping(keep)
    cutoff = measure_cutoff(layout, position, max_output)
    if budget is None:
        return cutoff if cutoff.turns else None
    merges_summaries = keep is None and bool(cutoff.summaries)
    if not cutoff.turns and not merges_summaries:
        return None
    tokens_left = budget - verbatim_tokens - cutoff.kept_tokens - FRAME_TOKENS
    old_summaries = _old_summaries_limit(cutoff.summary_tokens, budget)
    min_summary = min(cutoff.limit, _min_summary(layout, budget))
    if tokens_left - old_summaries < min_summary:
        raise _budget_error(budget - tokens_left + old_summaries + min_summary, budget)
    limit = min(cutoff.limit, tokens_left - old_summaries)
    # The verbatim part gets its share, and what the model's summary may not use.
    verbatim = max(int(tokens_left * VERBATIM_SHARE), tokens_left - old_summaries - limit)
    verbatim = max(0, min(verbatim, tokens_left - old_summaries - min_summary))
    left = tokens_left - verbatim
    return structs.replace(
        cutoff,
        limit=min(limit, left - old_summaries),
        total_limit=left,
        verbatim_limit=verbatim,
    )


def keep_verbatim(cutoff: Cutoff, scorer: Scorer, verbatim_tokens: int) -> Cutoff:
    """The same cut-off, but the most important folded turns stay verbatim.

    They have at most `verbatim_tokens` tokens, and at most half of the tokens of the folded turns:
    otherwise little would be left to summarise.
    """
    layout = cutoff.layout
    numbers = [i for i in layout.folded(cutoff.position) if _is_turn(layout.rows[i])]
    turns = [layout.rows[i] for i in numbers]
    max_tokens = min(verbatim_tokens, count_tokens(turns, layout.count) // 2)
    chosen = choose_verbatim(turns, scorer, max_tokens, layout.count)
    if not chosen:
        return cutoff
    fixed = Layout(layout.rows, layout.count, verbatim=[numbers[index] for index in chosen])
    smaller = measure_cutoff(fixed, cutoff.position, cutoff.limit)
    limits = {"total_limit": cutoff.total_limit, "verbatim_limit": cutoff.verbatim_limit}
    return structs.replace(smaller, **limits) if smaller.turns else cutoff


def min_summary_need(layout: Layout, budget: int, verbatim_tokens: int = 0) -> int:
    """The minimum tokens of a budget that a model's summary needs, with earlier summaries."""
    old_summaries = _old_summaries_limit(_summary_tokens(layout), budget)
    return _min_summary(layout, budget) + FRAME_TOKENS + old_summaries + verbatim_tokens


def _old_summaries_limit(tokens: int, budget: int) -> int:
    """The tokens that a budget reserves for earlier summaries of `tokens` tokens.

    If they have more than their share of the budget, they are merged later to fit it.
    """
    return min(tokens, max(MIN_SMALL_SUMMARY, int(budget * OLD_SUMMARIES_SHARE)))


def _is_turn(row: Row) -> bool:
    return is_visible(row) and not is_summary(row)


def measure_cutoff(layout: Layout, position: int, max_output: int) -> Cutoff:
    """The cut-off at this position, for a summary of at most `max_output` tokens."""
    source = layout.source_rows(position)
    turns = tuple(row for row in source if _is_turn(row))
    summaries = tuple(row for row in source if is_summary(row))
    size = count_tokens(turns, layout.count)
    limit = min(MAX_SUMMARY, max(MIN_SUMMARY, int(size * SUMMARY_SHARE)), size)
    limit = min(max_output, limit)
    verbatim = min(int(size * MAX_VERBATIM_SHARE), MAX_VERBATIM)
    return Cutoff(layout, position, summaries, turns, limit, verbatim_limit=verbatim)


def _fitting_position(layout: Layout, budget: int, verbatim_tokens: int) -> int:
    """The first position that leaves a summary its share of the budget, or else its minimum."""
    min_need = min_summary_need(layout, budget, verbatim_tokens)
    end = len(layout.rows)
    share = int((budget - layout.min_tokens(end)) * SUMMARY_SHARE)
    share_above_min = max(0, min(MAX_SUMMARY, share) - _min_summary(layout, budget))

    def fits(need: int, position: int) -> bool:
        return layout.min_tokens(position) + need <= budget and any(
            _is_turn(layout.rows[i]) for i in layout.folded(position)
        )

    for need in (min_need + share_above_min, min_need):
        position = choose_position(layout, partial(fits, need))
        if position is not None:
            return position
        if fits(need, end):
            return end
    if layout.min_tokens(end) + min_need <= budget and _summary_tokens(layout):
        return end  # there are no turns to fold, but the summaries themselves are too long
    raise _budget_error(layout.min_tokens(end) + min_need, budget)


def _summary_tokens(layout: Layout) -> int:
    return count_tokens([row for row in layout.rows if is_summary(row)], layout.count)


def _min_summary(layout: Layout, budget: int) -> int:
    """The smallest useful summary: smaller for a short thread or a small budget."""
    size = min(budget, count_tokens(layout.rows, layout.count))
    return min(MIN_SUMMARY, max(MIN_SMALL_SUMMARY, size // 4))


def _default_position(layout: Layout) -> int:
    """The start of the last exchange.

    If there is nothing to fold before it, the middle of that exchange by tokens: the work on one
    request can be all of a long thread.
    """
    position = layout.cutoff_keeping(1)
    if any(_is_turn(layout.rows[i]) for i in layout.folded(position)):
        return position
    half = count_tokens(layout.rows, layout.count) // 2
    positions = layout.last_exchange_cutoffs()
    return next((at for at in positions if layout.min_tokens(at) <= half), positions[-1])


def _budget_error(needed: int, budget: int) -> BudgetExceeded:
    what = "what must stay and a summary of the rest need"
    line = f"{what} {needed} tokens, more than the budget of {budget}"
    return BudgetExceeded(line, needed=needed, budget=budget)


class Importance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scorer by weights. Raises `ConfigError` for a wrong weight."""

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
        text = _scored_text(row)
        bonus = self.question if any(mark in text for mark in QUESTION_MARKS) else 0.0
        if any(isinstance(block, ToolCall) for block in row.message.blocks):
            bonus += self.calls
        keywords = _keyword_pattern(self.keywords).findall(text) if self.keywords else ()
        bonus += self.keyword * len({word.lower() for word in keywords})
        bonus += min(self.length_most, self.length * len(text) / 100)
        return self._weight(row) * self.recency ** (total - 1 - number) + bonus

    def _weight(self, row: Row) -> float:
        has_results = any(isinstance(block, ToolResult) for block in row.message.blocks)
        if has_results or row.message.role == "tool":
            return self.tool
        weights = {"system": self.system, "user": self.user, "assistant": self.assistant}
        return weights.get(side(row.message.role), self.user)


def read_importance(weights: Mapping[str, Any]) -> Importance:
    """The default weights, replaced by those in `weights`; raises `ConfigError` for a wrong one."""
    try:
        return convert(dict(weights), Importance)
    except ValidationError as error:
        raise ConfigError(f"scoring: {error}") from None


def choose_verbatim(
    rows: Sequence[Row], scorer: Scorer, max_tokens: int, count: Count
) -> list[int]:
    """The numbers of the rows that stay, in order; the most important are selected first."""
    units: list[tuple[bool, float, list[int]]] = []
    start = 0
    for unit in cut_units(rows):
        numbers = list(range(start, start + len(unit)))
        start += len(unit)
        is_important = any(row.priority == "important" for row in unit)
        score = max(scorer(rows[number], number, len(rows)) for number in numbers)
        units.append((is_important, score, numbers))
    chosen: list[int] = []
    tokens_left = max_tokens
    for _, _, numbers in sorted(units, key=lambda unit: (not unit[0], -unit[1])):
        size = count_tokens([rows[number] for number in numbers], count)
        if size <= tokens_left:
            tokens_left -= size
            chosen += numbers
    return sorted(chosen)


def _scored_text(row: Row) -> str:
    """The text of a row, without reminders, checkpoints and thinking."""
    blocks = (b for b in row.message.blocks if isinstance(b, Text | Refusal | ToolResult))
    return "\n".join(texts(blocks))


@cache
def _keyword_pattern(keywords: tuple[str, ...]) -> re.Pattern[str]:
    """Matches whole words only: `prefix` is not `fix`."""
    return re.compile(rf"\b({'|'.join(map(re.escape, keywords))})\b", re.IGNORECASE)
