"""`Layout`: how a thread divides into leading system messages, exchanges, and rows that must stay.

An *exchange* is a message of the user and everything up to the next one. A *round* is a call with
all its results and the answer to them. Exchanges are folded or kept whole if that keeps enough.
Otherwise one exchange is cut between rounds, so that the latest rounds stay, and its request stays
too, so that the model always sees what the work was for.

Some rows are *fixed*, so they stay wherever the cut-off is: leading system messages, pins with the
calls or results that they need, the last request and its answer, open calls, and results that no
answer has read yet (`unread`), with their calls. Later system messages (rules) stay too if they
fit.

One summary replaces everything that is folded. It comes after the leading system messages and after
the pins that precede all folded rows, and never inside a pair. If it covers work on a request that
stays, it comes after that request, because that is the order of events.

The messages before the rows that stay are no longer those that the rows were written for. So their
thinking and their reminders are removed. The last request does not change, and while a loop of
tools is running, nothing after that request does: the model goes on from its own thinking.

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
from weft.history import Row, is_typed, is_visible, running_turn
from weft.lazy import lazy_pattern
from weft.model import Message, Text, ToolCall, ToolResult, is_system, side

from .batches import is_summary, unmarked
from .plan import (
    Count,
    Plan,
    Range,
    Stripped,
    count_leading_system,
    describe_pin,
    describe_stripped,
    hex_id,
    strippable,
    with_blocks,
)
from .unread import unread_rows

WHOLE_EXCHANGES_SHARE = 0.5
"""Whole exchanges are kept if they are at least this share of what a cut between rounds keeps."""


_STATUS = lazy_pattern(r"(?s)<total_tokens>.*?</total_tokens>")
"""The status line of a client (Claude Code 2), which every round of tools repeats with new figures.
Without this, 36 of them in a row stood behind a summary."""

BlockPosition = tuple[int, int]
"""Where a block is: the number of its row, and its number in the row."""


class Pair(Struct, frozen=True):
    """A call with its results; `call` is `None` if the rows do not contain the call."""

    id: str
    call: BlockPosition | None
    results: tuple[BlockPosition, ...] = ()

    @property
    def positions(self) -> tuple[BlockPosition, ...]:
        """All blocks of the pair, in order."""
        return self.results if self.call is None else (self.call, *self.results)


def find_pairs(rows: Sequence[Row]) -> list[Pair]:
    """All pairs of the rows, in the order of their first block."""
    pairs: list[tuple[str, BlockPosition | None, list[BlockPosition]]] = []
    latest_pair: dict[str, int] = {}  # by the id of the call
    for i, row in enumerate(rows):
        for j, block in enumerate(row.message.blocks):
            if isinstance(block, ToolCall):
                latest_pair[block.id] = len(pairs)
                pairs.append((block.id, (i, j), []))
            elif isinstance(block, ToolResult):
                number = latest_pair.get(block.call_id)
                if number is None:
                    pairs.append((block.call_id, None, [(i, j)]))
                else:
                    pairs[number][2].append((i, j))
    return [Pair(id, call, tuple(results)) for id, call, results in pairs]


def keep_pairs_together(
    pairs: Iterable[Pair], removed: set[BlockPosition], fixed: Container[int]
) -> set[BlockPosition]:
    """The blocks to remove so that no pair is split.

    If one block of a pair is removed, all of them are. If one is in a fixed row, all of them stay.
    """
    whole_pairs = set(removed)
    for pair in pairs:
        if whole_pairs.isdisjoint(pair.positions):
            continue
        if any(i in fixed for i, _ in pair.positions):
            whole_pairs.difference_update(pair.positions)
        else:
            whole_pairs.update(pair.positions)
    return whole_pairs


def cut_units(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in units that must not be separated: one row, or a call up to its last result."""
    last_row = list(range(len(rows)))  # of the pairs that begin in a row
    for pair in find_pairs(rows):
        first, last = pair.positions[0][0], pair.positions[-1][0]
        last_row[first] = max(last_row[first], last)
    units: list[list[Row]] = []
    unit_end = -1
    for number, row in enumerate(rows):
        if number > unit_end:
            units.append([])
        units[-1].append(row)
        unit_end = max(unit_end, last_row[number])
    return units


