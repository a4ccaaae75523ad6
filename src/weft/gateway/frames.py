"""The frames of the page's socket: reading them, and writing an agent's events as frames.

`FrameWriter` adds rendered HTML to streamed text and drops system messages that are metadata.
`Transcript` keeps the frames of a run in short form, for a tab that joins later.
"""

from typing import Any, cast

from weft import exact_json
from weft.agent import (
    AgentEvent,
    TextDelta,
    ThinkingDelta,
    display_system_message,
    to_json,
)
from weft.errors import Refused
from weft.model import JsonObject

from .render import render

FRAME_LIMIT = 1024 * 1024
RENDER_SECONDS = 0.15
"""How often a text that is being streamed is rendered."""
FRAME_TYPES = ("say", "retry", "confirm", "answer", "hint", "interrupt", "watch", "unqueue")
DELTA_TYPES = ("text_delta", "thinking_delta")


def read_frame(text: str | None) -> JsonObject:
    """The JSON object of a frame; raises `Refused` with the position of the error."""
    if text is None:
        raise Refused("frames are text, not bytes", param="frame")
    if len(text) > FRAME_LIMIT:
        raise Refused(f"the frame is larger than {FRAME_LIMIT} characters", param="frame")
    try:
        frame: Any = exact_json.loads(text)
    except exact_json.JSONDecodeError as error:
        raise Refused(f"the frame is not JSON: {error}", param="frame") from None
    if not isinstance(frame, dict):
        raise Refused("the frame is not a JSON object", param="frame")
    kind = cast(JsonObject, frame).get("type")
    if kind not in FRAME_TYPES:
        types = ", ".join(FRAME_TYPES)
        raise Refused(f"unknown frame type {kind!r}; the types are {types}", param="type")
    return cast(JsonObject, frame)


def error_frame(message: str, place: str | None) -> JsonObject:
    """The answer to a frame that was refused; it changed no run."""
    return {"type": "error", "scope": "frame", "message": message, "place": place}


class FrameWriter:
    """Turns the events of one run into frames, and renders text as it grows."""

    def __init__(self) -> None:
        self._block: str | None = None
        self._text = ""
        self._rendered_at = 0.0

    def write(self, event: AgentEvent, now: float) -> list[JsonObject]:
        """The frames for this event."""
        if isinstance(event, TextDelta):
            return self._add_text(event, now)
        frames = [] if isinstance(event, ThinkingDelta) else self._finish_block()
        frame = to_json(event)
        if frame["type"] == "system" and display_system_message(frame) is None:
            return frames
        return [*frames, frame]

    def _add_text(self, event: TextDelta, now: float) -> list[JsonObject]:
        frames = [] if event.id == self._block else self._finish_block()
        self._block = event.id
        self._text += event.text
        frames.append(to_json(event))
        if now - self._rendered_at >= RENDER_SECONDS:
            self._rendered_at = now
            frames.append(self._render_block())
        return frames

    def _finish_block(self) -> list[JsonObject]:
        """The final HTML of the block that was being written."""
        frames = [] if self._block is None else [self._render_block()]
        self._block, self._text = None, ""
        return frames

    def _render_block(self) -> JsonObject:
        # In UTF-16 units, as JavaScript counts.
        length = len(self._text.encode("utf-16-le", "surrogatepass")) // 2
        return {
            "type": "rendered",
            "id": self._block,
            "html": render(self._text),
            "length": length,
        }


class Transcript:
    """The frames of a run so far, without the steps in between.

    The deltas of a block are one frame, and only its newest rendering is kept. A tab that replays
    the frames shows the same page as one that watched from the beginning.
    """

    def __init__(self) -> None:
        self._frames: list[JsonObject] = []
        self._deltas: dict[str, tuple[int, list[str]]] = {}
        self._renderings: dict[str, int] = {}

    def add(self, frame: JsonObject) -> None:
        """Add the next frame."""
        kind, block = frame.get("type"), str(frame.get("id"))
        if kind in DELTA_TYPES:
            if block in self._deltas:
                self._deltas[block][1].append(frame["text"])
                return
            self._deltas[block] = (len(self._frames), [frame["text"]])
        elif kind == "rendered":
            if block in self._renderings:
                self._frames[self._renderings[block]] = frame
                return
            self._renderings[block] = len(self._frames)
        elif kind == "tool_start":  # the next answer may reuse the ids of blocks
            self._close_blocks()
        self._frames.append(frame)

    def frames(self) -> list[JsonObject]:
        """The frames for a tab that joins now."""
        self._join_deltas()
        return list(self._frames)

    def _join_deltas(self) -> None:
        for block, (index, texts) in self._deltas.items():
            text = "".join(texts)
            self._frames[index] = {**self._frames[index], "text": text}
            self._deltas[block] = (index, [text])

    def _close_blocks(self) -> None:
        self._join_deltas()
        self._deltas.clear()
        self._renderings.clear()
