"""Compaction to a budget, or to a number of recent exchanges, with an extract as the summary.

What must stay (`layout`) is counted first. The remaining tokens are divided between the most recent
exchanges or rounds, from the end, and one summary of everything older. The summary gets a quarter
of them if little is folded, and more if more is folded: about four fifths if only a tenth of the
thread may stay (`reserve_for_summary`).

- A fold always leaves a summary with information about what it replaced. If a useful one does not
  fit, fewer exchanges stay, down to the last request. If it still does not fit, the plan is refused
  with the number of tokens that it needs.
- Results that the model has not read are never folded. If they do not fit, or leave the summary
  less than 60 % of the tokens that both share, they are shortened.
- The summary fills the budget.
- Later system messages (rules) stay unchanged. They are folded only if nothing else helps.
- A fold that saves nothing is not made. Nor is a fold of an earlier summary alone, unless the
  budget requires it: the same compaction twice changes nothing the second time.

The summary is a `user` message of kind `summary`. It comes after the leading system messages and
after the pins that precede everything it covers. So no system message changes, and the message
order is valid for every vendor.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from weft.errors import BudgetExceeded, CompactRefused
from weft.history import Row
from weft.model import Message, Text

from .batches import body_as_data, mark_summary, plural
from .extract import Extract
from .layout import (
    Layout,
    choose_position,
    count_each_once,
    count_tokens,
    locate_range,
    rule_rows,
)
from .plan import Count, Plan, count_leading_system
from .source import MARK
from .unread import Thinning, Unread, unread_rows

MIN_SUMMARY_SHARE, MAX_SUMMARY_SHARE = 0.25, 0.95
"""The smallest and the largest share of the free tokens that a summary gets."""

SOURCE_SHARE = 0.25
MIN_SUMMARY_LIMIT = 300
"""Without a budget, a summary has at most this share of the tokens it replaces, or this many tokens
if that is more. With a budget, it gets what the kept rows leave."""

RESERVED_SHARE = 0.6
"""The share of the tokens that a summary and the unread results have together, which is reserved
for the summary. Without it, one long result left a summary of 300 tokens in a budget of 6,600, and
half of the names that later calls needed were lost."""

Originals = Callable[[Sequence[Row]], Sequence[Row]]
"""Replaces summaries among rows by the messages that they summarise."""

SAMPLE_ROWS = 24
"""How many rows are read to estimate the size of a useful summary."""

THIN_ONLY_SHARE = 0.5
"""If everything else is at most this share of the budget, only unread results are shortened and
nothing is folded."""


class FoldOptions(Struct, frozen=True, kw_only=True):
    """What a plan keeps, and how it summarises the rest; `plan_budget` explains the fields.

    `rules`: whether later system messages stay. `fill`: whether the summary may use the whole
    budget, because somebody asked for that many tokens. `max_summary`: its most tokens.
    """

    keep: int | None = None
    cut: bool = False
    count: Count
    rules: bool = True
    fill: bool = True
    max_summary: int | None = None
    originals: Originals = list


def plan_budget(
    rows: Sequence[Row],
    budget: int,
    *,
    keep: int | None = None,
    limit: int | None = None,
    cut: bool = False,
    fill: bool = True,
    count: Count,
    originals: Originals = list,
) -> Plan:
    """The rows within `budget` tokens; the same rows if they already fit.

    - `keep`: exactly this many recent exchanges stay, and all older ones are folded even if they
      would fit. The last one always stays. Without `keep`, as many stay as fit.
    - `limit`: if unread results do not fit the budget, up to this many tokens are used before they
      are shortened.
    - `cut`: if there is no room for a summary, leave one line that says how much was removed.
    - `fill`: use the whole budget. Without it, the summary has at most a quarter of the tokens that
      it replaces.
    - `originals`: replaces summaries among rows with the messages that they summarise. A new
      summary is made from these messages, because a summary of a summary loses details.

    Raises `BudgetExceeded` if what must stay is too much, and `CompactRefused` if there is nothing
    to compact.
    """
    _check(rows, budget, keep, field="budget")
    count_trial, count = count, count_each_once(count)
    max_budget = budget if limit is None else max(budget, limit)
    refused: BudgetExceeded | None = None
    for rules in (True, False) if rule_rows(rows) else (True,):
        options = FoldOptions(
            keep=keep, cut=cut, count=count, rules=rules, fill=fill, originals=originals
        )
        reserved = _reserved_for_summary(rows, budget, options, count_trial)
        plan: Plan | None = None
        for tokens in dict.fromkeys((budget, max_budget)):
            try:
                plan = _plan_fold(rows, tokens, options)
            except BudgetExceeded as error:
                refused = error
                continue
            if not plan.ranges or _tokens_for_summary(plan, rows, tokens, count) >= reserved:
                return plan
            # The unread results squeeze the summary. They stay whole only if the limit has room.
            options = structs.replace(options, max_summary=max(reserved, MIN_SUMMARY_LIMIT))
        options = structs.replace(options, max_summary=None)
        thinner = ResultThinner(rows, max_budget, options, trial=count_trial, min_summary=reserved)
        if thinner.is_possible:
            try:
                return thinner.plan()
            except BudgetExceeded as error:
                refused = error
        if plan is not None:
            return plan
    assert refused is not None
    raise refused


def _reserved_for_summary(
    rows: Sequence[Row],
    budget: int,
    options: FoldOptions,
    count: Count,
) -> int:
    """The tokens that unread results have to leave to the summary; 0 without such results."""
    if not unread_rows(rows):
        return 0
    thinner = ResultThinner(rows, budget, options, trial=count)
    return max(0, int((budget - thinner.min_fold_tokens) * RESERVED_SHARE))


def _tokens_for_summary(plan: Plan, rows: Sequence[Row], budget: int, count: Count) -> int:
    """The tokens that the rows which stay leave for the summary."""
    old_rows = {id(row) for row in rows}
    return budget - count_tokens([row for row in plan.rows if id(row) in old_rows], count)


def _plan_fold(rows: Sequence[Row], budget: int, options: FoldOptions) -> Plan:
    """The plan that folds old exchanges and keeps everything else."""
    fits = count_tokens(rows, options.count) <= budget
    if options.keep is None and fits:
        return Plan(rows=tuple(rows))
    layout = Layout(rows, options.count, rules=options.rules)
    split = BudgetSplit(layout, budget, options)
    if options.keep is None:
        return split.plan(split.cutoff())
    cutoff = split.layout.cutoff_keeping(options.keep)
    if fits and (split.layout.lone_summary(cutoff) is not None or not split.saves_tokens(cutoff)):
        return Plan(rows=tuple(rows))
    return split.plan(cutoff)


class ResultThinner:
    """The plan for threads whose unread results have to be shortened.

    If everything else is small, nothing is folded. Otherwise old exchanges are folded, and the free
    tokens are split: a quarter for their summary, three quarters for the unread results.

    `min_summary` is the minimum tokens for the summary, if that is more than the smallest extract.
    `trial` counts messages that are tried and discarded, because `options.count` may cache every
    message.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        budget: int,
        options: FoldOptions,
        *,
        trial: Count,
        min_summary: int = 0,
    ) -> None:
        self.rows, self.budget, self.options = rows, budget, options
        self.min_summary = min_summary
        self.unread = Unread(rows, trial)
        smallest = self.unread.thin(-1)
        self.is_possible = bool(smallest.thinned)
        self.handle_tokens = self._unread_tokens(smallest.rows)
        self.other_tokens = count_tokens(rows, options.count) - self._unread_tokens(rows)
        layout = Layout(smallest.rows, options.count, rules=options.rules)
        split = BudgetSplit(layout, budget, options)
        self.min_fold_tokens = split.min_budget(self._last_cutoff(layout))

    @property
    def min_budget(self) -> int:
        """The tokens of the smallest possible plan."""
        return min(self.other_tokens + self.handle_tokens, self.min_fold_tokens)

    @property
    def is_enough(self) -> bool:
        """Whether shortening the results is enough, so that nothing needs to be folded."""
        if self.other_tokens + self.handle_tokens > self.budget:
            return False
        is_rest_small = self.other_tokens <= self.budget * THIN_ONLY_SHARE
        return is_rest_small or self.min_fold_tokens > self.budget

    def thin(self) -> Thinning:
        """The rows with the unread results shortened to fit the budget.

        Raises `BudgetExceeded` if even their handles do not fit.
        """
        if self.min_budget > self.budget:
            raise _exceeded("what must stay needs", self.min_budget, self.budget)
        if self.is_enough:
            return self.unread.thin(self.budget - self.other_tokens)
        free = self.budget - self.min_fold_tokens
        for_results = min(int(free * (1 - MIN_SUMMARY_SHARE)), max(0, free - self.min_summary))
        return self.unread.thin(self.handle_tokens + for_results)

    def plan(self) -> Plan:
        """The plan with shortened results, and with a fold if that is not enough."""
        thinning = self.thin()
        if self.is_enough:
            return Plan(rows=thinning.rows, thinned=thinning.thinned, method="thin")
        planned = _plan_fold(thinning.rows, self.budget, self.options)
        method = planned.method or "thin"
        return structs.replace(planned, thinned=thinning.thinned, method=method)

    def _last_cutoff(self, layout: Layout) -> int:
        """The cut-off that folds most."""
        keep = self.options.keep
        return len(layout.rows) if keep is None else layout.cutoff_keeping(keep)

    def _unread_tokens(self, rows: Sequence[Row]) -> int:
        return sum(self.options.count(rows[i].message) for i in self.unread.numbers)


