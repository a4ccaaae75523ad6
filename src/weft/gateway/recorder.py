"""Records exchanges without getting in the way of answers (ADR 28).

One worker thread, the *writer*, writes to the store. It runs all waiting jobs in one transaction,
so that concurrent exchanges share the cost of a commit, and reports to each job when the
transaction is durable.

If the event loop and the writer compute at the same time, they pass Python's interpreter lock back
and forth at every SQLite statement, which costs more than the statements. So the event loop hands
over all jobs of one iteration together and pauses until they are done. It pauses for a part of
`record_wait` seconds at most, and not at all while the store takes longer than that.

An exchange waits until its record is written. It stops waiting if the writer finishes no record for
`record_wait` seconds, or after `WAIT_FACTOR` times as long. Time in which the event loop is late
does not count. If the store is slower or fails, the record goes to a local journal. All later
records go there too until the journal is drained, so that the records of a conversation stay in
order. The slow write may still succeed later: every exchange has an id, under which nothing is
recorded twice. If the journal fails too, the answer is still delivered, and the lost record is
reported.
"""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from re import Pattern
from threading import Condition, Lock, Thread
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec
from msgspec import structs

from weft import exact_json
from weft.errors import JournalError, StoreError
from weft.history import chain_messages, index_new_commits
from weft.ids import Id
from weft.model import ApiError, JsonObject, Message, Origin, Request, Response
from weft.store import Store
from weft.thread import SentBodyCache, SentBodyDelta

from .bodies import LARGE_BODY, ParsedBodies
from .hints import is_summary_request, read_side_kind
from .identity import Continuation, new_exchange_id, read_incoming, token_key
from .journal import Journal, Position, leftover_journals, open_journal
from .records import (
    AnswerRecord,
    DigestCache,
    FailureRecord,
    Record,
    RecordingContext,
    RequestLocation,
    RequestRecord,
    SentBody,
    UnknownExchange,
    encode_sent,
    forget_response,
    read_answers,
    read_until_answer,
    record_answer,
    record_failure,
    record_request,
)
from .restore import StoredConversation, UnstoredAnswers
from .settings import RECORD_WAIT

WAIT_FACTOR = 20
"""How many times as long an answer waits while the store records other exchanges. Then the process
or the machine is busy, not the store. Writing long conversations to the journal and reading them
again would take several times as much work, and make every other exchange late too."""

MAX_PAUSES = 5
"""How many times the event loop waits for a writer that makes progress."""

BUSY_SECONDS = 2.0
"""How much of the time in which the event loop is late does not count as waiting, in seconds. The
answer could not be sent earlier anyway."""

PAUSE_DIVISOR = 2
"""The event loop waits for the writer for `record_wait` divided by this number."""

SHORTEST_INTERVAL = 0.05
"""After a wait for the writer that took too long, the event loop does not wait for the writer for
this many seconds. The interval doubles each time."""

READ_SECONDS = 2.0
"""How long a request waits to read earlier answers or a stored conversation. Without them some
vendors refuse the request, so waiting is better."""

DRAIN_SECONDS = 0.25
"""The pause after the first failed attempt to drain the journal. It doubles each time."""
LONGEST_PAUSE = 5.0
"""The longest pause between two attempts: to drain the journal, or to wait for the writer."""
ADOPT_SECONDS = 5.0
"""How often the journals of processes that were killed are looked for."""
APPEND_SECONDS = 1.0
"""How long records on their way to the journal may take."""
BATCH_JOBS = 256
"""How many jobs or records are written in one transaction, at most or a few more."""
SAVE_SECONDS = 30.0
"""How often the store's log is copied to its main file while exchanges are recorded."""
CLOSE_SECONDS = 5.0
JOURNALED_LIMIT = 1000
"""How many answers in the journal are remembered, so that a client can continue them by id."""


