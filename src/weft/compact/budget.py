"""Compaction to a budget, or to so many recent turns: where the border between both is.

What must stay is kept (`folding`); what is left is shared. Three quarters go to the most recent
exchanges, whole and taken from the end; everything older is folded into one summary, which gets
the rest. No fold is without a summary that holds something of what it folds: where there is no
room for a useful one, fewer turns stay, down to the last request, and where there is none even
then, the plan is refused with the number that it takes. Nothing is cut in silence.

Results that the model has not read are never folded. Where they do not fit, they are shortened.

A fold that saves nothing is not made. The summary is a `user` message of kind `summary` behind
the setup, and behind the pins that stood before all it tells: it rewrites no system message and
is valid first for every vendor.
"""

from collections.abc import Sequence

from msgspec import structs

from weft.errors import BudgetExceeded, CompactRefused
from weft.history import Row
from weft.model import Message, Text

from .extract import Extract
from .folding import Count, Folding, cost, counted_once
from .plan import Plan, leading_system
from .source import MARK
from .unread import Thinning, Unread

SUMMARY_SHARE = 0.25
SUMMARY_CEILING = 0.25
SUMMARY_LEAST = 300
"""A summary is at most a quarter of what it stands for, or this many tokens."""

ALONE = 0.5
"""Unread results are shortened and nothing is folded, where all else is at most this part of the
budget."""


def plan_budget(
    rows: Sequence[Row],
    budget: int,
    *,
    keep: int | None = None,
    limit: int | None = None,
    cut: bool = False,
    count: Count,
) -> Plan:
    """The rows within `budget` tokens; the same rows where they already fit.

    `keep` asks for exactly that many recent exchanges word for word, the last one in any case, and
    folds all older ones even if they would fit; without it as many stay as fit. Where the budget
    is too small without shortening results that the model has not read, up to `limit` tokens are
    taken; where that is too small too, the results are thinned. With `cut`, a fold that has no
    room for a summary leaves a line that says how much it took.

    Raises `BudgetExceeded` where what must stay is too much, `CompactRefused` where there is
    nothing to compact.
    """
    _check(rows, budget, keep, field="budget")
    trial, count = count, counted_once(count)
    most = budget if limit is None else max(budget, limit)
    refused: BudgetExceeded | None = None
    for tokens in dict.fromkeys((budget, most)):
        try:
            return _plan_fold(rows, tokens, keep, cut, count)
        except BudgetExceeded as error:
            refused = error
    thin = Thin(rows, most, keep, cut, count, trial=trial)
    if not thin.is_possible:
        assert refused is not None
        raise refused
    return thin.plan()


def _plan_fold(rows: Sequence[Row], budget: int, keep: int | None, cut: bool, count: Count) -> Plan:
    """The plan in which old turns are folded and everything else stays as it is."""
    fits = cost(rows, count) <= budget
    if keep is None and fits:
        return Plan(rows=tuple(rows))
    share = BudgetSplit(Folding(rows, count), budget, cut=cut)
    if keep is None:
        return share.plan(share.border())
    border = _keeping(share.folding, keep)
    if fits and not share.saves(border):
        return Plan(rows=tuple(rows))
    return share.plan(border)


class Thin:
    """The same decision where results that the model has not read have to be shortened.

    Where everything else is small, nothing is folded for it. Otherwise old turns are folded, and
    what is left is shared: a quarter for their summary, the rest for the unread results. `need` is
    what a summary takes at least, where another than the smallest extract is wanted. `trial` counts
    rows that are tried and thrown away: `count` may keep every message it is asked about.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        budget: int,
        keep: int | None,
        cut: bool,
        count: Count,
        *,
        trial: Count,
        need: int = 0,
    ) -> None:
        self.rows, self.budget, self.keep, self.cut, self.count = rows, budget, keep, cut, count
        self.need = need
        self.results = Unread(rows, trial)
        smallest = self.results.thin(-1)
        self.is_possible = bool(smallest.thinned)
        self.handles = self._unread_cost(smallest.rows)
        self.rest = cost(rows, count) - self._unread_cost(rows)
        share = BudgetSplit(Folding(smallest.rows, count), budget, cut=cut)
        self.floor = share.needed(self._border(share.folding))

    @property
    def needed(self) -> int:
        """The tokens of the smallest result."""
        return min(self.rest + self.handles, self.floor)

    @property
    def is_alone(self) -> bool:
        """Whether shortening the results is enough, and better than folding little."""
        fits = self.rest + self.handles <= self.budget
        return fits and (self.rest <= self.budget * ALONE or self.floor > self.budget)

    def thin(self) -> Thinning:
        """The rows with the unread results shortened as far as the budget asks for; raises
        `BudgetExceeded` where even their handles are too much."""
        if self.needed > self.budget:
            raise _exceeded("what must stay needs", self.needed, self.budget)
        if self.is_alone:
            return self.results.thin(self.budget - self.rest)
        free = self.budget - self.floor
        room = min(int(free * (1 - SUMMARY_SHARE)), max(0, free - self.need))
        return self.results.thin(self.handles + room)

    def plan(self) -> Plan:
        thinning = self.thin()
        if self.is_alone:
            return Plan(rows=thinning.rows, thinned=thinning.thinned, method="thin")
        planned = _plan_fold(thinning.rows, self.budget, self.keep, self.cut, self.count)
        method = planned.method or "thin"
        return structs.replace(planned, thinned=thinning.thinned, method=method)

    def _border(self, folding: Folding) -> int:
        return folding.units()[-1] if self.keep is None else _keeping(folding, self.keep)

    def _unread_cost(self, rows: Sequence[Row]) -> int:
        return sum(self.count(rows[i].message) for i in self.results.numbers)


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


class BudgetSplit:
    """A budget, and what each border would leave of it for the summary."""

    def __init__(self, folding: Folding, budget: int, *, cut: bool = False) -> None:
        self.folding = folding
        self.budget = budget
        self.cut = cut
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
        room = self.budget - cost(kept, count)
        message = extract.within(min(ceiling, room))
        if message is not None:
            return structs.replace(folding.plan(border, message), method="extract")
        line = cut_line(len(folding.folded(border)))
        if self.cut and count(line) <= room:
            return structs.replace(folding.plan(border, line), method="cut")
        raise self._no_room(self.needed(border))

    def needed(self, border: int) -> int:
        """The smallest budget for which there is a plan with this border."""
        kept = cost(self.folding.kept(border), self.folding.count)
        if not self.folding.folded(border):
            return kept
        least = self._extract(border).least
        if self.cut:
            line = cut_line(len(self.folding.folded(border)))
            least = min(least, self.folding.count(line))
        return kept + least

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


def cut_line(messages: int) -> Message:
    """What stands for turns that were cut without a summary."""
    many = f"{messages:,} message" if messages == 1 else f"{messages:,} messages"
    return Message("user", (Text(f"{MARK}: {many} left out; recall finds them]"),))


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
