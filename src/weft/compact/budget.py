"""Compaction to a budget, or to a number of recent exchanges, with an extract as the summary.

What must stay is paid for first (`layout`). The rest is divided between the most recent exchanges
or rounds, from the end, and one summary of everything older. The summary gets a quarter if little
is folded, and more the more it stands for: about three quarters if only a tenth of the thread may
stay (`summary_room`).

- A fold always leaves a summary that says something about what it replaced. If there is no room
  for a useful one, fewer exchanges stay, down to the last request. If there is still none, the plan
  is refused with the number of tokens that it needs.
- Results that the model has not read are never folded. If they do not fit, they are shortened.
- Rules that came up on the way stay as they are. Only if nothing else helps, they are folded.
- A fold that saves nothing is not made. Nor is a fold of an earlier summary alone, unless the
  budget requires it: the same compaction twice changes nothing the second time.

The summary is a `user` message of kind `summary`. It comes after the setup and after the pins that
precede everything it covers. So no system message changes, and the message order is valid for every
vendor.
"""

from collections.abc import Callable, Sequence

from msgspec import structs

from weft.errors import BudgetExceeded, CompactRefused
from weft.history import Row
from weft.model import Message, Text

from .batches import body_as_data, mark_summary
from .extract import Extract
from .layout import (
    Count,
    Layout,
    choose_position,
    count_each_once,
    count_tokens,
    locate_range,
    rule_rows,
)
from .plan import Plan, leading_system
from .source import MARK
from .unread import Thinning, Unread, unread_rows

SUMMARY_SHARE, SUMMARY_MOST = 0.25, 0.95
"""The least and the most that a summary gets of what is free."""

SUMMARY_CEILING = 0.25
SUMMARY_LEAST = 300
"""A summary has at most a quarter of the tokens it replaces, or this many."""

CROWDED_MOST, CROWDED_SHARE = 500, 0.7
"""A summary has at least this share of the room that it shares with unread results, or this many
tokens."""

CROWDED_ROOM = 2000
"""If both share more tokens than this, unread results are only shortened for a summary of
`SUMMARY_LEAST`: a whole result is worth more than a longer summary."""

Originals = Callable[[Sequence[Row]], Sequence[Row]]
"""Replaces summaries among rows by the messages that they stand for."""

SAMPLE = 24
"""How many rows are read to estimate the size of a useful summary."""

THIN_ONLY_SHARE = 0.5
"""If everything else is at most this part of the budget, only unread results are shortened and
nothing is folded."""


def plan_budget(
    rows: Sequence[Row],
    budget: int,
    *,
    keep: int | None = None,
    limit: int | None = None,
    cut: bool = False,
    count: Count,
    originals: Originals = list,
) -> Plan:
    """The rows within `budget` tokens; the same rows if they already fit.

    - `keep`: exactly this many recent exchanges stay, and all older ones are folded even if they
      would fit. The last one always stays. Without `keep`, as many stay as fit.
    - `limit`: if unread results do not fit the budget, up to this many tokens are used before they
      are shortened.
    - `cut`: if there is no room for a summary, leave one line that says how much was removed.
    - `originals`: replaces summaries among rows by the messages that they stand for. A summary is
      made from these, because details get lost if a summary is made from a summary.

    Raises `BudgetExceeded` if what must stay is too much, and `CompactRefused` if there is nothing
    to compact.
    """
    _check(rows, budget, keep, field="budget")
    count_trial, count = count, count_each_once(count)
    most = budget if limit is None else max(budget, limit)
    refused: BudgetExceeded | None = None
    for rules in (True, False) if rule_rows(rows) else (True,):
        for tokens in dict.fromkeys((budget, most)):
            try:
                plan = _plan_fold(rows, tokens, keep, cut, count, rules, originals)
            except BudgetExceeded as error:
                refused = error
                continue
            if _room(plan, rows, tokens, count) >= CROWDED_MOST or not unread_rows(rows):
                return plan
            thinner = ResultThinner(
                rows, tokens, keep, cut, count, trial=count_trial, rules=rules, originals=originals
            )
            return thinner.uncrowd(plan)
        thinner = ResultThinner(
            rows, most, keep, cut, count, trial=count_trial, rules=rules, originals=originals
        )
        if thinner.is_possible:
            try:
                return thinner.plan()
            except BudgetExceeded as error:
                refused = error
    assert refused is not None
    raise refused


