"""Summarises a history with a model, as a generator that yields requests and is sent answers.

The history is summarised chunk by chunk. Each request contains the summaries so far, and each
answer becomes a batch. If a request is too long for the model, or the model runs out of time or
output tokens, the remaining rows are cut into chunks of half the size and requested again, a few
times. Any other failure ends the generator.

Every answer is checked. An empty answer, a refusal, or one that is no summary (`non_summary`)
raises `SummaryFailed`. An answer that was cut off, or is a little over its budget, is trimmed to
the end of a sentence if enough of it remains. Then it is compared with its source (`fidelity`).
The generator does not change the thread.

The caller can end it early by sending `Stopped`.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import SummaryFailed
from weft.history import Row
from weft.ids import Id
from weft.lazy import lazy_pattern
from weft.model import ApiError, Message, Request, Response, Text, ToolCall

from .batches import Batch, Clip, batch_row, between, fold_batches, join_batches, with_rules
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
from .non_summary import non_summary_reason, without_orders, without_preamble
from .prompts import (
    MIN_CHUNK,
    answer_room,
    cut_chunks,
    folding_request,
    live_request,
    plain_turn_tokens,
    plain_turns_within,
    shorten,
    summary_request,
)
from .state import find_rules

HALVINGS = 4
UNLIMITED = 1000
PROMPT_TOKENS = 700
"""The tokens of a request without its turns: the prompt and the directive."""

SAFE_SHARE = 0.85
"""The share of the window that is used, because the vendor's token count may differ from ours."""

PRIOR_SHARE = 0.25
FOLD_MOST = 4096
BATCH_LEAST = 200
INDEX_SHARE = 0.2
INDEX_LEAST = 60
"""The share of a summary reserved for missing names, and the minimum in tokens."""

RULES_SHARE = 0.3
"""The most of a summary that the user's rules get which the model did not quote."""

NAMED_SHARE = 0.5
"""A summary with its missing names added has at most this share of the tokens of its source."""

HEADING = 30
"""The tokens of the heading of each batch, if there are several."""

TOO_LONG = frozenset({"context_length", "too_large", "timeout"})
TIMED_OUT = 504
CUT_OFF = frozenset({"length", "context"})
DECLINED = frozenset({"refusal", "filter"})

CUT_OFF_LEAST = 0.5
"""A summary that was cut off is used if it has at least this share of the requested size."""

OVER_MOST = 1.5
"""A summary of up to this multiple of its budget is trimmed and not rejected."""

TOO_LONG_REASONS = {
    "request": "even a small part of the conversation is too long for it",
    "answer": "its summary was cut off: too long even for a small part of the conversation",
    "time": "it took too long, even for a small part of the conversation",
}


_SENTENCE_END = lazy_pattern(r"[.!?][\"')\]*_`]*(?=\s|$)|[。！？](?:[」』）]|)|(?<=\S)\n")


class SummaryJob(Struct, frozen=True, kw_only=True):
    """The settings of a summary.

    - `limit`: its size in tokens.
    - `chunk`: the maximum tokens of turns in one request; by default as many as the window allows.
    - `room`: the maximum tokens of all summaries together.
    - `retain`: texts that the summary must contain.
    - `brief`: this is a second attempt, after a summary that was too long or unusable.
    - `live`: the request that the agent would send next. If it is set, the summary is first asked
      for on top of it, so that the vendor's cache is used.
    - `task`: what the work is for, from `describe_task`, and its size in tokens.
    """

    model: Model
    limit: int
    prompt: str | None = None
    chunk: int | None = None
    room: int | None = None
    clip: Clip = Clip()
    retain: tuple[str, ...] = ()
    brief: bool = False
    task: str = ""
    task_tokens: int = 0
    live: Request | None = None


class History(Struct, frozen=True, kw_only=True):
    """The rows to summarise, their times, and the earlier summaries."""

    rows: tuple[Row, ...]
    batches: tuple[Batch, ...] = ()
    times: Mapping[Id, float] = {}


class SummaryRequest(Struct, frozen=True):
    """A request to send; it is request `number` of about `total`."""

    request: Request
    number: int
    total: int


