"""The field tables in `docs/protocols` match the code."""

from pathlib import Path

import pytest

from protocol_rows import ROWS, table
from weft.codec import CODECS
from weft.codec.anthropic import BLOCKS
from weft.codec.chat import DELTA, PARTS as CHAT_PARTS
from weft.codec.gemini import OTHER_DATA, READERS
from weft.codec.responses import CALLS, PARTS as RESPONSES_PARTS, RESULTS

DOCS = Path(__file__).resolve().parents[1] / "docs" / "protocols"
TABLES = [(protocol, title) for protocol, titles in ROWS.items() for title in titles]
ELSEWHERE = ("passed through", "refused elsewhere")
"""Fields that a codec need not know: it passes unknown members through."""

KNOWN = {
    ("anthropic", "Request"): CODECS["anthropic"].fields.known,
    ("anthropic", "Blocks"): BLOCKS.keys(),
    ("openai-chat", "Request"): CODECS["openai-chat"].fields.known,
    ("openai-chat", "Messages"): DELTA,
    ("openai-chat", "Parts"): CHAT_PARTS.keys(),
    ("openai-responses", "Request"): CODECS["openai-responses"].fields.known,
    ("openai-responses", "Parts and items"): {*RESPONSES_PARTS, *CALLS, *RESULTS},
    ("gemini", "Request"): {
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        *(f"generationConfig.{name}" for name in CODECS["gemini"].fields.tree["generationConfig"]),
    },
    ("gemini", "Parts"): READERS.keys() - OTHER_DATA,
}


def documented(protocol: str, title: str) -> list[list[str]]:
    """The table under a heading of a protocol's page."""
    text = (DOCS / f"{protocol}.md").read_text()
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if set(row) != {"---"}]


@pytest.mark.parametrize(("protocol", "title"), TABLES)
def test_the_tables_have_exactly_the_known_fields(protocol, title):
    rows = {
        field.strip("`")
        for field, model_field, *_ in documented(protocol, title)[1:]
        if model_field not in ELSEWHERE
    }
    assert rows == set(KNOWN[protocol, title])


@pytest.mark.parametrize(("protocol", "title"), TABLES)
def test_every_cell_matches_the_translation(protocol, title):
    assert documented(protocol, title) == table(protocol, title)
