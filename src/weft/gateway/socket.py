"""The page's socket: texts go in, the frames of runs come out.

    in   {"type": "say", "thread", "text", "branch"?, "model"?, "request"?, "compact"?}
         {"type": "retry", "thread", "branch"?, "model"?, "request"?, "compact"?}
         {"type": "watch", "thread", "branch"?}          look at this thread, and at no other
         {"type": "confirm", "thread", "branch"?, "compact"}    answers a `compaction_question`
         {"type": "interrupt", "thread"?, "branch"?}     stops the run
    out  {"type": "started"}, then the events of the run, each with its `type`, `thread`, `branch`
         and `run`, ending in one of `message_complete`, `interrupted`, `error`
         {"type": "watching"}: the answer to `watch`, with all that the run has streamed so far
         {"type": "runs"}: which threads run, whenever that changes (only after a `watch`)
         {"type": "compaction_required"}: nothing was sent; it needs a `compact` of true or false

Beside the deltas of a text goes now and then a `rendered` frame: the block so far as safe HTML,
and how much of the text it covers (`length`, in the UTF-16 units that a browser counts).

A frame that is unknown or malformed is answered with an `error` whose `scope` is `frame`, and
changes nothing. A connection that ends leaves its run alone: runs belong to the server (`runs`).
"""

import asyncio

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from weft.errors import Refused, WeftError
from weft.model import JsonObject

from .api_call import ApiCall
from .auth import Caller, admit, may_see
from .errors import public_message
from .frames import error_frame, read_frame
from .run_planning import Plan, plan_run
from .runs import Run
from .state import State

PATH = "/ws"
WAITING_FRAMES = 20_000
"""Frames that a slow tab may be behind; then it is disconnected, and joins again."""
TRY_AGAIN = 1013
"""https://www.iana.org/assignments/websocket/websocket.xhtml#close-code-number"""


def socket_route(state: State) -> WebSocketRoute:
    """Where the page's socket is."""

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await Connection(state, socket).serve()

    return WebSocketRoute(PATH, talk)


class Connection:
    """One browser tab."""

    def __init__(self, state: State, socket: WebSocket) -> None:
        self._state = state
        self._socket = socket
        self._outgoing: asyncio.Queue[JsonObject] = asyncio.Queue(WAITING_FRAMES)
        self._caller = Caller()
        self._last: Run | None = None
        self._is_full = False
        self._names: dict[str, str] = {}
        """By a thread's full name, the name that this tab knows it by."""

    async def serve(self) -> None:
        """Answer frames until the other side leaves."""
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

    def show_runs(self) -> None:
        """Send which threads run, of those that the caller may see."""
        lines = [
            run.line()
            for run in self._state.runs
            if may_see(self._caller, run.start.scope, self._state.settings)
        ]
        self.send({"type": "runs", "runs": lines})

    async def _send_all(self) -> None:
        """Send what is queued; a side that has left is not an error of ours."""
        try:
            while not self._is_full:
                frame = await self._outgoing.get()
                if self._socket.application_state is not WebSocketState.CONNECTED:
                    return
                await self._socket.send_text(orjson.dumps(frame).decode())
            await self._socket.close(TRY_AGAIN)
        except (WebSocketDisconnect, RuntimeError):
            return

    async def _read(self, text: str | None) -> None:
        try:
            frame = read_frame(text)
            self._caller = admit(self._socket.headers, self._state.settings)
            call = ApiCall(self._state, frame, self._caller)
            match frame["type"]:
                case "watch":
                    await self._watch(call)
                case "interrupt":
                    await self._interrupt(call)
                case "confirm":
                    (await self._find_run(call)).answer(call.flag("compact"))
                case _:
                    await self._start(call)
        except Refused as error:
            self.send(error_frame(error.message, error.param))
        except WeftError as error:
            self.send(error_frame(public_message(error), None))

    async def _start(self, call: ApiCall) -> None:
        """Begin a run, or ask for a yes if it would compact the thread."""
        plan: Plan = await run_in_threadpool(plan_run, call)
        self._names[plan.start.thread] = call.text("thread")
        if plan.question is not None:
            self.send({"type": "compaction_required", **plan.question})
            return
        run = Run(plan.start)
        self._state.runs.begin(run, plan.make_agent(run.confirm), self)
        self._last = run

    async def _watch(self, call: ApiCall) -> None:
        """Look at one thread, and at no other."""
        thread, branch = await run_in_threadpool(call.place)
        self._leave()
        self._names[thread] = call.text("thread")
        run = self._state.runs.find(thread, branch)
        state = {"run": None} if run is None else run.state()
        self.send({"type": "watching", "thread": thread, "branch": branch, **state})
        self._state.runs.watch(self, thread, branch)
        self._state.runs.listeners.add(self)
        self.show_runs()

    def _leave(self) -> None:
        """Watch nothing any more; the runs go on."""
        self._state.runs.leave(self)

    async def _interrupt(self, call: ApiCall) -> None:
        """Stop the run of the thread that is named, else the one that was begun here."""
        run = self._last
        if call.text_or_none("thread") is not None:
            run = await self._find_run(call)
        if run is None or self._state.runs.find(*run.key) is not run:
            raise Refused("there is nothing to interrupt", param="type")
        await self._state.runs.stop(run)

    async def _find_run(self, call: ApiCall) -> Run:
        run = self._state.runs.find(*await run_in_threadpool(call.place))
        if run is None:
            raise Refused("nothing runs in this thread", param="type")
        return run
