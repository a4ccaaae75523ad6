"""What a model's answer looks like while it arrives.

A stream of any protocol decodes into these; `fold` turns them into a `Response` and is the only
place that judges their order. Blocks are numbered from 0 in the order they open; deltas of several
open blocks may interleave.
"""

from typing import Any, Literal

from msgspec import Struct

from .blocks import Block, Ext
from .response import ApiError, Stop, Usage

DeltaKind = Literal["text", "thinking", "signature", "arguments"]
"""Which part of the open block grows; `text` is that of words and of refusals."""


class Start(Struct, frozen=True, gc=False):
    """The answer begins."""

    id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    ext: Ext | None = None


class Open(Struct, frozen=True, gc=False):
    """A block begins; `block` holds what the wire already gave of it."""

    index: int
    block: Block


class Delta(Struct, frozen=True, gc=False):
    """The open block grows."""

    index: int
    kind: DeltaKind
    text: str


class Close(Struct, frozen=True, gc=False):
    """The block is whole. `block`, where given, replaces what was folded: the wire's last word."""

    index: int
    block: Block | None = None


class Finish(Struct, frozen=True, gc=False):
    """Why it ended and what it cost; may come in parts, later ones fill in what was missing."""

    stop: Stop | None = None
    usage: Usage | None = None
    ext: Ext | None = None


class End(Struct, frozen=True, gc=False):
    """The wire's own terminal mark. A stream without it was cut off."""


FailCause = Literal["event", "frame", "stop", "end"]
"""What made a stream fail: the protocol's own sign of a failure, which its clients recognise; a
frame that cannot be read; a stop reason that means a failure; bytes that ended too early."""


class Fail(Struct, frozen=True, gc=False):
    """The answer failed. Only after an `event` does a client of the same protocol know it."""

    error: ApiError
    cause: FailCause = "event"


class Other(Struct, frozen=True, gc=False):
    """An event nobody here knows: re-emitted in place towards its own protocol, a loss elsewhere.

    `index` is the open block it belongs to, if it names one. It never changes what may follow.
    A frame of a wire that says one thing in many words has `says`: the next so many events carry
    its meaning, so its own protocol writes the frame instead of them, and nothing is lost
    elsewhere. `None` is a frame whose meaning no event carries.
    """

    protocol: str
    kind: str
    raw: Any
    index: int | None = None
    says: int | None = None


Event = Start | Open | Delta | Close | Finish | End | Fail | Other
