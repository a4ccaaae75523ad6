"""What a model was sent, kept as its recipe and made again when somebody asks.

A thread compiles to the same messages for ever, and a codec writes the same bytes for the same
messages. So where a caller hands back what a compiled thread wrote for it, the answer's commit
keeps no copy of its request: only the commit that was compiled, the vendor, model and policies,
the version of the catalogue, and a hash to prove the result. Where whole bodies leave by our own
hands (the gateway, the agent) the answer carries an imprint of their bytes instead.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from weft.catalog import load_catalog
from weft.errors import NotFound, ThreadError
from weft.history import Append, decode_body
from weft.ids import object_id
from weft.model import JsonObject, Message
from weft.store import Step

from .compiled import CompiledContext
from .handle import Handle
from .info import CommitInfo
from .params import Recipe, VendorParams
from .sent_body import (
    SentBodyDelta,
    SentRequest,
    describe_loss,
    encode_sent_body,
    hash_body,
    read_sent_body,
    rebuild_sent_body,
    sent_body_entries,
)

RECORD = "sent"
"""Under which name an answer's metadata has its receipt."""


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Enough to make a request again: the recipe, what the caller added, and the proof."""

    recipe: Recipe
    catalog: str
    hash: str
    extra: JsonObject = {}

    def to_dict(self) -> JsonObject:
        return msgspec.to_builtins(self)


class Sent(Struct, frozen=True):
    """The bytes of a request, made again and proven equal."""

    body: bytes
    receipt: Receipt | SentBodyDelta

    def to_dict(self) -> JsonObject:
        """What is known of it; the body as a value, or as words where it is no JSON."""
        try:
            body = json.loads(self.body)  # numbers of any length, and whatever else was let through
        except (ValueError, RecursionError):
            body = self.body.decode()
        return {"receipt": self.receipt.to_dict(), "body": body}


Sending = VendorParams | SentRequest | SentBodyDelta
"""What an answer was given to: as a thread wrote it, as it left, or as it is to be kept."""


def sent_entries(
    handle: Handle, metadata: JsonObject | None, sent: Sending | None
) -> tuple[JsonObject | None, tuple[Message, ...]]:
    """The metadata of an answer and what rides along with it, for `sent` to be made again."""
    match sent:
        case None:
            return metadata, ()
        case SentRequest():
            imprint = encode_sent_body(handle.store, handle.name, sent, handle.bodies)
            return metadata, sent_body_entries(imprint)
        case SentBodyDelta():
            return metadata, sent_body_entries(sent)
        case _:
            return {**(metadata or {}), RECORD: _store_receipt(write_receipt(sent))}, ()


def _store_receipt(receipt: Receipt) -> JsonObject:
    """The receipt for a commit's metadata, whose members are sorted. Tools and the caller's own
    members are JSON text there: the order of a schema's properties is part of what was sent."""
    stored: JsonObject = msgspec.to_builtins(receipt)
    if "tools" in stored["recipe"]:
        stored["recipe"]["tools"] = orjson.dumps(stored["recipe"]["tools"]).decode()
    if stored.get("extra"):
        stored["extra"] = orjson.dumps(stored["extra"]).decode()
    return stored


def _read_receipt(stored: Any) -> Receipt:
    """The receipt of a commit's metadata, in either form: members were not always JSON text."""
    match stored:
        case {"recipe": {"tools": str(tools), **recipe}, **rest}:
            stored = {**rest, "recipe": {**recipe, "tools": _parsed(tools)}}
        case _:
            pass
    match stored:
        case {"extra": str(extra), **rest}:
            stored = {**rest, "extra": _parsed(extra)}
        case _:
            pass
    return msgspec.convert(stored, Receipt)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ThreadError(f"its record is damaged: {error}") from None


def write_receipt(params: VendorParams) -> Receipt:
    """The receipt of a request; what the caller put in beside what was compiled is kept whole."""
    if params.recipe is None:
        raise ThreadError("only what a compiled thread wrote can be recorded as sent")
    extra = {key: value for key, value in params.items() if key not in params.written}
    hash = hash_body(orjson.dumps({**params, **extra}))
    return Receipt(recipe=params.recipe, catalog=catalog_version(), hash=hash, extra=extra)


def show_sent(handle: Handle, info: CommitInfo, compile: Callable[..., CompiledContext]) -> Sent:
    """The request that this answer was given to; raises `ThreadError` where it cannot be proven."""
    try:
        for step in _said_by(handle, info):
            record = (decode_body(step).metadata or {}).get(RECORD)
            if record is not None:
                return _follow(handle, _read_receipt(record), compile)
            imprint = read_sent_body(step)
            if imprint is not None:
                return Sent(rebuild_sent_body(handle.store, handle.name, step), imprint)
            lost = describe_loss(handle.store, [step])
            if lost is not None and len(step.contents) > 1:  # something did ride along with it
                raise ThreadError(lost)
    except (ThreadError, msgspec.ValidationError) as error:
        raise ThreadError(f"what {info.id[:12]} was sent cannot be made again: {error}") from None
    raise ThreadError(f"{info.id[:12]} has no record of what was sent")


def _said_by(handle: Handle, info: CommitInfo) -> list[Step]:
    """The commit, and the one where its line was first said, if a rebase or a pick brought it."""
    found = handle.store.read_commits(handle.name, [bytes.fromhex(info.id)])
    op = decode_body(found[0]).op
    if not isinstance(op, Append) or op.slot is None or RECORD in info.metadata:
        return found
    first = handle.store.read_commits(handle.name, [op.slot])
    if not first:
        raise ThreadError(f"commit {op.slot.hex()[:12]}, where it was first said, is gone")
    return found + first


def _follow(handle: Handle, receipt: Receipt, compile: Callable[..., CompiledContext]) -> Sent:
    """What a recipe makes of the thread now, if it is what it made then."""
    recipe = receipt.recipe
    try:
        context = compile(recipe.head, last=recipe.last, reasoning=recipe.reasoning)
    except NotFound:
        raise ThreadError(
            f"commit {(recipe.head or '')[:12]}, which it speaks of, is gone"
        ) from None
    body = orjson.dumps({**context.follow(recipe), **receipt.extra})
    if hash_body(body) == receipt.hash:
        return Sent(body, receipt)
    head = None if recipe.head is None else bytes.fromhex(recipe.head)
    steps = [] if head is None else handle.store.walk(handle.name, head)
    now = catalog_version()
    moved = None if now == receipt.catalog else f"the catalogue was {receipt.catalog}, it is {now}"
    raise ThreadError(
        describe_loss(handle.store, steps)
        or moved
        or "it was changed before it left, or is written in another way by this version"
    )


def catalog_version() -> str:
    """A short name for what is known of models; it changes with every row."""
    return object_id("catalog", msgspec.json.encode(load_catalog().rows)).hex()[:12]
