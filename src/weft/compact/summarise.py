"""A summary by a model, as a flow: it yields what to ask and is sent what came back.

The past is asked for chunk by chunk, each with what is known already as the previous summary, so
that every chunk becomes a batch of its own and no batch is told twice. Where a model says that a
request was too long (or runs out of time or of output), everything that is left is cut into
chunks of half the size and asked for again, a few times. Any other failure ends the flow.

No answer is taken blindly. An empty one and a refusal are no summaries. One that was cut off, or
that is a little too long for its budget, is used up to the end of a sentence, if enough is left of
it. The rest is held against its source (`fidelity`). The flow changes nothing: whoever drives it
has its result, or `SummaryFailed`, and the thread as it was.

Whoever drives the flow may also stop it (`Stopped`): then nothing more is asked.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import SummaryFailed
from weft.history import Row
from weft.ids import Id
from weft.model import ApiError, Message, Request, Response, Text

from .batches import Batch, Clip, batch_row, between, fold_batches, join_batches
from .fidelity import (
    check_summary,
    complete,
    index_size,
    kept_lines,
    read_ground,
    retained_lines,
    with_lines,
)
from .layout import Count
from .prompts import (
    MIN_CHUNK,
    answer_room,
    cut_chunks,
    folding_request,
    retell_within,
    retold_tokens,
    shorten,
    summary_request,
)

HALVINGS = 4
MANY = 1000
FRAME = 700
"""The tokens of a request beside what is summarised: the prompt and the directive."""

SURE = 0.85
"""The part of a window that is filled by our own count: a vendor may count otherwise."""

PRIOR_SHARE = 0.25
FOLD_MOST = 4096
BATCH_LEAST = 200
INDEX_SHARE = 0.2
INDEX_LEAST = 60
"""What is left of a summary's size for names that it lacks; some are put back in any case."""

NAMED_SHARE = 0.5
"""With every name put back, a summary is at most this part of what it stands for."""

PART = 30
"""The tokens of the line above each of several batches."""

TOO_LONG = frozenset({"context_length", "too_large", "timeout"})
TIMED_OUT = 504
CUT_OFF = frozenset({"length", "context"})
DECLINED = frozenset({"refusal", "filter"})

CUT_OFF_LEAST = 0.5
"""A summary that was cut off is used if so much of what was asked for is left of it."""

OVER_MOST = 1.5
"""A summary of at most so many times its room is shortened at a sentence, not thrown away."""

TOO_LONG_WHY = {
    "request": "even a small part of the conversation is too long for it",
    "answer": "its summary was cut off: too long even for a small part of the conversation",
    "time": "it took too long, even for a small part of the conversation",
}


_SENTENCE_END = re.compile(r"[.!?][\"')\]*_`]*(?=\s|$)|[。！？](?:[」』）]|)|(?<=\S)\n")


class SummaryJob(Struct, frozen=True, kw_only=True):
    """How a summary is wanted. `limit` is its size in tokens, `chunk` the most that is asked for
    at once (as much as the window takes, where it is absent), `room` what all summaries together
    may have, `retain` what it must say. `brief` is for a second attempt, after one that was too
    long or unusable."""

    model: Model
    limit: int
    prompt: str | None = None
    chunk: int | None = None
    room: int | None = None
    clip: Clip = Clip()
    retain: tuple[str, ...] = ()
    brief: bool = False


class History(Struct, frozen=True, kw_only=True):
    """What is to be summarised: turns, when they were said, and the summaries before them."""

    rows: tuple[Row, ...]
    batches: tuple[Batch, ...] = ()
    times: Mapping[Id, float] = {}


class SummaryRequest(Struct, frozen=True):
    """A request to send, and which it is of how many."""

    request: Request
    number: int
    of: int


class Stopped(Struct, frozen=True):
    """Sent to the generator instead of an answer: there will be no more answers, and why."""

    reason: str


Answer = Response | ApiError | Stopped


class Summary(Struct, frozen=True, kw_only=True):
    """The batches that hold afterwards, and what it took: requests, sentences that named what
    their source does not, names put back, names left out, and tokens as the vendor counted."""

    batches: tuple[Batch, ...]
    requests: int = 0
    dropped: tuple[str, ...] = ()
    added: int = 0
    left: int = 0
    input: int = 0
    output: int = 0


Flow = Generator[SummaryRequest, Answer, Summary]


def summarise(past: History, order: SummaryJob, count: Count) -> Flow:
    """Every chunk of the past as a batch behind those there are; raises `SummaryFailed`."""
    work = Work(past, order, count)
    yield from work.sum_up()
    yield from work.fold()
    work.trim()
    return work.summary()


def max_summary_tokens(chunks: Sequence[Sequence[Row]], limit: int, count: Count) -> int:
    """The most tokens that summaries of chunks come to, names and all, where their model writes
    no more than it is asked for."""
    most = 0
    for chunk in chunks:
        named = int(retold_tokens(chunk, count) * NAMED_SHARE)
        most += min(named, _own(limit) + index_size(chunk, count))
    return max(limit, most)


