"""Imports of conversations from other programs.

`read_plan` detects the format of a file and parses it; `commit_plan` writes it to a thread. Both
work on bytes and do not open files or read the environment.
"""

from collections.abc import Callable

from weft.codec import CODECS
from weft.errors import ThreadError

from .claude_code import read_claude_code
from .codex import read_codex
from .commit import CommittedPlan, commit_plan
from .lines import read_object
from .lists import TYPED, RequestFile, guess_protocol, parse, read_list, read_request_file
from .plan import CompactionStep, ImportPlan, MessageStep, Progress, Remark

__all__ = [
    "IMPORTS",
    "LISTS",
    "CommittedPlan",
    "CompactionStep",
    "ImportPlan",
    "MessageStep",
    "Progress",
    "Remark",
    "RequestFile",
    "commit_plan",
    "detect_format",
    "read_plan",
    "read_request_file",
]

LINES: dict[str, Callable[[bytes, Progress | None], ImportPlan]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
}
LISTS = (*CODECS, TYPED)
IMPORTS = (*LINES, *LISTS)
"""The names of the formats that can be imported."""

SAMPLE = 20


def read_plan(
    data: bytes, format: str | None = None, progress: Progress | None = None
) -> ImportPlan:
    """Parse a file; raises `ThreadError` if no reader supports it."""
    name = format or detect_format(data)
    if name in LINES:
        return LINES[name](data, progress)
    if name in LISTS:
        return read_list(data, name)
    raise ThreadError(f"unknown import format {name!r}; supported: {', '.join(IMPORTS)}")


def detect_format(data: bytes) -> str:
    """Detect the format of a file from members that only one format has."""
    for raw in data.split(b"\n", SAMPLE)[:SAMPLE]:
        value = read_object(raw)
        if value is None:
            continue
        if "sessionId" in value or "parentUuid" in value or "leafUuid" in value:
            return "claude-code"
        if "payload" in value and "type" in value:
            return "codex"
    protocol = guess_protocol(parse(data))
    if protocol is None:
        raise ThreadError(
            f"this is not a conversation that Weft can import; supported: {', '.join(IMPORTS)}"
        )
    return protocol