def plan_summary(
    rows: Sequence[Row],
    summary: str,
    *,
    keep: int | None = None,
    budget: int | None = None,
    count: Count,
) -> Plan:
    """The rows with all but the last `keep` exchanges replaced by the caller's own summary.

    The last exchange, pins and leading system messages always stay. Returns the same rows if there
    is nothing older. Raises `BudgetExceeded` if the result is above `budget`.
    """
    if not summary.strip():
        raise CompactRefused("is blank; say what happened in the folded turns", field="summary")
    _check(rows, budget, keep, field="summary")
    layout = Layout(rows, count)
    cutoff = layout.cutoff_keeping(1 if keep is None else keep)
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
    max_tokens = max(min(MIN_SUMMARY_LIMIT, size // 2), int(size * SOURCE_SHARE))
    extract = Extract(originals(source), layout.count, beside=layout.kept_rows(position))
    message = _write_extract(extract, max_tokens, layout.count)
    return layout.plan(position, message or cut_line(len(source)))


def _plan_own_summary(layout: Layout, cutoff: int, summary: str) -> Plan:
    """The plan with the caller's summary; the same rows if there is nothing new to replace."""
    message = mark_summary(summary)
    earlier = layout.lone_summary(cutoff)
    if not layout.folded(cutoff) or (earlier is not None and earlier.message == message):
        return Plan(rows=tuple(layout.rows))
    return layout.plan(cutoff, message)


def reserve_for_summary(free: int, budget: int, total: int) -> int:
    """How many of the free tokens a thread of `total` tokens reserves for its summary.

    A quarter if the budget is nearly the whole thread, and more if more of the thread is folded, up
    to `MAX_SUMMARY_SHARE`. If that is little, up to a half.
    """
    removed = max(0.0, 1 - budget / max(1, total))
    share = MIN_SUMMARY_SHARE + (MAX_SUMMARY_SHARE - MIN_SUMMARY_SHARE) * removed**2
    return max(int(free * share), min(MIN_SUMMARY_LIMIT, free // 2))


class BudgetSplit:
    """How each cut-off splits a budget between the rows that stay and the summary."""

    def __init__(self, layout: Layout, budget: int, options: FoldOptions) -> None:
        self.layout = layout
        self.budget = budget
        self.cut = options.cut
        self.fill = options.fill
        self.max_summary = options.max_summary
        self.originals = options.originals
        self.extracts: dict[int, Extract] = {}

    def cutoff(self) -> int:
        """The cut-off that keeps most and still leaves enough tokens for a useful summary.

        If there is none, the cut-off that leaves most tokens for the summary. The originals are
        counted and not their earlier summaries, so that it does not matter how often a thread was
        compacted before.
        """
        layout = self.layout
        end = len(layout.rows)
        free = self.budget - layout.min_tokens(end)
        total = count_tokens(self.originals(layout.rows), layout.count)
        limit = self.budget - reserve_for_summary(free, self.budget, total)

        def fits(cutoff: int) -> bool:
            if layout.min_tokens(cutoff) > limit:
                return False
            left = self.tokens_left(cutoff)
            return left >= MIN_SUMMARY_LIMIT or left >= self.useful_summary(cutoff)

        position = choose_position(layout, fits)
        if position is not None:
            return position
        last = layout.exchange_starts()[-1]
        return last if self.tokens_left(last) >= self.min_summary(last) else end

    def tokens_left(self, cutoff: int) -> int:
        """The tokens that are left for the summary; -1 if even the kept rows do not fit."""
        if self.layout.min_tokens(cutoff) > self.budget:
            return -1
        return self.budget - count_tokens(self.layout.kept_rows(cutoff), self.layout.count)

    def useful_summary(self, cutoff: int) -> int:
        """The tokens of a useful summary, estimated from the last of the folded rows."""
        rows = self.layout.source_rows(cutoff)[-SAMPLE_ROWS:]
        return Extract(rows, self.layout.count).useful_tokens if rows else 0

    def min_summary(self, cutoff: int) -> int:
        """The tokens of the smallest summary; 0 if nothing is folded."""
        return self._extract(cutoff).min_tokens if self.layout.folded(cutoff) else 0

    def saves_tokens(self, cutoff: int) -> bool:
        """Whether a fold at this cut-off makes the thread smaller."""
        if not self.layout.folded(cutoff) or self.tokens_left(cutoff) < self.min_summary(cutoff):
            return False
        before = count_tokens(self.layout.rows, self.layout.count)
        return count_tokens(self.plan(cutoff).rows, self.layout.count) < before

    def plan(self, cutoff: int) -> Plan:
        """The plan for a cut-off; raises `BudgetExceeded` if its summary does not fit."""
        layout, count = self.layout, self.layout.count
        kept_rows = layout.kept_rows(cutoff)
        if not layout.folded(cutoff):
            return self._unfolded(kept_rows)
        extract = self._extract(cutoff)
        tokens_left = self.budget - count_tokens(kept_rows, count)
        max_tokens = tokens_left
        if self.max_summary is not None:
            max_tokens = min(tokens_left, max(self.max_summary, extract.min_tokens))
        if not self.fill:
            share = int(count_tokens(extract.rows, count) * SOURCE_SHARE)
            max_tokens = min(tokens_left, max(MIN_SUMMARY_LIMIT, share, extract.min_tokens))
        message = _write_extract(extract, max_tokens, count)
        if message is not None:
            return structs.replace(layout.plan(cutoff, message), method="extract")
        line = cut_line(len(layout.folded(cutoff)))
        if self.cut and count(line) <= tokens_left:
            return structs.replace(layout.plan(cutoff, line), method="cut")
        raise self._too_small(self.min_budget(cutoff))

    def min_budget(self, cutoff: int) -> int:
        """The smallest budget for which this cut-off works."""
        kept_tokens = count_tokens(self.layout.kept_rows(cutoff), self.layout.count)
        if not self.layout.folded(cutoff):
            return kept_tokens
        min_summary = self._extract(cutoff).min_tokens
        if self.cut:
            line = cut_line(len(self.layout.folded(cutoff)))
            min_summary = min(min_summary, self.layout.count(line))
        return kept_tokens + min_summary

    def _too_small(self, needed: int) -> BudgetExceeded:
        """The error for a budget that is smaller than `needed`."""
        total = count_tokens(self.layout.rows, self.layout.count)
        if total <= needed:
            return _exceeded(
                "a summary would save nothing and the thread needs", total, self.budget
            )
        return _exceeded("what must stay and a summary of the rest need", needed, self.budget)

    def _unfolded(self, rows: Sequence[Row]) -> Plan:
        """The plan if nothing can be folded: the rows without thinking, if they fit."""
        needed = count_tokens(rows, self.layout.count)
        if needed > self.budget:
            raise _exceeded("what must stay needs", needed, self.budget)
        return Plan(rows=tuple(rows), stripped=tuple(self.layout.stripped))

    def _extract(self, cutoff: int) -> Extract:
        """The extract of what is folded at this cut-off, from the originals."""
        if cutoff not in self.extracts:
            rows = self.originals(self.layout.source_rows(cutoff))
            beside = self.layout.kept_rows(cutoff)
            self.extracts[cutoff] = Extract(rows, self.layout.count, beside=beside)
        return self.extracts[cutoff]


def _write_extract(extract: Extract, max_tokens: int, count: Count) -> Message | None:
    """The extract as data (`as_data`) in at most `max_tokens`; `None` if none fits."""
    # The replaced text may have more tokens. Then a smaller extract is tried.
    for tokens in (max_tokens, max_tokens * 9 // 10):
        message = extract.within(tokens)
        if message is None:
            return None
        data = body_as_data(message.text)
        if data == message.text:
            return message
        safe = Message(message.role, (Text(data),))
        if count(safe) <= max_tokens:
            return safe
    return None


def cut_line(messages: int) -> Message:
    """The message that replaces turns which were cut without a summary."""
    omitted = plural(messages, "message")
    return Message("user", (Text(f"{MARK}: {omitted} left out; recall finds them]"),))


def _check(rows: Sequence[Row], budget: int | None, keep: int | None, *, field: str) -> None:
    """Raise `CompactRefused` if there is nothing to compact, or if a number is negative."""
    if count_leading_system(rows) == len(rows):
        what = "only system messages" if rows else "no messages"
        raise CompactRefused(f"the thread has {what}: nothing to compact", field=field)
    for name, number in (("budget", budget), ("keep", keep)):
        if number is not None and number < 0:
            raise CompactRefused(f"must not be negative: {number}", field=name)


def _exceeded(what: str, needed: int, budget: int) -> BudgetExceeded:
    return BudgetExceeded(
        f"{what} {needed} tokens, more than the budget of {budget}", needed=needed, budget=budget
    )
