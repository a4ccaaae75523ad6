"""A response: one assistant message, why it stopped, what it cost."""

from typing import Any, Literal

from msgspec import Struct

from .blocks import Ext
from .loss import Loss
from .message import Message

StopKind = Literal[
    "end",  # the model was done
    "length",  # the output limit was reached
    "tool",  # it waits for tool results
    "sequence",  # a stop sequence was written
    "refusal",  # the model declined
    "filter",  # a filter cut it off
    "pause",  # a server-side turn wants to be continued
    "context",  # the window was full
    "other",  # a word nobody here knows; `raw` has it
]


class Stop(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why the answer ended: our word, and the vendor's own beside it."""

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
    """One answer. `ext` keeps the envelope's members that have no field here; `repairs` are the
    values that the upstream left out and the decoder filled in."""

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
    """An error as a vendor says it: our word for it, and the vendor's own beside."""

    kind: ErrorKind
    message: str
    status: int = 500
    type: str | None = None
    code: str | None = None
    param: str | None = None
    ext: Ext | None = None
