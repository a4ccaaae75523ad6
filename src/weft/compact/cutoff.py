"""Where old turns end when a model summarises them, and how long the summary may be.

The cut-off is chosen before any summary exists: by the number of exchanges to keep (the last one
by default), or by what a budget leaves when the summary has its room: a fifth of what is free, or
at least a minimum. Exchanges stay whole if that keeps enough; otherwise one is cut between rounds.

A summary may have a fifth of the tokens that it replaces, within fixed limits, and never more than
it replaces. Earlier summaries count too: they get a quarter of a budget, and if they have grown
beyond that, they are merged into fewer.
"""

from functools import partial

from msgspec import Struct, structs

from weft.errors import BudgetExceeded, CompactRefused
from weft.history import Row, shows

from .batches import is_summary
from .layout import Layout, choose_position, count_tokens
from .score import Scorer, choose_verbatim

SUMMARY_SHARE = 0.2
MIN_SUMMARY = 300
SMALL_SUMMARY = 60
MAX_SUMMARY = 4096
OLD_SUMMARIES_SHARE = 0.25
HEADING = 64
"""The tokens of the lines above and below the batches."""


class Cutoff(Struct, frozen=True):
    """A position in the rows, what is folded before it, and how long its summary may be.

    `summaries` are the earlier summaries that are folded, `turns` all other visible rows. `room` is
    what a budget leaves for old and new summaries together.
    """

    layout: Layout
    position: int
    summaries: tuple[Row, ...]
    turns: tuple[Row, ...]
    limit: int
    room: int | None = None

    @property
    def kept_tokens(self) -> int:
        """The tokens of the rows that are not folded."""
        return count_tokens(self.layout.kept_rows(self.position), self.layout.count)

    @property
    def summary_tokens(self) -> int:
        """The tokens of the earlier summaries that are folded."""
        return count_tokens(self.summaries, self.layout.count)

    def max_tokens_after(self, new_tokens: int) -> int:
        """The most tokens that remain if the new summary has this many."""
        summaries = self.summary_tokens + new_tokens
        if self.room is not None:
            summaries = min(summaries, self.room)
        return self.kept_tokens + HEADING + summaries


def choose_cutoff(
    layout: Layout, *, keep: int | None, budget: int | None, output: int, spare: int = 0
) -> Cutoff | None:
    """The cut-off that keeps `keep` exchanges, or as much as fits the budget.

    Returns `None` if there is nothing to fold. Raises `BudgetExceeded` if even the smallest result
    is too large. `spare` tokens of the budget are reserved for messages that stay verbatim.
    """
    for name, number in (("keep", keep), ("budget", budget), ("verbatim", spare)):
        if number is not None and number < 0:
            raise CompactRefused(f"must not be negative: {number}", field=name)
    if keep is None and budget is not None:
        if count_tokens(layout.rows, layout.count) <= budget:
            return None
        position = _fitting_position(layout, budget, spare)
    elif keep is None:
        position = _default_position(layout)
    else:
        position = layout.keeping(keep)
    cutoff = _measure(layout, position, output)
    if budget is None:
        return cutoff if cutoff.turns else None
    if not cutoff.turns and not (keep is None and cutoff.summaries):
        return None
    room = budget - spare - cutoff.kept_tokens - HEADING
    old = _old_summaries_room(cutoff.summary_tokens, budget)
    least = min(cutoff.limit, _min_summary(layout, budget))
    if room - old < least:
        raise _exceeded(budget - room + old + least, budget)
    return structs.replace(cutoff, limit=min(cutoff.limit, room - old), room=room)


def measure_range(layout: Layout, position: int, output: int) -> Cutoff:
    """The cut-off of a range, for a summary of at most `output` tokens."""
    return _measure(layout, position, output)


