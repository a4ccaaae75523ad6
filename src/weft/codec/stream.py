"""Shared code of the stream decoders and encoders of all protocols."""

from typing import Any, cast

import orjson

from weft.errors import Refused
from weft.model import ApiError, JsonObject

from .base import Frame


def json_frame(body: Any, event: str | None = None) -> Frame:
    """A frame whose data is this JSON value."""
    return Frame(orjson.dumps(body).decode(), event)


class Pieces:
    """A text that arrives in pieces, in place of the text itself: joining each piece to the earlier
    ones would copy a long text once per piece."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    def __str__(self) -> str:
        return "".join(self.pieces)


def grow(text: Any, piece: str) -> Pieces:
    """The text with one more piece; raises `TypeError` if it is not a text."""
    if isinstance(text, Pieces):
        text.pieces.append(piece)
        return text
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} does not grow by text")
    return Pieces(text, piece)


def settle(value: Any) -> Any:
    """The value with plain strings in place of `Pieces`."""
    if isinstance(value, Pieces):
        return str(value)
    if isinstance(value, dict):
        return {key: settle(member) for key, member in cast(dict[Any, Any], value).items()}
    if isinstance(value, list):
        return [settle(member) for member in cast(list[Any], value)]
    return value


def cut_off(mark: str) -> ApiError:
    """The error for a stream that ends without its terminal event."""
    return ApiError("server", f"the upstream's stream ended without {mark}", 502, "api_error")


MISSHAPEN = (Refused, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What decoding raises for a frame with members of wrong types. A decoder catches these errors in
one place, because one bad frame must not break the stream."""


def misshapen(frame: Frame, error: Exception) -> ApiError:
    """The error for a frame that is JSON, but not of this protocol."""
    what = str(error) if isinstance(error, Refused) else "a member is missing or of a wrong type"
    message = f"the upstream sent a frame that breaks its protocol: {what}"
    return ApiError("server", f"{message} ({len(frame.data)} characters)", 502, "api_error")


def read_frame(frame: Frame) -> JsonObject | None:
    """The JSON object of a frame; `None` if it is not one."""
    try:
        value = orjson.loads(frame.data)
    except orjson.JSONDecodeError:
        return None
    return cast(JsonObject, value) if type(value) is dict else None


def unreadable(frame: Frame) -> ApiError:
    """The error for a frame that is not a JSON object."""
    return ApiError(
        "server",
        f"the upstream sent a frame that is not a JSON object ({len(frame.data)} characters)",
        502,
        "api_error",
    )
