"""`Layout`: how a thread divides into setup, exchanges, and rows that must stay.

An *exchange* is a message of the user and everything up to the next one. A *round* is a call with
all its results and the answer to them. Exchanges are folded or kept whole if that keeps enough.
Otherwise one exchange is cut between rounds, so that the latest rounds stay, and its request stays
too, so that the model always sees what the work was for.

Some rows stay wherever the cut-off is: the setup, pins with the calls or results that they need,
the last request and its answer, open calls, and results that no answer has read yet (`unread`),
with their calls. Rules that came up on the way (later system messages) stay if there is room.

One summary replaces everything that is folded. It comes after the setup and after the pins that
precede all folded rows, and never inside a pair. If it covers work on a request that stays, it
comes after that request, because that is the order of events.

Rows after a fold follow another history than the one they were written for. So their thinking and
their reminders are removed; the last request stays as it is.

A call and its results (a `Pair`) are kept or removed together: every vendor refuses a result
without its call, and most refuse a call without its result. Ids are not unique in a thread (some
servers number calls from zero each turn), so a result belongs to the nearest earlier call with its
id.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from itertools import accumulate

from msgspec import Struct, structs

from weft.errors import CompactRefused
from weft.history import Row, shows
from weft.model import Message, Text, ToolCall, ToolResult, is_system, side

from .batches import is_summary, unmarked
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
from .source import has_typed_text
from .unread import unread_rows

Count = Callable[[Message], int]

WHOLE_SHARE = 0.5
"""Whole exchanges are kept if they are at least this share of what a cut between rounds keeps."""


Place = tuple[int, int]
"""A block: the number of its row, and its number in the row."""


class Pair(Struct, frozen=True):
    """A call with its results; `call` is `None` if the rows do not contain the call."""

    id: str
    call: Place | None
    results: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """All blocks of the pair, in order."""
        return self.results if self.call is None else (self.call, *self.results)


def find_pairs(rows: Sequence[Row]) -> list[Pair]:
    """All pairs of the rows, in the order of their first block."""
    pairs: list[tuple[str, Place | None, list[Place]]] = []
    latest: dict[str, int] = {}
    for i, row in enumerate(rows):
        for j, block in enumerate(row.message.blocks):
            if isinstance(block, ToolCall):
                latest[block.id] = len(pairs)
                pairs.append((block.id, (i, j), []))
            elif isinstance(block, ToolResult):
                at = latest.get(block.call_id)
                if at is None:
                    pairs.append((block.call_id, None, [(i, j)]))
                else:
                    pairs[at][2].append((i, j))
    return [Pair(id, call, tuple(results)) for id, call, results in pairs]


def settle_pairs(pairs: Iterable[Pair], removed: set[Place], fixed: Container[int]) -> set[Place]:
    """What to remove so that no pair is split.

    Both parts are removed, unless one is in a fixed row; then both stay.
    """
    settled = set(removed)
    for pair in pairs:
        if settled.isdisjoint(pair.places):
            continue
        if any(i in fixed for i, _ in pair.places):
            settled.difference_update(pair.places)
        else:
            settled.update(pair.places)
    return settled


def cut_units(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in units that must not be separated: one row, or a call up to its last result."""
    reach = list(range(len(rows)))
    for pair in find_pairs(rows):
        first, last = pair.places[0][0], pair.places[-1][0]
        reach[first] = max(reach[first], last)
    units: list[list[Row]] = []
    end = -1
    for number, row in enumerate(rows):
        if number > end:
            units.append([])
        units[-1].append(row)
        end = max(end, reach[number])
    return units