def _room(plan: Plan, rows: Sequence[Row], budget: int, count: Count) -> int:
    """The tokens that the kept rows leave for the summary; all of them, if nothing is folded."""
    if not plan.ranges:
        return budget
    own = {id(row) for row in rows}
    return budget - count_tokens([row for row in plan.rows if id(row) in own], count)


def _plan_fold(
    rows: Sequence[Row],
    budget: int,
    keep: int | None,
    cut: bool,
    count: Count,
    rules: bool,
    originals: Originals,
) -> Plan:
    """The plan that folds old exchanges and keeps everything else."""
    fits = count_tokens(rows, count) <= budget
    if keep is None and fits:
        return Plan(rows=tuple(rows))
    split = BudgetSplit(Layout(rows, count, rules=rules), budget, cut=cut, originals=originals)
    if keep is None:
        return split.plan(split.cutoff())
    cutoff = split.layout.keeping(keep)
    if fits and (split.layout.lone_summary(cutoff) is not None or not split.saves(cutoff)):
        return Plan(rows=tuple(rows))
    return split.plan(cutoff)


class ResultThinner:
    """The plan for threads whose unread results have to be shortened.

    If everything else is small, nothing is folded. Otherwise old exchanges are folded, and the room
    is split: a quarter for their summary, the rest for the unread results.

    `need` is the least room for the summary, if that is more than the smallest extract. `trial`
    counts messages that are tried and discarded, because `count` may cache every message.
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
        rules: bool = True,
        originals: Originals = list,
    ) -> None:
        self.rows, self.budget, self.keep, self.cut, self.count = rows, budget, keep, cut, count
        self.need, self.rules, self.originals = need, rules, originals
        self.results = Unread(rows, trial)
        smallest = self.results.thin(-1)
        self.is_possible = bool(smallest.thinned)
        self.handles = self._unread_cost(smallest.rows)
        self.rest = count_tokens(rows, count) - self._unread_cost(rows)
        layout = Layout(smallest.rows, count, rules=rules)
        split = BudgetSplit(layout, budget, cut=cut, originals=originals)
        self.floor = split.needed(self._border(split.layout))

    @property
    def needed(self) -> int:
        """The tokens of the smallest possible plan."""
        return min(self.rest + self.handles, self.floor)

    @property
    def is_alone(self) -> bool:
        """Whether shortening the results is enough, so that nothing needs to be folded."""
        fits = self.rest + self.handles <= self.budget
        return fits and (self.rest <= self.budget * THIN_ONLY_SHARE or self.floor > self.budget)

    def thin(self) -> Thinning:
        """The rows with the unread results shortened to fit the budget.

        Raises `BudgetExceeded` if even their handles do not fit.
        """
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
        planned = _plan_fold(
            thinning.rows,
            self.budget,
            self.keep,
            self.cut,
            self.count,
            self.rules,
            self.originals,
        )
        method = planned.method or "thin"
        return structs.replace(planned, thinned=thinning.thinned, method=method)

    def uncrowd(self, plan: Plan) -> Plan:
        """A plan with more room for the summary, if unread results crowd it out of this one.

        A result that fits whole may leave room for a few sentences. Without the goal, the rules and
        the decisions the result is of little use, so it is shortened until the summary has most of
        the room that both share.
        """
        shared = self.budget - self.floor
        most = CROWDED_MOST if shared <= CROWDED_ROOM else SUMMARY_LEAST
        self.need = min(most, int(shared * CROWDED_SHARE))
        if not self.is_possible or _room(plan, self.rows, self.budget, self.count) >= self.need:
            return plan
        try:
            return self.plan()
        except BudgetExceeded:
            return plan

    def _border(self, layout: Layout) -> int:
        return layout.units()[-1] if self.keep is None else layout.keeping(self.keep)

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
    """The rows with all but the last `keep` exchanges replaced by the caller's own summary.

    The last exchange, the pins and the setup always stay. Returns the same rows if there is nothing
    older. Raises `BudgetExceeded` if the result is above `budget`.
    """
    if not summary.strip():
        raise CompactRefused("is blank; say what happened in the folded turns", field="summary")
    _check(rows, budget, keep, field="summary")
    layout = Layout(rows, count)
    cutoff = layout.keeping(1 if keep is None else keep)
    planned = _plan_own_summary(layout, cutoff, summary)
    needed = count_tokens(planned.rows, count)
    if budget is not None and needed > budget:
        raise _exceeded("the summary and what must stay need", needed, budget)
    return planned


def plan_range(
    rows: Sequence[Row],
    first: str | None,
    last: str | None,
    *,
    summary: str | None = None,
    count: Count,
    originals: Originals = list,
) -> Plan:
    """The rows with a range replaced by the caller's summary, or else by an extract.

    An extract gets a quarter of the tokens of the range, or a half if that is little. If nothing
    fits, a line says how many messages were removed. Returns the same rows if the range holds only
    a summary.
    """
    if summary is not None and not summary.strip():
        raise CompactRefused("is blank; say what happened in the range", field="summary")
    layout, position = locate_range(rows, first, last, count)
    if summary is not None:
        return _plan_own_summary(layout, position, summary)
    if layout.lone_summary(position) is not None:
        return Plan(rows=tuple(rows))
    source = layout.source_rows(position)
    size = count_tokens(source, layout.count)
    room = max(min(SUMMARY_LEAST, size // 2), int(size * SUMMARY_CEILING))
    extract = Extract(originals(source), layout.count, beside=layout.kept_rows(position))
    message = _write_extract(extract, room, layout.count)
    return layout.plan(position, message or cut_line(len(source)))


def _plan_own_summary(layout: Layout, cutoff: int, summary: str) -> Plan:
    """The plan with the caller's summary; the same rows if there is nothing new to replace."""
    message = mark_summary(summary)
    earlier = layout.lone_summary(cutoff)
    if not layout.folded(cutoff) or (earlier is not None and earlier.message == message):
        return Plan(rows=tuple(layout.rows))
    return layout.plan(cutoff, message)


