"""A response: one assistant message, why it stopped, what it cost."""

from typing import Any, Literal

from msgspec import Struct

from .blocks import Ext
from .loss import Loss
from .message import Message

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
    """Why the answer ended: our value in `kind`, the vendor's in `raw`."""

    kind: StopKind
    raw: str | None = None
    sequence: str | None = None
    details: Any = None


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens as reported. `input` counts all input, cached and written included; `output` counts
    reasoning too. `raw` is the vendor's own record, by protocol."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    written: int | None = None
    reasoning: int | None = None
    raw: Ext | None = None


class Response(Struct, frozen=True, gc=False, omit_defaults=True):
    """One answer. `ext` keeps body members without a field here; `repairs` are values that the
    upstream left out and the decoder added."""

    message: Message
    id: str | None = None
    model: str | None = None
    stop: Stop | None = None
    usage: Usage | None = None
    ext: Ext | None = None
    repairs: tuple[Loss, ...] = ()


ErrorKind = Literal[
    "invalid_request",
    "authentication",
    "permission",
    "not_found",
    "too_large",
    "context_length",
    "rate_limit",
    "billing",
    "overloaded",
    "timeout",
    "server",
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
