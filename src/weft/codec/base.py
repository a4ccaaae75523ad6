"""What a codec is: a record of functions between one wire and the model.

2N halves through one model, not N² pairs. Decoders take plain dicts and keep what they do not
know; encoders return the wire beside everything it could not say. Streams are machines without
I/O: a decoder is fed frames and gives events, an encoder is sent events and gives frames.

Nothing here compares a vendor's name. What differs between vendors, models and deployments comes
in as `Target`: the model's rules from the catalogue, and the caller's policies.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

from weft.catalog import Model
from weft.errors import Refused
from weft.model import ApiError, Event, JsonObject, Level, Loss, Place, Request, Response

SystemPolicy = Literal["auto", "inline", "demote", "merge"]
CachePolicy = Literal["keep", "auto"]


class Frame(Struct, frozen=True, gc=False):
    """One server-sent event: its name, if it has one, and the text of its data lines."""

    data: str
    event: str | None = None


class Target(Struct, frozen=True):
    """Whom a request is written for, and by which policies.

    `embed` turns the text of a JSON object into the value to put on the wire: a parsed dict when
    the caller wants dicts, the text itself when the caller wants bytes.
    """

    model: Model
    system: SystemPolicy = "auto"
    cache: CachePolicy = "keep"
    embed: Callable[[str], Any] | None = None


class Encoded(Struct, frozen=True):
    """A body, and all that it could not say, by place in the request or by the wire's own path."""

    body: JsonObject
    losses: "tuple[Dropped, ...]" = ()


class Dropped(Struct, frozen=True, gc=False):
    """A loss before its path is known: `place` is where it stood in the model, or a ready path."""

    place: Place | str
    what: str
    why: str
    level: Level = "meaning"


class Losses(list[Dropped]):
    """Collects what an encoder drops."""

    def add(self, place: Place | str, what: str, why: str, level: Level = "meaning") -> None:
        self.append(Dropped(place, what, why, level))


class StreamDecoder(Protocol):
    """Frames of one wire become events. Unknown frames become `Other`, never an error."""

    def feed(self, frame: Frame) -> list[Event]:
        """The events that this frame means."""
        ...

    def close(self) -> list[Event]:
        """What is left when the bytes end: `Fail` where the wire's terminal mark never came."""
        ...


class StreamEncoder(Protocol):
    """Events become frames of one wire."""

    losses: Losses

    def send(self, event: Event) -> list[Frame]:
        """The frames that say this event."""
        ...

    def close(self) -> list[Frame]:
        """What ends the wire; after an `End` or `Fail` was sent, what that still owes."""
        ...


class Codec(Struct, frozen=True):
    """One protocol, both ways. `locate` names a place of the model by the caller's own path."""

    protocol: str
    decode_request: Callable[[JsonObject, str | None], Request]
    encode_request: Callable[[Request, Target], Encoded]
    decode_response: Callable[[JsonObject], Response]
    encode_response: Callable[[Response], Encoded]
    stream_decoder: Callable[[], StreamDecoder]
    stream_encoder: "Callable[[int | None], StreamEncoder]"
    decode_error: Callable[[Any, int], ApiError]
    encode_error: Callable[[ApiError], tuple[int, JsonObject]]
    locate: Callable[[Request, Place], str]
    request_path: Callable[[str, bool], str]


def resolve_losses(codec: Codec, request: Request, dropped: "tuple[Dropped, ...]") -> list[Loss]:
    """The losses in the words of the protocol that the request came from."""
    return [
        Loss(
            loss.place if isinstance(loss.place, str) else codec.locate(request, loss.place),
            loss.what,
            loss.why,
            loss.level,
        )
        for loss in dropped
    ]


def refuse_losses(losses: list[Loss]) -> None:
    """Strict mode: raise on the first loss of meaning."""
    for loss in losses:
        if loss.level == "meaning":
            raise Refused(f"{loss.what} cannot be said to the target: {loss.why}", param=loss.path)
