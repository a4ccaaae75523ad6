"""Ids of calls in the alphabet and length that a wire takes.

The same id every turn, and two ids never become one: whatever is changed is marked by a digest of
the whole, and an id that already looks marked is marked again, so that none can pass for another.
The original comes back with the sidecar.
"""

import re
from hashlib import sha256

from weft.model import Place

from .base import Losses

MARKED = re.compile(r"-x[0-9a-f]{8}$")
MARK_LENGTH = 10


def marked_id(call_id: str, longest: int | None = None) -> str:
    """The id with its mark, cut to the longest that the wire takes."""
    digest = sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    kept = call_id if longest is None else call_id[: longest - MARK_LENGTH]
    return f"{kept}-x{digest}"


def lose_id(call_id: str, place: Place, losses: Losses) -> None:
    """Report that a call goes by another id here; the sidecar knows the caller's."""
    losses.add(place, f"the id {call_id!r}", "it is refused here, and marked instead", "form")


def lose_emptiness(place: Place, losses: Losses) -> None:
    """Report that a call without arguments has an empty object of them here."""
    losses.add(place, "nothing: empty arguments were added", "they are an object here", "form")


def looks_marked(call_id: str) -> bool:
    """Whether an id could be mistaken for one of ours."""
    return call_id[-10:-8] == "-x" and MARKED.search(call_id) is not None


def fitting_id(call_id: str, longest: int) -> str:
    """The id where it fits and is nobody else's, else marked."""
    if 0 < len(call_id) <= longest and (call_id[-10:-8] != "-x" or not looks_marked(call_id)):
        return call_id
    return marked_id(call_id, longest)
