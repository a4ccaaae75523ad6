"""The frozen exam talks in `bench/exam`, as rows. Nobody tunes on them, and they never change."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from weft.history import Row
from weft.ids import object_id
from weft.model import Message, Text, ToolCall, ToolResult

FOLDER = Path(__file__).parent.parent / "bench" / "exam"

_BLOCK = re.compile(r"\n\n(?=(?:system|user|assistant|result|call [^\s:]+):)")


def read_talks(folder: Path = FOLDER) -> Iterator[tuple[str, list[Row]]]:
    """The name and the rows of each talk."""
    for path in sorted(folder.glob("**/*.txt")):
        yield path.stem, read_talk(path.read_text())


def read_talk(text: str) -> list[Row]:
    """The rows of a talk: blocks that begin with their speaker."""
    messages: list[Message] = []
    open_calls: list[str] = []
    for number, block in enumerate(_BLOCK.split(text.strip())):
        speaker, _, body = block.partition(":")
        body = body.strip()
        if speaker == "result":
            messages.append(Message("tool", (ToolResult(open_calls.pop(0), (Text(body),)),)))
        elif speaker.startswith("call "):
            open_calls.append(f"call_{number}")
            arguments = json.dumps(json.loads(body), ensure_ascii=False)
            call = ToolCall(open_calls[-1], speaker.removeprefix("call "), arguments)
            messages.append(Message("assistant", (call,)))
        else:
            messages.append(Message(speaker, (Text(body),)))
    return [Row(object_id("slot", b"%d" % n), message) for n, message in enumerate(messages)]
