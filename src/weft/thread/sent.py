"""Sent requests: stored as a recipe or as a difference, and rebuilt on demand.

- If the caller passes the result of `to_*_params` back with the answer, the answer's commit stores
  a *receipt*: the compiled commit, vendor, model and policies, the version of the catalogue, and a
  hash. Compiling and encoding are deterministic, so the same bytes can be written again.
- If Weft itself sent the bytes (gateway, agent), the commit stores a difference to stored bytes
  instead (`sent_body`).
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from weft import exact_json
from weft.catalog import load_catalog, sources
from weft.errors import NotFound, ThreadError
from weft.history import Append, decode_body
from weft.ids import object_id
from weft.model import JsonObject, Message
from weft.store import Step

from .compiled import CompiledContext, Recipe, VendorParams
from .handle import Handle
from .info import CommitInfo
from .sent_body import (
    SentBodyDelta,
    SentRequest,
    describe_loss,
    encode_sent_body,
    has_sent_body,
    hash_body,
    read_sent_body,
    rebuild_sent_body,
    sent_body_entries,
)

METADATA_KEY = "sent"
"""The member of an answer's metadata that contains its receipt."""


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored record of a sent request, which rebuilds its bytes.

    `extra` are the fields that the caller added to the recipe's body, `catalog` is the version of
    the catalogue, and `hash` is a hash of the bytes.
    """

    recipe: Recipe
    catalog: str
    hash: str
    extra: JsonObject = {}

    def to_dict(self) -> JsonObject:
        return exact_json.to_builtins(self)


class Sent(Struct, frozen=True):
    """The bytes of a request, rebuilt and verified by their hash."""

    body: bytes
    receipt: Receipt | SentBodyDelta

    def to_dict(self) -> JsonObject:
        """The receipt, and the body as JSON, or as text if it is not JSON."""
        try:
            body = json.loads(self.body)  # for people: a client may have sent `NaN`
        except (ValueError, RecursionError):
            body = self.body.decode()
        return {"receipt": self.receipt.to_dict(), "body": body}


SentLike = VendorParams | SentRequest | SentBodyDelta
"""The request of an answer: as `to_*_params` wrote it, as bytes, or as a delta of the bytes."""


def sent_entries(
    handle: Handle, metadata: JsonObject | None, sent: SentLike | None
) -> tuple[JsonObject | None, tuple[Message, ...]]:
    """The metadata and the attachments that store the request of an answer.

    A receipt is added to the metadata. A delta becomes an attachment.
    """
    match sent:
        case None:
            return metadata, ()
        case SentRequest():
            delta = encode_sent_body(handle.store, handle.name, sent, handle.bodies)
            return metadata, sent_body_entries(delta)
        case SentBodyDelta():
            return metadata, sent_body_entries(sent)
        case _:
            return {**(metadata or {}), METADATA_KEY: _receipt_to_metadata(write_receipt(sent))}, ()


def _receipt_to_metadata(receipt: Receipt) -> JsonObject:
    """The receipt as a JSON object for the metadata.

    Metadata is stored with sorted members, but the order of a schema's properties is part of the
    request. So tools and the caller's members are stored as JSON text.
    """
    stored: JsonObject = exact_json.to_builtins(receipt)
    if "tools" in stored["recipe"]:
        stored["recipe"]["tools"] = exact_json.dumps(stored["recipe"]["tools"]).decode()
    if stored.get("extra"):
        stored["extra"] = exact_json.dumps(stored["extra"]).decode()
    return stored


def _receipt_from_metadata(stored: Any) -> Receipt:
    """The receipt in a commit's metadata. In older commits, no member is JSON text."""
    match stored:
        case {"recipe": {"tools": str(tools), **recipe}, **members}:
            stored = {**members, "recipe": {**recipe, "tools": _parse_json(tools)}}
        case _:
            pass
    match stored:
        case {"extra": str(extra), **members}:
            stored = {**members, "extra": _parse_json(extra)}
        case _:
            pass
    return msgspec.convert(stored, Receipt)


def _parse_json(text: str) -> Any:
    try:
        return exact_json.loads(text)
    except exact_json.JSONDecodeError as error:
        raise ThreadError(f"its receipt is damaged: {error}") from None


def write_receipt(params: VendorParams) -> Receipt:
    """The receipt of a request, with the fields that the caller added to it."""
    if params.recipe is None:
        raise ThreadError("`sent` must come from to_*_params(), or be a SentRequest")
    extra = {key: value for key, value in params.items() if key not in params.written}
    hash = hash_body(exact_json.dumps({**params, **extra}))
    return Receipt(recipe=params.recipe, catalog=catalog_version(), hash=hash, extra=extra)


def has_sent(step: Step) -> bool:
    """Whether the request of an answer is stored with its commit; it may still be damaged."""
    return has_sent_body(step) or METADATA_KEY in (decode_body(step).metadata or {})


def show_sent(handle: Handle, info: CommitInfo, compile: Callable[..., CompiledContext]) -> Sent:
    """The request of this answer; raises `ThreadError` if it cannot be rebuilt exactly."""
    try:
        for step in _commits_of_answer(handle, info):
            record = (decode_body(step).metadata or {}).get(METADATA_KEY)
            if record is not None:
                return _rebuild(handle, _receipt_from_metadata(record), compile)
            delta = read_sent_body(step)
            if delta is not None:
                return Sent(rebuild_sent_body(handle.store, handle.name, step), delta)
            loss = describe_loss(handle.store, [step])
            if loss is not None and len(step.contents) > 1:  # it had an attachment
                raise ThreadError(loss)
    except (ThreadError, msgspec.ValidationError) as error:
        raise ThreadError(f"the request of {info.id[:12]} cannot be rebuilt: {error}") from None
    raise ThreadError(f"no request is stored for commit {info.id[:12]}")


def _commits_of_answer(handle: Handle, info: CommitInfo) -> list[Step]:
    """The commit, and the original commit of its message, if it was rebased or picked."""
    steps = handle.store.read_commits(handle.name, [bytes.fromhex(info.id)])
    op = decode_body(steps[0]).op
    if not isinstance(op, Append) or op.slot is None or METADATA_KEY in info.metadata:
        return steps
    original = handle.store.read_commits(handle.name, [op.slot])
    if not original:
        raise ThreadError(f"the original commit {op.slot.hex()[:12]} is gone")
    return steps + original


def _rebuild(handle: Handle, receipt: Receipt, compile: Callable[..., CompiledContext]) -> Sent:
    """Rebuild a request from its recipe; raises `ThreadError` if its hash does not match."""
    recipe = receipt.recipe
    try:
        context = compile(recipe.head, last=recipe.last, reasoning=recipe.reasoning)
    except NotFound:
        raise ThreadError(f"its commit {(recipe.head or '')[:12]} is gone") from None
    body = exact_json.dumps({**context.apply_recipe(recipe), **receipt.extra})
    if hash_body(body) == receipt.hash:
        return Sent(body, receipt)
    head = None if recipe.head is None else bytes.fromhex(recipe.head)
    steps = [] if head is None else handle.store.walk(handle.name, head)
    version = catalog_version()
    catalog_change = (
        None
        if version == receipt.catalog
        else f"the catalogue was {receipt.catalog}, now it is {version}"
    )
    raise ThreadError(
        describe_loss(handle.store, steps)
        or catalog_change
        or "it was changed before it was sent, or this version writes it differently"
    )


def catalog_version() -> str:
    """A short hash of the model catalogue."""
    parts = (load_catalog().rows, sources())  # a longest answer may be written into a request
    return object_id("catalog", msgspec.json.encode(parts)).hex()[:12]
