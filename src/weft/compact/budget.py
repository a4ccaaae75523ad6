"""Compaction to a budget: what stays word for word, and what is folded.

What always stays: the leading system run, the pins with the calls or results they need, the last
request that the user typed, and calls that still wait for their results. If these alone are more
than the budget, the plan is refused with the number that it takes: nothing is cut in silence.

What is left is shared. Three quarters go to the most recent messages, taken from the end by whole
units (a call and all its results are one unit, so no pair is ever split); everything older is
folded into one summary, which gets the rest. A fold that saves nothing is not made. The summary
is a `user` message of kind `summary` behind the setup: it rewrites no system message and is valid
first for every vendor.

Everything behind a fold has another past than when it was written, so its thinking leaves, as it
does for the agent's own compaction, and reminders with it; the last request stays as it is.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from msgspec import structs

from weft.errors import BudgetExceeded, CompactRefused
from weft.history import Row, shows
from weft.model import Message, Text, side

from .extract import extract_summary
from .pairs import Pair, find_pairs, settle_pairs
from .plan import (
    Plan,
    Range,
    Stripped,
    describe_pin,
    describe_stripped,
    leading_system,
    slot,
    strippable,
    with_blocks,
)

SUMMARY_SHARE = 0.25
SUMMARY_CEILING = 0.25
SUMMARY_LEAST = 300
"""A summary is at most a quarter of what it stands for, or this many tokens."""

Count = Callable[[Message], int]


def plan_budget(rows: Sequence[Row], budget: int, *, keep: int | None = None, count: Count) -> Plan:
    """The rows within `budget` tokens; the same rows where they already fit.

    `keep` asks for exactly that many recent turns word for word (a turn begins with what the user
    typed), and folds all older ones even if they would fit; without it as many messages stay as
    fit. Raises `BudgetExceeded` where what must stay is too much, `CompactRefused` where there is
    nothing to compact.
    """
    lead = leading_system(rows)
    if lead == len(rows):
        what = "only system messages" if lead else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field="budget")
    if keep is not None and keep < 0:
        raise CompactRefused(f"must not be negative: {keep}", field="keep")
    if keep is None and _cost(rows, count) <= budget:
        return Plan(rows=tuple(rows))
    folding = Folding(rows, lead, count)
    border = len(rows) if keep is None else folding.turn_border(keep)
    needed = _cost(folding.kept(border), count)
    if needed > budget:
        raise BudgetExceeded(
            f"what must stay needs {needed} tokens, more than the budget of {budget}",
            needed=needed,
            budget=budget,
        )
    if keep is None:
        border = folding.recent_border(int((budget - needed) * (1 - SUMMARY_SHARE)))
    return _plan(folding, border, budget)


class Folding:
    """What is known of rows before the border between old and recent is chosen."""

    def __init__(self, rows: Sequence[Row], lead: int, count: Count) -> None:
        self.rows = rows
        self.lead = lead
        self.count = count
        self.pairs = find_pairs(rows)
        self.requests = [i for i in range(lead, len(rows)) if _is_request(rows[i])]
        self.fixed = self._fixed()
        self.lean, self.stripped = self._strip()
        self.joined = _joined(self.pairs, len(rows))

    def kept(self, border: int) -> list[Row]:
        """The rows that stay when all before `border` is folded but for what is fixed, and what
        the fixed rows' calls and results need to be whole."""
        old = range(self.lead, border)
        folded = {
            (i, j)
            for i in old
            if i not in self.fixed
            for j in range(len(self.rows[i].message.blocks))
        }
        removed = settle_pairs(self.pairs, folded, self.fixed)
        kept: list[Row] = []
        for i, row in enumerate(self.lean):
            if row is None:
                continue
            if i >= border or i in self.fixed:
                kept.append(row)
                continue
            blocks = self.rows[i].message.blocks
            left = [block for j, block in enumerate(blocks) if (i, j) not in removed]
            if left:
                kept.append(structs.replace(row, message=with_blocks(row.message, left)))
        return kept

    def turn_border(self, keep: int) -> int:
        """Where the last `keep` turns begin, moved back so that no pair is split."""
        starts = self.requests[-keep:] if keep else [len(self.rows)]
        border = starts[0] if len(self.requests) >= keep else self.lead
        while border > self.lead and self.joined[border]:
            border -= 1
        return border

    def recent_border(self, slack: int) -> int:
        """How far back whole units of recent messages fit into `slack` tokens."""
        border = len(self.rows)
        spent = 0
        for i in range(len(self.rows) - 1, self.lead - 1, -1):
            row = self.lean[i]
            if i not in self.fixed and row is not None and shows(row):
                spent += self.count(row.message)
            if spent > slack:
                break
            if not self.joined[i]:
                border = i
        return border

    def _fixed(self) -> set[int]:
        """Setup, pins, the last request, and the latest calls that wait for their results."""
        rows = self.rows
        fixed = {*range(self.lead), *self.requests[-1:]}
        fixed.update(i for i, row in enumerate(rows) if row.priority == "pinned")
        spoken = [i for i in range(len(rows)) if side(rows[i].message.role) == "assistant"]
        waiting = {pair.call[0] for pair in self.pairs if pair.call and not pair.results}
        fixed.update(waiting.intersection(spoken[-1:]))
        return fixed

    def _strip(self) -> tuple[list[Row | None], list[Stripped]]:
        """The rows without reminders and thinking, `None` where nothing is left; pins and the
        last request are as they were."""
        lean: list[Row | None] = []
        stripped: list[Stripped] = []
        for i, row in enumerate(self.rows):
            kinds = strippable(row.message)
            blocks = row.message.blocks
            leaving = [j for j, block in enumerate(blocks) if isinstance(block, kinds)]
            if not leaving or row.priority == "pinned" or i in self.requests[-1:]:
                lean.append(row)
                continue
            left = [block for block in blocks if not isinstance(block, kinds)]
            stripped.extend(describe_stripped(row, j) for j in leaving)
            shorter = structs.replace(row, message=with_blocks(row.message, left))
            lean.append(shorter if left else None)
        return lean, stripped