class Layout:
    """Rows, prepared for choosing a cut-off between old and recent.

    A cut-off is the index of a row: rows before it are folded, unless they are fixed. Fixed rows
    stay at every cut-off.

    - `verbatim`: the numbers of further rows that are fixed.
    - `rules`: whether later system messages are fixed.
    - `start`: fold only the rows between `start` and the cut-off. Rows before `start` do not
      change, and the summary replaces the range.
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
        self.system_count = count_leading_system(rows)
        self.count = count_each_once(count)
        self._folded_at: dict[int, list[int]] = {}
        self._kept_rows_at: dict[int, list[tuple[int, Row]]] = {}
        self.pairs = find_pairs(rows)
        self.splits_pair = _splits_pair(self.pairs, len(rows))
        self.requests = request_rows(rows)
        self.running = running_turn(rows)
        self.fixed = self._fixed()
        self._starts = frozenset(self.exchange_starts())
        self.stripped_rows, self.stripped = self._strip()
        self._min_tokens = self._count_min_tokens()

    def exchange_starts(self) -> list[int]:
        """The starts of the exchanges, oldest first; rows before any request belong to the first
        one."""
        starts = [i for i in self.requests if i > self.system_count and not self.splits_pair[i]]
        return [self.system_count, *starts]

    def last_exchange_cutoffs(self) -> list[int]:
        """The possible cut-offs inside the last exchange, up to the end of the thread."""
        last = self.exchange_starts()[-1]
        return [i for i in range(last + 1, len(self.rows) + 1) if not self.splits_pair[i]]

    def round_cutoffs(self) -> list[int]:
        """The possible cut-offs between rounds, in all exchanges, oldest first."""
        return [
            i
            for i in range(self.system_count + 1, len(self.rows))
            if not self.splits_pair[i]
            and i not in self._starts
            and side(self.rows[i].message.role) == "assistant"
            and not (_has_results(self.rows[i - 1]) and not _has_calls(self.rows[i]))
        ]

    def split_request(self, cutoff: int) -> int | None:
        """The request whose exchange a cut-off splits; `None` if it splits none.

        The request of a split exchange stays, except with `start`: a range may separate a request
        from its work."""
        if self.start is not None:
            return None
        number = bisect_left(self.requests, cutoff) - 1
        return None if cutoff in self._starts or number < 0 else self.requests[number]

    def cutoff_keeping(self, exchanges: int) -> int:
        """The cut-off that keeps this many exchanges, and at least the last one."""
        starts = self.exchange_starts()
        return starts[-max(exchanges, 1)] if exchanges <= len(starts) else self.system_count

    def folded(self, cutoff: int) -> list[int]:
        """The numbers of the folded rows; empty if the fold would remove nothing visible."""
        if cutoff not in self._folded_at:
            stay = self._fixed_at(cutoff)
            numbers = [i for i in range(self.system_count, cutoff) if i not in stay]
            self._folded_at[cutoff] = numbers if self._is_any_removed(numbers, stay) else []
        return self._folded_at[cutoff]

    def _is_any_removed(self, numbers: Sequence[int], fixed: Collection[int]) -> bool:
        """Whether a fold of these rows removes a visible block besides reminders and thinking.

        The calls of results that stay are not removed. A summary of such calls alone would only
        repeat them.
        """
        visible = [i for i in numbers if is_visible(self.rows[i])]
        if any(not (_has_calls(self.rows[i]) or _has_results(self.rows[i])) for i in visible):
            return True
        needed_blocks = self._needed_blocks(set(visible), fixed)
        for i in visible:
            message = self.rows[i].message
            needed, stripped = needed_blocks.get(i, set()), strippable(message)
            blocks = enumerate(message.blocks)
            if any(j not in needed and not isinstance(block, stripped) for j, block in blocks):
                return True
        return False

    def _needed_blocks(
        self, folded_rows: Collection[int], fixed: Collection[int]
    ) -> dict[int, set[int]]:
        """The blocks of folded rows that complete the pairs of fixed rows, by row."""
        needed_blocks: dict[int, set[int]] = {}
        for pair in self.pairs:
            if any(i in fixed for i, _ in pair.positions):
                for i, j in pair.positions:
                    if i in folded_rows:
                        needed_blocks.setdefault(i, set()).add(j)
        return needed_blocks

    def source_rows(self, cutoff: int) -> list[Row]:
        """The visible rows that a summary replaces."""
        return [self.rows[i] for i in self.folded(cutoff) if is_visible(self.rows[i])]

    def lone_summary(self, cutoff: int) -> Row | None:
        """The earlier summary, if it is the only row that would be folded.

        Folding it again would lose details and the cached prefix, and would replace no new row.
        """
        source = self.source_rows(cutoff)
        return source[0] if len(source) == 1 and is_summary(source[0]) else None

    def min_tokens(self, cutoff: int) -> int:
        """A precomputed lower bound of the tokens that stay.

        It leaves out the calls and results in folded rows that complete the pairs of fixed rows."""
        return self._min_tokens[cutoff]

    def kept_rows(self, cutoff: int) -> list[Row]:
        """The rows that stay: those after the cut-off, the fixed rows, and of folded rows the calls
        and results that complete the pairs of fixed rows."""
        return [row for _, row in self._numbered_kept_rows(cutoff)]

    def _fixed_at(self, cutoff: int) -> set[int]:
        """The fixed rows, with the request of an exchange that the cut-off splits."""
        split_request = self.split_request(cutoff)
        return self.fixed if split_request is None else self.fixed | {split_request}

    def _numbered_kept_rows(self, cutoff: int) -> list[tuple[int, Row]]:
        """The rows that stay, each with its number."""
        if cutoff not in self._kept_rows_at:
            self._kept_rows_at[cutoff] = self._build_kept_rows(cutoff)
        return self._kept_rows_at[cutoff]

    def _build_kept_rows(self, cutoff: int) -> list[tuple[int, Row]]:
        """The rows that stay, without the cache of `_numbered_kept_rows`."""
        fixed = self._fixed_at(cutoff)
        folded_rows = set(self.folded(cutoff))
        needed_blocks = self._needed_blocks(folded_rows, fixed)
        rows: list[tuple[int, Row]] = []
        for i, row in enumerate(self.stripped_rows):
            if row is None:
                continue
            if i not in folded_rows:
                rows.append((i, row))
            elif i in needed_blocks:
                blocks = self.rows[i].message.blocks
                remaining = [block for j, block in enumerate(blocks) if j in needed_blocks[i]]
                rows.append((i, structs.replace(row, message=with_blocks(row.message, remaining))))
        return rows

    def plan(self, cutoff: int, message: Message) -> Plan:
        """The plan in which this summary replaces everything that is folded."""
        rows, folded = self.kept_rows(cutoff), self.folded(cutoff)
        index = self._summary_index(cutoff)
        folded_ids = {hex_id(self.rows[i]) for i in folded}
        pinned = (row for row in self.rows[self.system_count : cutoff] if row.priority == "pinned")
        return Plan(
            rows=(
                *rows[:index],
                Row(id=None, message=message, kind="summary"),
                *rows[index:],
            ),
            ranges=(
                Range(
                    first=hex_id(self.rows[folded[0]]),
                    last=hex_id(self.rows[folded[-1]]),
                    messages=len(folded),
                    blocks=sum(len(self.rows[i].message.blocks) for i in folded),
                    summary=unmarked(message.text),
                ),
            ),
            pins_kept=tuple(describe_pin(row) for row in pinned),
            stripped=tuple(block for block in self.stripped if block.id not in folded_ids),
        )

    def _summary_index(self, cutoff: int) -> int:
        """How many kept rows come before the summary.

        At least the leading system messages do, or the rows before a range. So does the last pin
        before the first row that is removed or cut, and a request whose exchange is split. A pair
        is not split.
        """
        kept_rows = dict(self._numbered_kept_rows(cutoff))
        removed = [i for i in self.folded(cutoff) if self._is_cut(i, kept_rows.get(i))]
        first_removed = next(iter(removed), cutoff)
        begin = self.system_count if self.start is None else max(self.system_count, self.start)
        after_pins = [
            i + 1 for i in range(begin, first_removed) if self.rows[i].priority == "pinned"
        ]
        position = max(after_pins, default=begin)
        split_request = self.split_request(cutoff)
        if split_request is not None and removed and removed[-1] > split_request:
            position = max(position, split_request + 1)
        while self.splits_pair[position]:
            position += 1
        return sum(i < position for i in kept_rows)

    def _is_cut(self, number: int, row: Row | None) -> bool:
        """Whether `row`, which is what stays of row `number`, lacks some of its blocks."""
        return row is None or len(row.message.blocks) < len(self.rows[number].message.blocks)

    def _fixed(self) -> set[int]:
        """The numbers of the rows that stay at every cut-off; the module docstring lists them."""
        rows = self.rows
        fixed = {*range(self.system_count), *self.requests[-1:], *self.verbatim, *unread_rows(rows)}
        fixed.update(i for i, row in enumerate(rows) if row.priority == "pinned")
        if self.rules:
            fixed.update(rule_rows(rows))
        answers = [i for i in range(len(rows)) if side(rows[i].message.role) == "assistant"]
        newest = max((*self.requests[-1:], *answers[-1:]), default=self.system_count)
        fixed.update(i for i in range(newest + 1, len(rows)) if is_request(rows[i]))
        for last in answers[-1:]:
            has_open_call = any(
                pair.call is not None and pair.call[0] == last and not pair.results
                for pair in self.pairs
            )
            is_reply = (
                bool(self.requests) and last > self.requests[-1] and not _has_calls(rows[last])
            )
            is_open_round = self.running is not None and _has_calls(rows[last])
            if has_open_call or is_reply or is_open_round:
                fixed.add(last)
        return fixed

    def _strip(self) -> tuple[list[Row | None], list[Stripped]]:
        """The rows without reminders and thinking (`None` if nothing is left), and what was
        removed.

        Pins, the last request, the running turn and the rows before a range do not change.
        """
        begin = 0 if self.start is None else self.start
        stripped_rows: list[Row | None] = []
        stripped: list[Stripped] = []
        for i, row in enumerate(self.rows):
            kinds = strippable(row.message)
            blocks = row.message.blocks
            removed_blocks = [j for j, block in enumerate(blocks) if isinstance(block, kinds)]
            is_fixed = row.priority == "pinned" or i in self.requests[-1:] or i < begin
            is_fixed = is_fixed or (self.running is not None and i >= self.running)
            if not removed_blocks or is_fixed:
                stripped_rows.append(row)
                continue
            remaining = [block for block in blocks if not isinstance(block, kinds)]
            stripped.extend(describe_stripped(row, j) for j in removed_blocks)
            shorter = structs.replace(row, message=with_blocks(row.message, remaining))
            stripped_rows.append(shorter if remaining else None)
        return stripped_rows, stripped

    def _count_min_tokens(self) -> list[int]:
        """For each cut-off, the tokens of the rows that stay anyway and of the rows after it."""
        sizes = [
            self.count(row.message) if row and is_visible(row) else 0 for row in self.stripped_rows
        ]
        fixed = sum(sizes[i] for i in self.fixed)
        others = [0 if i in self.fixed else size for i, size in enumerate(sizes)]
        after = [0, *accumulate(reversed(others))]
        tokens = [fixed + following for following in reversed(after)]
        requests = [self.split_request(cutoff) for cutoff in range(len(tokens))]
        return [
            total + (0 if request is None else others[request])
            for total, request in zip(tokens, requests, strict=True)
        ]


def locate_range(
    rows: Sequence[Row], first: str | None, last: str | None, count: Count, *, rules: bool = True
) -> tuple[Layout, int]:
    """The layout and the cut-off of a range that two messages delimit; both are in the range.

    A range never splits a call from its result: it is extended to both. Without `first` it begins
    after the leading system messages, without `last` it ends with the thread. Raises
    `CompactRefused` if a message is not in the rows, or if everything in the range has to stay.
    """
    system_count = count_leading_system(rows)
    start = system_count if first is None else max(system_count, _find_row(rows, first, "first"))
    position = len(rows) if last is None else _find_row(rows, last, "last") + 1
    if position <= start:
        raise CompactRefused("comes before the first message of the range", field="last")
    splits_pair = Layout(rows, count).splits_pair
    while start > system_count and splits_pair[start]:
        start -= 1
    while position < len(rows) and splits_pair[position]:
        position += 1
    layout = Layout(rows, count, rules=rules, start=start)
    if not layout.folded(position):
        what = "system messages, pins and the last question with its answer stay"
        raise CompactRefused(f"nothing in this range can be replaced: {what}", field="last")
    return layout, position


def _find_row(rows: Sequence[Row], id: str, field: str) -> int:
    """The number of the row whose id starts with `id`; raises `CompactRefused` for `field`."""
    for index, row in enumerate(rows):
        if row.id is not None and row.id.hex().startswith(id.lower()):
            return index
    raise CompactRefused(f"no message {id!r} on this branch", field=field)


def choose_position(layout: Layout, fits: Callable[[int], bool]) -> int | None:
    """The cut-off that fits and keeps most; `None` if none fits.

    The start of an exchange is preferred, unless a cut between rounds keeps more than twice as
    much: a long exchange is not folded as a whole because its first rounds are too long.
    """
    start = next((i for i in layout.exchange_starts() if fits(i)), None)
    before = len(layout.rows) if start is None else start
    inside = next((i for i in layout.round_cutoffs() if i < before and fits(i)), None)
    if start is None or inside is None:
        return start if inside is None else inside
    fixed_tokens = layout.min_tokens(len(layout.rows))
    start_keeps = layout.min_tokens(start) - fixed_tokens
    inside_keeps = layout.min_tokens(inside) - fixed_tokens
    return start if start_keeps >= inside_keeps * WHOLE_EXCHANGES_SHARE else inside


def rule_rows(rows: Sequence[Row]) -> list[int]:
    """The numbers of the system messages after the leading ones; of equal ones only the newest.

    Messages that differ only in a client's status line are equal.
    """
    newest: dict[str, int] = {}
    for i in range(count_leading_system(rows), len(rows)):
        if is_system(rows[i].message) and is_visible(rows[i]):
            newest[_STATUS.sub("", rows[i].message.text)] = i
    return sorted(newest.values())


class _CountedOnce:
    """A counter with a cache by `id()`. It keeps the messages alive, so that no id is reused."""

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
    return sum(count(row.message) for row in rows if is_visible(row))


def _has_calls(row: Row) -> bool:
    return any(isinstance(block, ToolCall) for block in row.message.blocks)


def _has_results(row: Row) -> bool:
    return any(isinstance(block, ToolResult) for block in row.message.blocks)


def is_request(row: Row) -> bool:
    """Whether a row is a visible message of the user with text, and not a summary."""
    has_text = any(isinstance(block, Text) and block.text.strip() for block in row.message.blocks)
    return row.message.role == "user" and row.kind != "summary" and is_visible(row) and has_text


def request_rows(rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows in which the user asks for something.

    Messages that a client put in, such as the notice that a task has ended, only count if the user
    typed nothing at all.
    """
    requests = [i for i in range(count_leading_system(rows), len(rows)) if is_request(rows[i])]
    return [i for i in requests if is_typed(rows[i])] or requests


def _splits_pair(pairs: Sequence[Pair], size: int) -> list[bool]:
    """For each row, whether a cut-off before it would split a pair."""
    open_pairs_change = [0] * (size + 2)
    for pair in pairs:
        first, last = pair.positions[0][0], pair.positions[-1][0]
        open_pairs_change[first + 1] += 1
        open_pairs_change[last + 1] -= 1
    return [open_pairs > 0 for open_pairs in accumulate(open_pairs_change)][: size + 1]
