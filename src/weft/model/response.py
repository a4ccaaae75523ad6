"""A response: one assistant message, why it stopped, what it cost; and the events of a stream.

A stream of any protocol decodes into these events. `fold` turns them into a `Response` and is the
only place that checks their order. Blocks are numbered from 0 in the order they open; deltas of
several open blocks may interleave.
"""

from typing import Any, Literal

from msgspec import Struct

from .loss import Loss
from .message import Block, Ext, Message

StopKind = Literal[
    "end",  # the model finished
    "length",  # the output limit was reached
    "tool",  # the model waits for tool results
    "sequence",  # a stop sequence was written
    "refusal",  # the model declined
    "filter",  # a filter cut it off
    "pause",  # a server-side turn must be continued
    "context",  # the window was full
    "other",  # unknown; see `raw`
]


class Stop(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why the answer ended: our value in `kind`, the vendor's in `raw`.

    `sequence` is the stop sequence that was written. `details` is the vendor's explanation, for
    example of a refusal.
    """

    kind: StopKind
    raw: str | None = None
    sequence: str | None = None
    details: Any = None

    @property
    def abnormal_reason(self) -> str | None:
        """The vendor's name of the reason, or ours; `None` if the model finished or calls tools.

        A stop sequence is a reason too, because it may have cut the answer off.
        """
        return None if self.kind in ("end", "tool") else self.raw or self.kind


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens as the vendor reported them.

    - `input`: all tokens of the request.
    - `cached`: the part of `input` that was read from the prompt cache.
    - `written`: the part of `input` that was written to the prompt cache.
    - `output`: all tokens of the answer; `reasoning`: the part of them that is thinking.
    - `raw`: the vendor's own record, by protocol.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    written: int | None = None
    reasoning: int | None = None
    raw: Ext | None = None


class Response(Struct, frozen=True, gc=False, omit_defaults=True):
    """One answer.

    `ext` has the members of the body that have no field here. `repairs` reports the values
    that the decoder added, converted or dropped because the upstream's body was wrong.
    `alternatives` are the other answers to a request with `n` > 1, by their numbers in the body.
    """

    message: Message
    id: str | None = None
    model: str | None = None
    stop: Stop | None = None
    usage: Usage | None = None
    ext: Ext | None = None
    repairs: tuple[Loss, ...] = ()
    alternatives: tuple[tuple[int, "Response"], ...] = ()


ErrorKind = Literal[
    "invalid_request",
    "authentication",  # the key is missing or wrong
    "permission",  # the key may not do this
    "not_found",
    "too_large",  # the body has too many bytes
    "context_length",  # the prompt does not fit in the model's window
    "rate_limit",
    "billing",
    "overloaded",
    "timeout",
    "server",  # any other failure of the server
]


class ApiError(Struct, frozen=True, gc=False, omit_defaults=True):
    """An error from a vendor: our value in `kind`, the vendor's in `type` and `code`."""

    kind: ErrorKind
    message: str
    status: int = 500
    type: str | None = None
    code: str | None = None
    param: str | None = None
    ext: Ext | None = None


DeltaKind = Literal["text", "thinking", "signature", "arguments"]
"""Which part of the open block grows; `text` is for text and refusal blocks."""


class Start(Struct, frozen=True, gc=False):
    """The answer begins."""

    id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    ext: Ext | None = None


class Open(Struct, frozen=True, gc=False):
    """A block begins; `block` holds the content that came with this event."""

    index: int
    block: Block


class Delta(Struct, frozen=True, gc=False):
    """The open block grows."""

    index: int
    kind: DeltaKind
    text: str


class Close(Struct, frozen=True, gc=False):
    """The block is complete. If `block` is set, it replaces what the deltas added up to."""

    index: int
    block: Block | None = None


class Finish(Struct, frozen=True, gc=False):
    """Stop reason and usage.

    There may be several. The values of a later one replace those of an earlier one; values that it
    lacks stay.
    """

    stop: Stop | None = None
    usage: Usage | None = None
    ext: Ext | None = None


class End(Struct, frozen=True, gc=False):
    """The protocol's end marker. A stream without it was cut off."""


FailCause = Literal["event", "frame", "stop", "end"]
"""Why a stream failed: the protocol's own error event, a frame that cannot be decoded, a stop
reason that means a failure, or an early end of the stream."""


class Fail(Struct, frozen=True, gc=False):
    """The answer failed.

    With the cause `event`, the upstream sent an error frame, which can be forwarded to a client of
    the same protocol. With any other cause there is no such frame, so an encoder writes one.
    """

    error: ApiError
    cause: FailCause = "event"


class Other(Struct, frozen=True, gc=False):
    """A frame of the protocol in its original form, for encoders of the same protocol.

    It never changes which events may follow.

    - `kind`: the protocol's name of the frame, for loss reports.
    - `index`: the open block that the frame refers to, if any.
    - `event_count`: how many of the next events were decoded from the frame. An encoder of the same
      protocol writes the frame instead of these events; all others ignore the frame. `None`: the
      frame is unknown and was not decoded, so other protocols lose it.
    """

    protocol: str
    kind: str
    raw: Any
    index: int | None = None
    event_count: int | None = None


class Alternative(Struct, frozen=True, gc=False):
    """An event of another answer to a request with `n` > 1; `number` is its number in the body.

    It is an `Open`, `Delta`, `Close`, `Finish` or `Other`. All answers have the same start and end.
    """

    number: int
    event: "Event"


Event = Start | Open | Delta | Close | Finish | End | Fail | Other | Alternative
