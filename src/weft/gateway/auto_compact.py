"""Automatic compaction of conversations, before the window of the client's model overflows.

A client sends its whole conversation with every request, and the gateway has recorded it in a
thread. If a request would not fit the model's window, the thread is compacted first, and the
compacted conversation is sent. The client does not notice. There are two ways:

- After an answer, if the window is nearly full and a summary model is configured, the model writes
  a summary in the background, while the client continues. No request waits for it.
- Before a request that does not fit, or after the upstream refused one as too long, old turns are
  replaced with an extract, without a model.

The size of a conversation is the size that the upstream reported last, plus an estimate of the
messages since. A failing, slow or missing model never blocks a request, and no failure here fails
an exchange: the request is then sent unchanged.
"""

import asyncio
import sys
import time
from collections.abc import Sequence, Set
from contextlib import suppress
from threading import Lock, Thread as WorkerThread

from msgspec import Struct, structs

from weft import exact_json
from weft.catalog import Catalog, Model
from weft.client import (
    SAME_MODEL,
    CompactionSettings,
    ModelClient,
    Provider,
    find_route,
    summary_client,
)
from weft.compact import CompactResult, Limits, limits_of
from weft.errors import WeftError
from weft.ids import Id
from weft.model import JsonObject, Message, Request, Tool
from weft.store import Store
from weft.thread import CompactOptions, Thread, drive, open as open_thread
from weft.tokens import counter_for_model

from .records import RequestLocation, put_newest, read_conversation

NEARLY_FULL = 0.85
"""How full the window must be before a summary is written in the background."""

TIMEOUT, RETRIES, TARGET = 60.0, 1, 0.5
"""The defaults of `[compaction]`."""

BYTES_PER_TOKEN = 3
"""Fewer than in most texts, so that the estimate errs on the high side."""
MAX_REPORTED_SIZES = 10_000
"""For how many conversations the last reported size is remembered."""


class CompactedRequest(Struct, frozen=True):
    """The result of a compaction before a request.

    The answer is recorded at `location`, and `messages` are sent instead of the client's.
    """

    location: RequestLocation
    messages: tuple[Message, ...]
    result: CompactResult


class ReportedSize(Struct, frozen=True):
    """The tokens that the upstream reported for a conversation, and the bytes of that request."""

    tokens: int
    bytes: int