def chunk_room(order: SummaryJob, prior: int) -> int:
    """The tokens of turns that one request takes beside a previous summary of so many."""
    window = int(order.model.window * SURE) - answer_room(order.model, order.limit)
    room = max(MIN_CHUNK, window - FRAME - prior)
    return room if order.chunk is None else max(1, min(room, order.chunk))


class Work:
    """A summary while it is made."""

    def __init__(self, past: History, order: SummaryJob, count: Count) -> None:
        self.past = past
        self.order = order
        self.count = count
        self.batches = list(past.batches)
        self.total = max(1, retold_tokens(past.rows, count))
        self.room = chunk_room(order, self._size(self._prior()))
        self.most_folded = MANY
        self.shortened = False
        self.too_long = "request"
        self.requests = self.halvings = self.input = self.output = 0
        self.added = self.left = 0
        self.dropped: list[str] = []

    def summary(self) -> Summary:
        return Summary(
            batches=tuple(self.batches),
            requests=self.requests,
            dropped=tuple(self.dropped),
            added=self.added,
            left=self.left,
            input=self.input,
            output=self.output,
        )

    def sum_up(self) -> Generator[SummaryRequest, Answer, None]:
        """One batch for each chunk."""
        todo = cut_chunks(self.past.rows, self.room, self.count)
        while todo:
            chunk = todo[0]
            size = min(self.room, retold_tokens(chunk, self.count))
            share = self.order.limit * size // self.total
            limit = min(self.order.limit, max(INDEX_LEAST, min(BATCH_LEAST, size), share))
            prior = self._prior()
            turns = retell_within(chunk, self.room, self.count)
            request = summary_request(
                self.order.model,
                turns,
                prior=[prior],
                prompt=self.order.prompt,
                limit=_own(limit),
                brief=self.order.brief,
            )
            text = yield from self._ask(request, len(todo), _own(limit))
            if text is None:
                self.room = self._half(size)
                todo = cut_chunks([row for rest in todo for row in rest], self.room, self.count)
                continue
            room = self._named_room(chunk, todo, limit)
            told = self._checked(text, chunk, [prior], room, self.order.retain)
            self.batches.append(self._batch(told, chunk))
            todo = todo[1:]

    def fold(self) -> Generator[SummaryRequest, Answer, None]:
        """Several batches as one, as long as there are too many or they are too long."""
        while (span := self._crowded()) is not None:
            first, last = span
            old = self.batches[first:last]
            limit = self._fold_limit(old)
            request = folding_request(
                self.order.model,
                [batch.text for batch in old],
                prompt=self.order.prompt,
                limit=_own(limit),
                brief=self.order.brief,
            )
            text = yield from self._ask(request, 1, _own(limit))
            if text is None:
                self._fold_fewer(len(old))
                continue
            rows = [batch_row(batch) for batch in old]
            kept = [line for batch in old for line in kept_lines(batch.text)]
            told = self._checked(text, rows, (), limit, [*kept, *self.order.retain])
            self.batches[first:last] = [fold_batches(old, told, self.order.model.name)]

    def trim(self) -> None:
        """Shorten the one summary that is left, where it is a little more than its room; a second
        attempt that is still too long is shortened however long it is."""
        room = self.order.room
        if room is None or len(self.batches) != 1:
            return
        batch = self.batches[0]
        size = self._size(batch.text)
        if size <= room or (size > room * OVER_MOST and not self.order.brief):
            return
        shorter = trim_to(batch.text, lambda text: self._size(text) <= room)
        if shorter:
            self.batches[0] = structs.replace(batch, text=shorter)

    def _crowded(self) -> tuple[int, int] | None:
        """Which batches to fold: those between both ends where there are too many, all but the
        newest where they do not fit their room."""
        span = between(self.batches, self.order.clip)
        many = len(self.batches)
        if span is None and self.order.room is not None:
            told = self._size(join_batches(self.batches, self.order.clip))
            if told <= self.order.room or (many == 1 and self.shortened):
                return None
            self.shortened = many == 1  # a single one is told anew once
            span = (0, max(2, many - 1) if many > 1 else 1)
        return None if span is None else self._at_once(*span)

    def _at_once(self, first: int, last: int) -> tuple[int, int]:
        """Which of these batches one request can fold: two in any case, the least deep first, so
        that none is folded again before all others were."""
        if last - first < 2:
            return first, last
        depths = [batch.depth for batch in self.batches]
        start = min(range(first, last - 1), key=lambda at: max(depths[at : at + 2]))
        room = chunk_room(self.order, 0)
        sizes = accumulate(self._size(batch.text) for batch in self.batches[start:last])
        fitting = sum(size <= room for size in sizes)
        return start, min(last, start + max(2, min(fitting, self.most_folded)))

    def _fold_fewer(self, tried: int) -> None:
        """Half as many next time; there is an end to that."""
        if tried <= 2:
            raise self._failed("its own summaries are too long for it", answered=True)
        self.most_folded = max(2, tried // 2)

    def _fold_limit(self, old: Sequence[Batch]) -> int:
        """What several batches may come to: less than they are, and less than there is room."""
        size = sum(self._size(batch.text) for batch in old)
        room = size if self.order.room is None else self.order.room
        return max(INDEX_LEAST, min(size // 2, max(BATCH_LEAST, room // 3), FOLD_MOST))

    def _prior(self) -> str:
        """What is known already, cut in its middle where it would take the window."""
        told = join_batches(self.batches, self.order.clip)
        return shorten(told, int(self.order.model.window * PRIOR_SHARE), self._size)

    def _ask(
        self, request: Request, left: int, limit: int
    ) -> Generator[SummaryRequest, Answer, str | None]:
        """The answer's text; `None` where the request was too long for an answer."""
        self.requests += 1
        answer = yield SummaryRequest(request, self.requests, self.requests + left - 1)
        if isinstance(answer, Stopped):
            raise self._failed(answer.reason, TIMED_OUT)
        if isinstance(answer, ApiError):
            if answer.kind in TOO_LONG or answer.status == TIMED_OUT:
                timed_out = answer.kind == "timeout" or answer.status == TIMED_OUT
                self.too_long = "time" if timed_out else "request"
                return None
            raise self._failed(answer.message, answer.status)
        if answer.usage is not None:
            self.input += answer.usage.input or 0
            self.output += answer.usage.output or 0
        stop = answer.stop.kind if answer.stop else "end"
        if stop in DECLINED:
            raise self._failed("it declined", answered=True)
        text = "\n".join(block.text for block in answer.message.blocks if isinstance(block, Text))
        if stop in CUT_OFF:
            whole = trim_to(text, lambda _: True)
            if whole and self._size(whole) >= limit * CUT_OFF_LEAST:
                return whole
            self.too_long = "answer"
            return None
        if not text.strip():
            raise self._failed("its summary is empty", answered=True)
        return text

    def _checked(
        self,
        text: str,
        rows: Sequence[Row],
        prior: Sequence[str],
        room: int,
        retain: Sequence[str],
    ) -> str:
        """What the model wrote, less what it made up, and with what it forgot."""
        checked = check_summary(text, read_ground(rows, prior))
        if not checked.text:
            raise self._failed("its summary speaks of nothing that was said", answered=True)
        self.dropped += checked.dropped
        told = with_lines(checked.text, retained_lines(checked.text, rows, retain))
        if not self.order.room:
            room = max(room, self._size(told) + INDEX_LEAST)
        completed = complete(told, rows, room, self.count)
        self.added += completed.added
        self.left += completed.left
        return completed.text

    def _named_room(self, chunk: Sequence[Row], todo: Sequence[Sequence[Row]], limit: int) -> int:
        """What a batch may have with every name that it lacks: half of what it stands for, and
        of a budget its share of what is left there."""
        size = retold_tokens(chunk, self.count)
        named = int(size * NAMED_SHARE)
        if self.order.room is not None:
            told = self._size(join_batches(self.batches, self.order.clip)) if self.batches else 0
            free = self.order.room - told - PART * (len(self.batches) + len(todo) - 1)
            named = min(
                named, free * size // max(1, sum(retold_tokens(c, self.count) for c in todo))
            )
        return max(limit, named)

    def _batch(self, text: str, chunk: Sequence[Row]) -> Batch:
        times = [self.past.times[row.id] for row in chunk if row.id in self.past.times and row.id]
        start, end = min(times, default=None), max(times, default=None)
        return Batch(text, len(chunk), 0, start, end, self.order.model.name)

    def _half(self, size: int) -> int:
        self.halvings += 1
        if self.halvings > HALVINGS or size // 2 < MIN_CHUNK:
            why = TOO_LONG_WHY[self.too_long]
            raise self._failed(why, answered=self.too_long == "answer")
        return size // 2

    def _failed(self, why: str, status: int = 502, *, answered: bool = False) -> SummaryFailed:
        name = self.order.model.name
        line = f"{name!r} wrote no summary: {why}"
        return SummaryFailed(line, status=status, answered=answered)

    def _size(self, text: str) -> int:
        return self.count(Message("user", (Text(text),)))


def trim_to(text: str, fits: Callable[[str], bool]) -> str:
    """As much of a text as fits, up to the end of a sentence or a line; empty where there is no
    such end."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[: ends[middle - 1]].rstrip()) else (low, middle - 1)
    return text[: ends[low - 1]].rstrip() if low else ""


def _own(limit: int) -> int:
    """What the model itself may write of a summary."""
    return limit - int(limit * INDEX_SHARE)