class Layout:
    """Rows, prepared for choosing a cut-off between old and recent.

    A cut-off is the index of a row: rows before it are folded, unless they are fixed. `verbatim`
    are the numbers of further rows that stay as they are. With `rules=False`, later system messages
    are folded like other rows. With `start`, the range between `start` and the cut-off is folded:
    rows before it stay as they are, and the summary takes the place of the range.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        count: Count,
        *,
        verbatim: Collection[int] = (),
        rules: bool = True,
        start: int | None = None,
    ) -> None:
        self.rows = rows
        self.start = start
        self.verbatim = verbatim if start is None else {*verbatim, *range(start)}
        self.rules = rules
        self.lead = leading_system(rows)
        self.count = count_each_once(count)
        self._folded: dict[int, list[int]] = {}
        self._kept: dict[int, list[tuple[int, Row]]] = {}
        self.pairs = find_pairs(rows)
        self.splits_pair = _splits_pair(self.pairs, len(rows))
        self.requests = request_rows(rows)
        self.fixed = self._fixed()
        self._starts = frozenset(self.exchanges())
        self.lean, self.stripped = self._strip()
        self._min_tokens = self._count_min_tokens()

    def exchanges(self) -> list[int]:
        """The starts of the exchanges, oldest first; rows before any request are the first one."""
        starts = [i for i in self.requests if i > self.lead and not self.splits_pair[i]]
        return [self.lead, *starts]

    def units(self) -> list[int]:
        """The possible cut-offs inside the last exchange, up to the end of the thread."""
        last = self.exchanges()[-1]
        return [i for i in range(last + 1, len(self.rows) + 1) if not self.splits_pair[i]]

    def rounds(self) -> list[int]:
        """The possible cut-offs between rounds, in all exchanges, oldest first."""
        return [
            i
            for i in range(self.lead + 1, len(self.rows))
            if not self.splits_pair[i]
            and i not in self._starts
            and side(self.rows[i].message.role) == "assistant"
            and not (_results(self.rows[i - 1]) and not _calls(self.rows[i]))
        ]

    def anchor(self, cutoff: int) -> int | None:
        """The request whose exchange a cut-off splits, if it does; a range may split it."""
        if self.start is not None:
            return None
        number = bisect_left(self.requests, cutoff) - 1
        return None if cutoff in self._starts or number < 0 else self.requests[number]

    def keeping(self, exchanges: int) -> int:
        """The cut-off that keeps this many exchanges; the last one is always kept."""
        starts = self.exchanges()
        return starts[-max(exchanges, 1)] if exchanges <= len(starts) else self.lead

    def folded(self, cutoff: int) -> list[int]:
        """The numbers of the folded rows; empty if none of them is visible."""
        if cutoff not in self._folded:
            stay = self._stay(cutoff)
            numbers = [i for i in range(self.lead, cutoff) if i not in stay]
            self._folded[cutoff] = numbers if any(shows(self.rows[i]) for i in numbers) else []
        return self._folded[cutoff]

    def source_rows(self, cutoff: int) -> list[Row]:
        """The visible rows that a summary replaces."""
        return [self.rows[i] for i in self.folded(cutoff) if shows(self.rows[i])]

    def lone_summary(self, cutoff: int) -> Row | None:
        """The earlier summary, if it is the only row that would be folded.

        To fold it again would lose details and the cached prefix, and would replace no new row.
        """
        source = self.source_rows(cutoff)
        return source[0] if len(source) == 1 and is_summary(source[0]) else None

    def min_tokens(self, cutoff: int) -> int:
        """A lower bound of the tokens that stay, without what fixed rows need for their pairs.

        It is precomputed, so it is cheap."""
        return self._min_tokens[cutoff]

    def kept_rows(self, cutoff: int) -> list[Row]:
        """The rows that stay: those after the cut-off, fixed rows, and what the calls and results
        of fixed rows need to be complete.
        """
        return [row for _, row in self._numbered_kept(cutoff)]

    def rows_after(self, cutoff: int) -> list[Row]:
        """The rows that stay and continue what is folded: the request of a cut exchange, and
        everything after the cut-off or the last folded row."""
        folded = self.folded(cutoff)
        last = folded[-1] if folded else -1
        anchor = self.anchor(cutoff)
        return [row for i, row in self._numbered_kept(cutoff) if i > last or i == anchor]

    def _stay(self, cutoff: int) -> set[int]:
        """The rows that stay at this cut-off, wherever they are."""
        anchor = self.anchor(cutoff)
        return self.fixed if anchor is None else self.fixed | {anchor}

    def _numbered_kept(self, cutoff: int) -> list[tuple[int, Row]]:
        """The rows that stay, each with its number."""
        if cutoff not in self._kept:
            self._kept[cutoff] = self._keep(cutoff)
        return self._kept[cutoff]

    def _keep(self, cutoff: int) -> list[tuple[int, Row]]:
        stay = self._stay(cutoff)
        folded_rows = set(self.folded(cutoff))
        needed: dict[int, set[int]] = {}
        for pair in self.pairs:
            places = pair.places
            if any(i in stay for i, _ in places):
                for i, j in places:
                    if i in folded_rows:
                        needed.setdefault(i, set()).add(j)
        rows: list[tuple[int, Row]] = []
        for i, row in enumerate(self.lean):
            if row is None:
                continue
            if i not in folded_rows:
                rows.append((i, row))
            elif i in needed:
                blocks = self.rows[i].message.blocks
                remaining = [block for j, block in enumerate(blocks) if j in needed[i]]
                rows.append((i, structs.replace(row, message=with_blocks(row.message, remaining))))
        return rows

    def plan(self, cutoff: int, message: Message) -> Plan:
        """The plan in which this summary replaces everything that is folded."""
        rows, folded = self.kept_rows(cutoff), self.folded(cutoff)
        index = self._summary_index(cutoff)
        gone = {slot(self.rows[i]) for i in folded}
        pinned = (row for row in self.rows[self.lead : cutoff] if row.priority == "pinned")
        return Plan(
            rows=(
                *rows[:index],
                Row(id=None, message=message, kind="summary"),
                *rows[index:],
            ),
            ranges=(
                Range(
                    first=slot(self.rows[folded[0]]),
                    last=slot(self.rows[folded[-1]]),
                    messages=len(folded),
                    blocks=sum(len(self.rows[i].message.blocks) for i in folded),
                    summary=unmarked(message.text),
                ),
            ),
            pins_kept=tuple(describe_pin(row) for row in pinned),
            stripped=tuple(block for block in self.stripped if block.id not in gone),
        )

    def _summary_index(self, cutoff: int) -> int:
        """How many kept rows come before the summary.

        These are the setup (or the rows before the range), or everything up to the last pin before
        the first row that is removed or cut, with the rest of its pairs, or everything up to the
        request that the folded work is for.
        """
        kept_rows = dict(self._numbered_kept(cutoff))
        removed = [i for i in self.folded(cutoff) if self._is_cut(i, kept_rows.get(i))]
        first_cut = next(iter(removed), cutoff)
        begin = self.lead if self.start is None else max(self.lead, self.start)
        pins = [i + 1 for i in range(begin, first_cut) if self.rows[i].priority == "pinned"]
        first = max(pins, default=begin)
        anchor = self.anchor(cutoff)
        if anchor is not None and removed and removed[-1] > anchor:
            first = max(first, anchor + 1)
        while self.splits_pair[first]:
            first += 1
        return sum(i < first for i in kept_rows)

    def _is_cut(self, number: int, row: Row | None) -> bool:
        return row is None or len(row.message.blocks) < len(self.rows[number].message.blocks)

    def _fixed(self) -> set[int]:
        rows = self.rows
        fixed = {*range(self.lead), *self.requests[-1:], *self.verbatim, *unread_rows(rows)}
        fixed.update(i for i, row in enumerate(rows) if row.priority == "pinned")
        if self.rules:
            fixed.update(rule_rows(rows))
        answers = [i for i in range(len(rows)) if side(rows[i].message.role) == "assistant"]
        newest = max((*self.requests[-1:], *answers[-1:]), default=self.lead)
        fixed.update(i for i in range(newest + 1, len(rows)) if is_request(rows[i]))
        for last in answers[-1:]:
            has_open_call = any(
                pair.call is not None and pair.call[0] == last and not pair.results
                for pair in self.pairs
            )
            is_reply = bool(self.requests) and last > self.requests[-1] and not _calls(rows[last])
            if has_open_call or is_reply:
                fixed.add(last)
        return fixed

    def _strip(self) -> tuple[list[Row | None], list[Stripped]]:
        """The rows without reminders and thinking (`None` if nothing is left), and what was
        removed.

        Pins, the last request and the rows before a range stay as they are.
        """
        begin = 0 if self.start is None else self.start
        lean: list[Row | None] = []
        stripped: list[Stripped] = []
        for i, row in enumerate(self.rows):
            kinds = strippable(row.message)
            blocks = row.message.blocks
            removed_blocks = [j for j, block in enumerate(blocks) if isinstance(block, kinds)]
            is_fixed = row.priority == "pinned" or i in self.requests[-1:] or i < begin
            if not removed_blocks or is_fixed:
                lean.append(row)
                continue
            remaining = [block for block in blocks if not isinstance(block, kinds)]
            stripped.extend(describe_stripped(row, j) for j in removed_blocks)
            shorter = structs.replace(row, message=with_blocks(row.message, remaining))
            lean.append(shorter if remaining else None)
        return lean, stripped

    def _count_min_tokens(self) -> list[int]:
        """For each cut-off, the tokens of the rows that stay anyway and of the rows after it."""
        sizes = [self.count(row.message) if row and shows(row) else 0 for row in self.lean]
        fixed = sum(sizes[i] for i in self.fixed)
        others = [0 if i in self.fixed else size for i, size in enumerate(sizes)]
        after = [0, *accumulate(reversed(others))]
        tokens = [fixed + following for following in reversed(after)]
        anchors = [self.anchor(cutoff) for cutoff in range(len(tokens))]
        return [
            total + (0 if anchor is None else others[anchor])
            for total, anchor in zip(tokens, anchors, strict=True)
        ]


def locate_range(
    rows: Sequence[Row], first: str | None, last: str | None, count: Count, *, rules: bool = True
) -> tuple[Layout, int]:
    """The layout and the cut-off of a range that two messages delimit; both are in the range.

    A range never splits a call from its result: it is extended to both. Without `first` it begins
    after the setup, without `last` it ends with the thread. Raises `CompactRefused` if a message is
    not in the rows, or if everything in the range has to stay.
    """
    lead = leading_system(rows)
    start = lead if first is None else max(lead, _find_row(rows, first, "first"))
    position = len(rows) if last is None else _find_row(rows, last, "last") + 1
    if position <= start:
        raise CompactRefused("comes before the first message of the range", field="last")
    splits_pair = Layout(rows, count).splits_pair
    while start > lead and splits_pair[start]:
        start -= 1
    while position < len(rows) and splits_pair[position]:
        position += 1
    layout = Layout(rows, count, rules=rules, start=start)
    if not layout.folded(position):
        what = "system messages, pins and the last question with its answer stay"
        raise CompactRefused(f"nothing in this range can be replaced: {what}", field="last")
    return layout, position


def _find_row(rows: Sequence[Row], id: str, field: str) -> int:
    for index, row in enumerate(rows):
        if row.id is not None and row.id.hex().startswith(id.lower()):
            return index
    raise CompactRefused(f"no message {id!r} on this branch", field=field)


def choose_position(layout: Layout, fits: Callable[[int], bool]) -> int | None:
    """The cut-off that fits and keeps most; `None` if none fits.

    The start of an exchange is preferred, unless a cut between rounds keeps more than twice as
    much: a long exchange is not given up as a whole because its first rounds are too much.
    """
    start = next((i for i in layout.exchanges() if fits(i)), None)
    last = len(layout.rows) if start is None else start
    inside = next((i for i in layout.rounds() if i < last and fits(i)), None)
    if start is None or inside is None:
        return start if inside is None else inside
    least = layout.min_tokens(len(layout.rows))
    whole, most = (layout.min_tokens(position) - least for position in (start, inside))
    return start if whole >= most * WHOLE_SHARE else inside


def rule_rows(rows: Sequence[Row]) -> list[int]:
    """The numbers of the system messages after the setup; of equal ones only the newest."""
    newest: dict[str, int] = {}
    for i in range(leading_system(rows), len(rows)):
        if is_system(rows[i].message) and shows(rows[i]):
            newest[rows[i].message.text] = i
    return sorted(newest.values())


class _CountedOnce:
    """A counter with a cache by `id()`, which holds the messages so that the ids stay valid."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self.cache: dict[int, int] = {}
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> int:
        tokens = self.cache.get(id(message))
        if tokens is None:
            tokens = self.cache[id(message)] = self.count(message)
            self.messages.append(message)
        return tokens


