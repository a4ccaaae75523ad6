"""Request bodies and message lists of all protocols, and dicts with `content_type`.

**Reading.** A list has only messages. A body may also have tools and parameters, which become a
setup. Both are decoded by the same codecs as the gateway's traffic. Dicts with `content_type` are
read as `Thread.commit` reads them, including priorities. The file is stored with its last message.
So an export can return it unchanged, including members that a thread does not store (cache
breakpoints, unknown members).

**Writing.** There are three cases:

- If the branch has no commit after an imported file, an export in the file's own format, and for
  its own model, returns the file unchanged.
- An export in the same format and for the same model, with the same tools and parameters, keeps the
  form of the file: members that a thread does not store, their order, list or JSON lines, and the
  cache breakpoints of all messages that are still there.
- In all other cases the request is encoded from the thread, and losses are reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

from msgspec import Struct, structs

from weft import exact_json
from weft.catalog import load_catalog
from weft.codec import CODECS, Target, thread_path, write_request
from weft.errors import ThreadError, WeftError
from weft.history import PRIORITIES, Priority, Setup, visible_rows
from weft.model import (
    JsonObject,
    Loss,
    Message,
    Origin,
    Params,
    Position,
    Redacted,
    Request,
    Thinking,
    ToolResult,
    make_loss,
)
from weft.thread.compaction import portable_summary
from weft.thread.compiled import (
    NO_MARKS,
    NO_OTHER_MEMBERS,
    PORTABLE_TOKENS,
    Recipe,
    with_portable_summaries,
    without_stale_thinking,
    write_params,
)
from weft.thread.content import (
    METADATA_KEY,
    Content,
    content_type,
    extract_text_from_content,
    hidden_members,
    read_content,
    to_message,
)
from weft.thread.handle import Handle
from weft.thread.info import auto_note
from weft.thread.source_lines import SourceLine, SourceLines, read_source_lines

from .plan import ImportPlan, MessageStep, Remark, SetupStep, Step, join_lines

ExportedBody = tuple[bytes, tuple[Loss, ...]]
"""The bytes of an export, and its losses."""

ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image"}
)
"""Types of blocks that Chat Completions does not have."""

ITEM_TYPES = frozenset({"function_call", "function_call_output", "reasoning", "message"})
"""Types of items of the Responses API."""

DICTS = "dicts"
"""The format of a list of dicts with `content_type`."""

LIST_FORMATS = (*CODECS, DICTS)
"""The formats that this module reads and writes."""

PLACEHOLDER_MODEL = "model"
"""The model name for a body without one, because the codecs need one. It is never stored."""


class RequestFile(Struct, frozen=True):
    """A file with one request: the decoded request, its body, and the shape of the file."""

    protocol: str
    request: Request
    body: JsonObject
    shape: Literal["body", "list", "lines"]

    @property
    def model(self) -> str | None:
        """The model that the file names, if it does."""
        return self.request.model if "model" in self.body else None


def read_messages_file(data: bytes, format: str) -> ImportPlan:
    """Parse a list, a body or JSON lines of messages."""
    file = read_request_file(data, format)
    steps, remarks = (_dict_steps(parse(data)), ()) if file is None else _request_steps(file)
    if steps and isinstance(steps[-1], MessageStep):
        lines = (SourceLine(0, data.decode()),)
        steps[-1] = structs.replace(steps[-1], lines=lines, is_file=True)
    return ImportPlan(
        format=format,
        steps=tuple(steps),
        branches={"main": steps[-1].key} if steps else {},
        remarks=remarks,
    )


def read_request_file(data: bytes, format: str) -> RequestFile | None:
    """The request in a file; `None` for dicts with `content_type`."""
    if format == DICTS:
        return None
    value = parse(data)
    codec = CODECS[format]
    body = {codec.conversation_member: cast(Any, value)} if isinstance(value, list) else value
    if not isinstance(body, dict):
        raise ThreadError(f"a {format} conversation must be a list or an object")
    body = cast(JsonObject, body)
    request = codec.decode_request(body, str(body.get("model") or PLACEHOLDER_MODEL))
    is_list = data.lstrip().startswith(b"[")  # else JSON lines, of which `parse` makes a list
    shape = "body" if isinstance(value, dict) else "list" if is_list else "lines"
    return RequestFile(format, request, body, shape)


ROLES = ("user", "assistant", "model", "system", "developer", "tool")
DOCUMENT_STARTS = (b"<!", b"# ")
"""How an HTML or a Markdown file begins."""


def parse(data: bytes) -> Any:
    """The value of a JSON file, or the list of a JSON lines file; raises `ThreadError`."""
    try:
        value = exact_json.loads(data)
        return [value] if _is_message(value) else value
    except exact_json.JSONDecodeError as error:
        return _parse_lines(data, error)


def _parse_lines(data: bytes, error: Exception) -> list[Any]:
    """The values of a JSON lines file; `error` is why the file is not one JSON value."""
    values: list[Any] = []
    for number, line in enumerate(data.splitlines()):
        if not line.strip():
            continue
        try:
            values.append(exact_json.loads(line))
        except exact_json.JSONDecodeError:
            if data.lstrip()[:2] in DOCUMENT_STARTS:
                raise ThreadError(
                    "this is an HTML or Markdown document, which cannot be imported; "
                    "`weft export --format archive` writes a file that can"
                ) from None
            if number == 0:
                raise ThreadError(f"this file is not JSON: {error}") from None
            raise ThreadError(f"line {number + 1} of this file is not JSON") from None
    return values


def _is_message(value: Any) -> bool:
    """Whether an object is one message: a file of JSON lines may have only one line."""
    if not isinstance(value, dict):
        return False
    members = cast(JsonObject, value)
    has_content = "content" in members or "parts" in members
    return (members.get("role") in ROLES and has_content) or "content_type" in members


def guess_format(value: Any) -> str | None:
    """Guess the format of a list or body from members that only one format has.

    Without such members it is Chat Completions. `None` if it is neither a list of messages nor a
    body.
    """
    if isinstance(value, dict):
        body = cast(JsonObject, value)
        if isinstance(body.get("contents"), list):
            return "gemini"
        if "input" in body:
            return "openai-responses"
        messages = body.get("messages")
        if not isinstance(messages, list):
            return None
        tools = cast(list[Any], body.get("tools") or [])
        is_anthropic = "system" in body or any("input_schema" in tool for tool in tools)
        return (
            "anthropic"
            if is_anthropic or _has_anthropic_blocks(cast(list[Any], messages))
            else "openai-chat"
        )
    if not isinstance(value, list) or not all(
        isinstance(item, dict) for item in cast(list[Any], value)
    ):
        return None
    return _guess_list(cast(list[JsonObject], value))


def _guess_list(items: list[JsonObject]) -> str | None:
    """Guess the format of a list; `None` if it is none of `LIST_FORMATS`."""
    if any("content_type" in item for item in items):
        return DICTS
    if any("parts" in item for item in items):
        return "gemini"
    if any(item.get("type") in ITEM_TYPES for item in items) or _has_type(items, "input_text"):
        return "openai-responses"
    if _has_anthropic_blocks(items):
        return "anthropic"
    return "openai-chat" if all("role" in item for item in items) else None


def _has_anthropic_blocks(items: Sequence[Any]) -> bool:
    return any(_has_type(items, kind) for kind in ANTHROPIC_BLOCKS)


def _has_type(items: Sequence[Any], kind: str) -> bool:
    return any(
        isinstance(part, dict) and cast(JsonObject, part).get("type") == kind
        for item in items
        if isinstance(item.get("content"), list)
        for part in item["content"]
    )


def _request_steps(file: RequestFile) -> tuple[list[Step], tuple[Remark, ...]]:
    """A step for the setup, one for each message, and a remark for each member left out."""
    request = file.request
    steps: list[Step] = []
    if request.tools or request.params != Params():
        setup = Setup(request.tools, request.params)
        steps.append(SetupStep(key="setup", parent=None, setup=setup))
    for number, decoded in enumerate(request.messages):
        message = _with_origin(decoded, file.protocol)
        kind = _content_type(message)
        parent = steps[-1].key if steps else None
        note = auto_note(kind, message.text)
        steps.append(
            MessageStep(key=str(number), parent=parent, message=message, kind=kind, note=note)
        )
    remarks = (Remark("left out", 0, f"a thread does not store {path}") for path in request.rest)
    return steps, tuple(remarks)


def _with_origin(message: Message, protocol: str) -> Message:
    """Set the origin of a message with thinking: only the vendor that made it can verify it."""
    has_thinking = any(isinstance(block, Thinking | Redacted) for block in message.blocks)
    return structs.replace(message, origin=Origin(protocol)) if has_thinking else message


def _content_type(message: Message) -> str:
    has_results = any(isinstance(block, ToolResult) for block in message.blocks)
    return "tool_io" if has_results else "dialogue"


def _dict_steps(value: Any) -> list[Step]:
    """The steps of dicts with `content_type`, and optional `priority`, `message`, `metadata`."""
    steps: list[Step] = []
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise ThreadError(f"item {number} is not an object with a content_type")
        members = dict(cast(JsonObject, item))
        is_plain_message = "content_type" not in members and "role" in members
        if is_plain_message:
            members = {"content_type": "dialogue", **members, "text": members.pop("content", "")}
        options: JsonObject = {
            name: members.pop(name, None) for name in ("priority", "message", "metadata")
        }
        content = read_content(members, is_strict=False)
        kind = content_type(content)
        note = options["message"]
        if note is None:
            note = auto_note(kind, extract_text_from_content(content))
        steps.append(
            MessageStep(
                key=str(number),
                parent=steps[-1].key if steps else None,
                message=to_message(content),
                kind=kind,
                priority=_check_priority(options["priority"], number),
                note=str(note),
                metadata=_with_hidden_members(
                    _check_metadata(options["metadata"], number), content
                ),
            )
        )
    return steps


def _with_hidden_members(metadata: JsonObject | None, content: Content) -> JsonObject | None:
    """The metadata, with the members of the content that are not in the message."""
    hidden = hidden_members(content)
    return metadata if hidden is None else {METADATA_KEY: hidden, **(metadata or {})}


def _check_priority(value: Any, number: int) -> Priority:
    if value is None:
        return "normal"
    if value not in PRIORITIES:
        raise ThreadError(
            f"item {number}: unknown priority {value!r}; supported: {', '.join(PRIORITIES)}"
        )
    return value


def _check_metadata(value: Any, number: int) -> JsonObject | None:
    if value is not None and not isinstance(value, dict):
        raise ThreadError(f"item {number}: metadata must be an object")
    return cast(JsonObject | None, value)


class _BranchContent(Struct, frozen=True):
    """The messages and the setup of a branch, in a form that a vendor can read.

    `losses` report stale thinking, which was left out, and sealed summaries, which became text.
    """

    head: str | None
    messages: tuple[Message, ...]
    setup: Setup
    losses: tuple[Loss, ...]


def write_body(handle: Handle, format: str, model: str | None = None) -> ExportedBody:
    """The branch as the bytes of a file, and the losses.

    The file has a request body, or a list or JSON lines like the imported file; the module
    docstring has the three cases. `model` is written if it is given.
    """
    content = _read_branch(handle, format)
    recipe = Recipe(head=content.head, protocol=format, model=model)
    source, is_untouched = _find_source(handle)
    file = None if source is None else _parse_source(source)
    if source is None or file is None:
        return _encode_from_thread(content, recipe)
    is_same_target = source.format == format and model in (None, file.model)
    if is_same_target and is_untouched:
        return _source_bytes(source), ()
    marks, mark_losses = _move_marks(file.request, content.messages)
    is_same_setup = content.setup == Setup(file.request.tools, file.request.params)
    if is_same_target and is_same_setup:
        data, losses = _encode_as_file(content, file, marks)
    else:
        rest = file.request.rest if is_same_setup else NO_OTHER_MEMBERS
        data, losses = _encode_from_thread(content, recipe, marks, rest)
    return data, (*mark_losses, *losses)


def _read_branch(handle: Handle, protocol: str) -> _BranchContent:
    view = handle.view(handle.head())
    rows, stale_losses = without_stale_thinking(visible_rows(view.rows), view.stale_signatures())
    head = None if view.head is None else view.head.hex()
    portable_text = partial(portable_summary, handle, view.head, tokens=PORTABLE_TOKENS)
    messages = [row.message for row in rows]
    portable_messages, summary_losses = with_portable_summaries(messages, protocol, portable_text)
    losses = (*stale_losses, *summary_losses)
    return _BranchContent(head, portable_messages, view.setup or Setup(), losses)


def untouched_file(handle: Handle, format: str) -> bytes | None:
    """The file that the branch was imported from, if no commit came after it."""
    source, is_untouched = _find_source(handle)
    if source is None or not is_untouched or source.format != format:
        return None
    return _source_bytes(source)


def dump(value: object) -> bytes:
    """A value as indented JSON."""
    return exact_json.dumps(value, option=exact_json.OPT_INDENT_2 | exact_json.OPT_APPEND_NEWLINE)


def _find_source(handle: Handle) -> tuple[SourceLines | None, bool]:
    """The newest list or body imported into the branch, and whether no commit came after it."""
    head = handle.head()
    steps = [] if head is None else handle.store.walk(handle.name, head)
    for step in reversed(steps):
        source = read_source_lines(step)
        if source is not None and source.format in LIST_FORMATS:
            return source, step is steps[-1]
    return None, False


def _parse_source(source: SourceLines) -> RequestFile | None:
    """The request in the file; `None` for dicts with `content_type`, or if `forget` has removed
    parts of the file."""
    try:
        return read_request_file(_source_bytes(source), source.format)
    except WeftError:
        return None


def _source_bytes(source: SourceLines) -> bytes:
    return join_lines(line.text for line in source.lines)


def _encode_from_thread(
    content: _BranchContent,
    recipe: Recipe,
    marks: Mapping[Position, Any] = NO_MARKS,
    rest: Mapping[str, Any] = NO_OTHER_MEMBERS,
) -> ExportedBody:
    """The request in this protocol's usual form, not in the form of an imported file."""
    body = write_params(recipe, content.messages, content.setup, content.losses, marks, rest)
    return dump(body), body.losses


