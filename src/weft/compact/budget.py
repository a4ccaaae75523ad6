"""Compaction to a budget, or to so many recent turns: where the border between both is.

What must stay is kept (`folding`); what is left is shared. Three quarters go to the most recent
exchanges, whole and taken from the end; everything older is folded into one summary, which gets
the rest. No fold is without a summary that holds something of what it folds: where there is no
room for a useful one, fewer turns stay, down to the last request, and where there is none even
then, the plan is refused with the number that it takes. Nothing is cut in silence.

A fold that saves nothing is not made. The summary is a `user` message of kind `summary` behind
the setup, and behind the pins that stood before all it tells: it rewrites no system message and
is valid first for every vendor.
"""

from collections.abc import Sequence

from weft.errors import BudgetExceeded, CompactRefused
from weft.history import Row
from weft.model import Message, Text

from .extract import Extract
from .folding import Count, Folding, cost, counted_once
from .plan import Plan, leading_system

SUMMARY_SHARE = 0.25
SUMMARY_CEILING = 0.25
SUMMARY_LEAST = 300
"""A summary is at most a quarter of what it stands for, or this many tokens."""


def plan_budget(rows: Sequence[Row], budget: int, *, keep: int | None = None, count: Count) -> Plan:
    """The rows within `budget` tokens; the same rows where they already fit.

    `keep` asks for exactly that many recent exchanges word for word, the last one in any case, and
    folds all older ones even if they would fit; without it as many stay as fit. Raises
    `BudgetExceeded` where what must stay is too much, `CompactRefused` where there is nothing to
    compact.
    """
    _check(rows, budget, keep, field="budget")
    count = counted_once(count)
    fits = cost(rows, count) <= budget
    if keep is None and fits:
        return Plan(rows=tuple(rows))
    share = Share(Folding(rows, count), budget)
    if keep is None:
        return share.plan(share.border())
    border = _keeping(share.folding, keep)
    if fits and not share.saves(border):
        return Plan(rows=tuple(rows))
    return share.plan(border)


def plan_summary(
    rows: Sequence[Row],
    summary: str,
    *,
    keep: int | None = None,
    budget: int | None = None,
    count: Count,
) -> Plan:
    """The rows with all but the last `keep` exchanges folded into the caller's own summary.

    The last exchange stays in any case, and so do pins and setup. The same rows where nothing is
    older; raises `BudgetExceeded` where the result is more than `budget`.
    """
    if not summary.strip():
        raise CompactRefused("is blank; say what stands for the folded turns", field="summary")
    _check(rows, budget, keep, field="summary")
    folding = Folding(rows, count)
    border = _keeping(folding, 1 if keep is None else keep)
    planned = Plan(rows=tuple(rows))
    if folding.folded(border):
        planned = folding.plan(border, Message("user", (Text(summary),)))
    needed = cost(planned.rows, count)
    if budget is not None and needed > budget:
        raise _exceeded("the summary and what must stay need", needed, budget)
    return planned


class Share:
    """A budget, and what each border would leave of it for the summary."""

    def __init__(self, folding: Folding, budget: int) -> None:
        self.folding = folding
        self.budget = budget
        self.extracts: dict[int, Extract] = {}

    def border(self) -> int:
        """The border that keeps most, as long as a useful summary has room behind it; or else the
        one that leaves the summary most."""
        folding = self.folding
        units = folding.units()
        floor = folding.at_least(units[-1])
        limit = floor + int((self.budget - floor) * (1 - SUMMARY_SHARE))
        for borders in (folding.exchanges(), units):
            for border in borders:
                if folding.at_least(border) <= limit and self.room(border) >= self.useful(border):
                    return border
            if self.room(borders[-1]) >= self.least(borders[-1]):
                return borders[-1]
        return units[-1]

    def room(self, border: int) -> int:
        """The tokens that are left when what stays is paid."""
        if self.folding.at_least(border) > self.budget:
            return -1
        return self.budget - cost(self.folding.kept(border), self.folding.count)

    def useful(self, border: int) -> int:
        return self._extract(border).useful if self.folding.folded(border) else 0

    def least(self, border: int) -> int:
        return self._extract(border).least if self.folding.folded(border) else 0

    def saves(self, border: int) -> bool:
        """Whether a fold up to this border leaves fewer tokens than there are."""
        if not self.folding.folded(border) or self.room(border) < self.least(border):
            return False
        before = cost(self.folding.rows, self.folding.count)
        return cost(self.plan(border).rows, self.folding.count) < before

    def plan(self, border: int) -> Plan:
        """The plan for a border; raises `BudgetExceeded` where its summary has no room."""
        folding, count = self.folding, self.folding.count
        kept = folding.kept(border)
        if not folding.folded(border):
            return self._unfolded(kept)
        extract = self._extract(border)
        ceiling = max(
            SUMMARY_LEAST, int(cost(folding.source(border), count) * SUMMARY_CEILING), extract.least
        )
        message = extract.within(min(ceiling, self.budget - cost(kept, count)))
        if message is None:
            raise self._no_room(cost(kept, count) + extract.least)
        return folding.plan(border, message)

    def _no_room(self, needed: int) -> BudgetExceeded:
        whole = cost(self.folding.rows, self.folding.count)
        if whole <= needed:
            return _exceeded(
                "a summary would save nothing and the thread needs", whole, self.budget
            )
        return _exceeded("what must stay and a summary of the rest need", needed, self.budget)

    def _unfolded(self, kept: Sequence[Row]) -> Plan:
        """No row is old enough to fold: the rows without thinking, if that makes them fit."""
        needed = cost(kept, self.folding.count)
        if needed > self.budget:
            raise _exceeded("what must stay needs", needed, self.budget)
        return Plan(rows=tuple(kept), stripped=tuple(self.folding.stripped))

    def _extract(self, border: int) -> Extract:
        if border not in self.extracts:
            self.extracts[border] = Extract(self.folding.source(border), self.folding.count)
        return self.extracts[border]


def _keeping(folding: Folding, keep: int) -> int:
    """Where the last `keep` exchanges begin; the last one is kept in any case."""
    starts = folding.exchanges()
    return starts[-max(keep, 1)] if keep <= len(starts) else folding.lead


def _check(rows: Sequence[Row], budget: int | None, keep: int | None, *, field: str) -> None:
    if leading_system(rows) == len(rows):
        what = "only system messages" if rows else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field=field)
    for name, number in (("budget", budget), ("keep", keep)):
        if number is not None and number < 0:
            raise CompactRefused(f"must not be negative: {number}", field=name)


def _exceeded(what: str, needed: int, budget: int) -> BudgetExceeded:
    return BudgetExceeded(
        f"{what} {needed} tokens, more than the budget of {budget}", needed=needed, budget=budget
    )
