"""A branch as a vendor's body or list of messages.

There are three cases:

- An imported file with no later commits is returned unchanged.
- An export for the same vendor and model, with the same tools and parameters, keeps the form of the
  file: members that a thread does not store, their order, list or JSON lines, and the cache
  breakpoints of all messages that are still there.
- For another model or vendor the request is encoded from the thread. Members that the target cannot
  express are reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from msgspec import Struct, structs

from weft.catalog import load_catalog
from weft.codec import CODECS, Target, thread_path, write_request
from weft.errors import WeftError
from weft.history import Setup, show_rows
from weft.model import JsonObject, Loss, Message, Position, Request, make_loss
from weft.thread.compaction import portable_summary
from weft.thread.compiled import (
    NO_MARKS,
    NO_REST,
    PORTABLE_TOKENS,
    Recipe,
    with_portable_summaries,
    without_stale_thinking,
    write_params,
)
from weft.thread.handle import Handle
from weft.thread.importing import LISTS, RequestFile, read_request_file
from weft.thread.importing.lines import join_lines
from weft.thread.source_lines import SourceLines, read_source_lines

Written = tuple[bytes, tuple[Loss, ...]]


class _Content(Struct, frozen=True):
    """The content of a branch for a vendor; `losses` are the blocks that are not sent."""

    head: str | None
    messages: tuple[Message, ...]
    setup: Setup
    losses: tuple[Loss, ...]


def write_body(handle: Handle, format: str, model: str | None = None) -> Written:
    """The arguments of the vendor's `create(**...)`, with `model` if one is given."""
    content = _read_content(handle, format)
    recipe = Recipe(head=content.head, protocol=format, model=model)
    attached, is_untouched = _find_source(handle)
    file = None if attached is None else _parse_source(attached)
    if attached is None or file is None:
        return _encode_new(content, recipe)
    is_own = attached.format == format and model in (None, file.model)
    if is_own and is_untouched:
        return _source_bytes(attached), ()
    marks, mark_losses = _move_marks(file.request, content.messages)
    is_same_setup = content.setup == Setup(file.request.tools, file.request.params)
    if is_own and is_same_setup:
        data, losses = _encode_as_file(content, file, marks)
    else:
        data, losses = _encode_new(
            content, recipe, marks, file.request.rest if is_same_setup else NO_REST
        )
    return data, (*mark_losses, *losses)


def _read_content(handle: Handle, protocol: str) -> _Content:
    view = handle.view(handle.head())
    rows, stale_losses = without_stale_thinking(show_rows(view.rows), view.stale_signatures())
    head = None if view.head is None else view.head.hex()
    portable = partial(portable_summary, handle, view.head, tokens=PORTABLE_TOKENS)
    messages = [row.message for row in rows]
    readable, summary_losses = with_portable_summaries(messages, protocol, portable)
    return _Content(head, readable, view.setup or Setup(), (*stale_losses, *summary_losses))


def write_untouched(handle: Handle, format: str) -> bytes | None:
    """The file that the branch was imported from, if no commit came after it."""
    attached, is_untouched = _find_source(handle)
    return (
        _source_bytes(attached) if attached and is_untouched and attached.format == format else None
    )


def dump(value: object) -> bytes:
    """A value as indented JSON."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _find_source(handle: Handle) -> tuple[SourceLines | None, bool]:
    """The newest list or body imported into the branch, and whether no commit came after it."""
    head = handle.head()
    chain = [] if head is None else handle.store.walk(handle.name, head)
    for step in reversed(chain):
        attached = read_source_lines(step)
        if attached is not None and attached.format in LISTS:
            return attached, step is chain[-1]
    return None, False


def _parse_source(attached: SourceLines) -> RequestFile | None:
    """The request in the file; `None` if `forget` removed parts of it."""
    try:
        return read_request_file(_source_bytes(attached), attached.format)
    except WeftError:
        return None


def _source_bytes(attached: SourceLines) -> bytes:
    return join_lines(line.text for line in attached.lines)


def _encode_new(
    content: _Content,
    recipe: Recipe,
    marks: Mapping[Position, Any] = NO_MARKS,
    rest: Mapping[str, Any] = NO_REST,
) -> Written:
    body = write_params(recipe, content.messages, content.setup, content.losses, marks, rest)
    return dump(body), body.losses


def _encode_as_file(content: _Content, file: RequestFile, marks: Mapping[Position, Any]) -> Written:
    """The request of the file, with the current messages."""
    original = file.request
    wire = original.wire
    request = structs.replace(
        original,
        messages=content.messages,
        marks=marks,
        wire=None if wire is None else structs.replace(wire, locate=thread_path),
    )
    model = load_catalog().find(file.model or "")
    written = write_request(request, CODECS[file.protocol], Target(model))
    losses = (*content.losses, *written.losses)
    body = {name: written.body[name] for name in file.body if name in written.body}
    body |= {name: value for name, value in written.body.items() if name not in ("model", *body)}
    return _dump_as_file(body, file), losses


def _dump_as_file(body: JsonObject, file: RequestFile) -> bytes:
    """The body in the shape of the file: a list if the file is a list and has nothing else."""
    if file.shape == "body" or list(body) != list(file.body):
        return dump(body)
    (items,) = body.values()
    if file.shape == "lines":
        return b"".join(orjson.dumps(item) + b"\n" for item in items)
    return dump(items)


def _move_marks(
    original: Request, messages: Sequence[Message]
) -> tuple[dict[Position, Any], list[Loss]]:
    """The cache breakpoints at their new positions, and a loss for each whose message is gone."""
    positions = dict(_moved(original.messages, messages))
    marks: dict[Position, Any] = {}
    losses: list[Loss] = []
    for position, mark in original.marks.items():
        number = position[0] if position else None
        if not isinstance(number, int):
            marks[position] = mark
        elif number in positions:
            marks[positions[number], *position[1:]] = mark
        else:
            path = position if original.wire is None else original.wire.locate(position)
            losses.append(make_loss("cache_breakpoint_dropped", str(path)))
    return marks, losses


def _moved(
    old_messages: Sequence[Message], new_messages: Sequence[Message]
) -> Iterator[tuple[int, int]]:
    """The old and new index of each message that is still there.

    Messages are compared without their origin, which the file does not have.
    """
    start = 0
    candidates = [structs.replace(message, origin=None) for message in new_messages]
    for number, message in enumerate(old_messages):
        if message in candidates[start:]:
            start = candidates.index(message, start) + 1
            yield number, start - 1
