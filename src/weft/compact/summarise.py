"""Summarises rows with a model, as a generator that yields requests and is sent answers.

The rows are summarised chunk by chunk. Each request contains the summaries so far, and each
answer becomes a batch. If a request is too long for the model, or the model runs out of time or
output tokens, the remaining rows are cut into chunks of half the size and requested again, a few
times. Any other failure ends the generator.

Every answer is checked. An empty answer, a refusal, or one that is no summary (`non_summary`)
raises `SummaryFailed`. An answer that was cut off is trimmed to the end of a sentence, if enough of
it remains. Then each answer is compared with its source (`fidelity`). At the end, a single batch
that is a little over the total budget is trimmed. The generator does not change the thread.

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

from .batches import Batch, Clip, batch_row, join_batches, merge_batches, span_to_merge
from .fidelity import (
    add_missing_names,
    check_summary,
    index_tokens,
    lines_to_retain,
    quoted_lines,
    read_ground_truth,
    shown_texts,
    with_quoted_lines,
)
from .non_summary import (
    non_summary_reason,
    without_orders,
    without_preamble,
    without_wrapping,
)
from .plan import Count
from .prompts import (
    MIN_CHUNK,
    cut_chunks,
    live_request,
    max_answer_tokens,
    merge_request,
    plain_turn_tokens,
    plain_turns_within,
    shorten,
    summary_request,
)

MAX_HALVINGS = 4
"""How often the size of the chunks is halved after a request or an answer that was too long."""

UNLIMITED_BATCHES = 1000
"""The first value of `Summariser.max_merged`: more batches than a thread ever has."""

PROMPT_TOKENS = 700
"""The tokens of a request without its turns: the prompt and the directive."""

SAFE_SHARE = 0.85
"""The share of the window that is used, because the vendor's token count may differ from ours."""

PRIOR_SHARE = 0.25
"""The share of the window that earlier summaries may have in a request."""

MIN_BATCH_TOKENS, MAX_MERGED_TOKENS = 200, 4096
"""A batch may have the first number of tokens even if its share of the limit is smaller. A merged
batch may have the second number at most."""

INDEX_SHARE = 0.2
"""The share of a summary that is reserved for the index of missing names."""

MIN_LIMIT = 60
"""The smallest token limit of a batch, and of its index without a budget."""

MAX_SHARE_WITH_NAMES = 0.5
"""Missing names are added up to this share of the tokens of the source, or up to the summary's own
limit if that is higher."""

HEADING_TOKENS = 30
"""The tokens of the heading of each batch, if there are several."""

SMALLER_CHUNK_ERRORS = frozenset({"context_length", "too_large", "timeout"})
GATEWAY_TIMEOUT = 504
"""The kinds of error, and the HTTP status, after which smaller chunks are tried."""

CUT_OFF = frozenset({"length", "context"})
DECLINED = frozenset({"refusal", "filter"})
"""The kinds of stop of an answer that was cut off, and of one that was refused."""

MIN_CUT_OFF_SHARE = 0.5
"""A summary that was cut off is used if it has at least this share of the requested size."""

MAX_OVERRUN = 1.5
"""At the end, a summary of up to this multiple of the total budget is trimmed. A longer one is
returned as it is, and the caller rejects it."""

TOO_LONG_REASONS = {
    "request": "even a small part of the conversation is too long for it",
    "answer": "its summary of a small part of the conversation was too long and was cut off",
    "time": "it took too long, even for a small part of the conversation",
}


_SENTENCE_END = lazy_pattern(r"[.!?][\"')\]*_`]*(?=\s|$)|[。！？](?:[」』）]|)|(?<=\S)\n")
"""The end of a sentence or of a line."""