RecordingState = Literal["store", "journal", "no"]

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Recording:
    """The record of a running exchange: its id, where its request is, and whether it is stored."""

    def __init__(self, scope: str, hint: str | None = None) -> None:
        self.exchange = new_exchange_id()
        self.scope = scope
        self.hint = hint
        self.state: RecordingState = "no"
        self.location: RequestLocation | None = None
        self.answers: Mapping[tuple[int, int], Message] = {}
        self.edited_messages: tuple[Message, ...] | None = None
        self.echoed_commits: Set[Id] = frozenset()
        self.is_begun = False
        self.request: Request | None = None
        self.sent: SentBody | None = None
        self.sent_delta: _Job[SentBodyDelta] | None = None


class _Job(Generic[T]):
    """A function for the writer thread to run once; `future` gets its result on the event loop."""

    def __init__(
        self,
        run: Callable[[], T],
        future: "asyncio.Future[T] | None" = None,
        *,
        writes: bool = True,
    ) -> None:
        self.run = run
        self.future = future
        self.writes = writes
        self.queued = time.monotonic()
        self.timer: asyncio.TimerHandle | None = None
        self.is_abandoned = False
        self.result: T | None = None
        self.error: Exception | None = None

    def report(self) -> None:
        """Set the result of the future that waits for it; called on the event loop."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast(T, self.result))


class _Batch:
    """Jobs that were handed over together; reports their results to the event loop.

    If the loop waits for the batch, it reads the results itself. Otherwise the writer sends them.
    """

    def __init__(
        self, jobs: list[_Job[Any]], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.jobs = jobs
        self._loop = loop
        self._lock = Lock()
        self._done = Lock()  # held until the jobs are done; cheaper than an event
        self._done.acquire()
        self._is_done = False
        self._is_awaited = False

    def wait(self, longest: float, is_advancing: Callable[[], bool]) -> bool:
        """Block the event loop until all jobs are done; false if that takes too long.

        It waits for `longest` seconds, and again while the writer makes progress: a running event
        loop would only slow the writer down.
        """
        for _ in range(MAX_PAUSES):
            if self._done.acquire(timeout=longest) or not is_advancing():
                break
        with self._lock:
            self._is_awaited = False
            is_done = self._is_done
        if is_done:
            self._report()
        return is_done

    def finish(self) -> None:
        """Hand the results to the event loop; called by the writer."""
        with self._lock:
            self._is_done = True
            if self._is_awaited:
                self._done.release()
                return
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._report)

    def expect(self) -> None:
        """Announce that the event loop will wait for this batch."""
        self._is_awaited = True

    def _report(self) -> None:
        for job in self.jobs:
            job.report()


class ExchangeRecorder:
    """Records exchanges; one per store and process."""

    def __init__(
        self,
        store: Store,
        *,
        journal: Path | None = None,
        volatile: tuple[Pattern[str], ...] = (),
        record_wait: float = RECORD_WAIT,
    ) -> None:
        self.store = store
        self.parsed_bodies = ParsedBodies()
        self.lost = 0
        self._threads: dict[str, None] = {}
        """The threads to which exchanges were recorded, in the order of their first exchange."""
        self._is_unsaved = False
        self._last_save = time.monotonic()
        self._record_wait = record_wait
        self._context = RecordingContext(DigestCache(), SentBodyCache(), volatile)
        self._queue: SimpleQueue[_Batch | None] = SimpleQueue()
        self._collected: tuple[asyncio.AbstractEventLoop, list[_Job[Any]]] | None = None
        self._next_wait = 0.0
        self._wait_interval = SHORTEST_INTERVAL
        self._last_progress = 0.0
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="weft-reader")
        self._appenders = ThreadPoolExecutor(8, thread_name_prefix="weft-journal")
        self._journaled: dict[tuple[str, str], StoredConversation] = {}
        self._unstored = UnstoredAnswers()
        self._lock = Condition()
        self._appending = 0
        self._drain_pause = DRAIN_SECONDS
        self._next_drain = 0.0
        self._next_adoption = time.monotonic() + ADOPT_SECONDS
        self._journal_path = journal
        self._journal = _open_or_none(journal)
        self._leftovers = [] if journal is None else list(leftover_journals(journal))
        self._uses_journal = bool(self._leftovers) or self._pending > 0
        self._writer = Thread(target=self._write_all, name="weft-recorder", daemon=True)
        self._writer.start()

    def status(self) -> JsonObject:
        """The state of recording, for the operator of the gateway.

        `pending` is the number of records in the journal, `lost` the number that are recorded
        nowhere.
        """
        state = "journal" if self._uses_journal else "store"
        return {"state": state, "pending": self._pending, "lost": self.lost}

    def summary(self) -> JsonObject:
        """What was recorded: the threads that still exist, without subagents and side questions."""
        names: list[str] = []
        with suppress(StoreError):
            records = map(self.store.read_thread, self._threads)
            names = [each.name for each in records if each is not None and each.parent is None]
        return {"threads": names, **self.status()}

    async def begin(
        self,
        scope: str,
        hint: str | None,
        request: Request,
        *,
        origin: Origin | None = None,
        is_retry: bool = False,
        continuation: Continuation | None = None,
        body: bytes | None = None,
        parent: str | None = None,
    ) -> Recording:
        """Record a request. With `origin`, also find the answers of that model that it echoes.

        `continuation` is the answer that the request names by its id. `body` is the client's body,
        if the messages were decoded from it and from nothing else. `parent` is the session that the
        client names as the parent of its own.
        """
        recording = Recording(scope, hint)
        recording.request = request
        kind = read_side_kind(request)
        record = RequestRecord(
            recording.exchange,
            time.time(),
            scope,
            hint,
            request.messages,
            request.tools,
            is_retry,
            kind is not None,
            continuation,
            is_summary_request(request),
            kind,
            parent,
        )
        if not request.messages:
            return recording
        recording.is_begun = True
        recorded = await self._record(recording, record, origin, body)
        if recorded is not None:
            recording.location = recorded.location
            self._threads[recorded.location.thread] = None
            recording.answers = recorded.answers
            recording.edited_messages = recorded.edited_messages
            recording.echoed_commits = recorded.echoed_commits
        elif origin is not None:
            recording.answers = await self._read_answers(record, origin)
        if origin is not None and self._unstored:
            unstored = await self._read_or_default(lambda: self._find_unstored(record, origin), {})
            recording.answers = {**unstored, **recording.answers}
        return recording

    def keep_sent(self, recording: Recording, body: bytes, protocol: str, model: str) -> None:
        """Keep the body that is sent, to be stored with its answer.

        The delta of a large body is computed now, while the upstream works on it.
        """
        recording.sent = SentBody(body, protocol, model)
        location, sent = recording.location, recording.sent
        if location is not None and len(body) >= LARGE_BODY:
            job = _Job(lambda: encode_sent(self.store, location, sent, self._context), writes=False)
            recording.sent_delta = job
            self._queue.put(_Batch([job]))

    async def finish(
        self,
        recording: Recording,
        response: Response,
        first_token: float | None = None,
        seconds: float | None = None,
        *,
        has_id: bool = True,
    ) -> None:
        """Record the answer, with the seconds until it began and until it was complete.

        Without `has_id`, its id is not recorded, so that no request continues it by its id.
        """
        if not has_id:
            response = structs.replace(response, id=None)
        if not recording.is_begun:
            return
        record = AnswerRecord(
            recording.exchange,
            time.time(),
            response.message,
            response.id,
            response.usage,
            recording.location,
            recording.sent,
            None if response.stop is None else response.stop.abnormal_reason,
            first_token,
            seconds,
        )
        location = await self._record(recording, record)
        if location is not None:
            recording.location = cast(RequestLocation, location)
        elif recording.state != "store":
            await self._remember_unstored(recording, response)

    async def fail(
        self, recording: Recording, error: ApiError, message: Message | None = None
    ) -> None:
        """Record a failed attempt."""
        if not recording.is_begun:
            return
        record = FailureRecord(recording.exchange, time.time(), error, message, recording.location)
        await self._record(recording, record)

    async def _remember_unstored(self, recording: Recording, response: Response) -> None:
        """Remember an answer that is not in the store.

        The client may continue it by its id, and its private state is needed in the next request.
        """
        request, location, scope = recording.request, recording.location, recording.scope
        if request is None:
            return
        if location is not None:
            chain = location.chain
        else:
            chain = await self._read_or_default(lambda: _last_chain(scope, request.messages), None)
        self._unstored.add(scope, recording.hint, chain, response.message)
        if response.id is None:
            return
        messages = (*request.messages, response.message)
        self._journaled[scope, response.id] = StoredConversation(messages, request.tools)
        if len(self._journaled) > JOURNALED_LIMIT:
            del self._journaled[next(iter(self._journaled))]

    async def read_conversation(self, scope: str, id: str) -> StoredConversation | None:
        """The conversation up to the caller's answer of that id; `None` for an unknown id."""
        if (scope, id) in self._journaled:
            return self._journaled[scope, id]
        return await self._read(lambda: read_until_answer(self.store, scope, id))

    async def read_response(
        self, scope: str, id: str, read: Callable[[Store, str, str], T | None]
    ) -> T | None:
        """What `read` finds in the store for the caller's answer of that id."""
        return await self._read(lambda: read(self.store, scope, id))

    async def forget_response(self, scope: str, id: str) -> bool:
        """Forget the id of the caller's answer, so that nothing finds it; false if unknown."""
        journaled = self._journaled.pop((scope, id), None) is not None
        return await self._read(lambda: forget_response(self.store, scope, id)) or journaled

    async def has_vendor_id(self, scope: str, id: str) -> bool:
        """Whether an answer to this caller contained this id."""
        return await self._read(lambda: bool(self.store.find_links([token_key(scope, id)])))

    def close(self) -> bool:
        """Stop the writer; false if it is still busy after `CLOSE_SECONDS`.

        Records in the journal stay there for the next start. If the process ends during a write,
        the store rolls it back, and the record is in the journal.
        """
        self._queue.put(None)
        self._writer.join(CLOSE_SECONDS)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._appenders.shutdown()
        for journal in (self._journal, *self._leftovers):
            if journal is not None:
                journal.close()
        return not self._writer.is_alive()

    async def _record(
        self,
        recording: Recording,
        record: Record,
        origin: Origin | None = None,
        body: bytes | None = None,
    ) -> Any:
        """The result of recording; `None` if the record went to the journal, or was lost."""
        reason = "records wait in the journal"
        if not self._uses_journal:
            sent_delta = recording.sent_delta
            job = _Job(
                lambda: self._apply(record, origin, sent_delta, body, is_new=True),
                asyncio.get_running_loop().create_future(),
            )
            self._submit(job)
            try:
                result = await cast("asyncio.Future[Any]", job.future)
                recording.state = "store"
                return result
            except TimeoutError:
                job.is_abandoned = True
                reason = "the store is slow"
            except UnknownExchange:
                recording.state = "no"
                return None
            except Exception as error:  # no error of recording may cost the client its answer
                # The record goes to the journal.
                reason = f"the store failed: {type(error).__name__}"
            finally:
                if job.timer is not None:
                    job.timer.cancel()
        recording.state = await self._append(record, reason)
        return None

    def _submit(self, job: _Job[Any]) -> None:
        """Hand a job to the writer, together with all others of this iteration of the loop."""
        loop = asyncio.get_running_loop()
        if self._collected is None or self._collected[0] is not loop:
            self._collected = (loop, [])
            loop.call_soon(self._hand_over, *self._collected)
        self._collected[1].append(job)

    def _hand_over(self, loop: asyncio.AbstractEventLoop, jobs: list[_Job[Any]]) -> None:
        if self._collected is not None and self._collected[1] is jobs:
            self._collected = None
        batch = _Batch(jobs, loop)
        longest = self._record_wait / PAUSE_DIVISOR
        is_awaited = longest > 0 and not self._uses_journal and time.monotonic() >= self._next_wait
        if is_awaited:
            batch.expect()
        self._queue.put(batch)
        if is_awaited:

            def is_advancing() -> bool:
                return time.monotonic() - self._last_progress < longest

            if batch.wait(longest, is_advancing):
                self._wait_interval = SHORTEST_INTERVAL
                return
            # The store is slow now, and the loop has other work.
            self._next_wait = time.monotonic() + self._wait_interval
            self._wait_interval = min(self._wait_interval * 2, LONGEST_PAUSE)
        for job in jobs:
            self._limit_wait(loop, job)

    def _limit_wait(self, loop: asyncio.AbstractEventLoop, job: _Job[Any]) -> None:
        """Set `TimeoutError` on the job's future if the store is slow.

        Time in which the event loop is late does not count: `expire` is then called after `due`.
        """
        due = job.queued + self._record_wait
        late = 0.0  # for how many seconds the loop was late

        def expire() -> None:
            nonlocal due, late
            now = time.monotonic()
            future = job.future
            if future is None or future.done():
                return
            if now - due > self._record_wait / PAUSE_DIVISOR:
                late += now - due + self._record_wait
            late = min(late, BUSY_SECONDS)
            remaining = max(job.queued + late, self._last_progress) + self._record_wait - now
            longest = job.queued + late + WAIT_FACTOR * self._record_wait - now
            if remaining > 0 and longest > 0:
                due = now + min(remaining, longest)
                job.timer = loop.call_later(min(remaining, longest), expire)
            else:
                future.set_exception(TimeoutError())

        job.timer = loop.call_later(max(0.0, due - time.monotonic()), expire)

    def _apply(
        self,
        record: Record,
        origin: Origin | None = None,
        sent_delta: _Job[SentBodyDelta] | None = None,
        body: bytes | None = None,
        *,
        is_new: bool = False,
    ) -> Any:
        """Write a record, within the transaction of the caller.

        `is_new` says that nothing of its exchange has been recorded before.
        """
        store, context = self.store, self._context
        match record:
            case RequestRecord():
                return record_request(
                    store, record, context, origin, body=body, is_new=is_new, is_nested=True
                )
            case AnswerRecord():
                delta = None if sent_delta is None else sent_delta.result
                return record_answer(store, record, context, delta, is_new=is_new, is_nested=True)
            case FailureRecord():
                return record_failure(store, record, context, is_nested=True)

    async def _append(self, record: Record, reason: str) -> RecordingState:
        """Write a record to the journal; returns where the record is now."""
        if self._journal is None:
            self._report("no", reason)
            return "no"
        with self._lock:
            self._appending += 1
            begins, self._uses_journal = not self._uses_journal, True
        if begins:
            self._report("journal", reason)
            self._queue.put(_Batch([]))  # wake the writer: it may wait for jobs without a timeout
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._appenders, self._journal.append, _encode(record))
        except JournalError:
            self._report("no", "the journal failed too")
            return "no"
        finally:
            with self._lock:
                self._appending -= 1
                self._lock.notify_all()
        return "journal"

    async def _read_answers(
        self, record: RequestRecord, origin: Origin
    ) -> Mapping[tuple[int, int], Message]:
        return await self._read_or_default(
            lambda: read_answers(self.store, record, self._context, origin), {}
        )

    def _find_unstored(
        self, record: RequestRecord, origin: Origin
    ) -> Mapping[tuple[int, int], Message]:
        incoming = read_incoming(record.scope, record.hint, record.messages, b"")
        return self._unstored.find(incoming, origin)

    async def _read_or_default(self, job: Callable[[], T], default: T) -> T:
        """The result of a job in a worker thread, or the default if the job fails."""
        with suppress(Exception):  # no error of recording may cost the client its answer
            return await self._read(job)
        return default

    async def _read(self, job: Callable[[], T]) -> T:
        """The result of a job in a worker thread; raises `StoreError` if it takes too long."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await asyncio.shield(loop.run_in_executor(self._readers, job))
        except TimeoutError:
            raise StoreError("the store did not answer in time") from None

    @property
    def _pending(self) -> int:
        journals = (self._journal, *self._leftovers)
        return sum(journal.pending for journal in journals if journal is not None)

    def _write_all(self) -> None:
        """The loop of the writer thread."""
        while True:
            has_jobs = self._run_batches()
            if has_jobs is None:
                return
            if not has_jobs and not self._uses_journal:
                self._update_text_index()
            self._adopt_journals()
            self._checkpoint(is_idle=not has_jobs)
            if self._uses_journal and time.monotonic() >= self._next_drain:
                self._drain()

    def _run_batches(self) -> bool | None:
        """Run all waiting jobs; whether there were any, or `None` when the recorder is closed.

        No variable of the loop of the writer refers to a job, so that the record of a large answer
        is not in memory until the next one.
        """
        batches = self._next_batches()
        if batches is None:
            return None
        jobs = [job for batch in batches for job in batch.jobs]
        self._run(jobs)
        for batch in batches:
            batch.finish()
        return bool(jobs)

    def _checkpoint(self, *, is_idle: bool) -> None:
        """Move what was recorded to the store's main file, so that a copy of that file has it.

        A thread of its own does it: recording goes on meanwhile.
        """
        now = time.monotonic()
        self._is_unsaved |= not is_idle
        if not self._is_unsaved or not (is_idle or now - self._last_save >= SAVE_SECONDS):
            return
        self._is_unsaved, self._last_save = False, now
        with suppress(RuntimeError):  # the recorder is being closed, and the store saves everything
            self._readers.submit(self.store.checkpoint)

    def _update_text_index(self) -> None:
        """Fill the text index while there is nothing to record; a search does it otherwise."""
        with suppress(Exception):  # a search reports it; recording must go on
            while self._queue.empty() and index_new_commits(self.store, pages=1):
                pass

    def _adopt_journals(self) -> None:
        """From time to time, take over journals of processes that were killed."""
        now = time.monotonic()
        if self._journal_path is None or now < self._next_adoption:
            return
        self._next_adoption = now + ADOPT_SECONDS
        leftovers = list(leftover_journals(self._journal_path))
        if leftovers:
            with self._lock:
                self._leftovers += leftovers
                self._uses_journal = True

    def _next_batches(self) -> list[_Batch] | None:
        """All waiting jobs, perhaps none after a timeout; `None` when the recorder is closed."""
        batches: list[_Batch] = []
        count = 0
        try:
            batch = self._queue.get(timeout=DRAIN_SECONDS if self._uses_journal else ADOPT_SECONDS)
            while batch is not None:
                batches.append(batch)
                count += len(batch.jobs)
                if count >= BATCH_JOBS:
                    return batches
                batch = self._queue.get_nowait()
        except Empty:
            return batches
        if batches:
            self._queue.put(None)  # close after the jobs that came before
            return batches
        return None

    def _run(self, jobs: list[_Job[Any]]) -> None:
        """Run jobs in one transaction; if one of them fails, run each in its own."""
        self._last_progress = time.monotonic()
        jobs = [job for job in jobs if not job.is_abandoned]
        if not jobs:
            return
        try:
            self._run_together(jobs)
        except Exception as error:  # an error of one job must not end the writer
            # It is passed on to the exchange of that job; the others run again without it.
            if len(jobs) == 1:
                jobs[0].error = error
                return
            for job in jobs:
                self._run([job])

    def _run_together(self, jobs: list[_Job[Any]]) -> None:
        writes = any(job.writes for job in jobs)
        with self.store.transaction() if writes else nullcontext():
            for job in jobs:
                job.result = job.run()
                self._last_progress = time.monotonic()

    def _drain(self) -> None:
        """Move the journal's records into the store, until the store refuses one.

        Under load, new records arrive all the time. So when the journal is nearly drained, new
        records go to the writer's queue again. They wait there until the last records of the
        journal are moved.
        """
        try:
            while self._leftovers:
                self._replay(self._leftovers[0])
                self._leftovers[0].remove()
                del self._leftovers[0]
            if self._journal is not None:
                self._replay(self._journal)
            self._uses_journal = False
            if self._journal is not None:
                self._wait_for_appends()
                self._replay(self._journal)
        except (StoreError, JournalError):
            self._uses_journal = True
            self._move_jobs_to_journal()
            self._drain_pause = min(self._drain_pause * 2, LONGEST_PAUSE)
            self._next_drain = time.monotonic() + self._drain_pause
            return
        self._drain_pause = DRAIN_SECONDS
        # Another record may have gone to the journal while the last ones were drained.
        if not self._uses_journal:
            self._journaled.clear()
            self._unstored.clear()
            self._report("store", "the journal is drained")

    def _wait_for_appends(self) -> None:
        """Wait until every record that was on its way to the journal is there."""
        with self._lock:
            if not self._lock.wait_for(lambda: self._appending == 0, APPEND_SECONDS):
                raise JournalError("the journal is slow")

    def _move_jobs_to_journal(self) -> None:
        """Make the exchanges of the queued jobs write their records to the journal instead."""
        batches: list[_Batch | None] = []
        with suppress(Empty):
            while True:
                batches.append(self._queue.get_nowait())
        for batch in batches:
            if batch is None:
                self._queue.put(None)
                continue
            for job in batch.jobs:
                job.error = StoreError("records wait in the journal")
            batch.finish()

    def _replay(self, journal: Journal) -> None:
        """Record everything in a journal, several records per transaction."""
        batch: list[tuple[Position, bytes]] = []
        for entry in journal.read():
            batch.append(entry)
            if len(batch) == BATCH_JOBS:
                self._replay_batch(journal, batch)
                batch = []
        if batch:
            self._replay_batch(journal, batch)

    def _replay_batch(self, journal: Journal, batch: list[tuple[Position, bytes]]) -> None:
        records = [data for _, data in batch]
        try:
            with self.store.transaction():
                for data in records:
                    self._apply(_decoder.decode(data))
                    self._last_progress = time.monotonic()
        except Exception:  # one of them failed: try each one alone
            for data in records:
                self._replay_one(data)
        journal.mark_drained(batch[-1][0])

    def _replay_one(self, data: bytes) -> None:
        """Record one entry of the journal; set it aside if the store can never accept it.

        Raises `StoreError` if the store may accept it later: it is full, locked or restarting.
        """
        for is_last in (False, True):  # a conflict with another writer does not happen twice
            try:
                with self.store.transaction():
                    self._apply(_decoder.decode(data))
                return
            except (OSError, MemoryError):
                raise StoreError("a record could not be replayed yet") from None
            except Exception as error:  # one bad record must not block those after it
                if isinstance(error, StoreError) and not error.is_data:
                    raise
                if is_last:
                    self._reject(data)
                    self._report("no", f"a record was set aside: {type(error).__name__}")

    def _reject(self, data: bytes) -> None:
        """Move a record that cannot be replayed to a file of its own, for a person to inspect."""
        if self._journal_path is not None:
            with Journal(
                self._journal_path.with_name(self._journal_path.name + ".rejected"), reserve=0
            ) as rejected:
                rejected.append(data)

    def _report(self, state: RecordingState, reason: str) -> None:
        """Log one line; never content, paths or addresses."""
        if state == "no":
            self.lost += 1
        line = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": "recording"}
        with suppress(OSError):
            sys.stderr.write(
                exact_json.dumps({**line, "state": state, "why": reason}).decode() + "\n"
            )


def _last_chain(scope: str, messages: tuple[Message, ...]) -> bytes | None:
    """The chained key of a whole conversation."""
    return deque(chain_messages(scope, messages), maxlen=1).pop()


def _open_or_none(path: Path | None) -> Journal | None:
    if path is None:
        return None
    try:
        return open_journal(path)
    except JournalError:
        return None
