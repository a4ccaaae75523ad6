"""Runs: what an agent does from a message to its final answer, including tool calls.

Runs belong to the server, not to a browser tab. A run continues when its tab reloads, opens another
thread or closes. It ends when the answer is complete, when it fails, when a user stops it, or when
the server shuts down. Every tab on the thread watches the same run. A tab that joins later gets
everything that was streamed so far.

A branch has at most one run at a time, so that turns never interleave. A text that is sent during a
run is queued, and sent when the run ends, even if it fails. A queued text can become a *hint*:
the running agent gets it before its next request. A hint that comes too late is queued again.

A run may ask the people who watch it. There are two kinds of questions: whether a tool may run
(`permission`), and questions of the agent (`choice`). A question waits until somebody answers it or
the run ends. It has no deadline, so no decision is made without a person. Every tab on the thread
shows it, and the first answer counts. The answers "this thread" and "always" are remembered by
`weft.agent.Permissions`, one for each caller.

    {"type": "question", "id", "kind": "permission", "tool", "server", "input"}
    {"type": "question", "id", "kind": "choice", "questions"}
    {"type": "answered", "id", "answer"}      null: nobody answered, and the question is over
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from time import monotonic, time
from typing import Any, Protocol, cast, get_args
from uuid import uuid4

from msgspec import Struct

from weft.agent import (
    AgentEvent,
    Confirm,
    Permission,
    Permissions,
    SystemMessage,
    ToolRequest,
    UserQuestion,
)
from weft.errors import Refused, WeftError
from weft.model import JsonObject, Message, ToolResult, is_system
from weft.thread import Media, Thread

from .errors import public_message
from .frames import FrameWriter, Transcript
from .render import render
from .uploads import media_json

STOPPED = "stopped"
SHUT_DOWN = "the server was shut down"
INTERNAL_ERROR = "the gateway failed; its log says why"
END_TYPES = ("message_complete", "error")
HINT = "hint"
OWN_AGENT = "weft"
PROGRESS = "compact_progress"
RETRY = "api_retry"
MAX_REMARKS = 20
MAX_REMARKED_BRANCHES = 500
MAX_SERVED = 10_000
QUEUE_LIMIT = 50
"""How many texts may wait on one branch."""

Events = AsyncGenerator[AgentEvent, None]

_log = logging.getLogger(__name__)


PERMISSION_ANSWERS: tuple[str, ...] = get_args(Permission)
ANSWER_LENGTH = 10_000
"""How many characters of an answer to a question are used."""


class OpenQuestion(Struct, frozen=True):
    """A question that waits: its frame, and the future for its answer."""

    frame: JsonObject
    answer: "asyncio.Future[Any]"


class Questions:
    """The questions of one run. `publish` sends a frame to all watchers of the run."""

    def __init__(
        self, publish: Callable[[JsonObject], None], on_change: Callable[[], None]
    ) -> None:
        self._publish = publish
        self._on_change = on_change
        self._open: dict[str, OpenQuestion] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def to_json(self) -> list[JsonObject]:
        """The open questions, oldest first."""
        return [question.frame for question in self._open.values()]

    async def ask_permission(self, request: ToolRequest) -> Permission:
        """Ask whether a tool may run."""
        answer: Permission = await self._ask(
            {
                "kind": "permission",
                "call": request.id,
                "tool": request.name,
                "server": request.server,
                "input": request.input,
            }
        )
        return answer

    async def ask_user(self, question: UserQuestion) -> dict[str, str]:
        """Ask the agent's own questions."""
        answers: dict[str, str] = await self._ask(
            {"kind": "choice", "call": question.id, "questions": list(question.questions)}
        )
        return answers

    def answer(self, id: str, value: object) -> None:
        """Answer a question; raises `Refused` if it is not open or the answer is invalid."""
        question = self._open.get(id)
        if question is None or question.answer.done():
            raise Refused("this question is answered already", param="id", status=409)
        read = _read_permission if question.frame["kind"] == "permission" else _read_choice
        question.answer.set_result(read(value))

    async def _ask(self, fields: JsonObject) -> Any:
        """Publish a question, and wait for its answer."""
        id = uuid4().hex[:12]
        frame: JsonObject = {"type": "question", "id": id, **fields}
        question = OpenQuestion(frame, asyncio.get_running_loop().create_future())
        self._open[id] = question
        self._publish(frame)
        self._on_change()
        answer: Any = None
        try:
            answer = await question.answer
            return answer
        finally:
            del self._open[id]
            self._publish({"type": "answered", "id": id, "answer": answer})
            self._on_change()