def keep_verbatim(cutoff: Cutoff, scorer: Scorer, spare: int) -> Cutoff:
    """The same cut-off, but the most important folded turns stay verbatim, up to `spare` tokens.

    At most half of the folded turns stay, because verbatim messages need no summary.
    """
    layout = cutoff.layout
    numbers = [i for i in layout.folded(cutoff.position) if _is_turn(layout.rows[i])]
    turns = [layout.rows[i] for i in numbers]
    room = min(spare, count_tokens(turns, layout.count) // 2)
    chosen = choose_verbatim(turns, scorer, room, layout.count)
    if not chosen:
        return cutoff
    fixed = Layout(layout.rows, layout.count, verbatim=[numbers[index] for index in chosen])
    smaller = _measure(fixed, cutoff.position, cutoff.limit)
    return structs.replace(smaller, room=cutoff.room) if smaller.turns else cutoff


def min_summary_need(layout: Layout, budget: int, spare: int = 0) -> int:
    """The least tokens of a budget that a model's summary needs, earlier summaries included."""
    old = _old_summaries_room(_summary_tokens(layout), budget)
    return _min_summary(layout, budget) + HEADING + old + spare


def _old_summaries_room(tokens: int, budget: int) -> int:
    """What earlier summaries may have of a budget: merged into one, they fit into this."""
    return min(tokens, max(SMALL_SUMMARY, int(budget * OLD_SUMMARIES_SHARE)))


def _is_turn(row: Row) -> bool:
    return shows(row) and not is_summary(row)


def _measure(layout: Layout, position: int, output: int) -> Cutoff:
    source = layout.source_rows(position)
    turns = tuple(row for row in source if _is_turn(row))
    summaries = tuple(row for row in source if is_summary(row))
    size = count_tokens(turns, layout.count)
    limit = min(MAX_SUMMARY, max(MIN_SUMMARY, int(size * SUMMARY_SHARE)), size)
    return Cutoff(layout, position, summaries, turns, min(output, limit))


def _fitting_position(layout: Layout, budget: int, spare: int) -> int:
    """The first position that leaves a summary its share of the budget, or else its minimum."""
    least = min_summary_need(layout, budget, spare)
    end = layout.units()[-1]
    share = int((budget - layout.min_tokens(end)) * SUMMARY_SHARE)
    extra = min(MAX_SUMMARY, share) - _min_summary(layout, budget)

    def fits(need: int, position: int) -> bool:
        return layout.min_tokens(position) + need <= budget and any(
            _is_turn(layout.rows[i]) for i in layout.folded(position)
        )

    for need in (least + max(0, extra), least):
        position = choose_position(layout, partial(fits, need))
        if position is not None:
            return position
        if fits(need, end):
            return end
    if layout.min_tokens(end) + least <= budget and _summary_tokens(layout):
        return end  # only the summaries themselves are too long
    raise _exceeded(layout.min_tokens(end) + least, budget)


def _summary_tokens(layout: Layout) -> int:
    return count_tokens([row for row in layout.rows if is_summary(row)], layout.count)


def _min_summary(layout: Layout, budget: int) -> int:
    """The smallest useful summary: smaller for a short thread or a small budget."""
    size = min(budget, count_tokens(layout.rows, layout.count))
    return min(MIN_SUMMARY, max(SMALL_SUMMARY, size // 4))


def _default_position(layout: Layout) -> int:
    """The start of the last exchange.

    If there is nothing to fold before it, the middle of that exchange by tokens: the work on one
    request can be all of a long thread.
    """
    position = layout.keeping(1)
    if any(_is_turn(layout.rows[i]) for i in layout.folded(position)):
        return position
    half = count_tokens(layout.rows, layout.count) // 2
    units = layout.units()
    return next((unit for unit in units if layout.min_tokens(unit) <= half), units[-1])


def _exceeded(needed: int, budget: int) -> BudgetExceeded:
    what = "what must stay and a summary of the rest need"
    line = f"{what} {needed} tokens, more than the budget of {budget}"
    return BudgetExceeded(line, needed=needed, budget=budget)
