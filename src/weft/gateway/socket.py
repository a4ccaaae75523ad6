"""The page's connection to running agents: a socket, and an API for their questions.

On the socket, texts go in, and the frames of runs come out:

    in   {"type": "say", "thread", "text", "branch"?, "model"?, "request"?, "compact"?,
          "agent"?, "attach"?: [id of an upload]}
         {"type": "retry", "thread", "branch"?, "model"?, "request"?, "compact"?}
         {"type": "watch", "thread", "branch"?}          watch this thread, and no other
         {"type": "confirm", "thread", "branch"?, "compact"}    answers a `compaction_question`
         {"type": "answer", "thread", "branch"?, "id", "answer"}    answers a `question`
         {"type": "hint", "thread", "branch"?, "text" | "id"}    gives the running agent a text, or
                                                         the queued text with this id
         {"type": "interrupt", "thread"?, "branch"?}     stops the run
         {"type": "unqueue", "thread", "branch"?, "id"}  drops a queued text
    out  {"type": "started"}, then the events of the run, each with its `type`, `thread`, `branch`
         and `run`, ending in one of `message_complete`, `interrupted`, `error`
         {"type": "watching"}: the answer to `watch`, with everything the run has streamed so far
         {"type": "runs"}: all runs and running exchanges, whenever they change (only after a
         `watch`)
         {"type": "threads"}: the list of threads has changed (only after a `watch`)
         the events of `live`, about the exchanges of other programs in the watched thread
         {"type": "question"}, {"type": "answered"}: what a run asks
         {"type": "compaction_required"}: no run was started; send again with `compact`
         {"type": "queued"}: a run is in progress; the text is sent when it has ended
         {"type": "queue"}: the queued texts of the watched thread, whenever they change; those
         with `hint` go to the running agent

While text streams, a `rendered` frame comes from time to time: the block so far as safe HTML, and
how much of the text is in it (`length`, in the UTF-16 units that a browser counts).

An unknown or malformed frame is answered with an `error` whose `scope` is `frame`, and changes
nothing. When a connection closes, its runs continue: they belong to the server (`runs`).

The API answers the questions of runs and gives them hints:

    GET  /api/questions?thread=&branch=   the open questions of runs; without a thread, of all runs
                                          that the caller may see
    POST /api/answer {thread, branch, id, answer}
                                          `answer` is once, thread, always or deny for a permission,
                                          and an object with a text for each question of an agent
    POST /api/hint {thread, branch, text | id}
                                          a text, or a queued text, for the running agent
    GET  /api/permissions                 the tools that the caller always allows
    POST /api/forget {tool}               require permission for such a tool again
"""

import asyncio
from functools import partial

from msgspec import structs
from starlette.concurrency import run_in_threadpool
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from weft import exact_json
from weft.errors import Refused, WeftError
from weft.model import JsonObject

from .api_call import ApiCall, AsyncHandler, Handler
from .auth import Caller, admit, may_see, read_key
from .errors import public_message
from .frames import error_frame, read_frame
from .run_planning import Plan, plan_run, read_text
from .runs import QueuedText, Run
from .state import State

PATH = "/ws"
QUEUE_LIMIT = 20_000
"""How many frames a slow tab may be behind. Beyond that it is disconnected, and reconnects."""
LIST_SECONDS = 0.3
"""How often a tab is told at most that the list of threads has changed."""
HTTP_CONFLICT = 409
ATTACHED = "(attached files)"
"""The queue shows this for a message without text."""
RUN_EVENTS = ("exchange", "block", "retry")
"""Events of `live` that the frames of a run show too."""
TRY_AGAIN = 1013
"""https://www.iana.org/assignments/websocket/websocket.xhtml#close-code-number"""


def socket_route(state: State) -> WebSocketRoute:
    """The route of the page's socket."""

    async def serve(socket: WebSocket) -> None:
        await socket.accept()
        await Connection(state, socket).serve()

    return WebSocketRoute(PATH, serve)


