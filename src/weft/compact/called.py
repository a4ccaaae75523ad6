"""What tool calls tell without interpretation: open tasks, commands, files, failed calls.

Everything is read from the keys and the values of arguments, from the status of tasks, and from
whether a result is an error. Every item is a quotation of one argument; a command, and a call that
failed, also has the last line of its result.
"""

from collections.abc import Iterator, Sequence

from weft.lazy import lazy_pattern

from .quote import GAP, clip
from .source import Passage, ToolUse

TASKS_BEGUN, TASKS_OPEN = "Tasks in progress", "Open tasks"
COMMANDS = "Last commands, newest first"
FILES_CHANGED, FILES_READ = "Files changed, newest first", "Files read, newest first"
FAILED = "Failed calls, newest first"

MAX_TASKS, MAX_COMMANDS, MAX_FILES, MAX_FAILED = 12, 8, 20, 6
"""How many items of each kind are listed at most. More than these did not raise what later calls
need at 10 %: the lines and the index have the older ones."""

MAX_ITEM_CHARS, MAX_RESULT_CHARS = 200, 160
"""The longest command or task, and the longest line of a result."""

CLOSED = frozenset({"completed", "complete", "done", "cancelled", "canceled", "deleted"})
"""The statuses of tasks that are not open any more."""

TEXT_KEYS = ("content", "step", "title", "subject", "task", "text", "description")

_LISTED = lazy_pattern(rf"([\w.]+)\.(\d+)\.({'|'.join(TEXT_KEYS)}|status|state)")
"""The key of a member of a task in a list, such as `todos.0.content`."""

_TASK_NUMBER = lazy_pattern(r"#(\d+)")
_INFORMATIVE = lazy_pattern(r"[^\W_]{2}")


def tool_facts(uses: Sequence[ToolUse]) -> Iterator[tuple[str, str]]:
    """The items with their headings, the most important first."""
    tasks = _open_tasks(uses)[:MAX_TASKS]
    for text in [text for text, status in tasks if status.startswith("in")]:
        yield TASKS_BEGUN, text
    for text in [text for text, status in tasks if not status.startswith("in")]:
        yield TASKS_OPEN, text
    for use in _last_commands(uses):
        if use.command is not None:
            yield COMMANDS, shorten(use.command, MAX_ITEM_CHARS) + _outcome(use)
    files = _files(uses)
    for heading, is_changed in ((FILES_CHANGED, True), (FILES_READ, False)):
        paths = [path for path, changed in files.items() if changed is is_changed]
        for path in paths[-1 : -MAX_FILES - 1 : -1]:
            yield heading, path
    failed = [use for use in uses if use.is_error and use.command is None]
    for use in failed[-1 : -MAX_FAILED - 1 : -1]:
        about = f" {shorten(use.about, MAX_ITEM_CHARS)}" if use.about else ""
        yield FAILED, f"{use.name}{about}{_outcome(use)}"


def _last_commands(uses: Sequence[ToolUse]) -> list[ToolUse]:
    """The last run of each of the last commands, the newest first."""
    commands: dict[str, ToolUse] = {}
    for use in reversed(uses):
        if use.command is not None and len(commands) < MAX_COMMANDS:
            commands.setdefault(use.command.text.strip(), use)
    return list(commands.values())


def _files(uses: Sequence[ToolUse]) -> dict[str, bool]:
    """The files of calls that did not fail, and whether a call changed them; the newest last."""
    files: dict[str, bool] = {}
    for use in uses:
        if use.is_error or use.result is None:
            continue
        for passage, start, end, changes in use.files:
            path = passage.text[start:end].strip()
            if path and "\n" not in path:
                files[path] = files.pop(path, False) or changes
    return files


def _open_tasks(uses: Sequence[ToolUse]) -> list[tuple[str, str]]:
    """The tasks of the last list in a call's arguments that are not done, with their status; or
    those that single calls created and no call closed."""
    for use in reversed(uses):
        tasks = _listed_tasks(use)
        if tasks:
            return [(text, status) for text, status in tasks if status not in CLOSED]
    numbered: dict[str, tuple[Passage, str]] = {}
    for use in uses:
        number, status = (use.find((key,)) for key in ("taskId", "status"))
        subject = use.find(("subject",))
        if number is not None and number.text in numbered:
            text, old_status = numbered[number.text]
            numbered[number.text] = (subject or text, status.text if status else old_status)
        elif number is None and subject is not None and use.result is not None:
            created = _TASK_NUMBER.search(use.result.text)
            if created:
                numbered[created[1]] = (subject, "")
    return [
        (shorten(passage, MAX_ITEM_CHARS), status)
        for passage, status in numbered.values()
        if status not in CLOSED
    ]


def _listed_tasks(use: ToolUse) -> list[tuple[str, str]]:
    """The texts and statuses of a list of tasks in a call's arguments."""
    tasks: dict[tuple[str, str], dict[str, Passage]] = {}
    for key, passage in use.arguments.items():
        match = _LISTED.fullmatch(key)
        if match:
            tasks.setdefault((match[1], match[2]), {})[match[3]] = passage
    listed: list[tuple[str, str]] = []
    for task in tasks.values():
        status = task.get("status") or task.get("state")
        text = next((task[key] for key in TEXT_KEYS if key in task), None)
        if status is not None and text is not None:
            listed.append((shorten(text, MAX_ITEM_CHARS), status.text.lower()))
    return listed


def _outcome(use: ToolUse) -> str:
    """The last line of a result that has words, after an arrow; empty without one."""
    if use.result is None:
        return ""
    for raw in reversed(use.result.text.splitlines()):
        line = raw.strip()
        if _INFORMATIVE.search(line):
            return f"\n-> {_shorten_line(line, MAX_RESULT_CHARS)}"
    return ""


def shorten(passage: Passage, max_chars: int) -> str:
    """A passage on one line, with its middle left out if it is long."""
    return " ".join(clip(passage, max_chars).text.split())


def _shorten_line(line: str, max_chars: int) -> str:
    return line if len(line) <= max_chars else f"{line[:max_chars].rstrip()} {GAP}"