class Stopped(Struct, frozen=True):
    """Sent to the generator instead of an answer: there will be no more answers, and why."""

    reason: str


Answer = Response | ApiError | Stopped


class Summary(Struct, frozen=True, kw_only=True):
    """The resulting batches, and statistics.

    - `dropped`: sentences that were removed because they only name what the source does not have.
    - `marked`: names in the summary that the source does not have.
    - `added`, `left`: how many missing names were added, and how many were left out.
    - `input`, `output`: tokens as counted by the vendor.
    """

    batches: tuple[Batch, ...]
    requests: int = 0
    dropped: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    added: int = 0
    left: int = 0
    input: int = 0
    output: int = 0


Flow = Generator[SummaryRequest, Answer, Summary]


def summarise(history: History, job: SummaryJob, count: Count) -> Flow:
    """Summarise a history into batches after the existing ones; raises `SummaryFailed`."""
    work = Summariser(history, job, count)
    yield from work.summarise_chunks()
    yield from work.fold_batches()
    work.trim()
    return work.summary()


def max_summary_tokens(chunks: Sequence[Sequence[Row]], limit: int, count: Count) -> int:
    """The maximum tokens of the summaries of these chunks, with all names, if the model stays
    within the limits it is given."""
    most = 0
    for chunk in chunks:
        named = int(plain_turn_tokens(chunk, count) * NAMED_SHARE)
        most += min(named, _own_limit(limit) + index_size(chunk, count))
    return max(limit, most)


def chunk_room(job: SummaryJob, prior: int) -> int:
    """The tokens of turns that fit in a request with previous summaries of `prior` tokens."""
    window = int(job.model.window * SAFE_SHARE) - answer_room(job.model, job.limit)
    room = max(MIN_CHUNK, window - PROMPT_TOKENS - job.task_tokens - prior)
    return room if job.chunk is None else max(1, min(room, job.chunk))