def summary_room(free: int, budget: int, whole: int) -> int:
    """The tokens that a summary gets of those which must not go to anything else.

    A quarter, if the budget is nearly the whole thread; more, the more of the thread the summary
    stands for, up to `SUMMARY_MOST`. Up to a half if that is little.
    """
    removed = max(0.0, 1 - budget / max(1, whole))
    share = SUMMARY_SHARE + (SUMMARY_MOST - SUMMARY_SHARE) * removed**2
    return max(int(free * share), min(SUMMARY_LEAST, free // 2))


class BudgetSplit:
    """A budget, and how much of it each cut-off leaves for the summary."""

    def __init__(
        self, layout: Layout, budget: int, *, cut: bool = False, originals: Originals = list
    ) -> None:
        self.layout = layout
        self.budget = budget
        self.cut = cut
        self.originals = originals
        self.extracts: dict[int, Extract] = {}

    def cutoff(self) -> int:
        """The cut-off that keeps most and still has room for a useful summary.

        If there is none, the cut-off that leaves the summary most room. What the summary stands
        for is counted from the originals, so that it does not matter how often a thread was
        compacted before.
        """
        layout = self.layout
        end = layout.units()[-1]
        floor = layout.min_tokens(end)
        whole = count_tokens(self.originals(layout.rows), layout.count)
        limit = self.budget - summary_room(self.budget - floor, self.budget, whole)

        def fits(cutoff: int) -> bool:
            if layout.min_tokens(cutoff) > limit:
                return False
            room = self.room(cutoff)
            return room >= SUMMARY_LEAST or room >= self.useful(cutoff)

        position = choose_position(layout, fits)
        if position is not None:
            return position
        last = layout.exchanges()[-1]
        return last if self.room(last) >= self.least(last) else end

    def room(self, cutoff: int) -> int:
        """The tokens that are left for the summary; -1 if even the kept rows do not fit."""
        if self.layout.min_tokens(cutoff) > self.budget:
            return -1
        return self.budget - count_tokens(self.layout.kept_rows(cutoff), self.layout.count)

    def useful(self, cutoff: int) -> int:
        """The tokens of a useful summary, estimated from the last of the folded rows."""
        rows = self.layout.source_rows(cutoff)[-SAMPLE:]
        return Extract(rows, self.layout.count).useful if rows else 0

    def least(self, cutoff: int) -> int:
        return self._extract(cutoff).least if self.layout.folded(cutoff) else 0

    def saves(self, cutoff: int) -> bool:
        """Whether a fold at this cut-off makes the thread smaller."""
        if not self.layout.folded(cutoff) or self.room(cutoff) < self.least(cutoff):
            return False
        before = count_tokens(self.layout.rows, self.layout.count)
        return count_tokens(self.plan(cutoff).rows, self.layout.count) < before

    def plan(self, cutoff: int) -> Plan:
        """The plan for a cut-off; raises `BudgetExceeded` if its summary has no room."""
        layout, count = self.layout, self.layout.count
        kept_rows = layout.kept_rows(cutoff)
        if not layout.folded(cutoff):
            return self._unfolded(kept_rows)
        extract = self._extract(cutoff)
        ceiling = max(
            SUMMARY_LEAST,
            int(count_tokens(extract.rows, count) * SUMMARY_CEILING),
            extract.least,
        )
        room = self.budget - count_tokens(kept_rows, count)
        message = _write_extract(extract, min(ceiling, room), count)
        if message is not None:
            return structs.replace(layout.plan(cutoff, message), method="extract")
        line = cut_line(len(layout.folded(cutoff)))
        if self.cut and count(line) <= room:
            return structs.replace(layout.plan(cutoff, line), method="cut")
        raise self._no_room(self.needed(cutoff))

    def needed(self, cutoff: int) -> int:
        """The smallest budget for which this cut-off works."""
        kept_tokens = count_tokens(self.layout.kept_rows(cutoff), self.layout.count)
        if not self.layout.folded(cutoff):
            return kept_tokens
        least = self._extract(cutoff).least
        if self.cut:
            line = cut_line(len(self.layout.folded(cutoff)))
            least = min(least, self.layout.count(line))
        return kept_tokens + least

    def _no_room(self, needed: int) -> BudgetExceeded:
        whole = count_tokens(self.layout.rows, self.layout.count)
        if whole <= needed:
            return _exceeded(
                "a summary would save nothing and the thread needs", whole, self.budget
            )
        return _exceeded("what must stay and a summary of the rest need", needed, self.budget)

    def _unfolded(self, rows: Sequence[Row]) -> Plan:
        """The plan if nothing can be folded: the rows without thinking, if they fit."""
        needed = count_tokens(rows, self.layout.count)
        if needed > self.budget:
            raise _exceeded("what must stay needs", needed, self.budget)
        return Plan(rows=tuple(rows), stripped=tuple(self.layout.stripped))

    def _extract(self, cutoff: int) -> Extract:
        if cutoff not in self.extracts:
            rows = self.originals(self.layout.source_rows(cutoff))
            beside = self.layout.kept_rows(cutoff)
            after = self.layout.rows_after(cutoff)
            self.extracts[cutoff] = Extract(rows, self.layout.count, beside=beside, after=after)
        return self.extracts[cutoff]


def _write_extract(extract: Extract, room: int, count: Count) -> Message | None:
    """The extract as data: without secrets, and without text that could pass for an instruction of
    the system."""
    for tokens in (room, room * 9 // 10):  # the replaced text may have more tokens
        message = extract.within(tokens)
        data = None if message is None else body_as_data(message.text)
        if message is None or data is None or data == message.text:
            return message
        safe = Message(message.role, (Text(data),))
        if count(safe) <= room:
            return safe
    return None


def cut_line(messages: int) -> Message:
    """The message that replaces turns which were cut without a summary."""
    many = f"{messages:,} message" if messages == 1 else f"{messages:,} messages"
    return Message("user", (Text(f"{MARK}: {many} left out; recall finds them]"),))


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
