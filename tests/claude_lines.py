"""Builds session files in Claude Code's format: one line for each call of `Session`."""

import json
from typing import Any

SESSION = "5e55104e-0000-4000-8000-000000000001"


class Session:
    """Lines in file order; every line follows the one before it unless it is told otherwise."""

    def __init__(self, session: str = SESSION) -> None:
        self.lines: list[str] = []
        self.session = session
        self.last: str | None = None
        self._count = 0

    @property
    def data(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()

    def uuid(self, number: int) -> str:
        return f"00000000-0000-4000-8000-{number:012d}"

    def add(self, **members: Any) -> str:
        """A line with a uuid, in the order of members that Claude Code writes."""
        self._count += 1
        uuid = self.uuid(self._count)
        value = {
            "parentUuid": members.pop("parent", self.last),
            "isSidechain": members.pop("sidechain", False),
            "sessionId": self.session,
            "cwd": "/project",
            "version": "2.1.325",
            **members,
            "uuid": uuid,
            "timestamp": f"2026-02-11T21:{self._count // 60:02d}:{self._count % 60:02d}.000Z",
        }
        self.raw(value)
        self.last = uuid
        return uuid

    def raw(self, value: Any) -> None:
        """A line as it is; a text is not made JSON first."""
        text = value if isinstance(value, str) else _dump(value)
        self.lines.append(text)

    def user(self, content: Any, **members: Any) -> str:
        return self.add(type="user", message={"role": "user", "content": content}, **members)

    def result(self, call: str, text: str, **members: Any) -> str:
        block = {"tool_use_id": call, "type": "tool_result", "content": text}
        return self.user([block], **members)

    def answer(self, id: str, block: dict[str, Any], **members: Any) -> str:
        message = {
            "model": "claude-opus-4-6",
            "id": id,
            "type": "message",
            "role": "assistant",
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 5},
        }
        return self.add(type="assistant", message=message, requestId=f"req_{id}", **members)

    def says(self, id: str, text: str, **members: Any) -> str:
        return self.answer(id, {"type": "text", "text": text}, **members)

    def calls(self, id: str, call: str, **members: Any) -> str:
        block = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": call}}
        return self.answer(id, block, **members)

    def progress(self, **members: Any) -> str:
        return self.add(type="progress", data={"type": "hook_progress"}, **members)

    def compacts(self, summary: str, preserved: tuple[str, ...] = ()) -> str:
        """A boundary and its summary."""
        about: dict[str, Any] = {"trigger": "auto", "preTokens": 40017}
        if preserved:
            about["preservedMessages"] = {"uuids": list(preserved)}
        self.add(
            type="system",
            subtype="compact_boundary",
            parent=None,
            logicalParentUuid=self.last,
            content="Conversation compacted",
            compactMetadata=about,
        )
        return self.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
