"""Originals for a reader with little room: what `recall` finds, one bounded page at a time.

A page answers one of two questions. An id, or the handle of a shortened result (`id/block`), is one
text, read from an offset in characters. Anything else is words: what has them is listed, each in a
snippet around them with the id that reads all of it, from an offset in places of that list. Either
way the page has at most so many tokens, says what is left, and names the offset that goes on.

The text behind an id is what was said, not what a compaction made of it: of a result that was
shortened it is the whole result.
"""

import re

from msgspec import Struct

from weft.compact import HANDLE
from weft.errors import Ambiguous, NotFound, WrongValue
from weft.history import Row
from weft.ids import Id
from weft.model import Message, Text, ToolResult, spoken, texts

from .arguments import check_count, check_text
from .handle import Handle
from .lineage import read_versions, written_lines
from .looking import Hit, recall
from .resolve import SHORTEST, find_row, require_commit

RECALL_TOKENS = 2500
"""What one page has, where nothing else is said."""

SNIPPET = 600
"""The characters of a text that stands in a list; a shorter text is whole."""

MANY = 50
LONGEST_QUERY = 60
_HANDLE = re.compile(r"([0-9a-f]{4,40})(?:/(\d{1,4}))?")


class RecallPage(Struct, frozen=True, kw_only=True):
    """A part of what was found: `body` is the originals' own words, `note` what is left of them,
    `next` the offset that reads on, if anything is left."""

    body: str
    note: str = ""
    next: int | None = None

    @property
    def text(self) -> str:
        """What a model reads."""
        return "\n\n".join(part for part in (self.body, self.note) if part)


def recall_page(
    handle: Handle, wanted: str, *, tokens: int = RECALL_TOKENS, offset: int = 0
) -> RecallPage:
    """One page of the originals behind an id, a handle, a checkpoint or words."""
    check_text("wanted", wanted)
    check_count("tokens", tokens)
    check_count("offset", offset)
    if tokens < 1:
        raise WrongValue("tokens", "must be at least 1")
    name = _HANDLE.fullmatch(wanted.strip())
    text = None if name is None else _original(handle, name[1], name[2])
    if text is not None:
        return _read_text(handle, wanted.strip(), text, tokens, offset)
    return _list_hits(handle, wanted, tokens, offset)


def _read_text(handle: Handle, name: str, text: str, tokens: int, offset: int) -> RecallPage:
    start = min(offset, len(text))
    if start + _fitting(handle, text, start, tokens) >= len(text):
        return RecallPage(body=text[start:])

    def note(end: int) -> str:
        place = f"Characters {start:,} to {end:,} of {len(text):,}."
        return f'[{place} To read on: recall("{name}", offset={end})]'

    room = tokens - _size(handle, note(len(text)))
    end = _line_end(text, start, start + _fitting(handle, text, start, room))
    return RecallPage(body=text[start:end], note=note(end), next=end)


def _fitting(handle: Handle, text: str, start: int, tokens: int) -> int:
    """How many characters from here on fit; never 0, so that a reader always gets on. No more is
    counted than about twice what fits, however long the text is."""

    def fits(many: int) -> bool:
        return _size(handle, text[start : start + many]) <= tokens

    rest = len(text) - start
    low, high = min(1, rest), min(rest, 64)
    while fits(high):
        if high == rest:
            return rest
        low, high = high, min(rest, high * 2)
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _line_end(text: str, start: int, end: int) -> int:
    """The end of the last whole line, where that does not lose half of the page."""
    line = text.rfind("\n", (start + end) // 2, end) + 1
    return line if line > start else end


def _list_hits(handle: Handle, wanted: str, tokens: int, offset: int) -> RecallPage:
    hits = recall(handle, wanted, offset + MANY)
    words = wanted.split()
    query = wanted if len(wanted) <= LONGEST_QUERY else wanted[:LONGEST_QUERY] + "..."

    def note(shown: int) -> str:
        more = f"{len(hits) - shown} more" if len(hits) < offset + MANY else "More"
        return f'[{more} found. To read on: recall("{query}", offset={shown})]'

    parts: list[str] = []
    used = closing = _size(handle, note(len(hits)))
    for hit in hits[offset:]:
        part = _snippet(hit, words)
        size = _size(handle, part) + 1
        if used + size > tokens:
            if parts:
                break
            part = part[: _fitting(handle, part, 0, tokens - closing)]
        parts.append(part)
        used += size
    shown = offset + len(parts)
    if shown >= len(hits):
        return RecallPage(body="\n\n".join(parts))
    return RecallPage(body="\n\n".join(parts), note=note(shown), next=shown)


def _snippet(hit: Hit, words: list[str]) -> str:
    """Who said what, around the words that were looked for."""
    text = "\n".join(part for part in (hit.text, hit.calls) if part.strip())
    told = f"[{hit.id[:HANDLE]}] {hit.speaker}: "
    if len(text) <= SNIPPET:
        return told + text
    folded = text.casefold()
    places = [at for word in words if (at := folded.find(word.casefold())) >= 0]
    start = max(0, min(places, default=0) - SNIPPET // 3)
    end = min(len(text), start + SNIPPET)
    before, after = ("[...] " if start else ""), (" [...]" if end < len(text) else "")
    whole = f'({len(text):,} characters; recall("{hit.id[:HANDLE]}") reads all)'
    return f"{told}{before}{text[start:end]}{after}\n{whole}"


def _original(handle: Handle, prefix: str, block: str | None) -> str | None:
    """What the line of this id said before any compaction shortened it; `None` where there is no
    such line, or no such block."""
    message = _find_message(handle, prefix)
    if message is None:
        return None
    if block is None:
        return spoken(message)
    if int(block) >= len(message.blocks):
        return None
    found = message.blocks[int(block)]
    return "\n".join(texts(found.content)) if isinstance(found, ToolResult) else spoken(message)


def _find_message(handle: Handle, prefix: str) -> Message | None:
    row = find_row(handle, prefix)
    slot = row.id if isinstance(row, Row) else _folded_slot(handle, prefix)
    if slot is None:
        return None
    versions = read_versions(handle, slot)
    said = [version for version in versions if version.kind != "compact"] or versions[:1]
    return said[-1].message if said else None


def _folded_slot(handle: Handle, prefix: str) -> Id | None:
    """The line of this id where the branch no longer shows it: most have the id of their commit,
    those that a merge or a cherry-pick brought are looked for in all commits."""
    if len(prefix) < SHORTEST:
        return None
    try:
        commit = require_commit(handle, prefix)
        (step,) = handle.store.read_commits(handle.name, [commit])
        slots = {slot for slot, _ in written_lines(step)}
        if len(slots) == 1:
            return slots.pop()
    except (NotFound, Ambiguous):
        pass
    head = handle.head()
    steps = [] if head is None else handle.store.walk(handle.name, head)
    found = {
        slot for step in steps for slot, _ in written_lines(step) if slot.hex().startswith(prefix)
    }
    return found.pop() if len(found) == 1 else None


def _size(handle: Handle, text: str) -> int:
    return handle.count_once(Message("user", (Text(text),)))