class SummaryJob(Struct, frozen=True, kw_only=True):
    """The settings of a summary.

    - `limit`: the maximum tokens of the new summary, with the index of missing names.
    - `prompt`: replaces the default prompt.
    - `chunk`: the maximum tokens of turns in one request; by default as many as the window allows.
    - `total_limit`: the maximum tokens of all batches together, with the earlier ones; `None`
      without a budget.
    - `clip`: how many batches the summary shows, and when those in the middle are summarised again.
    - `retain`: texts that the summary must contain.
    - `brief`: this is another attempt, after a summary that was too long or unusable.
    - `live`: the request that the agent would send next. If it is set, the first request for a
      summary is this request with the instruction to summarise at its end, so that the vendor's
      cache is used.
    - `task`: what the work is for, from `describe_task`; `task_tokens`: its size.
    - `kept`: what the request says about the text that is kept verbatim beside the summary.
    """

    model: Model
    limit: int
    prompt: str | None = None
    chunk: int | None = None
    total_limit: int | None = None
    clip: Clip = Clip()
    retain: tuple[str, ...] = ()
    brief: bool = False
    task: str = ""
    task_tokens: int = 0
    kept: str = ""
    live: Request | None = None


class SummarySource(Struct, frozen=True, kw_only=True):
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
    """Sent to the generator of `Thread.compacting` if no answer will come, with the reason."""

    reason: str


Answer = Response | ApiError | Stopped


class Summary(Struct, frozen=True, kw_only=True):
    """The resulting batches, and statistics.

    - `dropped`: the removed sentences: those with only invented names, and those that tell the
      reader to do something.
    - `marked`: names in the summary that the source does not have.
    - `names_added`, `names_left`: how many missing names were added, and how many were left out.
    - `input_tokens`, `output_tokens`: tokens as counted by the vendor.
    """

    batches: tuple[Batch, ...]
    requests: int = 0
    dropped: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    names_added: int = 0
    names_left: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


SummaryFlow = Generator[SummaryRequest, Answer, Summary]


def summarise(source: SummarySource, job: SummaryJob, count: Count) -> SummaryFlow:
    """Summarise rows into batches after the existing ones; raises `SummaryFailed`."""
    work = Summariser(source, job, count)
    yield from work.summarise_chunks()
    yield from work.merge_batches()
    work.trim()
    return work.summary()


def max_summary_tokens(chunks: Sequence[Sequence[Row]], limit: int, count: Count) -> int:
    """The maximum tokens of the summaries of these chunks, each with an index of all names of its
    chunk, if the model stays within its limits."""
    total = 0
    for chunk in chunks:
        max_named = int(plain_turn_tokens(chunk, count) * MAX_SHARE_WITH_NAMES)
        total += min(max_named, _own_limit(limit) + index_tokens(chunk, count))
    return max(limit, total)


def max_chunk_tokens(job: SummaryJob, prior_tokens: int) -> int:
    """The tokens of turns that fit in a request with earlier summaries of `prior_tokens`."""
    max_input = int(job.model.window * SAFE_SHARE) - max_answer_tokens(job.model, job.limit)
    max_turns = max(MIN_CHUNK, max_input - PROMPT_TOKENS - job.task_tokens - prior_tokens)
    return max_turns if job.chunk is None else max(1, min(max_turns, job.chunk))


