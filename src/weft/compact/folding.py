"""What a thread is made of when old turns are folded: setup, exchanges, and what is fixed.

An exchange is what the user typed and everything up to what the user types next. Exchanges are
folded or kept whole, so that no question stands without its answer; only the last one may be cut
inside, between whole units (a call and all its results), when the work on one request has grown
too long by itself. What is fixed stays wherever the border is: the setup, the pins with the calls
or results they need, the last request and its answer, calls that still wait for their results, and
results that no answer has read yet (`unread`), with their calls.

One summary stands for all that is folded, behind the setup and behind the pins that were said
before any of it: what was asked first is still read first. It never stands inside a pair.

Everything behind a fold has another past than when it was written, so its thinking leaves, as it
does for the agent's own compaction, and reminders with it; the last request stays as it is.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

from msgspec import structs

from weft.history import Row, shows
from weft.model import Message, Text, ToolCall, side

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
from .unread import unread_rows

Count = Callable[[Message], int]


class Folding:
    """What is known of rows before the border between old and recent is chosen.

    `verbatim` are the numbers of rows that stay as they are, wherever the border is.
    """

    def __init__(
        self, rows: Sequence[Row], count: Count, *, verbatim: Collection[int] = ()
    ) -> None:
        self.rows = rows
        self.verbatim = verbatim
        self.lead = leading_system(rows)
        self.count = counted_once(count)
        self._folded: dict[int, list[int]] = {}
        self._kept: dict[int, list[tuple[int, Row]]] = {}
        self.pairs = find_pairs(rows)
        self.joined = _joined(self.pairs, len(rows))
        self.requests = [i for i in range(self.lead, len(rows)) if _is_request(rows[i])]
        self.fixed = self._fixed()
        self.lean, self.stripped = self._strip()
        self.weights = self._weights()

    def exchanges(self) -> list[int]:
        """Where exchanges begin, the oldest first; what stands before any request is the first."""
        starts = [i for i in self.requests if i > self.lead and not self.joined[i]]
        return [self.lead, *starts]

    def units(self) -> list[int]:
        """The borders inside the last exchange, up to the end of the thread."""
        last = self.exchanges()[-1]
        return [i for i in range(last + 1, len(self.rows) + 1) if not self.joined[i]]

    def folded(self, border: int) -> list[int]:
        """The rows that a fold up to this border takes; none where none of them shows."""
        if border not in self._folded:
            taken = [i for i in range(self.lead, border) if i not in self.fixed]
            self._folded[border] = taken if any(shows(self.rows[i]) for i in taken) else []
        return self._folded[border]

    def source(self, border: int) -> list[Row]:
        """What a summary of a fold up to this border has to say."""
        return [self.rows[i] for i in self.folded(border) if shows(self.rows[i])]

    def at_least(self, border: int) -> int:
        """The tokens that stay, but for what the pairs of fixed rows need; cheap to ask."""
        return self.weights[border]

    def kept(self, border: int) -> list[Row]:
        """The rows that stay when all before `border` is folded but for what is fixed, and what
        the fixed rows' calls and results need to be whole."""
        return [row for _, row in self._numbered(border)]

    def _numbered(self, border: int) -> list[tuple[int, Row]]:
        """The rows that stay, each with its number."""
        if border not in self._kept:
            self._kept[border] = self._keep(border)
        return self._kept[border]

    def _keep(self, border: int) -> list[tuple[int, Row]]:
        folded = {
            (i, j) for i in self.folded(border) for j in range(len(self.rows[i].message.blocks))
        }
        removed = settle_pairs(self.pairs, folded, self.fixed)
        taken = set(self.folded(border))
        kept: list[tuple[int, Row]] = []
        for i, row in enumerate(self.lean):
            if row is None:
                continue
            if i not in taken:
                kept.append((i, row))
                continue
            blocks = self.rows[i].message.blocks
            left = [block for j, block in enumerate(blocks) if (i, j) not in removed]
            if left:
                kept.append((i, structs.replace(row, message=with_blocks(row.message, left))))
        return kept

    def plan(self, border: int, message: Message) -> Plan:
        """The plan in which a summary stands for all that is folded, and where that is."""
        kept, folded = self.kept(border), self.folded(border)
        place = self._place(border)
        gone = {slot(self.rows[i]) for i in folded}
        pinned = (row for row in self.rows[self.lead : border] if row.priority == "pinned")
        return Plan(
            rows=(
                *kept[:place],
                Row(id=None, message=message, kind="summary"),
                *kept[place:],
            ),
            ranges=(
                Range(
                    first=slot(self.rows[folded[0]]),
                    last=slot(self.rows[folded[-1]]),
                    messages=len(folded),
                    blocks=sum(len(self.rows[i].message.blocks) for i in folded),
                    summary=message.text,
                ),
            ),
            pins_kept=tuple(describe_pin(row) for row in pinned),
            stripped=tuple(block for block in self.stripped if block.id not in gone),
        )

    def _place(self, border: int) -> int:
        """How many of the kept rows stand before the summary: the setup, or all up to the last pin
        that stands before the first row that goes or is cut, with what makes its pairs whole."""
        kept = dict(self._numbered(border))
        going = (i for i in self.folded(border) if self._is_cut(i, kept.get(i)))
        cut = next(going, border)
        pins = [i + 1 for i in range(self.lead, cut) if self.rows[i].priority == "pinned"]
        first = max(pins, default=self.lead)
        while self.joined[first]:
            first += 1
        return sum(i < first for i in kept)

    def _is_cut(self, number: int, left: Row | None) -> bool:
        return left is None or len(left.message.blocks) < len(self.rows[number].message.blocks)

    def _fixed(self) -> set[int]:
        rows = self.rows
        fixed = {*range(self.lead), *self.requests[-1:], *self.verbatim, *unread_rows(rows)}
        fixed.update(i for i, row in enumerate(rows) if row.priority == "pinned")
        spoken = [i for i in range(len(rows)) if side(rows[i].message.role) == "assistant"]
        for last in spoken[-1:]:
            waits = any(pair.call and pair.call[0] == last and not pair.results
                        for pair in self.pairs)  # fmt: skip
            answers = bool(self.requests) and last > self.requests[-1] and not _calls(rows[last])
            if waits or answers:
                fixed.add(last)
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

    def _weights(self) -> list[int]:
        """For each border the tokens of what is fixed and of what stands behind it."""
        costs = [self.count(row.message) if row and shows(row) else 0 for row in self.lean]
        fixed = sum(costs[i] for i in self.fixed)
        loose = [0 if i in self.fixed else cost for i, cost in enumerate(costs)]
        behind = [0, *accumulate(reversed(loose))]
        return [fixed + tokens for tokens in reversed(behind)]


def counted_once(count: Count) -> Count:
    """The same count, asked once for each message; it is kept, so that its id stays its own."""
    known: dict[int, tuple[Message, int]] = {}

    def counted(message: Message) -> int:
        found = known.get(id(message))
        if found is None:
            found = known[id(message)] = (message, count(message))
        return found[1]

    return counted


def cost(rows: Sequence[Row], count: Count) -> int:
    """The tokens of the rows that a model sees."""
    return sum(count(row.message) for row in rows if shows(row))


def _calls(row: Row) -> bool:
    return any(isinstance(block, ToolCall) for block in row.message.blocks)


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
