"""Erases a text from everything that a store holds.

The text is replaced by a mark in every entry, attempt, note and metadata string that contains it.

- The objects keep their ids, as tombstones, so the graph and all references stay valid.
- The text index is updated, and the store's files are rewritten.
- If the same message is committed again, it has the same id and so stays forgotten.

The text is found in every JSON spelling, in JSON inside JSON strings, and in base64. A base64 file
that contains it is replaced whole. Compressed and encrypted data is not searched.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct

from weft.ids import Id
from weft.lazy import lazy_pattern
from weft.store import Step, Store

FORGOTTEN = "[forgotten]"
FORGOTTEN_FILE = b64encode(FORGOTTEN.encode()).decode()
NESTED = 3
SHORTEST_IN_BASE64 = 6  # bytes; shorter texts occur in every long file by chance
URL_SAFE = str.maketrans("+/", "-_")

_ESCAPES = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[\"\\/bfnrt]"
)
_ESCAPE = lazy_pattern(_ESCAPES)
_BASE64 = lazy_pattern(r"[A-Za-z0-9+/_-]+={0,2}")
_SIGN = lazy_pattern(rf"{_ESCAPES}|.", re.DOTALL)


class Erased(Struct, frozen=True):
    """The objects that contained the text."""

    entries: tuple[Id, ...]
    commits: tuple[Id, ...]
    attempts: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries or self.commits or self.attempts)

    def to_dict(self) -> dict[str, list[str] | int]:
        return {
            "entries": [id.hex() for id in self.entries],
            "commits": [id.hex() for id in self.commits],
            "attempts": len(self.attempts),
        }


def plan_forget(store: Store, text: str) -> Erased:
    """The objects that contain the text; writes nothing."""
    maintenance = store.maintenance()
    return Erased(
        tuple(id for id, data in maintenance.entries() if without(data, text) != data),
        tuple(
            step.commit.id
            for _, step in maintenance.commits()
            if without(step.commit.data, text) != step.commit.data
        ),
        tuple(
            key
            for key, _, attempt in maintenance.attempts()
            if without(attempt.data, text) != attempt.data
        ),
    )


def forget_text(store: Store, text: str, created: float) -> Erased:
    """Erase the text from everything the store has, whatever thread or branch it is on."""
    with store.transaction():
        erased = plan_forget(store, text)
        maintenance = store.maintenance()
        for id, data in list(maintenance.entries()):
            if id in erased.entries:
                maintenance.write_tombstone("entry", id, without(data, text), "forgotten", created)
        for _, step in list(maintenance.commits()):
            if step.commit.id in erased.commits:
                data = without(step.commit.data, text)
                maintenance.write_tombstone("commit", step.commit.id, data, "forgotten", created)
        for key, _, attempt in list(maintenance.attempts()):
            if key in erased.attempts:
                maintenance.put_attempt(key, attempt.state, without(attempt.data, text))
        touched: dict[str, list[Id]] = {}
        for thread, step in _touched(store, erased):
            touched.setdefault(thread, []).append(step.commit.id)
        for thread, ids in touched.items():
            maintenance.unindex(thread, ids)
    store.maintenance().scrub()
    return erased


def without(data: bytes, text: str) -> bytes:
    """The JSON with a mark in place of the text in every string."""
    escaped = msgspec.json.encode(text)[1:-1]
    files = _in_base64(text)
    may_contain = escaped in data or text.encode() in data or b"\\" in data
    if not may_contain and not any(part.encode() in data for part in files):
        return data
    value = msgspec.json.decode(data)
    cleaned = _cleaned(value, text, _spellings(text), files)
    return data if cleaned == value else msgspec.json.encode(cleaned)  # the order is canonical


def _spellings(text: str) -> list[str]:
    """The text as a string has it, and as JSON inside strings has it, up to `NESTED` levels deep.

    Tool arguments are JSON text, and session lines or request bodies that contain them are JSON
    again.
    """
    spellings = [text]
    for _ in range(NESTED):
        spellings += [
            json.dumps(spelling, ensure_ascii=ascii)[1:-1]
            for spelling in spellings
            for ascii in (True, False)
        ]
    return sorted(set(spellings), key=len, reverse=True)


def _in_base64(text: str) -> list[str]:
    """The base64 of the text at each of the three byte offsets that it can have in a file.

    The first and last character also encode bits of the neighbouring bytes, so they are left out.
    """
    data = text.encode(errors="surrogatepass")
    if len(data) < SHORTEST_IN_BASE64:
        return []
    parts: list[str] = []
    for offset in range(3):
        encoded = b64encode(bytes(offset) + data).decode()
        part = encoded[-(-8 * offset // 6) : 8 * (offset + len(data)) // 6]
        parts += [part, part.translate(URL_SAFE)]
    return sorted(set(parts))


def _cleaned(value: Any, text: str, spellings: list[str], files: list[str]) -> Any:
    if isinstance(value, str):
        for spelling in spellings:
            value = value.replace(spelling, FORGOTTEN)
        value = _without_files(value, files)
        return _respelt(value, text) if "\\" in value else value
    if isinstance(value, list):
        return [_cleaned(item, text, spellings, files) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return {
            _cleaned(key, text, spellings, files): _cleaned(item, text, spellings, files)
            for key, item in members.items()
        }
    return value


def _without_files(value: str, files: list[str]) -> str:
    """The string with a mark for every run of base64 that contains one of `files`."""
    if not any(part in value for part in files):
        return value
    return _BASE64.sub(
        lambda run: FORGOTTEN_FILE if any(part in run[0] for part in files) else run[0], value
    )


def _respelt(value: str, text: str) -> str:
    """The string without the text in any other spelling that JSON allows (`\\/`, `\\u0041`)."""
    for depth in range(1, NESTED + 1):
        plain = value
        for _ in range(depth):
            plain = _ESCAPE.sub(_unescaped, plain)
        if text not in plain:
            continue
        for start, end in reversed(_places(value, text, depth)):
            if "\\" in value[start:end]:  # the unescaped spelling was replaced before
                value = value[:start] + FORGOTTEN + value[end:]
    return value


def _places(value: str, text: str, depth: int) -> list[tuple[int, int]]:
    """Where the text occurs in a string that is JSON, nested `depth` times."""
    spans = [(place, place + 1) for place in range(len(value))]
    for _ in range(depth):
        signs = list(_SIGN.finditer(value))
        spans = [(spans[sign.start()][0], spans[sign.end() - 1][1]) for sign in signs]
        value = "".join(_ESCAPE.sub(_unescaped, sign[0]) for sign in signs)
    matches = re.finditer(re.escape(text), value)
    return [(spans[hit.start()][0], spans[hit.end() - 1][1]) for hit in matches]


def _unescaped(escape: re.Match[str]) -> str:
    return cast(str, json.loads(f'"{escape[0]}"'))


def _touched(store: Store, erased: Erased) -> Iterator[tuple[str, Step]]:
    entries = set(erased.entries)
    for thread, step in list(store.maintenance().commits()):
        if entries.intersection(step.commit.entries):
            yield thread, step
