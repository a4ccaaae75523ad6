"""Counts: exact for OpenAI's vocabularies, near for the others, and never an exception."""

import pytest
from hypothesis import given, settings, strategies as st

from weft.errors import ConfigError
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
    Url,
)
from weft.tokens import counter_for

NAMES = ["o200k", "cl100k", "estimate"]


@pytest.mark.parametrize(
    ("tokenizer", "text", "tokens"),
    [
        ("o200k", "", 0),
        ("o200k", "hello world", 2),
        ("o200k", "<|endoftext|>", 7),  # a special token's name in a text is only text
        ("o200k", "a" * 200_000, 25_000),
        ("o200k", "hello world " * 100_000, 200_001),  # more than the wheel takes in one go
        ("cl100k", "hello world", 2),
        ("cl100k", "tiktoken is great!", 6),
        ("estimate", "", 0),
        ("estimate", " ", 1),
    ],
)
def test_text_is_counted(tokenizer, text: str, tokens: int) -> None:
    assert counter_for(tokenizer).text(text) == tokens


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("The quick brown fox jumps over the lazy dog near the river bank. " * 20, 0.9, 1.6),
        ("def read(path: str) -> bytes:\n    return open(path, 'rb').read()\n" * 20, 0.9, 1.6),
        ('{"id": "call_1", "name": "read_file", "arguments": {"path": "a.py"}}' * 20, 0.9, 1.6),
        ("模型上下文压缩是一个提交历史保持不变可以撤销" * 20, 0.9, 2.2),
        ("dGhpcyBpcyBhIHRlc3Qgb2YgYmFzZTY0IGVuY29kaW5nLCBpdCBpcyBkZWFy" * 20, 0.7, 1.6),
        ("2026-11-15 09:12:15,123 ERROR [pool-3] HTTP 502 in 1843 ms\n" * 20, 0.9, 1.7),
    ],
)
def test_the_estimate_stands_near_the_exact_count(text: str, low: float, high: float) -> None:
    ratio = counter_for("estimate").text(text) / counter_for("o200k").text(text)
    assert low < ratio < high


@pytest.mark.parametrize("tokenizer", NAMES)
@given(text=st.text(st.characters(exclude_categories=())))  # lone surrogates too
@settings(max_examples=100, deadline=None)
def test_no_text_makes_a_counter_raise(tokenizer, text: str) -> None:
    assert counter_for(tokenizer).text(text) >= (1 if text and tokenizer == "estimate" else 0)


BLOCKS: list[Block] = [
    Text("hello"),
    Refusal("no"),
    Thinking("because"),
    Redacted("x" * 40),
    ToolCall("c1", "read", '{"path": "a"}'),
    ToolResult("c1", (Text("content"), Image(Url("https://x/y.png")))),
    Reminder("be brief"),
    Checkpoint("abc123"),
    Image(Inline("aGk=" * 100_000, "image/png")),
    File(Inline("aGk=" * 100_000, "application/pdf")),
    Audio(Inline("aGk=" * 10_000, "audio/wav")),
    Opaque("anthropic", {"type": "server_tool_use", "text": "\ud800"}),
]


@pytest.mark.parametrize("tokenizer", NAMES)
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_every_kind_of_block_costs_something(tokenizer, block: Block) -> None:
    counter = counter_for(tokenizer)
    assert counter.message(Message("user", (block,))) > counter.message(Message("user"))


def test_media_cost_a_budget_of_their_own_and_not_their_base64() -> None:
    picture = Image(Inline("aGk=" * 1_000_000, "image/png"))
    assert counter_for("o200k").block(picture) < 2_000


def test_a_name_that_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown tokenizer 'llama'"):
        counter_for("llama")