class Summariser:
    """The state of a summary in progress."""

    def __init__(self, history: History, job: SummaryJob, count: Count) -> None:
        self.history = history
        self.job = job
        self.count = count
        self.batches = list(history.batches)
        self.total = max(1, plain_turn_tokens(history.rows, count))
        self.room = chunk_room(job, self._size(self._prior()))
        self.most_folded = UNLIMITED
        self.shortened = False
        self.too_long = "request"
        self.requests = self.halvings = self.input = self.output = 0
        self.added = self.left = 0
        self.dropped: list[str] = []
        self.marked: list[str] = []

    def summary(self) -> Summary:
        return Summary(
            batches=tuple(self.batches),
            requests=self.requests,
            dropped=tuple(self.dropped),
            marked=tuple(self.marked),
            added=self.added,
            left=self.left,
            input=self.input,
            output=self.output,
        )

    def summarise_chunks(self) -> Generator[SummaryRequest, Answer, None]:
        """Add one batch for each chunk, or one for all on top of the live request."""
        if self.job.live is not None and not self.job.brief:
            rows = self.history.rows
            limit = _own_limit(self.job.limit)
            request = live_request(self.job.live, limit=limit, task=self.job.task)
            text = yield from self._ask(request, 1, limit)
            if text is not None:
                room = self._named_room(rows, [rows], self.job.limit)
                prior = [self._prior(), self.job.task]
                summary = self._check(text, rows, prior, room, self.job.retain)
                self.batches.append(self._batch(summary, rows))
                return
        todo = cut_chunks(self.history.rows, self.room, self.count)
        while todo:
            chunk = todo[0]
            size = min(self.room, plain_turn_tokens(chunk, self.count))
            share = self.job.limit * size // self.total
            limit = min(self.job.limit, max(INDEX_LEAST, min(BATCH_LEAST, size), share))
            prior = self._prior()
            turns = plain_turns_within(chunk, self.room, self.count)
            request = summary_request(
                self.job.model,
                turns,
                prior=[prior],
                prompt=self.job.prompt,
                limit=_own_limit(limit),
                brief=self.job.brief,
                task=self.job.task,
            )
            text = yield from self._ask(request, len(todo), _own_limit(limit))
            if text is None:
                self.room = self._half(size)
                todo = cut_chunks([row for rest in todo for row in rest], self.room, self.count)
                continue
            room = self._named_room(chunk, todo, limit)
            summary = self._check(text, chunk, [prior, self.job.task], room, self.job.retain)
            self.batches.append(self._batch(summary, chunk))
            todo = todo[1:]

    def fold_batches(self) -> Generator[SummaryRequest, Answer, None]:
        """Merge batches while there are too many or they are too long."""
        while (span := self._find_mergeable()) is not None:
            first, last = span
            old = self.batches[first:last]
            limit = self._fold_limit(old)
            request = folding_request(
                self.job.model,
                [batch.text for batch in old],
                prompt=self.job.prompt,
                limit=_own_limit(limit),
                brief=self.job.brief,
            )
            text = yield from self._ask(request, 1, _own_limit(limit))
            if text is None:
                self._fold_fewer(len(old))
                continue
            rows = [batch_row(batch) for batch in old]
            lines = [line for batch in old for line in kept_lines(batch.text)]
            summary = self._check(text, rows, [self.job.task], limit, [*lines, *self.job.retain])
            self.batches[first:last] = [fold_batches(old, summary, self.job.model.name)]

    def trim(self) -> None:
        """Shorten a single remaining batch that is a little over its budget.

        A second attempt is shortened however long it is.
        """
        room = self.job.room
        if room is None or len(self.batches) != 1:
            return
        batch = self.batches[0]
        size = self._size(batch.text)
        if size <= room or (size > room * OVER_MOST and not self.job.brief):
            return
        shorter = trim_to(batch.text, lambda text: self._size(text) <= room)
        if shorter:
            self.batches[0] = structs.replace(batch, text=shorter)

    def _find_mergeable(self) -> tuple[int, int] | None:
        """The batches to merge: the middle ones if there are too many, or all but the newest if
        they are over the budget."""
        span = between(self.batches, self.job.clip)
        many = len(self.batches)
        if span is None and self.job.room is not None:
            size = self._size(join_batches(self.batches, self.job.clip))
            if size <= self.job.room or (many == 1 and self.shortened):
                return None
            self.shortened = many == 1  # a single batch is summarised again only once
            span = (0, max(2, many - 1) if many > 1 else 1)
        return None if span is None else self._limit_span(*span)

    def _limit_span(self, first: int, last: int) -> tuple[int, int]:
        """The batches that one request can merge: at least two, those merged least often first."""
        if last - first < 2:
            return first, last
        depths = [batch.depth for batch in self.batches]
        start = min(range(first, last - 1), key=lambda at: max(depths[at : at + 2]))
        room = chunk_room(self.job, 0)
        sizes = accumulate(self._size(batch.text) for batch in self.batches[start:last])
        fitting = sum(size <= room for size in sizes)
        return start, min(last, start + max(2, min(fitting, self.most_folded)))

    def _fold_fewer(self, tried: int) -> None:
        """Merge half as many batches next time; raises `SummaryFailed` if there are only two."""
        if tried <= 2:
            raise self._failed("its own summaries are too long for it", answered=True)
        self.most_folded = max(2, tried // 2)

    def _fold_limit(self, old: Sequence[Batch]) -> int:
        """The token limit for merged batches: at most half of their size, and within the budget."""
        size = sum(self._size(batch.text) for batch in old)
        room = size if self.job.room is None else self.job.room
        return max(INDEX_LEAST, min(size // 2, max(BATCH_LEAST, room // 3), FOLD_MOST))

    def _prior(self) -> str:
        """The summaries so far, with the middle cut out if they take too much of the window."""
        text = join_batches(self.batches, self.job.clip)
        return shorten(text, int(self.job.model.window * PRIOR_SHARE), self._size)

    def _ask(
        self, request: Request, left: int, limit: int
    ) -> Generator[SummaryRequest, Answer, str | None]:
        """The text of the answer; `None` if the request or the answer was too long."""
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
        if any(isinstance(block, ToolCall) for block in answer.message.blocks):
            raise self._failed("it answered with a tool call", answered=True)
        text = "\n".join(block.text for block in answer.message.blocks if isinstance(block, Text))
        reason = non_summary_reason(text) if text.strip() else None
        if reason is not None:
            raise self._failed(f"it {reason}", answered=True)
        text, orders = without_orders(without_preamble(text))
        self.dropped += orders
        if stop in CUT_OFF:
            whole = trim_to(text, lambda _: True)
            if whole and self._size(whole) >= limit * CUT_OFF_LEAST:
                return whole
            self.too_long = "answer"
            return None
        if not text.strip():
            raise self._failed("its summary is empty", answered=True)
        return text

    def _check(
        self,
        text: str,
        rows: Sequence[Row],
        prior: Sequence[str],
        room: int,
        retain: Sequence[str],
    ) -> str:
        """The model's summary with doubtful names marked and missing ones added."""
        checked = check_summary(text, read_ground(rows, prior))
        if not checked.text:
            raise self._failed("its summary speaks of nothing that was said", answered=True)
        self.dropped += checked.dropped
        self.marked += checked.marked
        retained = retained_lines(checked.text, rows, retain)
        rules = self._missing_rules("\n".join([checked.text, *retained]), rows, room)
        summary = with_rules(with_lines(checked.text, retained), rules)
        if not self.job.room:
            room = max(room, self._size(summary) + INDEX_LEAST)
        completed = complete(summary, rows, room, self.count)
        self.added += completed.added
        self.left += completed.left
        return completed.text

    def _missing_rules(self, text: str, rows: Sequence[Row], room: int) -> list[str]:
        """The user's rules that a summary does not quote, as many as its share allows.

        A model often rewords a rule or leaves it out, and the next one rewords that again.
        """
        beside = text.lower()
        rules = [rule for rule in find_rules(rows) if rule.lower() not in beside]
        most = max(INDEX_LEAST, int(room * RULES_SHARE))
        sizes = accumulate(self._size(rule) for rule in rules)
        return [rule for rule, size in zip(rules, sizes, strict=True) if size <= most][::-1]

    def _named_room(self, chunk: Sequence[Row], todo: Sequence[Sequence[Row]], limit: int) -> int:
        """The token limit of a batch with its missing names: half of the size of its source, and
        its share of the remaining budget."""
        size = plain_turn_tokens(chunk, self.count)
        named = int(size * NAMED_SHARE)
        if self.job.room is not None:
            used = self._size(join_batches(self.batches, self.job.clip)) if self.batches else 0
            free = self.job.room - used - HEADING * (len(self.batches) + len(todo) - 1)
            named = min(
                named, free * size // max(1, sum(plain_turn_tokens(c, self.count) for c in todo))
            )
        return max(limit, named)

    def _batch(self, text: str, chunk: Sequence[Row]) -> Batch:
        times = [
            self.history.times[row.id] for row in chunk if row.id in self.history.times and row.id
        ]
        start, end = min(times, default=None), max(times, default=None)
        return Batch(text, len(chunk), 0, start, end, self.job.model.name)

    def _half(self, size: int) -> int:
        self.halvings += 1
        if self.halvings > HALVINGS or size // 2 < MIN_CHUNK:
            reason = TOO_LONG_REASONS[self.too_long]
            raise self._failed(reason, answered=self.too_long == "answer")
        return size // 2

    def _failed(self, reason: str, status: int = 502, *, answered: bool = False) -> SummaryFailed:
        name = self.job.model.name
        line = f"{name!r} wrote no summary: {reason}"
        return SummaryFailed(line, status=status, answered=answered)

    def _size(self, text: str) -> int:
        return self.count(Message("user", (Text(text),)))


def trim_to(text: str, fits: Callable[[str], bool]) -> str:
    """The longest start of a text that fits and ends with a sentence or line; empty if none."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[: ends[middle - 1]].rstrip()) else (low, middle - 1)
    return text[: ends[low - 1]].rstrip() if low else ""


def _own_limit(limit: int) -> int:
    """The token limit for the model's own text; the rest is for missing names."""
    return limit - int(limit * INDEX_SHARE)