def count_each_once(count: Count) -> Count:
    """The counter with a cache; the same one if it already has a cache."""
    return count if isinstance(count, _CountedOnce) else _CountedOnce(count)


def count_tokens(rows: Sequence[Row], count: Count) -> int:
    """The tokens of the rows that a model sees."""
    return sum(count(row.message) for row in rows if shows(row))


def _calls(row: Row) -> bool:
    return any(isinstance(block, ToolCall) for block in row.message.blocks)


def _results(row: Row) -> bool:
    return any(isinstance(block, ToolResult) for block in row.message.blocks)


def is_request(row: Row) -> bool:
    has_text = any(isinstance(block, Text) and block.text.strip() for block in row.message.blocks)
    return row.message.role == "user" and row.kind != "summary" and shows(row) and has_text


def request_rows(rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows in which the user asks for something.

    Messages that a client put in, such as the notice that a task has ended, only count if the user
    typed nothing at all.
    """
    requests = [i for i in range(leading_system(rows), len(rows)) if is_request(rows[i])]
    return [i for i in requests if has_typed_text(rows[i])] or requests


def _splits_pair(pairs: Sequence[Pair], size: int) -> list[bool]:
    """For each row, whether a cut-off before it would split a pair."""
    change = [0] * (size + 2)
    for pair in pairs:
        first, last = pair.places[0][0], pair.places[-1][0]
        change[first + 1] += 1
        change[last + 1] -= 1
    return [open > 0 for open in accumulate(change)][: size + 1]