class SessionCompactor:
    """Compacts the threads of conversations that clients continue; one per gateway."""

    def __init__(
        self,
        settings: CompactionSettings,
        store: Store,
        catalog: Catalog,
        providers: tuple[Provider, ...],
    ) -> None:
        self._settings = settings
        self._store = store
        self._catalog = catalog
        self._providers = providers
        self._reported: dict[tuple[str, str], ReportedSize] = {}
        self._running: set[tuple[str, str]] = set()
        self._lock = Lock()

    async def compact_request(
        self,
        location: RequestLocation,
        model: Model,
        request: Request,
        body_bytes: int,
        echoed_commits: Set[Id] = frozenset(),
        *,
        force: bool = False,
    ) -> CompactedRequest | None:
        """Compact the conversation of a request if it does not fit, or in any case with `force`.

        `body_bytes` is the size of the client's body. `echoed_commits` are the commits of the
        stored answers that the request contains. Returns `None` if nothing was changed.
        """
        if not force and not self._may_be_full(location, model, body_bytes):
            return None
        try:
            return await asyncio.to_thread(
                self._compact_request, location, model, request, echoed_commits, force
            )
        except Exception as error:  # compaction is optional, so no error may fail the request
            # The request is sent unchanged, and the upstream decides whether it fits.
            _report_failure(location.thread, error)
            return None

    def after_answer(
        self, location: RequestLocation, model: Model, tokens: int, body_bytes: int
    ) -> None:
        """Remember the reported size; if the window is nearly full, start a background summary."""
        key = (location.thread, location.branch)
        with self._lock:
            put_newest(self._reported, key, ReportedSize(tokens, body_bytes), MAX_REPORTED_SIZES)
            is_due = tokens > self._limits(model).max_tokens * NEARLY_FULL
            if not is_due or self._settings.model is None or key in self._running:
                return
            self._running.add(key)
        # A daemon: a slow model must not delay the end of the process.
        WorkerThread(
            target=self._summarise, args=(key, model), name="weft-compact", daemon=True
        ).start()

    def _may_be_full(self, location: RequestLocation, model: Model, body_bytes: int) -> bool:
        """Whether a conversation may be too long, judged without reading it."""
        reported = self._reported.get((location.thread, location.branch))
        tokens, reported_bytes = (0, 0) if reported is None else (reported.tokens, reported.bytes)
        estimate = tokens + max(0, body_bytes - reported_bytes) // BYTES_PER_TOKEN
        return estimate > self._limits(model).max_tokens * NEARLY_FULL

    def _limits(self, model: Model) -> Limits:
        target = TARGET if self._settings.target is None else self._settings.target
        return limits_of(model, reserve=self._settings.reserve, target=target)

    def _compact_request(
        self,
        location: RequestLocation,
        model: Model,
        request: Request,
        echoed_commits: Set[Id],
        force: bool,
    ) -> CompactedRequest | None:
        if not location.branch:
            return None  # an earlier request is repeated, and the conversation continues after it
        thread = open_thread(self._store, location.thread, branch=location.branch)
        if thread.head is None or thread.head.id != location.head:
            return None  # another request continued the conversation meanwhile
        options = self._options(thread, model, request.tools, force=force)
        if options is None:
            return None
        result = _run_compaction(thread, None, options, None)
        if result.commit is None:
            return None
        _report_result(location.thread, result)
        compacted = structs.replace(location, head=result.commit, is_edited=True)
        messages = read_conversation(self._store, compacted, request.messages, echoed_commits)
        with self._lock:
            self._reported.pop((location.thread, location.branch), None)
        return CompactedRequest(compacted, messages, result)

    def _options(
        self,
        thread: Thread,
        model: Model,
        tools: Sequence[Tool] | None = None,
        *,
        threshold: float = 1.0,
        force: bool = False,
    ) -> CompactOptions | None:
        """The options of a compaction to the target; `None` if the conversation fits.

        It fits if it fills at most the share `threshold` of the space for it. `tools` are those of
        the request; by default, those of the thread.
        """
        counter, limits = counter_for_model(model), self._limits(model)
        context = thread.compile()
        message_tokens = sum(counter.message(message) for message in context.sendable)
        tool_tokens = counter.tools(context.tools if tools is None else tools)
        size = context.calibrated if context.is_reported else message_tokens + tool_tokens
        if not force and size <= limits.max_tokens * threshold:
            return None
        budget, limit = limits.target_tokens, limits.max_tokens
        if force:
            # The window is smaller than the catalogue says, but nobody knows by how much.
            budget, limit = min(budget, size // 2), min(limit, size * 3 // 4)
        # The tools and the vendor's own additions, which stay after the compaction.
        other_tokens = max(0, size - message_tokens)
        return CompactOptions(
            budget=max(1, budget - other_tokens),
            limit=max(1, limit - other_tokens),
            prompt=self._settings.prompt,
            trigger="auto",
            fallback=True,
            count=counter.message,
        )

    def _summarise(self, key: tuple[str, str], model: Model) -> None:
        """Compact a thread with the configured model; runs in a worker thread."""
        name, branch = key
        try:
            thread = open_thread(self._store, name, branch=branch)
            options = self._options(thread, model, threshold=NEARLY_FULL)
            if options is not None:
                client = self._find_client(model)
                seconds = self._settings.timeout or TIMEOUT
                _report_result(name, _run_compaction(thread, client, options, seconds))
        except Exception as error:  # nobody waits: a request that does not fit gets an extract
            _report_failure(name, error)
        finally:
            with self._lock:
                self._running.discard(key)

    def _find_client(self, model: Model) -> ModelClient | None:
        """A client for the configured summary model; `None` if no upstream has it.

        `model` is the model of the conversation.
        """
        name = self._settings.model
        if name is None:
            return None
        try:
            route = find_route(
                model.name if name == SAME_MODEL else name,
                "",  # no client, so no protocol is preferred
                self._providers,
                self._catalog,
                has_credentials=False,
            )
        except WeftError:
            return None
        retries = RETRIES if self._settings.retries is None else self._settings.retries
        return summary_client(route, self._catalog, retries)


def _run_compaction(
    thread: Thread, client: ModelClient | None, options: CompactOptions, seconds: float | None
) -> CompactResult:
    """Compact a thread; without a client, by an extract."""
    flow = thread.compacting(None if client is None else client.model, options)
    if client is not None:
        return drive(flow, client, seconds)
    try:
        next(flow)
    except StopIteration as end:
        return end.value
    raise AssertionError("a compaction without a model sent a request")


def _report_result(thread: str, result: CompactResult) -> None:
    """Log a compaction and its steps that failed; nothing if the thread did not change.

    The reasons of the failures are in the commit. They may quote the upstream, so they are not
    logged.
    """
    if result.commit is None:
        return
    members: JsonObject = {"outcome": "compacted", "method": result.method}
    if result.failures:
        members["failed_steps"] = [failure.step for failure in result.failures]
    _log(thread, members)


def _report_failure(thread: str, error: Exception) -> None:
    """Log a compaction that changed nothing because of an error."""
    _log(thread, {"outcome": "failed", "error": type(error).__name__})


def _log(thread: str, members: JsonObject) -> None:
    """Log one line; never content."""
    line: JsonObject = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "event": "compaction",
        "thread": thread,
        **members,
    }
    with suppress(OSError):
        sys.stderr.write(exact_json.dumps(line).decode() + "\n")