def _encode_as_file(
    content: _BranchContent, file: RequestFile, marks: Mapping[Position, Any]
) -> ExportedBody:
    """The request of the file, with the current messages."""
    original = file.request
    wire = original.wire  # losses name messages by their position in the thread, not in the file
    request = structs.replace(
        original,
        messages=content.messages,
        marks=marks,
        wire=None if wire is None else structs.replace(wire, locate=thread_path),
    )
    model = load_catalog().find(file.model or "")
    written = write_request(request, CODECS[file.protocol], Target(model))
    losses = (*content.losses, *written.losses)
    # The members of the file come first, in its order. A file without a model stays without one.
    body = {name: written.body[name] for name in file.body if name in written.body}
    body |= {name: value for name, value in written.body.items() if name not in ("model", *body)}
    return _dump_as_file(body, file), losses


def _dump_as_file(body: JsonObject, file: RequestFile) -> bytes:
    """The body in the shape of the file.

    If the file is a list or JSON lines, and the body has only messages, only these are written.
    """
    if file.shape == "body" or list(body) != list(file.body):
        return dump(body)
    (items,) = body.values()
    if file.shape == "lines":
        return b"".join(exact_json.dumps(item) + b"\n" for item in items)
    return dump(items)


def _move_marks(
    original: Request, messages: Sequence[Message]
) -> tuple[dict[Position, Any], list[Loss]]:
    """The cache breakpoints at their new positions, and a loss for each whose message is gone."""
    new_indexes = dict(_match_messages(original.messages, messages))
    marks: dict[Position, Any] = {}
    losses: list[Loss] = []
    for position, mark in original.marks.items():
        index = position[0] if position else None
        if not isinstance(index, int):  # not in a message, but in the tools or the whole request
            marks[position] = mark
        elif index in new_indexes:
            marks[new_indexes[index], *position[1:]] = mark
        else:
            path = position if original.wire is None else original.wire.locate(position)
            losses.append(make_loss("cache_breakpoint_dropped", str(path)))
    return marks, losses


def _match_messages(
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
