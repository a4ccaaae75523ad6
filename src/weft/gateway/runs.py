"""Runs: answers that are being written. They belong to the server, not to a browser tab.

A run goes on when its tab reloads, opens another thread or closes. It ends when the answer is
complete, when it fails, when somebody stops it, or when the server shuts down. Every tab on the
thread watches the same run: one that joins later is sent what was streamed so far.

A branch has at most one run at a time, so that turns never interleave. A second one is refused.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from time import monotonic, time
from typing import Protocol, cast
from uuid import uuid4

from msgspec import Struct

from weft.agent import Agent, AgentEvent, Confirm
from weft.errors import Refused, WeftError
from weft.model import JsonObject, Message, ToolResult
from weft.thread import Thread

from .errors import public_message
from .frames import FrameWriter, Transcript
from .render import render

STOPPED = "stopped"
SHUT_DOWN = "the server was shut down"
INTERNAL = "the gateway failed; its log says why"
ENDS = ("message_complete", "error")
PROGRESS = "compact_progress"
REMARKS_PER_BRANCH = 20
BRANCHES_WITH_REMARKS = 500
SERVED_LIMIT = 10_000

Events = AsyncGenerator[AgentEvent, None]

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """A connection that is sent frames; must neither block nor raise."""

    def send(self, frame: JsonObject) -> None: ...

    def show_runs(self) -> None:
        """The set of running threads, or the state of one of them, has changed."""
        ...


class Start(Struct, frozen=True, kw_only=True):
    """What a run answers. `text` is None for a retry.

    `base` is the head of the branch before the run, `request` the id that the client gave to its
    frame, `compact` whether the person allowed compaction (None: ask when it is needed),
    `served_by` the upstream and the model's name there.
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


