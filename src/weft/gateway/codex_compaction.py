"""Compaction that Codex leaves to its server, for upstreams that cannot do it.

Codex ends its input with a `compaction_trigger`. It expects exactly one item back: a `compaction`
whose `encrypted_content` only the server can read. From then on the item replaces the compacted
turns. OpenAI's own servers support this, and Weft does not interfere with them. Any other upstream
is asked for a summary in plain text, and its answer is sealed into such an item.

When the item comes back it is opened again, so that every upstream, and the record, sees the
summary as a message of the assistant. A user message follows it, because some upstreams would
continue a list that ends with an assistant message instead of answering it.

`POST /v1/responses/compact` asks for the same in another form. Its answer is the list of items to
continue with: the user's messages, followed by such an item.

https://platform.openai.com/docs/guides/conversation-state#compaction-advanced

Sealing is not encryption: the summary is only encoded in base64, so that clients do not show it.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import cast

from msgspec import Struct, structs

from weft.codec import AnswerOptions, AnswerWriter, Codec, Piece
from weft.errors import UpstreamFailed
from weft.model import (
    ApiError,
    Close,
    End,
    Fail,
    Finish,
    Fold,
    JsonObject,
    Loss,
    Message,
    Opaque,
    Open,
    Response,
    Start,
)

from .relay import Relay

PROTOCOL = "openai-responses"
TRIGGER = "compaction_trigger"
PATH = "/v1/responses/compact"
ITEM = "compaction"
SEAL = "weft.1."
"""The prefix of the summaries that this gateway has sealed."""

QUESTION = (
    "The conversation has become too long to go on with, so everything above is about to be "
    "replaced by what you write now. Write it for somebody who will finish the work and can see "
    "nothing else: what the user wants, with every condition they set; what has been done so far, "
    "with the exact names, paths, commands and values that matter; what was decided and why; what "
    "was tried and did not work; what is unfinished, and the next step. Write only this summary. "
    "Call no tools."
)

OPENING = "The conversation up to here was compacted. This summary stands in its place:\n\n"
"""The beginning of an opened summary."""

CLOSING = (
    "This summary stands for all that was said before it. What is unfinished goes on from there."
)
"""The user message after it."""


class CompactionRequest(Struct, frozen=True):
    """A request to compact.

    `retained_items` are the items that the answer must repeat; None if the client only expects the
    summary.
    """

    retained_items: tuple[JsonObject, ...] | None = None


def read_compaction_request(protocol: str, path: str, body: JsonObject) -> CompactionRequest | None:
    """The request to compact, recognised by the path or the last item; None if there is none."""
    if protocol != PROTOCOL:
        return None
    items = _input_items(body)
    if path == PATH:
        return CompactionRequest(tuple(item for item in items if item.get("role") == "user"))
    return CompactionRequest() if items and items[-1].get("type") == TRIGGER else None


def ask_for_summary(body: JsonObject) -> JsonObject:
    """The body with a question in place of the trigger, for an answer in plain text.

    The tools stay in the body: without them the upstream's prompt cache would not match.
    """
    members = {key: value for key, value in body.items() if key != "text"}
    if members.get("tools"):
        members["tool_choice"] = "none"
    items = [item for item in _input_items(body) if item.get("type") != TRIGGER]
    return {**members, "input": [*items, _message(QUESTION)]}


def _input_items(body: JsonObject) -> list[JsonObject]:
    items: object = body.get("input")
    if isinstance(items, str):
        return [_message(items)]
    values = cast(list[object], items) if isinstance(items, list) else []
    return [cast(JsonObject, item) for item in values if isinstance(item, dict)]


def may_hold_summaries(protocol: str, body: bytes) -> bool:
    """Whether a body may contain a sealed summary; a quick test before the body is searched."""
    return protocol == PROTOCOL and SEAL.encode() in body


def open_summaries(body: JsonObject) -> JsonObject:
    """The body with every sealed summary as plain text."""
    items = body.get("input")
    if not isinstance(items, list):
        return body
    opened = [part for item in cast(list[object], items) for part in _open_item(item)]
    return {**body, "input": opened}


def _open_item(item: object) -> list[object]:
    """The messages of a sealed summary; any other item unchanged."""
    match item:
        case {"type": "compaction", "encrypted_content": str(sealed)} if sealed.startswith(SEAL):
            try:
                summary = urlsafe_b64decode(sealed.removeprefix(SEAL)).decode()
            except ValueError:  # not sealed by this gateway: the vendor may be able to read it
                return [cast(JsonObject, item)]
            return [_message(OPENING + summary, "assistant"), _message(CLOSING)]
        case _:
            return [item]


def _message(text: str, role: str = "user") -> JsonObject:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def seal_summary(response: Response) -> Response:
    """The summary as the one item that the client expects; raises `UpstreamFailed` if empty."""
    summary = response.message.text.strip()
    if not summary:
        raise UpstreamFailed("the model was asked for a summary and wrote none")
    item = {
        "type": ITEM,
        "id": f"cmp_{(response.id or '').removeprefix('resp_')}",
        "encrypted_content": SEAL + urlsafe_b64encode(summary.encode()).decode(),
    }
    message = Message("assistant", (Opaque(PROTOCOL, item),))
    return structs.replace(response, message=message, ext=None)


def write_compacted_list(body: JsonObject, retained_items: tuple[JsonObject, ...]) -> JsonObject:
    """The answer to `/v1/responses/compact`: the list to continue with."""
    members = {"object": "response.compaction", "output": [*retained_items, *body["output"]]}
    return {name: body[name] for name in ("id", "created_at", "usage")} | members


class CompactionRelay:
    """Waits for the whole summary, then sends the client the one item that it expects."""

    relays_error = False

    def __init__(self, inner: Relay, codec: Codec, options: AnswerOptions) -> None:
        self._inner = inner
        self._writer = AnswerWriter(codec, options)
        self._is_written = False

    @property
    def response(self) -> Response:
        return self._inner.response

    @property
    def answer_fold(self) -> Fold:
        return self._inner.answer_fold

    @property
    def started(self) -> bool:
        return self._inner.started

    @property
    def ended(self) -> bool:
        return self._inner.ended

    @property
    def is_complete(self) -> bool:
        return self._inner.is_complete

    @property
    def error(self) -> ApiError | None:
        return self._inner.error

    @property
    def losses(self) -> list[Loss]:
        return self._inner.losses

    def feed(self, data: bytes) -> Piece:
        self._inner.feed(data)
        return self._write()

    def close(self) -> Piece:
        self._inner.close()
        return self._write()

    def fail(self, error: ApiError) -> bytes:
        return self._writer.write([Fail(error)]).now

    def _write(self) -> Piece:
        if self._is_written or not self.ended:
            return Piece()
        self._is_written = True
        if self.error is not None:
            return Piece(self.fail(self.error))
        sealed = seal_summary(self.response)
        (block,) = sealed.message.blocks
        return self._writer.write(
            [
                Start(sealed.id, sealed.model),
                Open(0, block),
                Close(0, block),
                Finish(sealed.stop, sealed.usage),
                End(),
            ]
        )