class Summariser:
    """A summary in progress.

    - `source_tokens`: the tokens of all rows
    - `max_chunk`: the most tokens of turns in one request; halved if a request was too long
    - `max_merged`: the most batches that one request merges
    - `has_shortened`: a single batch was summarised again
    - `too_long`: what was too long last, a key of `TOO_LONG_REASONS`
    """

    def __init__(self, source: SummarySource, job: SummaryJob, count: Count) -> None:
        self.source = source
        self.job = job
        self.count = count
        self.batches = list(source.batches)
        self.source_tokens = max(1, plain_turn_tokens(source.rows, count))
        self.max_chunk = max_chunk_tokens(job, self._size(self._prior()))
        self.max_merged = UNLIMITED_BATCHES
        self.has_shortened = False
        self.too_long = "request"
        self.requests = self.halvings = self.input_tokens = self.output_tokens = 0
        self.names_added = self.names_left = 0
        self.dropped: list[str] = []
        self.marked: list[str] = []

    def summary(self) -> Summary:
        return Summary(
            batches=tuple(self.batches),
            requests=self.requests,
            dropped=tuple(self.dropped),
            marked=tuple(self.marked),
            names_added=self.names_added,
            names_left=self.names_left,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
        )

    def summarise_chunks(self) -> Generator[SummaryRequest, Answer, None]:
        """Add one batch for all rows if the agent's next request can be continued, or else one for
        each chunk."""
        if self.job.live is not None and not self.job.brief:
            has_summary = yield from self._summarise_live(self.job.live)
            if has_summary:
                return
        chunks_left = cut_chunks(self.source.rows, self.max_chunk, self.count)
        while chunks_left:
            chunk = chunks_left[0]
            size = min(self.max_chunk, plain_turn_tokens(chunk, self.count))
            share = self.job.limit * size // self.source_tokens
            # Each chunk gets its share of the limit, or more if that is too little for a useful
            # summary, but not more than its own size.
            limit = min(self.job.limit, max(MIN_LIMIT, min(MIN_BATCH_TOKENS, size), share))
            prior = self._prior()
            turns = plain_turns_within(chunk, self.max_chunk, self.count)
            request = summary_request(
                self.job.model,
                turns,
                prior=[prior],
                prompt=self.job.prompt,
                limit=_own_limit(limit),
                brief=self.job.brief,
                task=self.job.task,
                kept=self.job.kept,
            )
            text = yield from self._ask(request, len(chunks_left), _own_limit(limit))
            if text is None:
                self.max_chunk = self._half(size)
                rows_left = [row for rows in chunks_left for row in rows]
                chunks_left = cut_chunks(rows_left, self.max_chunk, self.count)
                continue
            max_tokens = self._limit_with_names(chunk, chunks_left, limit)
            summary = self._check(text, chunk, [prior, self.job.task], max_tokens, self.job.retain)
            self.batches.append(self._batch(summary, chunk))
            chunks_left = chunks_left[1:]

    def _summarise_live(self, live: Request) -> Generator[SummaryRequest, Answer, bool]:
        """Add one batch for all rows; asks for it in a continuation of the agent's next request.

        Returns `False` if the request or the answer was too long.
        """
        rows = self.source.rows
        limit = _own_limit(self.job.limit)
        request = live_request(live, limit=limit, task=self.job.task, kept=self.job.kept)
        text = yield from self._ask(request, 1, limit)
        if text is None:
            return False
        max_tokens = self._limit_with_names(rows, [rows], self.job.limit)
        shown = [self._prior(), self.job.task, *shown_texts(live.messages, live.tools)]
        summary = self._check(text, rows, shown, max_tokens, self.job.retain)
        self.batches.append(self._batch(summary, rows))
        return True

    def merge_batches(self) -> Generator[SummaryRequest, Answer, None]:
        """Merge batches while there are too many or they are too long."""
        while (span := self._find_mergeable()) is not None:
            first, last = span
            old = self.batches[first:last]
            limit = self._merge_limit(old)
            request = merge_request(
                self.job.model,
                [batch.text for batch in old],
                prompt=self.job.prompt,
                limit=_own_limit(limit),
                brief=self.job.brief,
            )
            text = yield from self._ask(request, 1, _own_limit(limit))
            if text is None:
                self._merge_fewer(len(old))
                continue
            rows = [batch_row(batch) for batch in old]
            lines = [line for batch in old for line in quoted_lines(batch.text)]
            summary = self._check(text, rows, [self.job.task], limit, [*lines, *self.job.retain])
            self.batches[first:last] = [merge_batches(old, summary, self.job.model.name)]

    def trim(self) -> None:
        """Shorten a single remaining batch that is a little over its budget.

        A second attempt is shortened however long it is.
        """
        limit = self.job.total_limit
        if limit is None or len(self.batches) != 1:
            return
        batch = self.batches[0]
        size = self._size(batch.text)
        if size <= limit or (size > limit * MAX_OVERRUN and not self.job.brief):
            return
        shorter = trim_to(batch.text, lambda text: self._size(text) <= limit)
        if shorter:
            self.batches[0] = structs.replace(batch, text=shorter)

    def _find_mergeable(self) -> tuple[int, int] | None:
        """The batches to merge next, as many as fit in one request: the middle ones if there are
        too many, or all but the newest if they are over the budget (both, if there are two).

        A single batch over the budget is summarised again, but only once.
        """
        span = span_to_merge(self.batches, self.job.clip)
        batch_count = len(self.batches)
        if span is None and self.job.total_limit is not None:
            size = self._size(join_batches(self.batches, self.job.clip))
            if size <= self.job.total_limit or (batch_count == 1 and self.has_shortened):
                return None
            self.has_shortened = batch_count == 1
            span = (0, max(2, batch_count - 1) if batch_count > 1 else 1)
        return None if span is None else self._limit_span(*span)

    def _limit_span(self, first: int, last: int) -> tuple[int, int]:
        """The batches that one request can merge: at least two, those merged least often first."""
        if last - first < 2:
            return first, last
        depths = [batch.depth for batch in self.batches]
        start = min(range(first, last - 1), key=lambda number: max(depths[number : number + 2]))
        max_tokens = max_chunk_tokens(self.job, 0)
        totals = accumulate(self._size(batch.text) for batch in self.batches[start:last])
        fitting = sum(total <= max_tokens for total in totals)
        return start, min(last, start + max(2, min(fitting, self.max_merged)))

    def _merge_fewer(self, batch_count: int) -> None:
        """Merge half as many batches next time; raises `SummaryFailed` if these were only two."""
        if batch_count <= 2:
            raise self._failed("its own summaries are too long for it", answered=True)
        self.max_merged = max(2, batch_count // 2)

    def _merge_limit(self, old: Sequence[Batch]) -> int:
        """The token limit for merged batches: half of their size, a third of the total budget and
        `MAX_MERGED_TOKENS` at most.

        A third of the budget leaves room for the batches that are not merged.
        """
        size = sum(self._size(batch.text) for batch in old)
        total_limit = size if self.job.total_limit is None else self.job.total_limit
        max_share = max(MIN_BATCH_TOKENS, total_limit // 3)
        return max(MIN_LIMIT, min(size // 2, max_share, MAX_MERGED_TOKENS))

    def _prior(self) -> str:
        """The summaries so far, with the middle cut out if they take too much of the window."""
        text = join_batches(self.batches, self.job.clip)
        return shorten(text, int(self.job.model.window * PRIOR_SHARE), self._size)

    def _ask(
        self, request: Request, requests_left: int, limit: int
    ) -> Generator[SummaryRequest, Answer, str | None]:
        """The text of the answer; `None` if the request or the answer was too long.

        `requests_left` counts this request and those that follow; `limit` is the requested size.
        """
        self.requests += 1
        answer = yield SummaryRequest(request, self.requests, self.requests + requests_left - 1)
        if isinstance(answer, Stopped):
            # The same status as for a model that does not answer in time.
            raise self._failed(answer.reason, GATEWAY_TIMEOUT)
        if isinstance(answer, ApiError):
            if answer.kind in SMALLER_CHUNK_ERRORS or answer.status == GATEWAY_TIMEOUT:
                timed_out = answer.kind == "timeout" or answer.status == GATEWAY_TIMEOUT
                self.too_long = "time" if timed_out else "request"
                return None
            raise self._failed(answer.message, answer.status)
        return self._read_answer(answer, limit)

    def _read_answer(self, answer: Response, limit: int) -> str | None:
        """The summary in an answer; `None` if it was cut off and too little of it arrived."""
        if answer.usage is not None:
            self.input_tokens += answer.usage.input or 0
            self.output_tokens += answer.usage.output or 0
        stop = answer.stop.kind if answer.stop else "end"
        if stop in DECLINED:
            raise self._failed("it declined", answered=True)
        if any(isinstance(block, ToolCall) for block in answer.message.blocks):
            raise self._failed("it answered with a tool call", answered=True)
        text = "\n".join(block.text for block in answer.message.blocks if isinstance(block, Text))
        text = without_wrapping(text)
        reason = non_summary_reason(text) if text.strip() else None
        if reason is not None:
            raise self._failed(f"it {reason}", answered=True)
        text, orders = without_orders(without_preamble(text))
        self.dropped += orders
        if stop in CUT_OFF:
            # without the sentence that was cut off
            complete_sentences = trim_to(text, lambda _: True)
            size = self._size(complete_sentences)
            if complete_sentences and size >= limit * MIN_CUT_OFF_SHARE:
                return complete_sentences
            self.too_long = "answer"
            return None
        if not text.strip():
            raise self._failed("its summary is empty", answered=True)
        return text

    def _check(
        self,
        text: str,
        rows: Sequence[Row],
        shown: Sequence[str],
        max_tokens: int,
        retain: Sequence[str],
    ) -> str:
        """The model's summary with doubtful names marked, and with the texts to retain and names
        that it lacks. `shown` are the texts that the request had besides the rows."""
        checked = check_summary(text, read_ground_truth(rows, [*shown, self.job.prompt or ""]))
        if not checked.text:
            reason = "its summary only names things that the conversation does not contain"
            raise self._failed(reason, answered=True)
        self.dropped += checked.dropped
        self.marked += checked.marked
        retained = lines_to_retain(checked.text, rows, retain)
        summary = with_quoted_lines(checked.text, retained)
        if self.job.total_limit is None:  # then there is always room for a short index
            max_tokens = max(max_tokens, self._size(summary) + MIN_LIMIT)
        completed = add_missing_names(summary, rows, max_tokens, self.count)
        self.names_added += completed.added
        self.names_left += completed.left_out
        return completed.text

    def _limit_with_names(
        self, chunk: Sequence[Row], chunks_left: Sequence[Sequence[Row]], limit: int
    ) -> int:
        """The token limit of a batch with its missing names: half of the size of its source, and
        at most its share of the remaining budget; but never less than `limit`."""
        size = plain_turn_tokens(chunk, self.count)
        max_tokens = int(size * MAX_SHARE_WITH_NAMES)
        if self.job.total_limit is not None:
            used = self._size(join_batches(self.batches, self.job.clip)) if self.batches else 0
            headings = HEADING_TOKENS * (len(self.batches) + len(chunks_left) - 1)
            free = self.job.total_limit - used - headings
            size_left = sum(plain_turn_tokens(rows, self.count) for rows in chunks_left)
            max_tokens = min(max_tokens, free * size // max(1, size_left))
        return max(limit, max_tokens)

    def _batch(self, text: str, chunk: Sequence[Row]) -> Batch:
        """The batch of a chunk, with the times of its first and last message."""
        ids = [row.id for row in chunk if row.id is not None]
        times = [self.source.times[id] for id in ids if id in self.source.times]
        start, end = min(times, default=None), max(times, default=None)
        return Batch(text, len(chunk), 0, start, end, self.job.model.name)

    def _half(self, size: int) -> int:
        """Half the size of a chunk that was too long; raises `SummaryFailed` if that is too
        little."""
        self.halvings += 1
        if self.halvings > MAX_HALVINGS or size // 2 < MIN_CHUNK:
            reason = TOO_LONG_REASONS[self.too_long]
            raise self._failed(reason, answered=self.too_long == "answer")
        return size // 2

    def _failed(self, reason: str, status: int = 502, *, answered: bool = False) -> SummaryFailed:
        name = self.job.model.name
        line = f"no usable summary from {name!r}: {reason}"
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
    """The part of a token limit for the model's own text, without the share for missing names."""
    return limit - int(limit * INDEX_SHARE)
