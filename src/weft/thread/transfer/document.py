"""A whole thread as one HTML or Markdown document, to be read by people.

The document has every branch, every message that was ever in it, and every compaction and edit
where it happened. A branch that starts in another one has only the messages after the fork. A tag
is shown at its message, or has a section like a branch if its commit is on no branch.
Signatures and encrypted thinking are left out.

The HTML file is safe to open: it has no scripts, and fetches nothing (a content security policy
enforces that). All text is escaped, and terminal codes and invisible direction marks become
visible. Images are included if they are small bitmaps.

In the Markdown file a message stays in its turn, and nothing is fetched. Headings that could be
taken for those of the document, HTML, images and link definitions are escaped, an open code block
is closed, and a text with code blocks that readers could understand in different ways becomes one
code block.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby

from msgspec import Struct

from weft import exact_json
from weft.history import CLIENT_TEXT, TAG, Row, View
from weft.ids import Id
from weft.model import (
    Audio,
    Block,
    Checkpoint,
    File,
    Image,
    Inline,
    Message,
    Opaque,
    Redacted,
    Refusal,
    Reminder,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    describe_call,
    is_system,
)
from weft.printable import clean_text, without_escape_sequences
from weft.store import Step
from weft.thread.handle import Handle

Render = Callable[[str], str]
"""Converts Markdown of an untrusted author to safe HTML."""

REWRITES = {
    "compact": "Compacted",
    "edit": "Edited",
    "merge": "Merged",
    "revert": "Reverted",
    "splice": "Changed",
}
"""The labels of commits that change messages, by kind."""

BITMAPS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
TITLE_LENGTH = 100
IMAGE_CHARACTERS = 4_000_000
"""Larger images, in characters of base64, are named instead of shown."""

MAX_INDENT = 3
"""A line that is indented further cannot end a code block that starts at the margin."""

BLANK = " \t"
_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marks>`{3,}(?=[^`]*$)|~{3,})")
_INNER_FENCE = re.compile(r"[ \t]*(?:(?:[-*+>]|\d+[.)])[ \t]*)*(?:`{3,}|~{3,})")
"""Also the first line of a code block that begins on the line of a list item or a quotation."""

_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ESCAPED = re.compile(rf"{_TAG.pattern}|\]:|!\[")
"""The beginning of a tag, the end of a link definition, and the beginning of an image."""

_ESCAPES = {"<": "&lt;", "]:": "]\\:", "![": "!\\["}
_HEADING = re.compile(r" {0,3}#{1,3}(?:[ \t]|$)")
"""A heading of a level that the document itself uses."""

_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_TICKS = re.compile(r"`+")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --mark: #06c; --bad: #c33; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 3rem; }
.facts, .time { color: #777; font-size: .85rem; }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem 1rem; }
article { margin: 1rem 0; }
article > header { display: flex; gap: 1rem; justify-content: space-between; font-weight: 600; }
article.user { background: var(--soft); }
article.change { border-left: 4px solid var(--mark); }
.removed > header::after { content: "no longer sent"; font-weight: 400; color: #777; }
.text, pre { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }
.text > p:first-child { margin-top: 0; }
pre { font: .85rem/1.45 ui-monospace, monospace; background: var(--soft); padding: .6rem; }
details { margin: .4rem 0; } summary { cursor: pointer; color: #777; overflow-wrap: anywhere; }
.failed > summary { color: var(--bad); }
img { max-width: 100%; }
.rendered { white-space: normal; }
"""


class Entry(Struct, frozen=True):
    """A message with the id and time of its commit.

    `is_current`: the branch still has it. `change` is the label of the rewrite that added it, and
    `removed` the number of messages that the rewrite removed.
    """

    id: str
    created: float
    message: Message
    is_current: bool
    change: str | None = None
    removed: int = 0
    tags: tuple[str, ...] = ()


class Branch(Struct, frozen=True):
    """A branch with its own entries; `fork` is the id of the message that it starts after.

    `is_tag`: it is not a branch, but the commits of a tag that is on no branch.
    """

    name: str
    entries: tuple[Entry, ...]
    is_current: bool = False
    fork: str | None = None
    is_tag: bool = False