def _plan(folding: Folding, border: int, budget: int) -> Plan:
    rows, lead = folding.rows, folding.lead
    kept = folding.kept(border)
    folded = [i for i in range(lead, border) if i not in folding.fixed]
    if not folded:
        return _unfolded(folding, kept, budget)
    source = [rows[i] for i in folded if shows(rows[i])]
    ceiling = max(SUMMARY_LEAST, int(_cost(source, folding.count) * SUMMARY_CEILING))
    room = min(ceiling, budget - _cost(kept, folding.count))
    message = extract_summary(source, room, folding.count) if source else None
    summary = [Row(id=None, message=message, kind="summary")] if message else []
    if _cost(rows, folding.count) <= min(budget, _cost([*kept, *summary], folding.count)):
        return Plan(rows=tuple(rows))
    gone = {slot(rows[i]) for i in folded}
    return Plan(
        rows=(*kept[:lead], *summary, *kept[lead:]),
        ranges=(
            Range(
                first=slot(rows[folded[0]]),
                last=slot(rows[folded[-1]]),
                messages=len(folded),
                blocks=sum(len(rows[i].message.blocks) for i in folded),
                summary=message.text if message else "",
            ),
        ),
        pins_kept=tuple(
            describe_pin(rows[i]) for i in range(lead, border) if rows[i].priority == "pinned"
        ),
        stripped=tuple(block for block in folding.stripped if block.id not in gone),
    )


def _unfolded(folding: Folding, kept: Sequence[Row], budget: int) -> Plan:
    """No row is old enough to fold: the rows as they are, or without thinking where that is what
    makes them fit."""
    if _cost(folding.rows, folding.count) <= budget:
        return Plan(rows=tuple(folding.rows))
    return Plan(rows=tuple(kept), stripped=tuple(folding.stripped))


def _cost(rows: Sequence[Row], count: Count) -> int:
    return sum(count(row.message) for row in rows if shows(row))


def _is_request(row: Row) -> bool:
    typed = any(isinstance(block, Text) and block.text.strip() for block in row.message.blocks)
    return row.message.role == "user" and row.kind != "summary" and shows(row) and typed


def _joined(pairs: Sequence[Pair], size: int) -> list[bool]:
    """For each row whether a border before it would split a pair."""
    change = [0] * (size + 2)
    for pair in pairs:
        first, last = pair.places[0][0], pair.places[-1][0]
        change[first + 1] += 1
        change[last + 1] -= 1
    return [open > 0 for open in accumulate(change)][: size + 1]
