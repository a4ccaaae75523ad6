"""Conversations that were kept elsewhere, taken into a thread.

`read_script` finds out what a file is and reads it; `import_bytes` commits it. Nothing here opens
files or asks the environment: bytes come in.
"""

from collections.abc import Callable

from weft.codec import CODECS
from weft.errors import ThreadError

from .claude_code import read_claude_code
from .codex import read_codex
from .landing import Landed, land_script
from .lines import read_object
from .lists import TYPED, Listed, guess_protocol, parse, read_list, read_listed
from .script import Folded, Progress, Remark, Said, Script

__all__ = [
    "IMPORTS",
    "LISTS",
    "Folded",
    "Landed",
    "Listed",
    "Progress",
    "Remark",
    "Said",
    "Script",
    "detect_format",
    "land_script",
    "read_listed",
    "read_script",
]

LINES: dict[str, Callable[[bytes, Progress | None], Script]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
}
LISTS = (*CODECS, TYPED)
IMPORTS = (*LINES, *LISTS)
"""The formats that can be read, by the names they are asked for."""

SAMPLE = 20


def read_script(data: bytes, format: str | None = None, progress: Progress | None = None) -> Script:
    """What a file says; raises `ThreadError` where nothing here can read it."""
    name = format or detect_format(data)
    if name in LINES:
        return LINES[name](data, progress)
    if name in LISTS:
        return read_list(data, name)
    raise ThreadError(f"no import reads {name!r}; there are {', '.join(IMPORTS)}")


def detect_format(data: bytes) -> str:
    """Which of the formats a file has, by what only one of them says."""
    for raw in data.split(b"\n", SAMPLE)[:SAMPLE]:
        value = read_object(raw)
        if value is None:
            continue
        if "sessionId" in value or "parentUuid" in value or "leafUuid" in value:
            return "claude-code"
        if "payload" in value and "type" in value:
            return "codex"
    found = guess_protocol(parse(data))
    if found is None:
        raise ThreadError(f"this is no conversation that an import can read ({', '.join(IMPORTS)})")
    return found