def write_html(handle: Handle, render: Render | None = None) -> bytes:
    """The thread as one HTML file. `render` shows the text of messages as Markdown."""
    title = _title(handle)
    branches = read_branches(handle)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{_safe(title)}</title><style>{STYLE}</style></head><body>",
        f'<h1>{_safe(title)}</h1><p class="facts">{_safe(_describe_thread(handle, branches))}</p>',
    ]
    if len(branches) > 1:
        links = (f'<li><a href="#b{n}">{_safe(b.name)}</a></li>' for n, b in enumerate(branches))
        parts.append(f"<nav><ul>{''.join(links)}</ul></nav>")
    for number, branch in enumerate(branches):
        if len(branches) > 1:
            parts.append(f'<h2 id="b{number}">{_safe(_heading(branch))}</h2>')
            if branch.fork is not None:
                parts.append(f'<p class="facts"><a href="#m{branch.fork}">starts here</a></p>')
        parts += (_article(entry, render) for entry in branch.entries)
    parts.append("</body></html>\n")
    return "\n".join(parts).encode()


def write_markdown(handle: Handle) -> bytes:
    """The thread as one Markdown file."""
    branches = read_branches(handle)
    lines = [
        f"# {_one_line(_title(handle))}",
        "",
        _one_line(_describe_thread(handle, branches)),
        "",
    ]
    for branch in branches:
        if len(branches) > 1:
            lines += [f"## {_one_line(_heading(branch))}", ""]
        if branch.fork is not None:
            lines += [f"Starts after message `{branch.fork[:12]}`.", ""]
        for entry in branch.entries:
            lines += _markdown_entry(entry)
    return "\n".join(lines).encode()


def read_branches(handle: Handle) -> tuple[Branch, ...]:
    """The thread's branches, the current one first, each with the messages that only it has."""
    heads = handle.store.refs(handle.name)
    names = sorted(heads, key=lambda name: (name != handle.branch, name.startswith(TAG), name))
    tags: dict[Id, tuple[str, ...]] = {}
    for name in names:
        if name.startswith(TAG):
            tags[heads[name]] = (*tags.get(heads[name], ()), name.removeprefix(TAG))
    known_commits: set[Id] = set()
    branches: list[Branch] = []
    for name in names:
        is_tag = name.startswith(TAG)
        if is_tag and heads[name] in known_commits:
            continue
        steps = list(handle.store.walk(handle.name, heads[name]))
        entries = _read_entries(steps, tags)
        own_entries = tuple(entry for id, entry in entries if id not in known_commits)
        shared = [entry for id, entry in entries if id in known_commits]
        fork = shared[-1].id if shared and branches else None
        title = name.removeprefix(TAG) if is_tag else name
        branches.append(Branch(title, own_entries, name == handle.branch, fork, is_tag))
        known_commits.update(step.commit.id for step in steps)
    return tuple(branches)


def _read_entries(
    steps: Sequence[Step], tags: Mapping[Id, tuple[str, ...]]
) -> list[tuple[Id, Entry]]:
    """Each message that the steps add, with the commit that added it.

    A tag is shown at the last message up to its commit.
    """
    view = View()
    added: list[tuple[Step, Row, int]] = []  # with the number of messages that were removed
    for is_rewrite, group in groupby(steps, key=lambda step: step.commit.kind in REWRITES):
        if is_rewrite:
            for step in group:
                view = _extend_by_rewrite(view, step, added)
        else:
            view = _extend_by_appends(view, list(group), added)
    current = {(row.id, id(row.message)) for row in view.rows}
    message_tags = _tags_by_message(steps, [step.commit.id for step, _, _ in added], tags)
    return [
        (step.commit.id, _entry(step, row, removed, current, message_tags.get(number, ())))
        for number, (step, row, removed) in enumerate(added)
    ]