def _read_permission(value: object) -> str:
    if value not in PERMISSION_ANSWERS:
        raise Refused(f"must be one of {', '.join(PERMISSION_ANSWERS)}", param="answer")
    return str(value)


def _read_choice(value: object) -> dict[str, str]:
    """A text for each question."""
    items = cast(dict[object, object], value).items() if isinstance(value, dict) else ()
    answers = {
        key: text[:ANSWER_LENGTH]
        for key, text in items
        if isinstance(key, str) and isinstance(text, str)
    }
    if not answers or len(answers) != len(items):
        raise Refused("must be an object with a text for each question", param="answer")
    return answers


class CallerPermissions:
    """The permissions of each caller; an answer applies only to the caller who gave it.

    `path` is the file of the person who runs the server; callers with keys have files beside it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._by_scope: dict[str | None, Permissions] = {}

    def of(self, scope: str | None) -> Permissions:
        """The permissions of a caller; `scope` is None on a server without keys."""
        if scope not in self._by_scope:
            path = self._path
            if path is not None and scope is not None:
                path = path.with_name(f"{path.stem}-{scope}{path.suffix}")
            self._by_scope[scope] = Permissions(_deny, path=path)
        return self._by_scope[scope]


def _deny(_: ToolRequest) -> Permission:
    """Deny the call; used until `with_ask` provides a way to ask."""
    return "deny"


class RunWatcher(Protocol):
    """A connection that receives frames. Its methods must neither block nor raise."""

    def send(self, frame: JsonObject) -> None: ...

    def send_runs(self) -> None:
        """Send the list of runs, because the list or the state of a run has changed."""
        ...


class RunAgent(Protocol):
    """The interface of an agent that a run needs; `Agent` and `ClaudeAgent` implement it."""

    thread: Thread

    def run(
        self, text: str | None, *, attach: tuple[Media, ...] = ()
    ) -> AsyncIterator[AgentEvent]: ...

    def hint(self, text: str) -> None: ...


class RunSpec(Struct, frozen=True, kw_only=True):
    """What to run, and where.

    - `base`: the head of the branch before the run
    - `text`: the user's message; None for a retry
    - `request`: the id that the client gave to its frame
    - `compact`: whether the user allows compaction; None to ask when it is needed
    - `served_by`: the upstream, and the model's name there
    - `attached`: the files of the user's message
    - `agent`: who answers: `weft` or `claude`
    """

    thread: str
    branch: str
    model: str
    base: str | None
    scope: str | None = None
    text: str | None = None
    request: str | None = None
    compact: bool | None = None
    served_by: tuple[str, str] = ("", "")
    attached: tuple[Media, ...] = ()
    agent: str = OWN_AGENT


class Run:
    """One run: its frames so far, and the connections that watch it."""

    def __init__(self, spec: RunSpec) -> None:
        self.id = uuid4().hex[:12]
        self.spec = spec
        self.started = time()
        self.reports: list[JsonObject] = []
        self.watchers: set[RunWatcher] = set()
        self.on_change: Callable[[], None] = lambda: None
        self.questions = Questions(self.publish, lambda: self.on_change())
        self.agent: RunAgent | None = None
        self.hints: list[QueuedText] = []
        """The texts that the agent gets before its next request."""
        self.task: asyncio.Task[None] | None = None
        self.stop_reason = STOPPED
        self._transcript = Transcript()
        self._answer: asyncio.Future[bool] | None = None
        self._compact = spec.compact

    @property
    def key(self) -> tuple[str, str]:
        return self.spec.thread, self.spec.branch

    @property
    def is_waiting(self) -> bool:
        """Whether the run waits for the user's answer to a question."""
        return self._answer is not None or self.questions.is_open

    def publish(self, frame: JsonObject) -> None:
        """Send a frame to all watchers, and keep it for those that join later."""
        self._transcript.add(frame)
        if frame["type"] == "system" and not is_transient(frame):
            self.reports.append(frame)
        self.broadcast(frame)

    def broadcast(self, frame: JsonObject) -> None:
        """Send a frame to all watchers."""
        thread, branch = self.key
        addressed = {**frame, "thread": thread, "branch": branch, "run": self.id}
        for watcher in list(self.watchers):
            watcher.send(addressed)

    def state(self) -> JsonObject:
        """The run for a tab that joins now."""
        return {**self.summary(), "base": self.spec.base, "frames": self._transcript.frames()}

    def summary(self) -> JsonObject:
        """The run without its frames, for the list of threads."""
        return {
            "run": self.id,
            "thread": self.spec.thread,
            "branch": self.spec.branch,
            "model": self.spec.model,
            "agent": self.spec.agent,
            "waiting": self.is_waiting,
        }

    async def confirm(self, question: Confirm) -> bool:
        """Ask the watchers whether to compact; the answer is valid for the whole run."""
        if self._compact is None:
            usage = question.use
            self._answer = asyncio.get_running_loop().create_future()
            self.publish(
                {
                    "type": "compaction_question",
                    "model": self.spec.model,
                    "tokens": usage.tokens,
                    "window": usage.window,
                    "limit": usage.limit,
                    "target": usage.target,
                }
            )
            self.on_change()
            try:
                self._compact = await self._answer
            finally:
                self._answer = None
            self.publish({"type": "compaction_answer", "compact": self._compact})
            self.on_change()
        return self._compact

    def answer(self, compact: bool) -> None:
        """Answer the run's question; raises `Refused` if it has not asked one."""
        if self._answer is None or self._answer.done():
            raise Refused("this run is not waiting for an answer", param="type")
        self._answer.set_result(compact)