class Run:
    """One run: its frames so far, and who watches."""

    def __init__(self, start: Start) -> None:
        self.id = uuid4().hex[:12]
        self.start = start
        self.started = time()
        self.reports: list[JsonObject] = []
        self.watchers: set[Watcher] = set()
        self.on_change: Callable[[], None] = lambda: None
        self.task: asyncio.Task[None] | None = None
        self.stop_reason = STOPPED
        self._transcript = Transcript()
        self._answer: asyncio.Future[bool] | None = None
        self._compact = start.compact

    @property
    def key(self) -> tuple[str, str]:
        return self.start.thread, self.start.branch

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a person's answer."""
        return self._answer is not None

    def publish(self, frame: JsonObject) -> None:
        """Send a frame to everybody who watches, and keep it for those who join later."""
        self._transcript.add(frame)
        if frame["type"] == "system" and not is_passing(frame):
            self.reports.append(frame)
        self.broadcast(frame)

    def broadcast(self, frame: JsonObject) -> None:
        """Send a frame to everybody who watches."""
        thread, branch = self.key
        marked = {**frame, "thread": thread, "branch": branch, "run": self.id}
        for watcher in list(self.watchers):
            watcher.send(marked)

    def state(self) -> JsonObject:
        """The run as a tab sees it that joins now."""
        return {**self.line(), "base": self.start.base, "frames": self._transcript.frames()}

    def line(self) -> JsonObject:
        """The run in one line, for the list of threads."""
        return {
            "run": self.id,
            "thread": self.start.thread,
            "branch": self.start.branch,
            "model": self.start.model,
            "waiting": self.is_waiting,
        }

    async def confirm(self, question: Confirm) -> bool:
        """Ask whoever watches whether to compact; an answer holds for the whole run."""
        if self._compact is None:
            use = question.use
            self._answer = asyncio.get_running_loop().create_future()
            self.publish(
                {
                    "type": "compaction_question",
                    "model": self.start.model,
                    "tokens": use.tokens,
                    "window": use.window,
                    "limit": use.limit,
                    "target": use.target,
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
        """Answer its question; raises `Refused` if it has none."""
        if self._answer is None or self._answer.done():
            raise Refused("this run asks nothing", param="type")
        self._answer.set_result(compact)


class Runs:
    """All runs of a server."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], Run] = {}
        self._watchers: dict[tuple[str, str], set[Watcher]] = {}
        self._remarks: dict[tuple[str, str], list[JsonObject]] = {}
        self.listeners: set[Watcher] = set()
        """Connections that show which threads run."""
        self.served: set[tuple[str, str]] = set()
        """Upstreams and models that have answered since the server started."""

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._running.values()))

    def find(self, thread: str, branch: str) -> Run | None:
        """The run on a branch, if there is one."""
        return self._running.get((thread, branch))

    def watch(self, watcher: Watcher, thread: str, branch: str) -> None:
        """Send a connection the frames of this branch's runs, this one and later ones."""
        self._watchers.setdefault((thread, branch), set()).add(watcher)

    def leave(self, watcher: Watcher) -> None:
        """Send a connection no frames of runs any more; the runs go on."""
        for key, watchers in list(self._watchers.items()):
            watchers.discard(watcher)
            if not watchers and key not in self._running:
                del self._watchers[key]

    def refuse_if_running(self, thread: str, branch: str) -> None:
        """Raises `Refused` if the branch is being written by a run."""
        if (thread, branch) in self._running:
            raise Refused(
                "an answer is still being written in this thread: wait for it, or stop it",
                param="type",
                status=409,
            )

    def begin(self, run: Run, agent: Agent, watcher: Watcher) -> None:
        """Start a run; raises `Refused` while another one is on its branch."""
        self.refuse_if_running(*run.key)
        self._running[run.key] = run
        self.watch(watcher, *run.key)
        run.watchers = self._watchers[run.key]
        run.on_change = self._show_runs
        start = run.start
        run.broadcast({"type": "started", "base": start.base, "request": start.request})
        if start.text is not None:
            run.publish({"type": "user_message", "html": render(start.text)})
        run.task = asyncio.create_task(self._drive(run, agent))
        self._show_runs()

    async def stop(self, run: Run, reason: str = STOPPED) -> None:
        """Stop a run, and return when what it streamed is recorded."""
        run.stop_reason = reason
        if run.task is not None and not run.task.done():
            run.task.cancel(reason)
            await asyncio.wait([run.task])

    async def close(self) -> None:
        """Stop all runs: the server shuts down."""
        await asyncio.gather(*(self.stop(run, SHUT_DOWN) for run in self))

    async def _drive(self, run: Run, agent: Agent) -> None:
        """Publish the events of a run, up to the frame that ends it."""
        writer, end = FrameWriter(), cast(JsonObject, {"type": "message_complete"})
        try:
            async with aclosing(cast(Events, agent.run(run.start.text))) as events:
                async for event in events:
                    for frame in writer.write(event, monotonic()):
                        if frame["type"] in ENDS:
                            end = frame
                        else:
                            run.publish(frame)
        except asyncio.CancelledError:  # only `stop` cancels this task
            end = {"type": "interrupted", "message": run.stop_reason}
        except WeftError as error:
            end = {"type": "error", "message": public_message(error)}
        except Exception:  # the outermost handler: the page gets one line, the log the rest
            _log.exception("a run failed")
            end = {"type": "error", "message": INTERNAL}
        finally:
            await self._settle(run, agent.thread, end)
            # The branch is free before anybody hears of the end: the next text may come at once.
            del self._running[run.key]
            run.broadcast(end)
            self._show_runs()

    async def _settle(self, run: Run, thread: Thread, end: JsonObject) -> None:
        """Keep why the run ended, and what it reported, where a later look finds them."""
        is_answered = end["type"] == "message_complete"
        reason = None if is_answered else str(end.get("message", ""))
        if is_answered and len(self.served) < SERVED_LIMIT:
            self.served.add(run.start.served_by)
        try:
            row = await asyncio.to_thread(settle, thread, reason, run.started)
        except WeftError:
            _log.warning("the end of a run could not be recorded", exc_info=True)
            return
        if row is not None and run.reports:
            remarks = self._remarks.setdefault(run.key, [])
            remarks.append({"after": row, "events": list(run.reports)})
            del remarks[:-REMARKS_PER_BRANCH]
            while len(self._remarks) > BRANCHES_WITH_REMARKS:
                del self._remarks[next(iter(self._remarks))]

    def remarks(self, thread: str, branch: str) -> list[JsonObject]:
        """What recent runs of a branch reported: `after` is the row behind which, `events` what.

        They are kept in memory only: the thread itself does not depend on them.
        """
        return self._remarks.get((thread, branch), [])

    def _show_runs(self) -> None:
        for listener in list(self.listeners):
            listener.show_runs()


def settle(thread: Thread, reason: str | None, started: float) -> str | None:
    """Record why there is no answer, unless the agent has; the id of the last row."""
    compiled = thread.compile()
    if reason is not None and is_unanswered(compiled.messages):
        recorded = (attempt.created.timestamp() for attempt in thread.attempts())
        if not any(created >= started for created in recorded):
            thread.record_attempt(None, reason=reason)
    return compiled.ids[-1] if compiled.ids else None


def is_unanswered(messages: Sequence[Message]) -> bool:
    """Whether the thread ends in what a model has still to answer: a text, or tool results."""
    if not messages:
        return False
    last = messages[-1]
    if last.role == "tool" or any(isinstance(block, ToolResult) for block in last.blocks):
        return True
    return last.role == "user"


def is_passing(frame: JsonObject) -> bool:
    """Whether a report is about what goes on just now, and says nothing once that is over."""
    return frame.get("subtype") == PROGRESS or frame.get("status") == "compacting"