def _extend_by_appends(
    view: View, steps: Sequence[Step], added: list[tuple[Step, Row, int]]
) -> View:
    """The view after these commits; the rows that they append are put into `added`."""
    ids_before = {row.id for row in view.rows}
    steps_by_id = {step.commit.id: step for step in steps}
    view = view.extend(steps)
    for row in view.rows:
        if row.id not in ids_before and row.id in steps_by_id:
            added.append((steps_by_id[row.id], row, 0))
    return view


def _extend_by_rewrite(view: View, step: Step, added: list[tuple[Step, Row, int]]) -> View:
    """The view after a rewrite; the rows that it adds or changes are put into `added`."""
    before = {row.id: row.message for row in view.rows}
    view = view.extend([step])
    removed = len(before.keys() - {row.id for row in view.rows})
    new_rows = [row for row in view.rows if before.get(row.id) is not row.message]
    # Only the first row reports the removed messages.
    added += [(step, row, removed if n == 0 else 0) for n, row in enumerate(new_rows)]
    return view


def _tags_by_message(
    steps: Sequence[Step], commits: Sequence[Id], tags: Mapping[Id, tuple[str, ...]]
) -> dict[int, tuple[str, ...]]:
    """The tags of each message, by its number; `commits` are the commits of the messages."""
    last_messages = {commit: number for number, commit in enumerate(commits)}
    message_tags: dict[int, tuple[str, ...]] = {}
    last = -1
    for step in steps:
        last = last_messages.get(step.commit.id, last)
        if last >= 0 and step.commit.id in tags:
            message_tags[last] = (*message_tags.get(last, ()), *tags[step.commit.id])
    return message_tags


def _entry(
    step: Step,
    row: Row,
    removed: int,
    current: set[tuple[Id | None, int]],
    tags: tuple[str, ...],
) -> Entry:
    commit = step.commit.id
    # A commit that rewrites may have several messages, so their slots are part of the id.
    slot = "" if row.id is None or row.id == commit else f"-{row.id.hex()[:12]}"
    return Entry(
        commit.hex() + slot,
        step.commit.created,
        row.message,
        (row.id, id(row.message)) in current,
        REWRITES.get(step.commit.kind),
        removed,
        tags,
    )


def _article(entry: Entry, render: Render | None) -> str:
    message = entry.message
    role = "tool" if _is_results(message) else message.role
    label = _label(entry, role)
    classes = f"{message.role}{' change' if entry.change else ''}"
    classes += "" if entry.is_current else " removed"
    body = "\n".join(part for block in message.blocks for part in _html_block(block, role, render))
    if is_system(message):
        body = _details(f"system prompt, {len(body):,} characters", body)
    return (
        f'<article id="m{entry.id}" class="{classes}"><header><span>{_safe(label)}</span>'
        f'<time class="time">{_time(entry.created)}</time></header>\n{body}\n</article>'
    )


def _html_block(block: Block, role: str, render: Render | None) -> Iterator[str]:
    match block:
        case Text(text) | Refusal(text):
            if role == "user":
                yield from _html_typed(text, render)
            else:
                yield _html_text(text, render)
        case Thinking():
            if block.text:
                yield _details("thinking", f"<pre>{_safe(block.text)}</pre>")
        case ToolCall():
            yield _details(describe_call(block), f"<pre>{_safe(_pretty(block.arguments))}</pre>")
        case ToolResult():
            inner = "\n".join(part for b in block.content for part in _html_result(b))
            failed = "failed: " if block.is_error else ""
            yield _details(
                f"{failed}{block.name or 'result'}", inner, "failed" if block.is_error else ""
            )
        case Image(source):
            yield _html_image(source)
        case File() | Audio():
            yield f"<p>[{_safe(_media_name(block))}]</p>"
        case Reminder(text):
            yield _details("reminder", f"<pre>{_safe(text)}</pre>")
        case Redacted() | Checkpoint() | Opaque():
            return


def _html_typed(text: str, render: Render | None) -> Iterator[str]:
    """A user's text: the typed parts are shown, the parts that the client added are collapsed."""
    end = 0
    for match in CLIENT_TEXT.finditer(text):
        if text[end : match.start()].strip():
            yield _html_text(text[end : match.start()].strip(), render)
        yield _details(match[1] or "added by the client", f"<pre>{_safe(match[0])}</pre>")
        end = match.end()
    if text[end:].strip():
        yield _html_text(text[end:].strip(), render)


