"""Where old turns end when a model is to sum them up, and how much it may write.

The border is found without any text: by the turns to keep (the last exchange, where nothing is
said), or by what is left of a budget when the summary has its room. Exchanges are kept whole as
long as that fits; after that the last one is cut between calls and their results.

What a summary may come to is a fifth of what it stands for, within limits that a reader and a
window can bear, and never more than that itself. What earlier summaries say counts too: a quarter
of a budget is theirs, and where they have grown past that they are folded into fewer.
"""

from msgspec import Struct, structs

from weft.errors import BudgetExceeded, CompactRefused
from weft.history import Row, shows

from .batches import is_summary
from .folding import Folding, cost
from .score import Scorer, choose_verbatim

SHARE = 0.2
LEAST = 300
SMALL = 60
MOST = 4096
OLD_SHARE = 0.25
HEADING = 50
"""The tokens of what stands above the batches."""


class Fold(Struct, frozen=True):
    """A border in some rows, what a fold up to it takes, and how large its summary may be.

    `tellings` are the summaries that it takes, `turns` all else that a model is shown of it.
    `room` is what a budget leaves for old and new summaries together.
    """

    folding: Folding
    border: int
    tellings: tuple[Row, ...]
    turns: tuple[Row, ...]
    limit: int
    room: int | None = None

    @property
    def kept(self) -> int:
        """The tokens of what is not folded."""
        return cost(self.folding.kept(self.border), self.folding.count)

    @property
    def told(self) -> int:
        """The tokens of the summaries that it takes."""
        return cost(self.tellings, self.folding.count)

    def tokens(self, written: int) -> int:
        """The most tokens that are left when a summary of so many is written."""
        whole = self.told + written
        return self.kept + HEADING + (whole if self.room is None else min(whole, self.room))


def choose_fold(
    folding: Folding, *, keep: int | None, budget: int | None, output: int, spare: int = 0
) -> Fold | None:
    """The fold that keeps so many exchanges, or as much as a budget takes; `None` where there is
    nothing to fold. Raises `BudgetExceeded` where even the smallest rest is too much.

    `spare` tokens of the budget are left, for old messages that stay word for word.
    """
    for name, number in (("keep", keep), ("budget", budget), ("verbatim", spare)):
        if number is not None and number < 0:
            raise CompactRefused(f"must not be negative: {number}", field=name)
    if keep is None and budget is not None:
        if cost(folding.rows, folding.count) <= budget:
            return None
        border = _fitting(folding, budget, spare)
    elif keep is None:
        border = _usual(folding)
    else:
        border = _keeping(folding, keep)
    fold = _measure(folding, border, output)
    if budget is None:
        return fold if fold.turns else None
    if not fold.turns and not (keep is None and fold.tellings):
        return None
    room = budget - spare - fold.kept - HEADING
    old = _allowance(fold.told, budget)
    least = min(fold.limit, _least(folding, budget))
    if room - old < least:
        raise _exceeded(budget - room + old + least, budget)
    return structs.replace(fold, limit=min(fold.limit, room - old), room=room)


def keep_verbatim(fold: Fold, scorer: Scorer, spare: int) -> Fold:
    """The fold without those of its turns that matter most, as many as `spare` tokens hold; half
    of them at most, for what is kept word for word needs no summary."""
    folding = fold.folding
    places = [i for i in folding.folded(fold.border) if _is_turn(folding.rows[i])]
    turns = [folding.rows[i] for i in places]
    room = min(spare, cost(turns, folding.count) // 2)
    chosen = choose_verbatim(turns, scorer, room, folding.count)
    if not chosen:
        return fold
    kept = Folding(folding.rows, folding.count, verbatim=[places[at] for at in chosen])
    left = _measure(kept, fold.border, fold.limit)
    return structs.replace(left, room=fold.room) if left.turns else fold


def _allowance(told: int, budget: int) -> int:
    """What earlier summaries may have of a budget: folded into one they are no more than that."""
    return min(told, max(SMALL, int(budget * OLD_SHARE)))


def _is_turn(row: Row) -> bool:
    return shows(row) and not is_summary(row)


def _measure(folding: Folding, border: int, output: int) -> Fold:
    source = folding.source(border)
    turns = tuple(row for row in source if _is_turn(row))
    tellings = tuple(row for row in source if is_summary(row))
    size = cost(turns, folding.count)
    wanted = min(MOST, max(LEAST, int(size * SHARE)), size)
    return Fold(folding, border, tellings, turns, min(output, wanted))


def _fitting(folding: Folding, budget: int, spare: int) -> int:
    """The first border behind which what stays leaves a summary its least room."""
    told = _told(folding)
    need = summary_need(folding, budget, spare)
    borders = [*folding.exchanges(), *folding.units()]
    fitting = [border for border in borders if folding.at_least(border) + need <= budget]
    for border in fitting:
        if any(_is_turn(folding.rows[i]) for i in folding.folded(border)):
            return border
    if fitting and told:
        return fitting[-1]  # all that is too long are the summaries themselves
    raise _exceeded(folding.at_least(borders[-1]) + need, budget)


def summary_need(folding: Folding, budget: int, spare: int = 0) -> int:
    """The tokens of a budget that a model's summary takes at least, earlier ones included."""
    told = _told(folding)
    return _least(folding, budget) + HEADING + _allowance(told, budget) + spare


def _told(folding: Folding) -> int:
    return cost([row for row in folding.rows if is_summary(row)], folding.count)


def _least(folding: Folding, budget: int) -> int:
    """The smallest room that is worth a summary: less for a short thread or a small budget."""
    return min(LEAST, max(SMALL, min(budget, cost(folding.rows, folding.count)) // 4))


def _usual(folding: Folding) -> int:
    """Where the last exchange begins; inside it, half way through its tokens, where there is
    nothing else: the work on one wish may be all of a long thread."""
    border = _keeping(folding, 1)
    if any(_is_turn(folding.rows[i]) for i in folding.folded(border)):
        return border
    half = cost(folding.rows, folding.count) // 2
    units = folding.units()
    return next((unit for unit in units if folding.at_least(unit) <= half), units[-1])


def _keeping(folding: Folding, keep: int) -> int:
    """Where the last `keep` exchanges begin; the last one is kept in any case."""
    starts = folding.exchanges()
    return starts[-max(keep, 1)] if keep <= len(starts) else folding.lead


def _exceeded(needed: int, budget: int) -> BudgetExceeded:
    what = "what must stay and a summary of the rest need"
    line = f"{what} {needed} tokens, more than the budget of {budget}"
    return BudgetExceeded(line, needed=needed, budget=budget)
