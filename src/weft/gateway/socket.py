"""The page's socket: words go in, an agent's events come out, one conversation per connection.

    in   {"type": "say", "thread", "text", "branch"?, "model"?}    {"type": "interrupt"}
    out  {"type": "started"}, then the events of the run, each with its `type` and `thread`,
         ending in one of `message_complete`, `interrupted`, `error`

Beside the deltas of a text goes now and then a `rendered` frame: the block so far as safe HTML,
and how much of the text it covers (`length`, in the UTF-16 units that a browser counts). System
messages that nobody is to see are dropped here.

A frame that is unknown or malformed is answered with an `error` whose `scope` is `frame`, and
changes nothing; a run that is under way goes on. Connections share the store and nothing else: no
frame of one is ever sent to another. When a connection ends, so does its run; what was committed
stays.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic
from typing import Any, cast

import orjson
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from weft.agent import (
    Agent,
    AgentEvent,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    present,
    to_json,
)
from weft.client import OFFLINE_MODEL, find_route
from weft.errors import Refused, WeftError
from weft.model import JsonObject
from weft.thread import Thread
from weft.thread import open as open_thread

from .auth import admit
from .desk import desk_tools
from .fields import Ask
from .render import render
from .state import State

PATH = "/ws"
FRAME_LIMIT = 1024 * 1024
RENDER_SECONDS = 0.15
PACE_SECONDS = 0.02
"""Between the pieces of the offline model, which would otherwise all come at once."""
NO_PROTOCOL = ""
"""The agent speaks every protocol, and has no credentials of its own to pass through."""

Events = AsyncGenerator[AgentEvent, None]

_log = logging.getLogger(__name__)


def socket_route(state: State) -> WebSocketRoute:
    """Where the page's socket is."""

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await Connection(state, socket).serve()

    return WebSocketRoute(PATH, talk)


class Connection:
    """One browser tab: what it asked for, and the run that answers it."""

    def __init__(self, state: State, socket: WebSocket) -> None:
        self._state = state
        self._socket = socket
        self._sending = asyncio.Lock()
        self._run: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Answer frames until the other side leaves."""
        try:
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._read(message.get("text"))
        except WebSocketDisconnect:
            return
        finally:
            await self._stop()

    async def _read(self, text: str | None) -> None:
        try:
            frame = read_frame(text)
            if frame["type"] == "interrupt":
                await self._interrupt()
            else:
                caller = admit(self._socket.headers, self._state.settings)
                self._say(Ask(self._state, frame, caller))
        except Refused as error:
            await self._send(error_frame(error.message, error.param))
        except WeftError as error:
            await self._send(error_frame(str(error), None))

    def _say(self, ask: Ask) -> None:
        """Begin a run; refused while another is under way."""
        if self._run is not None and not self._run.done():
            raise Refused("an answer is still being written; interrupt it first", param="type")
        text = ask.text("text")
        model = ask.text_or_none("model") or OFFLINE_MODEL
        route = find_route(model, NO_PROTOCOL, self._state.providers, self._state.catalog)
        thread = writable_thread(ask)  # last, because it makes a thread that is new
        agent = Agent(
            thread,
            model=route.model,
            provider=route.provider,
            tools=desk_tools(self._state.store, ask.threads),
            pace=PACE_SECONDS,
            catalog=self._state.catalog,
        )
        self._run = asyncio.create_task(self._tell(agent, ask.text("thread"), text))

    async def _tell(self, agent: Agent, thread: str, text: str) -> None:
        """Send the events of one run."""
        scribe = Scribe()
        try:
            await self._send({"type": "started", "thread": thread})
            await self._send({"type": "user_message", "html": render(text), "thread": thread})
            async with aclosing(cast(Events, agent.run(text))) as events:
                async for event in events:
                    for frame in scribe.write(event, monotonic()):
                        await self._send({**frame, "thread": thread})
        except asyncio.CancelledError:
            await self._send({"type": "interrupted", "thread": thread})
            raise
        except WeftError as error:
            await self._send({"type": "error", "message": str(error), "thread": thread})
        except Exception:  # the gateway's outermost: the page gets one line, the log the rest
            _log.exception("a run failed")
            said = "the gateway failed; its log says why"
            await self._send({"type": "error", "message": said, "thread": thread})

    async def _interrupt(self) -> None:
        if self._run is None or self._run.done():
            raise Refused("there is nothing to interrupt", param="type")
        await self._stop()

    async def _stop(self) -> None:
        run, self._run = self._run, None
        if run is not None and not run.done():
            run.cancel()
            await asyncio.wait([run])

    async def _send(self, frame: JsonObject) -> None:
        """Send a frame; a side that has left is not an error of ours."""
        async with self._sending:
            if self._socket.application_state is not WebSocketState.CONNECTED:
                return
            try:
                await self._socket.send_text(orjson.dumps(frame).decode())
            except (WebSocketDisconnect, RuntimeError):
                return


class Scribe:
    """Turns events into frames: hides what is metadata, renders texts as they grow."""

    def __init__(self) -> None:
        self._block: str | None = None
        self._text = ""
        self._rendered = 0.0

    def write(self, event: AgentEvent, now: float) -> list[JsonObject]:
        """The frames that say this event."""
        if isinstance(event, TextDelta):
            return self._grow(event, now)
        frames = [] if isinstance(event, ThinkingDelta) else self._settle()
        frame = to_json(event)
        if isinstance(event, SystemMessage) and present(frame) is None:
            return frames
        return [*frames, frame]

    def _grow(self, event: TextDelta, now: float) -> list[JsonObject]:
        frames = [] if event.id == self._block else self._settle()
        self._block = event.id
        self._text += event.text
        frames.append(to_json(event))
        if now - self._rendered >= RENDER_SECONDS:
            self._rendered = now
            frames.append(self._frame())
        return frames

    def _settle(self) -> list[JsonObject]:
        """The last word on the block that was being written."""
        frames = [] if self._block is None else [self._frame()]
        self._block, self._text = None, ""
        return frames

    def _frame(self) -> JsonObject:
        length = len(self._text.encode("utf-16-le", "surrogatepass")) // 2
        return {
            "type": "rendered",
            "id": self._block,
            "html": render(self._text),
            "length": length,
        }


FRAMES = ("say", "interrupt")


def read_frame(text: str | None) -> JsonObject:
    """The JSON object of a frame; raises `Refused` that names the place."""
    if text is None:
        raise Refused("frames are text, not bytes", param="frame")
    if len(text) > FRAME_LIMIT:
        raise Refused(f"the frame is larger than {FRAME_LIMIT} characters", param="frame")
    try:
        frame: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the frame is not JSON: {error}", param="frame") from None
    if not isinstance(frame, dict):
        raise Refused("the frame is not a JSON object", param="frame")
    kind = cast(JsonObject, frame).get("type")
    if kind not in FRAMES:
        known = ", ".join(FRAMES)
        raise Refused(f"a frame of type {kind!r} is not known; the types are {known}", param="type")
    return cast(JsonObject, frame)


def writable_thread(ask: Ask) -> Thread:
    """The thread to speak in, made if it is new; a branch that is named must exist."""
    if ask.record() is None:
        return open_thread(ask.store, ask.new_name, checkpoints=True, scope=ask.scope)
    thread = ask.thread()
    return open_thread(ask.store, thread.name, checkpoints=True, branch=thread.current)


def error_frame(message: str, place: str | None) -> JsonObject:
    return {"type": "error", "scope": "frame", "message": message, "place": place}
