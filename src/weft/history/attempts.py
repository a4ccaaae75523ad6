"""Attempts: answers that were stopped, cut off or failed, kept beside the commit of their request.

Each request may be attempted several times. An attempt that is answered becomes an ordinary commit
of the branch. Every other one is stored here, with its reason and the part that arrived, so that
nothing is lost and no branch forks. Attempts have no id, move no ref and are in no log: compile,
merge and undo do not see them.
"""

from typing import Literal

import msgspec
from msgspec import Struct

from weft.errors import Damaged, WrongValue
from weft.ids import Id
from weft.model import Message, Refusal, Reminder, Stop, Text, Thinking, Usage
from weft.store import AttemptRecord

from .json_check import check_json

AttemptState = Literal["partial", "failed"]


class AttemptReason(Struct, frozen=True, omit_defaults=True):
    """Why there is no complete answer. `type` is the vendor's term, `kind` is Weft's."""

    message: str
    type: str | None = None
    status: int | None = None
    param: str | None = None
    kind: str | None = None

    def __str__(self) -> str:
        return self.message if self.status is None else f"{self.message} ({self.status})"


class AttemptBody(Struct, frozen=True, omit_defaults=True):
    """The stored body of an attempt; commit, state and time have columns of their own."""

    reason: AttemptReason | None = None
    message: Message | None = None
    model: str | None = None
    response_id: str | None = None
    stop: Stop | None = None
    usage: Usage | None = None


_decoder = msgspec.json.Decoder(AttemptBody)
_encoder = msgspec.json.Encoder(order="sorted")


def has_content(message: Message) -> bool:
    """Whether anything of an answer arrived: text, thinking, a call, media."""
    for block in message.blocks:
        match block:
            case Thinking(text="", signature=str()):
                return True
            case Text(text=text) | Refusal(text=text) | Thinking(text=text) | Reminder(text=text):
                if text:
                    return True
            case _:
                return True
    return False


def encode_attempt(commit: Id, body: AttemptBody, created: float) -> AttemptRecord:
    """The attempt ready to be stored; raises `WrongValue` if JSON cannot represent it."""
    try:
        data = _encoder.encode(body)
        _decoder.decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError) as error:
        check_json("attempt", body)
        raise WrongValue("attempt", f"cannot be written as JSON: {error}") from None
    partial = body.message is not None and has_content(body.message)
    return AttemptRecord(commit, "partial" if partial else "failed", data, created)


def decode_attempt(record: AttemptRecord) -> AttemptBody:
    """Decode an attempt; raises `Damaged` if its bytes are not one."""
    try:
        return _decoder.decode(record.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        place = f"an attempt at commit {record.commit.hex()}"
        raise Damaged(f"{place} cannot be decoded: {error}") from None


def damaged_attempt(mark: str) -> bytes:
    """The body that `fsck --repair` writes over a damaged attempt."""
    return _encoder.encode(AttemptBody(AttemptReason(mark, type="damaged")))
