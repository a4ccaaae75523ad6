"""How many of the names that a session needs later are in an extract of its beginning.

The first 70 % of a recorded session is compacted. The needed names are the ones in that part
that the agent writes again later. An extract must keep more of them than the most recent messages
of the same size.
"""

import gzip
import json

import pytest

import weft
from corpus import ROOT
from weft.compact import extract_summary, find_names
from weft.history import Row
from weft.model import Text, ToolCall, ToolResult, texts
from weft.tokens import counter_for

CORPUS = ROOT / "transcripts"
SESSIONS = ["258c7280", "8463c716"]

count = counter_for("estimate").message


def read_session(name: str) -> list[Row]:
    path = CORPUS / f"claude-code-{name}.jsonl.gz"
    if not path.exists():
        pytest.skip("the corpus of transcripts is not beside the repository")
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    remaining = [line["message"] for line in lines if line.get("type") in {"user", "assistant"}]
    messages = [{"role": message["role"], "content": message["content"]} for message in remaining]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1, "messages": messages}
    request = weft.decode(body, "anthropic")
    return [Row(b"%20d" % n, message) for n, message in enumerate(request.messages)]


def names(rows: list[Row], *, written: bool = False) -> set[str]:
    """The names in rows; `written` leaves only what the agent wrote."""
    names: set[str] = set()
    for row in rows:
        for block in row.message.blocks:
            match block:
                case ToolCall(arguments=arguments):
                    row_texts = [arguments]
                case ToolResult(content=content) if not written:
                    row_texts = list(texts(content))
                case Text(text=text) if not written or row.message.role == "assistant":
                    row_texts = [text]
                case _:
                    row_texts = []
            names.update(name for text in row_texts for _, name in find_names(text))
    return names


def newest(rows: list[Row], max_tokens: int) -> list[Row]:
    newest_rows: list[Row] = []
    for row in reversed(rows):
        max_tokens -= count(row.message)
        if max_tokens < 0:
            break
        newest_rows.append(row)
    return newest_rows


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize(("share", "least"), [(0.02, 0.40), (0.05, 0.60), (0.10, 0.75)])
def test_an_extract_keeps_more_needed_names_than_recency(
    session: str, share: float, least: float
) -> None:
    rows = read_session(session)
    border = len(rows) * 7 // 10
    old, later = rows[:border], rows[border:]
    needed = names(later, written=True) & names(old)
    max_tokens = int(sum(count(row.message) for row in old) * share)
    summary = extract_summary(old, max_tokens, count)
    assert summary is not None
    assert count(summary) <= max_tokens
    actual_texts = sum(name in summary.text for name in needed) / len(needed)
    recent = len(needed & names(newest(old, max_tokens))) / len(needed)
    assert actual_texts > max(least, recent)
