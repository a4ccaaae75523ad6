"""What a codec is: a record of functions between one wire and the model.

2N halves through one model, not N² pairs. Decoders take plain dicts and keep what they do not
know; encoders return the wire beside everything it could not say. Streams are machines without
I/O: a decoder is fed frames and gives events, an encoder is sent events and gives frames.

Nothing here compares a vendor's name. What differs between vendors, models and deployments comes
in as `Target`: the model's row in the catalogue, and the caller's policies.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import orjson
from msgspec import Struct

from weft.catalog import Model
from weft.model import (
    ApiError,
    ErrorKind,
    Event,
    JsonObject,
    Level,
    Loss,
    Place,
    Request,
    Response,
    Thinking,
    make_loss,
)

if TYPE_CHECKING:
    from .fast_path import FastPath

SystemPolicy = Literal["auto", "inline", "demote", "merge"]
CachePolicy = Literal["keep", "auto"]
ThinkingMember = Literal["reasoning_content", "reasoning", "reasoning_text", "hidden"]
"""The member in which a client of Chat Completions is shown another vendor's thinking. There is no
official one: most clients read `reasoning_content`, those of OpenRouter `reasoning`."""

INLINE = "@inline"
"""Where `Request.raw` counts the system messages that lead the list itself, on a wire that has a
place for them before it; never written to any wire."""


CONVERSATION = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
"""The member of a body that holds the conversation."""


class Frame(Struct, frozen=True, gc=False):
    """One server-sent event: the text of its data lines, and its name if it has one."""

    data: str
    event: str | None = None


def parsed(text: str) -> Any:
    """The value of a JSON text; raises `ValueError` where it is none."""
    return orjson.loads(text)


def verbatim(text: str) -> Any:
    """The JSON text itself, to be put on the wire byte by byte; raises `ValueError` likewise."""
    orjson.loads(text)
    return orjson.Fragment(text)


class Target(Struct, frozen=True):
    """Whom a request is written for, and by which policies.

    `embed` turns a JSON text into what goes on the wire: `parsed` for callers who want dicts,
    `verbatim` for those who want bytes. A body of the target's own protocol is written back as it
    came, but for what a policy asks; with `enforce`, all rules of the target apply to it too.
    """

    model: Model
    system: SystemPolicy = "auto"
    cache: CachePolicy = "keep"
    embed: Callable[[str], Any] = parsed
    enforce: bool = False


Locate = Callable[[Place], str]
"""Turns a place of the model into a path of somebody's body."""


class Losses:
    """Collects what an encoder drops, in the paths of whoever said it: the caller's for a request,
    the upstream's for an answer (`locate`)."""

    def __init__(self, request: Request | None = None, locate: Locate | None = None) -> None:
        self.items: list[Loss] = []
        wire = request.wire if request is not None else None
        self.locate: Locate = wire.locate if wire is not None else locate or thread_path

    def add(
        self, at: Place | str, code: str, detail: object = "", level: Level | None = None
    ) -> None:
        """Report one loss; `at` is a place of the model, or a finished path."""
        path = at if isinstance(at, str) else self.path(at)
        self.items.append(make_loss(code, path, detail, level))

    def param(self, name: str, code: str, detail: object = "", level: Level | None = None) -> None:
        """Report a loss about a parameter, by its name in the model (`reasoning.effort`)."""
        self.add(("params", name), code, detail, level)

    def path(self, place: Place) -> str:
        """A place of the model as the caller would write it."""
        return self.locate(place)


def thread_path(place: Place) -> str:
    """The path of a place in a request that no wire wrote: a compiled thread."""
    match place:
        case ():
            return ""
        case ("tools", number):
            return f"tools[{number}]"
        case ("params" | "member", name):
            return str(name)
        case ("stop", *_):
            return "stop"
        case (message, block, "arguments"):
            return f"messages[{message}].content[{block}].arguments"
        case (message,):
            return f"messages[{message}]"
        case (message, block):
            return f"messages[{message}].content[{block}]"
        case _:
            return f"messages[{place[0]}].content[{place[1]}].content[{place[2]}]"


Calls = dict[str, JsonObject]
"""By the name that a target calls: the caller's own `name`, `namespace`, and whether `custom`."""


class Encoded(Struct, frozen=True):
    """A body, and all that it could not say. `calls` are the tools it had to give other names."""

    body: JsonObject
    losses: list[Loss]
    calls: Calls = {}


class StreamDecoder(Protocol):
    """Frames of one wire become events. Unknown frames become `Other`, never an error.

    `repairs` are the values that the upstream left out and the decoder filled in.
    """

    repairs: Losses

    def feed(self, frame: Frame) -> list[Event]:
        """The events that this frame means."""
        ...

    def close(self) -> list[Event]:
        """What is left when the bytes end: `Fail` where the wire's terminal mark never came.

        A stream with a frame that could not be read has failed already, and is not failed again.
        """
        ...


class StreamEncoder(Protocol):
    """Events become frames of one wire."""

    losses: Losses

    def send(self, event: Event) -> list[Frame]:
        """The frames that say this event."""
        ...


class ResponseEncoder(Protocol):
    """Writes a whole answer; `locate` tells where its maker said what cannot be said here."""

    def __call__(
        self, response: Response, created: int, locate: Locate | None = None, /
    ) -> Encoded: ...


class Codec(Struct, frozen=True):
    """One protocol, both ways.

    `decode_request` also takes the model's name, for wires whose body has none. `stream_encoder`
    takes the time that goes into the frames, because a machine reads no clock. `request_path` is
    the path such a request is posted to, by model and whether it streams. `locate_answer` is where
    this wire says what stands at a place of an answer. `fast_path` translates simple
    conversations without the model's values. `explains` is whether this wire tells why
    an answer may not be given beside the stop, not in the answer itself. `failed_stops` are the
    stop reasons that mean a failure. `stream_errors` are the kinds of error that clients of this
    protocol recognise only inside a stream. `marks_end` is whether a stream has a terminal event;
    where it has none, the frame with the stop reason is the last. `place_thinking` marks thinking
    for the member in which a client reads it, in a protocol that has several.
    """

    protocol: str
    decode_request: Callable[[JsonObject, str | None], Request]
    encode_request: Callable[[Request, Target], Encoded]
    decode_response: Callable[[JsonObject], Response]
    encode_response: ResponseEncoder
    locate_answer: Callable[[Response, Place], str]
    stream_decoder: Callable[[], StreamDecoder]
    stream_encoder: Callable[[int], StreamEncoder]
    decode_error: Callable[[Any, int], ApiError]
    encode_error: Callable[[ApiError], tuple[int, JsonObject]]
    request_path: Callable[[str, bool], str]
    fast_path: "FastPath | None" = None
    explains: bool = False
    failed_stops: Mapping[str, ErrorKind] = {}
    stream_errors: frozenset[ErrorKind] = frozenset()
    marks_end: bool = True
    place_thinking: Callable[[Thinking, ThinkingMember], Thinking] | None = None


def members(value: Any) -> JsonObject | None:
    """The value as a JSON object, or `None` where it is something else."""
    return cast(JsonObject, value) if isinstance(value, dict) else None