class QueuedText:
    """A text that is sent when the runs before it have ended.

    `start` begins its run; it raises `WeftError` if that is no longer possible.
    """

    def __init__(self, text: str, start: Callable[[], Awaitable[None]]) -> None:
        self.id = uuid4().hex[:12]
        self.text = text
        self.start = start

    def to_json(self) -> JsonObject:
        return {"id": self.id, "text": self.text}


class Runs:
    """All runs of a server."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], Run] = {}
        self._watchers: dict[tuple[str, str], set[RunWatcher]] = {}
        self._remarks: dict[tuple[str, str], list[JsonObject]] = {}
        self._queues: dict[tuple[str, str], list[QueuedText]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self.listeners: set[RunWatcher] = set()
        """Connections that receive the list of runs."""
        self.on_retry: Callable[[RunSpec, JsonObject], None] = lambda _spec, _retry: None
        """Called when a request of a run is sent again."""
        self.served: set[tuple[str, str]] = set()
        """The (upstream, model) pairs that have answered since the server started."""

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._running.values()))

    def find(self, thread: str, branch: str) -> Run | None:
        """The run on a branch, if there is one."""
        return self._running.get((thread, branch))

    def watch(self, watcher: RunWatcher, thread: str, branch: str) -> None:
        """Send this connection the frames of the branch's current and later runs."""
        self._watchers.setdefault((thread, branch), set()).add(watcher)

    def leave(self, watcher: RunWatcher) -> None:
        """Stop sending frames to a connection; the runs continue."""
        for key, watchers in list(self._watchers.items()):
            watchers.discard(watcher)
            if not watchers and key not in self._running:
                del self._watchers[key]

    def refuse_if_running(self, thread: str, branch: str) -> None:
        """Raises `Refused` if the branch has a run."""
        if (thread, branch) in self._running:
            raise Refused(
                "an answer is still being written in this thread: wait for it, or stop it",
                param="type",
                status=409,
            )

    def is_busy(self, thread: str, branch: str) -> bool:
        """Whether the branch has a run, or texts that wait for one."""
        return (thread, branch) in self._running or (thread, branch) in self._queues

    def queue(self, thread: str, branch: str, text: QueuedText) -> int:
        """Send a text later; returns how many texts are before it."""
        queued = self._queues.setdefault((thread, branch), [])
        if len(queued) >= QUEUE_LIMIT:
            raise Refused(f"{QUEUE_LIMIT} texts are queued already", param="type", status=409)
        queued.append(text)
        self._send_queue((thread, branch))
        return len(queued) - 1

    def unqueue(self, thread: str, branch: str, id: str) -> None:
        """Drop a queued text; raises `Refused` if it is not queued any more."""
        key = (thread, branch)
        queued = self._queues.get(key, [])
        remaining = [text for text in queued if text.id != id]
        if len(remaining) == len(queued):
            raise Refused("this text is not queued any more", param="id", status=404)
        self._set_queue(key, remaining)

    def hint(self, thread: str, branch: str, text: QueuedText) -> None:
        """Give a text to the running agent; raises `Refused` if nothing runs on the branch."""
        run = self.find(thread, branch)
        if run is None or run.agent is None:
            raise Refused("nothing runs in this thread", param="thread", status=409)
        if len(run.hints) >= QUEUE_LIMIT:
            raise Refused(f"{QUEUE_LIMIT} hints are queued already", param="type", status=409)
        run.hints.append(text)
        run.agent.hint(text.text)
        self._send_queue(run.key)

    def hint_queued(self, thread: str, branch: str, id: str) -> None:
        """Give a queued text to the running agent, instead of sending it later."""
        queued = self._queues.get((thread, branch), [])
        text = next((each for each in queued if each.id == id), None)
        if text is None:
            raise Refused("this text is not queued any more", param="id", status=404)
        self.hint(thread, branch, text)
        self.unqueue(thread, branch, id)

    def queue_json(self, thread: str, branch: str) -> list[JsonObject]:
        """The queued texts of a branch, next one first; hints have `hint`."""
        run = self.find(thread, branch)
        hints = [] if run is None else [{**text.to_json(), HINT: True} for text in run.hints]
        return [*hints, *(text.to_json() for text in self._queues.get((thread, branch), []))]

    def _set_queue(self, key: tuple[str, str], queued: list[QueuedText]) -> None:
        if queued:
            self._queues[key] = queued
        else:
            self._queues.pop(key, None)
        self._send_queue(key)

    def _send_queue(self, key: tuple[str, str]) -> None:
        thread, branch = key
        texts = self.queue_json(thread, branch)
        frame: JsonObject = {"type": "queue", "thread": thread, "branch": branch, "queue": texts}
        for watcher in list(self._watchers.get(key, ())):
            watcher.send(frame)

    async def _start_next(self, key: tuple[str, str]) -> None:
        """Begin the run of the next queued text.

        The text stays in the queue until its run has begun, so that no other text overtakes it.
        """
        while key in self._queues and key not in self._running:
            text = self._queues[key][0]
            try:
                await text.start()
            except WeftError as error:
                reason = public_message(error)
                frame: JsonObject = {
                    "type": "error",
                    "scope": "frame",
                    "message": f"A queued text was not sent: {reason}",
                    "place": None,
                }
                for watcher in list(self._watchers.get(key, ())):
                    watcher.send({**frame, "thread": key[0], "branch": key[1]})
            self._set_queue(key, [each for each in self._queues.get(key, []) if each is not text])

    def begin(self, run: Run, agent: RunAgent, watcher: RunWatcher | None) -> None:
        """Start a run; raises `Refused` if its branch already has one."""
        self.refuse_if_running(*run.key)
        run.agent = agent
        self._running[run.key] = run
        run.watchers = self._watchers.setdefault(run.key, set())
        if watcher is not None:
            self.watch(watcher, *run.key)
        run.on_change = self._notify_listeners
        spec = run.spec
        run.broadcast(
            {
                "type": "started",
                "base": spec.base,
                "request": spec.request,
                "model": spec.model,
            }
        )
        if spec.text is not None:
            media = [media_json(block, {}) for block in spec.attached]
            run.publish({"type": "user_message", "html": render(spec.text), "media": media})
        run.task = asyncio.create_task(self._run_agent(run, agent))
        self._notify_listeners()

    async def stop(self, run: Run, reason: str = STOPPED) -> None:
        """Stop a run; returns when the part that it streamed is recorded."""
        run.stop_reason = reason
        if run.task is not None and not run.task.done():
            run.task.cancel(reason)
            await asyncio.wait([run.task])

    async def close(self) -> None:
        """Stop all runs, because the server shuts down; queued texts are not sent."""
        self._queues.clear()
        await asyncio.gather(*(self.stop(run, SHUT_DOWN) for run in self))

    async def _run_agent(self, run: Run, agent: RunAgent) -> None:
        """Run the agent and publish its events, up to the frame that ends the run."""
        writer, end_frame = FrameWriter(), cast(JsonObject, {"type": "message_complete"})
        try:
            async with aclosing(
                cast(Events, agent.run(run.spec.text, attach=run.spec.attached))
            ) as events:
                async for event in events:
                    if isinstance(event, SystemMessage) and event.subtype == HINT:
                        self._deliver_hint(run, str(event.data.get("content", "")))
                        continue
                    if isinstance(event, SystemMessage) and event.subtype == RETRY:
                        self.on_retry(run.spec, event.data)
                    for frame in writer.write(event, monotonic()):
                        if frame["type"] in END_TYPES:
                            end_frame = frame
                        else:
                            run.publish(frame)
        except asyncio.CancelledError:  # only `stop` cancels this task
            end_frame = {"type": "interrupted", "message": run.stop_reason}
        except WeftError as error:
            end_frame = {"type": "error", "message": public_message(error)}
        except Exception:  # the outermost handler: the page gets one line, the log the rest
            _log.exception("a run failed")
            end_frame = {"type": "error", "message": INTERNAL_ERROR}
        finally:
            await self._record_end(run, agent.thread, end_frame)
            if run.hints:  # they came too late for this run
                self._queues[run.key] = [*run.hints, *self._queues.get(run.key, [])]
            # The branch is freed first: a client may send its next text as soon as it sees the end.
            del self._running[run.key]
            run.broadcast(end_frame)
            if not run.watchers:
                self._watchers.pop(run.key, None)
            self._notify_listeners()
            if run.key in self._queues:
                starting = asyncio.create_task(self._start_next(run.key))
                self._starting.add(starting)  # the event loop itself holds only a weak reference
                starting.add_done_callback(self._starting.discard)

    def _deliver_hint(self, run: Run, text: str) -> None:
        """Publish a hint that the agent has put into the thread as a message of the user."""
        delivered = next((hint for hint in run.hints if hint.text == text), None)
        run.hints = [hint for hint in run.hints if hint is not delivered]
        run.publish({"type": "user_message", "html": render(text)})
        self._send_queue(run.key)

    async def _record_end(self, run: Run, thread: Thread, end_frame: JsonObject) -> None:
        """Record why the run ended, and remember its reports for the page."""
        is_answered = end_frame["type"] == "message_complete"
        reason = None if is_answered else str(end_frame.get("message", ""))
        if is_answered and len(self.served) < MAX_SERVED:
            self.served.add(run.spec.served_by)
        try:
            row = await asyncio.to_thread(record_end, thread, reason, run.started)
        except WeftError:
            _log.warning("the end of a run could not be recorded", exc_info=True)
            return
        if row is not None and run.reports:
            self.add_remark(*run.key, row, run.reports)

    def add_remark(self, thread: str, branch: str, row: str, events: Sequence[JsonObject]) -> None:
        """Remember events that the page shows after a row."""
        remarks = self._remarks.setdefault((thread, branch), [])
        remarks.append({"after": row, "events": list(events)})
        del remarks[:-MAX_REMARKS]
        while len(self._remarks) > MAX_REMARKED_BRANCHES:
            del self._remarks[next(iter(self._remarks))]

    def send(self, thread: str, branch: str, frame: JsonObject) -> None:
        """Send a frame that is not part of a run to all watchers of a branch."""
        for watcher in list(self._watchers.get((thread, branch), ())):
            watcher.send({**frame, "thread": thread, "branch": branch})

    def remarks(self, thread: str, branch: str) -> list[JsonObject]:
        """The reports of a branch's recent runs, as `{after, events}`.

        The page shows the events after the row with the id `after`. They are kept in memory only.
        """
        return self._remarks.get((thread, branch), [])

    def _notify_listeners(self) -> None:
        for listener in list(self.listeners):
            listener.send_runs()


def record_end(thread: Thread, reason: str | None, started: float) -> str | None:
    """Record why there is no answer, unless the agent did so; returns the id of the last row."""
    compiled = thread.compile()
    if reason is not None and is_unanswered(compiled.messages):
        # Attempts at earlier commits are retries of requests that were answered later.
        recorded = [each for each in thread.attempts() if each.commit == compiled.head]
        if not any(attempt.created.timestamp() >= started for attempt in recorded):
            thread.record_attempt(None, reason=reason)
    return compiled.ids[-1] if compiled.ids else None


def is_unanswered(messages: Sequence[Message]) -> bool:
    """Whether the thread ends in a user message or in tool results: no model has answered yet.

    Clients may add system messages after the user's.
    """
    last = next((message for message in reversed(messages) if not is_system(message)), None)
    if last is None:
        return False
    if last.role == "tool" or any(isinstance(block, ToolResult) for block in last.blocks):
        return True
    return last.role == "user"


def is_transient(frame: JsonObject) -> bool:
    """Whether a report is dropped when its run is over: progress, and retries.

    The thread has the failed attempts, so it does not need the retries.
    """
    return frame.get("subtype") in (PROGRESS, RETRY) or frame.get("status") == "compacting"
