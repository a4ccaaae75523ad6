"""A branch as a vendor's body or list of messages.

What was read from such a file is that file as long as nothing was done since. Afterwards its own
vendor gets it in the file's own shape: the members that a thread has no place for, the order they
stood in, a list where it was a list, lines where it was lines, and every cache mark whose message
still stands. All this holds for the model that the file was meant for, and as long as tools and
parameters are the file's. For another model or vendor the request is written anew from what it
means, and what that could not take along is reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct, structs

from weft.catalog import load_catalog
from weft.codec import CODECS, Target, thread_path, write_request
from weft.errors import WeftError
from weft.history import Setup, show_rows
from weft.model import JsonObject, Loss, Message, Place, Request, make_loss
from weft.thread.compiled import without_stale_thinking
from weft.thread.handle import Handle
from weft.thread.importing import LISTS, Listed, read_listed
from weft.thread.importing.lines import join_lines
from weft.thread.params import NO_MARKS, NO_REST, Recipe, write_params
from weft.thread.source_lines import SourceLines, read_source_lines

Written = tuple[bytes, tuple[Loss, ...]]


class _Said(Struct, frozen=True):
    """What a branch says that a vendor may be sent; `unsaid` stays behind."""

    head: str | None
    messages: tuple[Message, ...]
    setup: Setup
    unsaid: tuple[Loss, ...]


def write_body(handle: Handle, format: str, model: str | None = None) -> Written:
    """What the vendor's `create(**...)` takes, the model's name included if one is given."""
    said = _read_said(handle)
    recipe = Recipe(head=said.head, protocol=format, model=model)
    attached, is_untouched = _find(handle)
    listed = None if attached is None else _read(attached)
    if attached is None or listed is None:
        return _anew(said, recipe)
    is_own = attached.format == format and model in (None, listed.model)
    if is_own and is_untouched:
        return _data(attached), ()
    marks, lost = _marks(listed.request, said.messages)
    same = said.setup == Setup(listed.request.tools, listed.request.params)
    if is_own and same:
        data, losses = _as_listed(said, listed, marks)
    else:
        data, losses = _anew(said, recipe, marks, listed.request.rest if same else NO_REST)
    return data, (*lost, *losses)


def _read_said(handle: Handle) -> _Said:
    view = handle.view(handle.head())
    rows, unsaid = without_stale_thinking(show_rows(view.rows), view.stale_signatures())
    head = None if view.head is None else view.head.hex()
    return _Said(head, tuple(row.message for row in rows), view.setup or Setup(), unsaid)


def write_untouched(handle: Handle, format: str) -> bytes | None:
    """The file that the branch was read from, if it is still all that the branch says."""
    attached, is_untouched = _find(handle)
    return _data(attached) if attached and is_untouched and attached.format == format else None


def dump(value: object) -> bytes:
    """A value as a file that a person can read."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _find(handle: Handle) -> tuple[SourceLines | None, bool]:
    """The newest list or body that the branch was read from, and whether nothing came since."""
    head = handle.head()
    chain = [] if head is None else handle.store.walk(handle.name, head)
    for step in reversed(chain):
        attached = read_source_lines(step)
        if attached is not None and attached.format in LISTS:
            return attached, step is chain[-1]
    return None, False


def _read(attached: SourceLines) -> Listed | None:
    """What the file asks; nothing where `forget` left no whole JSON of it."""
    try:
        return read_listed(_data(attached), attached.format)
    except WeftError:
        return None


def _data(attached: SourceLines) -> bytes:
    return join_lines(line.text for line in attached.lines)


def _anew(
    said: _Said,
    recipe: Recipe,
    marks: Mapping[Place, Any] = NO_MARKS,
    rest: Mapping[str, Any] = NO_REST,
) -> Written:
    body = write_params(recipe, said.messages, said.setup, said.unsaid, marks, rest)
    return dump(body), body.losses


def _as_listed(said: _Said, listed: Listed, marks: Mapping[Place, Any]) -> Written:
    """The request as its file had it, with the messages that stand now."""
    was = listed.request
    wire = was.wire
    request = structs.replace(
        was,
        messages=said.messages,
        marks=marks,
        wire=None if wire is None else structs.replace(wire, locate=thread_path),
    )
    found = load_catalog().find(listed.model or "")
    written = write_request(request, CODECS[listed.protocol], Target(found))
    losses = (*said.unsaid, *written.losses)
    body = {name: written.body[name] for name in listed.body if name in written.body}
    body |= {name: value for name, value in written.body.items() if name not in ("model", *body)}
    return _shaped(body, listed), losses


def _shaped(body: JsonObject, listed: Listed) -> bytes:
    """A list where the file was one and a list can say it all."""
    if listed.shape == "body" or list(body) != list(listed.body):
        return dump(body)
    (items,) = body.values()
    if listed.shape == "lines":
        return b"".join(orjson.dumps(item) + b"\n" for item in items)
    return dump(items)


def _marks(was: Request, messages: Sequence[Message]) -> tuple[dict[Place, Any], list[Loss]]:
    """The cache marks in their new places, and those whose message changed or is gone."""
    places = dict(_moved(was.messages, messages))
    marks: dict[Place, Any] = {}
    lost: list[Loss] = []
    for place, mark in was.marks.items():
        number = place[0] if place else None
        if not isinstance(number, int):
            marks[place] = mark
        elif number in places:
            marks[places[number], *place[1:]] = mark
        else:
            path = place if was.wire is None else was.wire.locate(place)
            lost.append(make_loss("cache_breakpoint_dropped", str(path)))
    return marks, lost


def _moved(was: Sequence[Message], now: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Where messages stood that are still there, and where they stand now.

    Who made them is not in the file.
    """
    at = 0
    said = [structs.replace(message, origin=None) for message in now]
    for number, message in enumerate(was):
        if message in said[at:]:
            at = said.index(message, at) + 1
            yield number, at - 1