class Connection:
    """One browser tab. It watches one thread at a time (`thread`)."""

    def __init__(self, state: State, socket: WebSocket) -> None:
        self._state = state
        self._socket = socket
        self._outgoing: asyncio.Queue[JsonObject] = asyncio.Queue(QUEUE_LIMIT)
        self._caller = Caller()
        self._last_run: Run | None = None
        self._is_full = False
        self.thread: str | None = None
        self._list_timer: asyncio.TimerHandle | None = None
        self._names: dict[str, str] = {}
        """The name under which this tab knows a thread, by the thread's full name."""

    async def serve(self) -> None:
        """Answer frames until the client disconnects."""
        sending = asyncio.create_task(self._send_all())
        try:
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._read(message.get("text"))
        except WebSocketDisconnect:
            return
        finally:
            self._leave()
            self._state.runs.listeners.discard(self)
            self._state.live_feed.listeners.discard(self)
            if self._list_timer is not None:
                self._list_timer.cancel()
            sending.cancel()

    def send(self, frame: JsonObject) -> None:
        """Queue a frame; a tab that has fallen too far behind is disconnected."""
        if self._is_full:
            return
        name = self._names.get(frame.get("thread", ""))
        try:
            self._outgoing.put_nowait(frame if name is None else {**frame, "thread": name})
        except asyncio.QueueFull:
            self._is_full = True

    def send_runs(self) -> None:
        """Send the runs and running exchanges that the caller may see."""
        runs = [run.summary() for run in self._state.runs if self._may_see(run.spec.scope)]
        live = [each.summary() for each in self._state.live_feed if self._may_see(each.scope)]
        self.send({"type": "runs", "runs": [*runs, *live]})

    def wants(self, thread: str, scope: str | None) -> bool:
        return thread == self.thread and self._may_see(scope)

    def send_event(self, event: JsonObject) -> None:
        """Send an event of `live`, unless it is about a run, whose own frames show the same.

        The exchanges of an agent that calls this server are in `live` too.
        """
        address = (event.get("thread", ""), event.get("branch", ""))
        if event["type"] in RUN_EVENTS and self._state.runs.find(*address) is not None:
            return
        self.send(event)

    def thread_changed(self, scope: str | None) -> None:
        """Tell the tab that the list of threads has changed, at most once in `LIST_SECONDS`."""
        if self._list_timer is None and self._may_see(scope):
            loop = asyncio.get_running_loop()
            self._list_timer = loop.call_later(LIST_SECONDS, self._send_list)

    def _send_list(self) -> None:
        self._list_timer = None
        self.send_runs()
        self.send({"type": "threads"})

    def _may_see(self, scope: str | None) -> bool:
        return may_see(self._caller, scope, self._state.settings)

    async def _send_all(self) -> None:
        """Send the queued frames until the client disconnects."""
        try:
            while not self._is_full:
                frame = await self._outgoing.get()
                if self._socket.application_state is not WebSocketState.CONNECTED:
                    return
                await self._socket.send_text(exact_json.dumps(frame).decode())
            await self._socket.close(TRY_AGAIN)
        except (WebSocketDisconnect, RuntimeError):
            return

    async def _read(self, text: str | None) -> None:
        try:
            frame = read_frame(text)
            self._caller = admit(self._socket.headers, self._state.settings)
            key = read_key(self._socket.headers) if self._state.settings.keys else None
            call = ApiCall(self._state, frame, self._caller, key)
            match frame["type"]:
                case "watch":
                    await self._watch(call)
                case "interrupt":
                    await self._interrupt(call)
                case "confirm":
                    (await self._find_run(call)).answer(call.flag("compact"))
                case "answer":
                    run = await self._find_run(call)
                    run.questions.answer(call.text("id"), call.fields.get("answer"))
                case "hint":
                    await give_hint(call)
                case "unqueue":
                    thread, branch = await run_in_threadpool(call.thread_and_branch)
                    self._state.runs.unqueue(thread, branch, call.text("id"))
                case _:
                    await self._start(call)
        except Refused as error:
            self.send(error_frame(error.message, error.param))
        except WeftError as error:
            self.send(error_frame(public_message(error), None))

    async def _start(self, call: ApiCall) -> None:
        """Start a run, or ask first if it would compact; during a run, queue the text."""
        if await self._queue(call):
            return
        try:
            plan: Plan = await run_in_threadpool(plan_run, call)
        except Refused as error:
            # Another tab may have started a run meanwhile.
            if error.status == HTTP_CONFLICT and await self._queue(call):
                return
            raise
        self._names[plan.spec.thread] = call.text("thread")
        if plan.question is not None:
            self.send({"type": "compaction_required", **plan.question})
            return
        if await self._queue(call):
            return
        run = Run(plan.spec)
        self._state.runs.begin(run, plan.make_agent(run), self)
        self._last_run = run

    async def _queue(self, call: ApiCall) -> bool:
        """Queue the text of a frame if its branch has a run."""
        if call.fields.get("type") != "say":
            return False
        text, runs = read_text(call), self._state.runs
        thread, branch = await run_in_threadpool(call.thread_and_branch)
        if not runs.is_busy(thread, branch):
            return False
        self._names[thread] = call.text("thread")
        queued = QueuedText(text or ATTACHED, partial(start_queued, call))
        position = runs.queue(thread, branch, queued)
        address = {"thread": thread, "branch": branch, "request": call.text_or_none("request")}
        self.send({"type": "queued", **address, "position": position})
        return True

    async def _watch(self, call: ApiCall) -> None:
        """Watch one thread, and no other."""
        thread, branch = await run_in_threadpool(call.thread_and_branch)
        self._leave()
        self._names[thread] = call.text("thread")
        run = self._state.runs.find(thread, branch)
        state = {"run": None} if run is None else run.state()
        queue = self._state.runs.queue_json(thread, branch)
        self.send({"type": "watching", "thread": thread, "branch": branch, "queue": queue, **state})
        self._state.runs.watch(self, thread, branch)
        self._state.runs.listeners.add(self)
        self._state.live_feed.listeners.add(self)
        self.thread = thread
        for event in self._state.live_feed.watch(self):
            self.send(event)
        self.send_runs()

    def _leave(self) -> None:
        """Stop watching; the runs continue."""
        self._state.runs.leave(self)
        self._state.live_feed.leave(self)

    async def _interrupt(self, call: ApiCall) -> None:
        """Stop the run of the named thread, or else the last run that this tab started."""
        run = self._last_run
        if call.text_or_none("thread") is not None:
            run = await self._find_run(call)
        if run is None or self._state.runs.find(*run.key) is not run:
            raise Refused("there is nothing to interrupt", param="type")
        await self._state.runs.stop(run)

    async def _find_run(self, call: ApiCall) -> Run:
        run = self._state.runs.find(*await run_in_threadpool(call.thread_and_branch))
        if run is None:
            raise Refused("nothing runs in this thread", param="type")
        return run