def _html_text(text: str, render: Render | None) -> str:
    if render is None:
        return f'<div class="text">{_safe(text)}</div>'
    return f'<div class="text rendered">{render(_visible(text))}</div>'


def _html_result(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        yield f"<pre>{_safe(block.text)}</pre>"
    else:
        yield from _html_block(block, "tool", None)


def _html_image(source: object) -> str:
    if (
        isinstance(source, Inline)
        and source.media_type in BITMAPS
        and len(source.data) <= IMAGE_CHARACTERS
        and _BASE64.fullmatch(source.data)
    ):
        return f'<img alt="image" src="data:{source.media_type};base64,{source.data}">'
    return "<p>[image]</p>"


def _details(label: str, body: str, classes: str = "") -> str:
    attribute = f' class="{classes}"' if classes else ""
    return f"<details{attribute}><summary>{_safe(label)}</summary>\n{body}\n</details>"


def _markdown_entry(entry: Entry) -> Iterator[str]:
    message = entry.message
    role = "tool" if _is_results(message) else message.role
    yield f"### {_one_line(_label(entry, role))} · {_time(entry.created)}"
    yield ""
    if not entry.is_current:
        yield "*No longer sent.*"
        yield ""
    for block in message.blocks:
        yield from _markdown_block(block)


def _markdown_block(block: Block) -> Iterator[str]:
    match block:
        case Text(text) | Refusal(text):
            yield _contained(text)
        case Thinking():
            if not block.text:
                return
            yield "\n".join(f"> {line}" for line in _contained(block.text).splitlines())
        case ToolCall():
            yield f"**{_one_line(describe_call(block))}**\n\n{_fenced(_pretty(block.arguments))}"
        case ToolResult():
            texts = [
                b.text if isinstance(b, Text) else f"[{_media_name(b)}]" for b in block.content
            ]
            failed = "**failed**\n\n" if block.is_error else ""
            yield failed + _fenced("\n".join(texts))
        case Image() | File() | Audio():
            yield _one_line(f"[{_media_name(block)}]")
        case Reminder(text):
            yield _fenced(text)
        case Redacted() | Checkpoint() | Opaque():
            return
    yield ""


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{_visible(text)}\n{fence}"


def _contained(text: str) -> str:
    """The text as Markdown that can neither look like another turn nor include the next one.

    Code blocks at the start of a line are recognised by the rules of CommonMark
    (https://spec.commonmark.org/0.31.2/). An indented code block, as in a list, is recognised if
    its end has the same indent as its start. A text with any other code block becomes one code
    block.
    """
    lines = _visible(text).splitlines()
    parts: list[str] = []
    paragraph: list[str] = []
    position = 0
    while position < len(lines):
        fence = _FENCE.match(lines[position])
        if fence is None:
            if _INNER_FENCE.match(lines[position]):
                return _fenced(text)
            if lines[position].strip(BLANK):
                paragraph.append(lines[position])
            else:
                parts += [*_escaped(paragraph), lines[position]]
                paragraph = []
            position += 1
            continue
        end = _fence_end(lines, position, fence)
        code = lines[position : end + 1]
        if fence["indent"] and (end == len(lines) or any(map(_TAG.search, code))):
            return _fenced(text)
        parts += [*_escaped(paragraph), *code]
        if end == len(lines):  # the code block is open: close it
            parts.append(fence["marks"])
        paragraph = []
        position = end + 1
    return "\n".join([*parts, *_escaped(paragraph)])


def _fence_end(lines: Sequence[str], start: int, fence: re.Match[str]) -> int:
    """The line that ends a code block, or the number of lines if none does."""
    indent, marks = fence["indent"], fence["marks"]
    for position in range(start + 1, len(lines)):
        line = lines[position]
        closing = line.strip(BLANK)
        line_indent = line[: len(line) - len(line.lstrip(BLANK))]
        is_end = len(closing) >= len(marks) and not closing.strip(marks[0])
        if not indent:
            if is_end and "\t" not in line_indent and len(line_indent) <= MAX_INDENT:
                return position
        elif closing and not line.startswith(indent):
            return len(lines)
        elif is_end:
            return position if line_indent == indent else len(lines)
    return len(lines)


def _escaped(paragraph: Sequence[str]) -> Iterator[str]:
    """The lines with escapes in headings, tags, images and link definitions."""
    spans = [_code_spans(line) for line in paragraph]
    has_open_span = None in spans  # it may go on in the next line: treat nothing as code
    for number, line in enumerate(paragraph):
        code = [] if has_open_span else spans[number] or []

        def escape_part(part: re.Match[str], code: list[tuple[int, int]] = code) -> str:
            if any(start <= part.start() < end for start, end in code):
                return part[0]
            return _ESCAPES[part[0]]

        escaped = _ESCAPED.sub(escape_part, line)
        makes_heading = number > 0 and _UNDERLINE.match(line)  # of the line above it
        if _HEADING.match(line) or makes_heading:
            start = len(escaped) - len(escaped.lstrip())
            escaped = f"{escaped[:start]}\\{escaped[start:]}"
        yield escaped


def _code_spans(line: str) -> list[tuple[int, int]] | None:
    """The start and end of each code span in a line; `None` if one does not end on the line."""
    if "\\`" in line:
        return None
    backticks = [(run.start(), run.end()) for run in _TICKS.finditer(line)]
    spans: list[tuple[int, int]] = []
    while backticks:
        start, end = backticks.pop(0)
        length = end - start
        closing = next((n for n, run in enumerate(backticks) if run[1] - run[0] == length), None)
        if closing is None:
            return None
        spans.append((start, backticks[closing][1]))
        del backticks[: closing + 1]
    return spans


def _title(handle: Handle) -> str:
    from weft.thread.store_threads import read_title  # imports this package

    record = handle.store.read_thread(handle.name)
    title = (record and read_title(handle.store, record)) or handle.name
    return title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1] + "…"


