"""Server-sent events, both ways, without I/O: https://html.spec.whatwg.org/#event-stream-interpretation

Any cut of the bytes gives the same frames: a line is decoded only when it is whole, so a character
split across two chunks is never seen in halves.
"""

from .base import Frame


class SseParser:
    """Bytes in any pieces become frames."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._event: str | None = None
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        if b"\n" not in data and b"\r" not in data and not self._ends_in_carriage_return():
            self._tail.append(data)  # a long line is put together once, when it ends
            return []
        buffer = b"".join((*self._tail, data)) if self._tail else data
        if b"\r" in buffer:
            is_incomplete = buffer.endswith(b"\r")  # a line feed may still follow
            whole = buffer[:-1] if is_incomplete else buffer
            buffer = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + (
                b"\r" if is_incomplete else b""
            )
        *lines, tail = buffer.split(b"\n")
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
                self._line(line.decode("utf-8", "replace"))
        return frames

    def close(self) -> list[Frame]:
        """The last frame, if its blank line never came."""
        frames: list[Frame] = []
        tail, self._tail = b"".join(self._tail), []
        if tail.strip():
            self._line(tail.rstrip(b"\r").decode("utf-8", "replace"))
        self._dispatch(frames)
        return frames

    def _ends_in_carriage_return(self) -> bool:
        """Whether the last byte is a carriage return, which the next one may belong to."""
        return bool(self._tail) and self._tail[-1].endswith(b"\r")

    def _line(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value

    def _dispatch(self, frames: list[Frame]) -> None:
        if self._data:
            frames.append(Frame("\n".join(self._data), self._event))
            self._data = []
        self._event = None


def write_frame(frame: Frame) -> bytes:
    """A frame as it goes on the wire."""
    name = f"event: {frame.event}\n" if frame.event is not None else ""
    data = frame.data
    if "\n" in data:
        data = data.replace("\n", "\ndata: ")
    return f"{name}data: {data}\n\n".encode()