async def start_queued(call: ApiCall) -> None:
    """Begin the run of a queued text.

    Its tab may be closed by now, so the run itself asks whether to compact.
    """
    plan: Plan = await run_in_threadpool(plan_run, call)
    run = Run(plan.spec)
    call.state.runs.begin(run, plan.make_agent(run), None)


async def give_hint(call: ApiCall) -> None:
    """Give the running agent a text; raises `Refused` if nothing runs."""
    runs = call.state.runs
    thread, branch = await run_in_threadpool(call.thread_and_branch)
    id = call.text_or_none("id")
    if id is not None:
        runs.hint_queued(thread, branch, id)
        return
    run = runs.find(thread, branch)
    model, agent = (None, None) if run is None else (run.spec.model, run.spec.agent)
    text = call.text("text")
    # If it comes too late, it is sent as a message of its own.
    fields = {**call.fields, "type": "say", "branch": branch, "model": model, "agent": agent}
    later = structs.replace(call, fields=fields)
    runs.hint(thread, branch, QueuedText(text, partial(start_queued, later)))


async def list_questions(call: ApiCall) -> JsonObject:
    """The open questions, each with its thread, branch and run."""
    key: tuple[str, str] | None = None
    if call.text_or_none("thread") is not None:
        key = await run_in_threadpool(call.thread_and_branch)
    runs = [
        run
        for run in call.state.runs
        if key in (None, run.key) and may_see(call.caller, run.spec.scope, call.state.settings)
    ]
    return {
        "questions": [
            {**question, "thread": run.spec.thread, "branch": run.spec.branch, "run": run.id}
            for run in runs
            for question in run.questions.to_json()
        ]
    }


async def answer_question(call: ApiCall) -> JsonObject:
    """Answer a question of a run; the first answer counts."""
    run = call.state.runs.find(*await run_in_threadpool(call.thread_and_branch))
    if run is None:
        raise Refused("nothing runs in this thread", param="thread", status=409)
    run.questions.answer(call.text("id"), call.fields.get("answer"))
    return {"message": "Answered."}


async def add_hint(call: ApiCall) -> JsonObject:
    """Add a text for the running agent, which gets it before its next request."""
    await give_hint(call)
    return {"message": "The agent gets it before its next request."}


def list_permissions(call: ApiCall) -> JsonObject:
    """The tools that run without asking for permission."""
    return {"always": sorted(call.state.permissions.of(call.scope).always)}


def forget_permission(call: ApiCall) -> JsonObject:
    """Require permission again for a tool that was allowed, always or in a thread."""
    tool = call.text("tool")
    call.state.permissions.of(call.scope).forget(tool)
    return {"message": f"Calls of {tool} need permission again."}


RUN_READS: dict[str, Handler | AsyncHandler] = {
    "/api/questions": list_questions,
    "/api/permissions": list_permissions,
}
RUN_WRITES: dict[str, Handler | AsyncHandler] = {
    "/api/answer": answer_question,
    "/api/hint": add_hint,
    "/api/forget": forget_permission,
}
