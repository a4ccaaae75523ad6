"""What a wire can say of a foreign result: the parts that are left of it, each with its place."""

from collections.abc import Callable, Mapping
from typing import Any

from weft.model import Block, Ext, Message, Opaque, Place, Request, Text, ToolResult

from .base import Losses
from .fields import lose_ext
from .words import words_of

Check = Callable[[Any, Message, Request], str | None]
"""Why a block cannot be said on a wire, or `None`."""


def block_name(block: Block, request: Request) -> str:
    """The caller's own word for a block; ours where no wire wrote the request."""
    if request.wire is None:
        return type(block).__name__.lower()
    return request.wire.part_name(block)


def leave_out(
    block: Block, place: Place, why: str, request: Request, losses: Losses
) -> list[tuple[Block, Place]]:
    """What is left of a block that cannot be said: its words, where it has any, or nothing."""
    name = block_name(block, request)
    words = words_of(block) if isinstance(block, Opaque) else None
    if words is None:
        losses.add(place, f"a {name} block", why)
        return []
    losses.add(place, f"a {name} block, now its words", why)
    return [(Text(words), place)]


def sift(
    block: ToolResult,
    place: Place,
    request: Request,
    checks: Mapping[type, Check],
    protocol: str,
    losses: Losses,
) -> list[tuple[Block, Place]]:
    """The parts of a result that this wire can say; whatever else is reported."""
    places: list[Place] = [(*place, number) for number in range(len(block.content))]
    if all(type(part) is Text and part.ext is None for part in block.content):
        return list(zip(block.content, places, strict=True))
    message = request.messages[int(place[0])]
    kept: list[tuple[Block, Place]] = []
    for part, at in zip(block.content, places, strict=True):
        check = checks.get(type(part))
        why = check(part, message, request) if check is not None else None
        if why is not None:
            kept += leave_out(part, at, why, request, losses)
            continue
        kept.append((part, at))
        ext: Ext | None = getattr(part, "ext", None)
        if ext is not None:
            lose_ext(ext, protocol, at, losses)
    return kept
