"""Attempts: answers that were stopped, truncated or failed."""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from weft.errors import ThreadError
from weft.history import (
    AttemptBody,
    AttemptReason,
    AttemptState,
    decode_attempt,
    encode_attempt,
    has_content,
)
from weft.model import ApiError, Message, Response, Stop, Usage
from weft.store import AttemptRecord

from .handle import Handle
from .resolve import At, resolve_commit


class Attempt(Struct, frozen=True):
    """One answer that was not appended to the branch.

    `state` is `partial` if a part of the answer arrived (in `message`), else `failed`. `commit` is
    the id of the commit that was to be answered.
    """

    commit: str
    state: AttemptState
    created: datetime
    reason: AttemptReason | None = None
    message: Message | None = None
    model: str | None = None
    response_id: str | None = None
    stop: Stop | None = None
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The part of the answer's text that arrived."""
        return "" if self.message is None else self.message.text

    def to_dict(self) -> dict[str, Any]:
        """The attempt as JSON."""
        reason = self.reason
        return {
            "commit": self.commit,
            "state": self.state,
            "created": self.created.isoformat(),
            "reason": None
            if reason is None
            else {name: getattr(reason, name) for name in reason.__struct_fields__},
            "text": self.text,
            "model": self.model,
            "response_id": self.response_id,
            "stop": None if self.stop is None else self.stop.raw or self.stop.kind,
        }


def record_attempt(
    handle: Handle,
    answer: Message | Response | None,
    *,
    error: ApiError | None = None,
    reason: str | None = None,
    at: At = None,
) -> Attempt:
    """Store an attempt beside a commit; no branch changes."""
    commit = resolve_commit(handle, at)
    if commit is None:
        raise ThreadError("the thread is empty: an attempt needs a message that it answers")
    body = _attempt_body(answer, error, reason)
    record = encode_attempt(commit, body, handle.clock())
    handle.store.add_attempt(handle.name, record)
    return read_attempt(record)


def attempts_up_to(handle: Handle, at: At = None) -> list[Attempt]:
    """The attempts at this commit and its ancestors, oldest first."""
    head = resolve_commit(handle, at)
    if head is None:
        return []
    records = handle.store.attempts(handle.name)
    if not records:
        return []
    commits = list({record.commit for record in records})
    on_branch = handle.store.read_depths(handle.name, head, commits)
    return [read_attempt(record) for record in records if record.commit in on_branch]


def read_attempt(record: AttemptRecord) -> Attempt:
    """Decode a stored attempt."""
    body = decode_attempt(record)
    return Attempt(
        record.commit.hex(),
        "partial" if record.state == "partial" else "failed",
        datetime.fromtimestamp(record.created, UTC),
        body.reason,
        body.message,
        body.model,
        body.response_id,
        body.stop,
        body.usage,
    )


def _attempt_body(
    answer: Message | Response | None, error: ApiError | None, reason: str | None
) -> AttemptBody:
    response = Response(answer) if isinstance(answer, Message) else answer
    attempt_reason = None if reason is None else AttemptReason(reason)
    if error is not None:
        attempt_reason = AttemptReason(
            reason or error.message, error.type, error.status, error.param, error.kind
        )
    if response is None:
        return AttemptBody(attempt_reason)
    message = response.message
    origin_model = None if message.origin is None else message.origin.model
    return AttemptBody(
        attempt_reason,
        message if has_content(message) else None,
        response.model or origin_model,
        response.id,
        response.stop,
        response.usage,
    )
