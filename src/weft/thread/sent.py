"""What a model was sent, kept as its recipe and made again when somebody asks.

A thread compiles to the same messages for ever, and a codec writes the same bytes for the same
messages. So an answer's commit keeps no copy of its request: only the commit that was compiled,
the vendor, model and policies, the version of the catalogue, and a hash to prove the result.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from weft.catalog import load_catalog
from weft.errors import ThreadError
from weft.ids import object_id
from weft.model import JsonObject

from .compiled import CompiledContext
from .info import CommitInfo
from .params import Recipe, VendorParams

RECORD = "sent"
"""Under which name an answer's metadata has its receipt."""


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Enough to make a request again: the recipe, what the caller added, and the proof."""

    recipe: Recipe
    catalog: str
    hash: str
    extra: JsonObject = {}


class Sent(Struct, frozen=True):
    """The bytes of a request, made again and proven equal."""

    body: bytes
    receipt: Receipt

    def to_dict(self) -> JsonObject:
        return {"receipt": msgspec.to_builtins(self.receipt), "body": orjson.loads(self.body)}


def with_receipt(metadata: JsonObject | None, params: VendorParams | None) -> JsonObject | None:
    """The metadata of an answer, with the receipt of what was asked."""
    if params is None:
        return metadata
    return {**(metadata or {}), RECORD: msgspec.to_builtins(write_receipt(params))}


def write_receipt(params: VendorParams) -> Receipt:
    """The receipt of a request; what the caller put in beside what was compiled is kept whole."""
    if params.recipe is None:
        raise ThreadError("only what a compiled thread wrote can be recorded as sent")
    extra = {key: value for key, value in params.items() if key not in params.written}
    body = _bytes({**params, **extra})
    return Receipt(recipe=params.recipe, catalog=catalog_version(), hash=_hash(body), extra=extra)


def show_sent(info: CommitInfo, compile: Callable[..., CompiledContext]) -> Sent:
    """The request that this answer was given to; raises `ThreadError` where it cannot be proven."""
    record = info.metadata.get(RECORD)
    if record is None:
        raise ThreadError(f"{info.id[:12]} has no record of what was sent")
    receipt = msgspec.convert(record, Receipt)
    recipe = receipt.recipe
    context = compile(recipe.head, last=recipe.last, reasoning=recipe.reasoning)
    body = _bytes({**context.follow(recipe), **receipt.extra})
    if _hash(body) == receipt.hash:
        return Sent(body, receipt)
    now = catalog_version()
    why = "" if now == receipt.catalog else f": the catalogue was {receipt.catalog}, it is {now}"
    raise ThreadError(f"what {info.id[:12]} was sent cannot be made again{why}")


def catalog_version() -> str:
    """A short name for what is known of models; it changes with every row."""
    return object_id("catalog", msgspec.json.encode(load_catalog().rows)).hex()[:12]


def _bytes(params: dict[str, Any]) -> bytes:
    return orjson.dumps(params)


def _hash(body: bytes) -> str:
    return object_id("sent", body).hex()
