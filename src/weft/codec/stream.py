"""Shared code of the stream decoders and encoders of all protocols.

`SseParser` reads server-sent events, without I/O:
https://html.spec.whatwg.org/#event-stream-interpretation
The frames do not depend on how the bytes are split: a line is decoded only when it is complete, so
that a character split over two chunks is decoded whole.
"""

import re
from typing import Any, cast

from weft import exact_json
from weft.errors import Refused
from weft.model import ApiError, JsonObject
from weft.printable import encodable_json

from .base import Frame


def json_frame(body: Any, event: str | None = None) -> Frame:
    """A frame whose data is this JSON value."""
    return Frame(exact_json.dumps(body).decode(), event)


class Pieces:
    """A text that arrives in pieces. The pieces are joined once, at the end: joining each piece to
    the earlier ones would copy a long text many times."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    def __str__(self) -> str:
        return "".join(self.pieces)


def append_piece(text: Any, piece: str) -> Pieces:
    """The text with one more piece; raises `TypeError` if `text` is not a text."""
    if isinstance(text, Pieces):
        text.pieces.append(piece)
        return text
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} does not grow by text")
    return Pieces(text, piece)


def join_pieces(value: Any) -> Any:
    """The value with plain strings in place of `Pieces`."""
    if isinstance(value, Pieces):
        return str(value)
    if isinstance(value, dict):
        return {key: join_pieces(member) for key, member in cast(dict[Any, Any], value).items()}
    if isinstance(value, list):
        return [join_pieces(member) for member in cast(list[Any], value)]
    return value


def cut_off_error(missing: str) -> ApiError:
    """The error for a stream that ended too early; `missing` is the event that did not come."""
    return ApiError("server", f"the upstream's stream ended without {missing}", 502, "api_error")


DECODE_ERRORS = (Refused, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What decoding raises if a member of a frame is missing or has a wrong type. A decoder catches
these errors in one place, because one bad frame must not break the stream."""


def malformed_error(frame: Frame, error: Exception) -> ApiError:
    """The error for a frame that is JSON, but not of this protocol."""
    reason = str(error) if isinstance(error, Refused) else "a member is missing or of a wrong type"
    message = f"the upstream sent a frame that breaks its protocol: {reason}"
    return ApiError("server", f"{message} ({len(frame.data)} characters)", 502, "api_error")


def read_frame(frame: Frame) -> JsonObject | None:
    """The JSON object in a frame; `None` if it has no JSON object."""
    try:
        value = read_json(frame.data)
    except exact_json.JSONDecodeError:
        return None
    return cast(JsonObject, value) if type(value) is dict else None


def read_json(data: bytes | str) -> Any:
    """The JSON value of an answer; raises `exact_json.JSONDecodeError`.

    Some servers send half of a surrogate pair, `NaN` or `Infinity`, which the vendors' SDKs accept.
    Here the first becomes U+FFFD, the others null.
    """
    try:
        return exact_json.loads(data)
    except exact_json.JSONDecodeError as error:
        try:
            return encodable_json(exact_json.loads_leniently(data))
        except (ValueError, RecursionError):
            raise error from None


def unreadable_error(frame: Frame) -> ApiError:
    """The error for a frame that is not a JSON object."""
    return ApiError(
        "server",
        f"the upstream sent a frame that is not a JSON object ({len(frame.data)} characters)",
        502,
        "api_error",
    )


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseParser:
    """Turns bytes, in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._is_first = True
        self._tail: list[bytes] = []
        self._event: str | None = None
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        if b"\n" not in data and b"\r" not in data and not self._ends_in_carriage_return():
            self._tail.append(data)  # joined once, when the line ends
            return []
        buffer = b"".join((*self._tail, data)) if self._tail else data
        if b"\r" in buffer:
            is_incomplete = buffer.endswith(b"\r")  # a line feed may still follow
            complete = buffer[:-1] if is_incomplete else buffer
            buffer = complete.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + (
                b"\r" if is_incomplete else b""
            )
        *lines, tail = buffer.split(b"\n")
        if self._is_first and lines:  # the stream may begin with a byte order mark
            self._is_first = False
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        self._tail = [tail] if tail else []
        frames: list[Frame] = []
        for line in lines:
            if not line:
                self._dispatch(frames)
            elif line.startswith(b"data: "):  # nearly all lines have one of these two forms
                self._data.append(line[6:].decode("utf-8", "replace"))
            elif line.startswith(b"event: "):
                self._event = line[7:].decode("utf-8", "replace")
            else:
                self._read_line(line.decode("utf-8", "replace"))
        return frames

    def close(self) -> list[Frame]:
        """The last frame, if its blank line never came."""
        frames: list[Frame] = []
        tail, self._tail = b"".join(self._tail), []
        if self._is_first:
            tail = tail.removeprefix(BYTE_ORDER_MARK)
        if tail.strip():
            self._read_line(tail.rstrip(b"\r").decode("utf-8", "replace"))
        self._dispatch(frames)
        return frames

    def _ends_in_carriage_return(self) -> bool:
        """Whether the last byte is a carriage return; a line feed may still follow it."""
        return bool(self._tail) and self._tail[-1].endswith(b"\r")

    def _read_line(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value

    def _dispatch(self, frames: list[Frame]) -> None:
        data = "\n".join(self._data)
        self._data = []
        if data:  # an event without data is none
            frames.append(Frame(data, self._event))
        self._event = None


HIGH_AT_END = re.compile(r'(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2})"')
LOW_AT_START = re.compile(r'"(?=\\u[dD][c-fC-F][0-9a-fA-F]{2})')


class PairJoiner:
    r"""Joins characters that are split over the texts of two frames.

    A server that cuts a text into UTF-16 units writes one emoji as `"\ud83d"` and `"\ude00"`. The
    first half waits for the next frame, and becomes a part of its text.
    """

    def __init__(self) -> None:
        self._waiting: Frame | None = None

    def feed(self, frame: Frame) -> list[Frame]:
        """The frames that are complete now."""
        frames: list[Frame] = []
        first, self._waiting = self._waiting, None
        if first is not None:
            half = HIGH_AT_END.search(first.data)
            joined = LOW_AT_START.subn(lambda _: f'"{half[2]}', frame.data, 1) if half else None
            if half is not None and joined is not None and joined[1]:
                first = Frame(HIGH_AT_END.sub(r'\1"', first.data, 1), first.event)
                frame = Frame(joined[0], frame.event)
            frames.append(first)
        if "\\u" in frame.data and HIGH_AT_END.search(frame.data) is not None:
            self._waiting = frame
            return frames
        return [*frames, frame]

    def close(self) -> list[Frame]:
        """The frame whose other half never came."""
        first, self._waiting = self._waiting, None
        return [] if first is None else [first]


def write_frame(frame: Frame) -> bytes:
    """A frame as it goes on the wire."""
    name = f"event: {frame.event}\n" if frame.event is not None else ""
    data = frame.data
    if "\n" in data:
        data = data.replace("\n", "\ndata: ")
    return f"{name}data: {data}\n\n".encode()