def _describe_thread(handle: Handle, branches: Sequence[Branch]) -> str:
    times = [entry.created for branch in branches for entry in branch.entries]
    messages = sum(entry.change is None for b in branches for entry in b.entries)
    period = f", {_time(min(times))} to {_time(max(times))}" if times else ""
    count = sum(not branch.is_tag for branch in branches)
    branch_count = f", {count} branches" if count > 1 else ""
    return f"thread {handle.name}, {messages} messages{branch_count}{period}"


def _heading(branch: Branch) -> str:
    if branch.is_tag:
        return f"Tag {branch.name}"
    return f"Branch {branch.name}{' (current)' if branch.is_current else ''}"


def _label(entry: Entry, role: str) -> str:
    label = role if entry.change is None else f"{entry.change} ({_describe_removed(entry.removed)})"
    return "".join((label, *(f", tag {name}" for name in entry.tags)))


def _describe_removed(removed: int) -> str:
    return f"{removed} message{'' if removed == 1 else 's'} replaced"


def _time(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _pretty(arguments: str) -> str:
    try:
        return exact_json.dumps(
            exact_json.loads(arguments), option=exact_json.OPT_INDENT_2
        ).decode()
    except exact_json.JSONDecodeError:
        return arguments


def _media_name(block: Block) -> str:
    name = getattr(block, "name", None)
    return f"{type(block).__name__.lower()}{f' {name}' if name else ''}"


def _is_results(message: Message) -> bool:
    return bool(message.blocks) and all(isinstance(b, ToolResult) for b in message.blocks)


def _visible(text: str) -> str:
    """The text without terminal colours; characters that hide or reorder text become visible."""
    return clean_text(without_escape_sequences(text))


def _safe(text: str) -> str:
    """The text as HTML."""
    return escape(_visible(text))


def _one_line(text: str) -> str:
    """The text on one line, with Markdown's markup escaped."""
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", " ".join(_visible(text).split()))
