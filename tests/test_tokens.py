"""Token counts: exact for OpenAI's vocabularies, estimates for the others, never an exception."""

import base64
import json
import random
import struct
import zlib

import pytest
from hypothesis import given, settings, strategies as st

import weft
from corpus import recorded
from weft.catalog import load_catalog
from weft.compact import Gauge
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
    Tool,
    ToolCall,
    ToolResult,
    Url,
)
from weft.tokens import counter_for, counter_for_model, typescript

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
def test_text_tokens_are_counted(tokenizer, text: str, tokens: int) -> None:
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
def test_the_estimate_is_near_the_exact_count(text: str, low: float, high: float) -> None:
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
def test_every_kind_of_block_has_a_cost(tokenizer, block: Block) -> None:
    counter = counter_for(tokenizer)
    assert counter.message(Message("user", (block,))) > counter.message(Message("user"))


def test_media_are_counted_by_size_and_not_by_base64_length() -> None:
    picture = Image(Inline("aGk=" * 1_000_000, "image/png"))
    assert 50 < counter_for("o200k").block(picture) < 2_000


def test_an_unknown_tokenizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown tokenizer 'llama'"):
        counter_for("llama")


@pytest.mark.parametrize("hidden", [0, 346, 15_000])
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.35, 1.6])
def test_estimates_are_right_after_the_first_answer(hidden, factor):
    """Over a session: turns of any size, a hidden prompt, and a tokenizer of another density."""
    numbers = random.Random(7)
    gauge, estimate, errors = Gauge(), 400, []
    for turn in range(120):
        real = hidden + int(estimate * factor * numbers.uniform(0.97, 1.03))
        if turn:
            errors.append(abs(gauge.measure(estimate) - real) / real)
        gauge = gauge.learn(estimate, real, 1_000_000)
        estimate += numbers.choice([40, 300, 900, 4000])
    errors.sort()
    assert errors[len(errors) // 2] <= 0.05  # the reports themselves vary by 3 %
    assert errors[len(errors) * 9 // 10] <= 0.10


def test_an_outlier_in_one_report_changes_nothing():
    gauge = Gauge().learn(50_000, 60_000, 200_000)
    spiked = gauge.learn(50_400, 121_000, 200_000)
    assert spiked.measure(50_800) < 65_000
    assert spiked.learn(50_800, 61_000, 200_000).measure(50_800) == 61_000


def test_after_a_compaction_the_removed_part_counts_with_its_reported_size():
    with weft.open() as t:
        for n in range(60):
            t.user(f"Part {n}: " + "the service reads its settings from a file. " * 60)
            t.assistant("Understood.")
        tokens = t.compile().tokens
        t.record_usage({"input_tokens": int(tokens * 1.5), "output_tokens": 10})
        assert t.compile().calibrated == int(tokens * 1.5) + 10
        t.compact(budget=tokens // 5)
        left = t.compile()
        assert left.calibrated == pytest.approx(left.tokens * 1.5, rel=0.1)


def png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )


def jpeg(width: int, height: int) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 30_000) + bytes(29_998)
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + exif + frame


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def webp(width: int, height: int) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + bytes(4) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + sizes


def image(data: bytes, detail: str | None = None) -> Image:
    return Image(Inline(base64.b64encode(data).decode(), "image/x"), detail)


def tokens(model: str, block: Image) -> int:
    return counter_for_model(load_catalog().find(model)).block(block)


@pytest.mark.parametrize("write", [png, jpeg, gif, webp])
@pytest.mark.parametrize(
    ("model", "width", "height", "expected"),
    [
        ("claude-sonnet-4-5", 200, 200, 54),  # the examples of the vendors' pages
        ("claude-sonnet-4-5", 1000, 1000, 1334),
        ("claude-sonnet-4-5", 4000, 4000, 1600),
        ("claude-opus-4-8", 4000, 4000, 4784),
        ("gpt-4o", 1024, 1024, 765),
        ("gpt-4o", 2048, 4096, 1105),
        ("gpt-5", 1024, 1024, 630),
        ("gpt-4.1-mini", 1024, 1024, 1659),
        ("gemini-2.5-pro", 300, 300, 258),
        ("gemini-2.5-pro", 960, 540, 1548),
        ("gemini-3-pro", 960, 540, 1120),
    ],
)
def test_the_vendors_formula_is_used(write, model, width, height, expected):
    assert tokens(model, image(write(width, height))) == expected


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe1\xff\xff", b"RIFFxxxxWEBPVP8 ", png(0, 0)],
)
@pytest.mark.parametrize("model", ["claude-opus-4-8", "gpt-5", "gpt-5-mini", "gemini-2.5-pro"])
def test_a_damaged_image_counts_as_a_large_one(model, data):
    assert (
        tokens(model, image(data)) == tokens(model, Image(Url("https://example.com/a.png"))) > 500
    )


def test_low_detail_is_cheap():
    assert tokens("gpt-5", image(png(2000, 2000), "low")) == 70
    assert tokens("claude-sonnet-4-5", image(png(2000, 2000), "low")) == 85


def test_tools_count_with_the_prompt_that_the_vendor_adds():
    tools = (Tool("read", "Read a file.", {"type": "object", "properties": {}}),)
    counts = {
        model: counter_for_model(load_catalog().find(model)).request((Message("user", ()),), tools)
        for model in ("claude-opus-4-7", "claude-opus-4-8", "gpt-5")
    }
    assert counts["claude-opus-4-7"] - counts["claude-opus-4-8"] == 675 - 290
    assert counts["gpt-5"] < 60
    assert counter_for_model(load_catalog().find("claude-opus-4-7")).tools(()) == 0


def schema(**properties):
    return {"type": "object", "properties": properties, "required": [*properties][:1]}


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (None, "type f = () => any;"),
        ({"type": "object", "properties": {}}, "type f = () => any;"),
        (
            schema(city={"type": "string", "description": "Its name"}, days={"type": "integer"}),
            "type f = (_: {\n// Its name\ncity: string,\ndays?: number,\n}) => any;",
        ),
        (
            schema(unit={"type": "string", "enum": ["c", "f"]}, words={"type": "array"}),
            'type f = (_: {\nunit: "c" | "f",\nwords?: any[],\n}) => any;',
        ),
        (
            schema(ids={"type": "array", "items": {"type": "integer"}}),
            "type f = (_: {\nids: number[],\n}) => any;",
        ),
        (
            schema(name={"anyOf": [{"type": "string"}, {"type": "null"}]}),
            "type f = (_: {\nname: string | null,\n}) => any;",
        ),
        (
            schema(place=schema(x={"type": "number"})),
            "type f = (_: {\nplace: {\n  x: number,\n},\n}) => any;",
        ),
        (
            schema(node={"$ref": "#/$defs/Node"}) | {"$defs": {"Node": {"type": "boolean"}}},
            "type f = (_: {\nnode: boolean,\n}) => any;",
        ),
        (
            schema(node={"$ref": "#/$defs/Nowhere"}),  # invalid, but no reason to fail
            "type f = (_: {\nnode: any,\n}) => any;",
        ),
    ],
)
def test_tools_are_counted_as_openai_writes_them(parameters, text):
    start, end = "namespace functions {\n\n// What\n// it does\n", "\n\n} // namespace functions"
    assert typescript((Tool("f", "What\nit does", parameters),)) == start + text + end


def test_a_schema_that_refers_to_itself_is_counted():
    node = schema(next={"$ref": "#/$defs/Node"}, other={"$ref": "#/$defs/Node"})
    tool = Tool("f", None, schema(node={"$ref": "#/$defs/Node"}) | {"$defs": {"Node": node}})
    assert 0 < counter_for_model(load_catalog().find("gpt-5")).tools((tool,)) < 20_000
    many = schema(**{f"next_{number}": {"$ref": "#/$defs/Node"} for number in range(100)})
    tool = Tool("f", None, many | {"$defs": {"Node": many}})  # 100 ** 6 without a limit
    assert len(typescript((tool,))) < 2_000_000
    either = {"anyOf": [{"$ref": "#/$defs/Either"} for _ in range(100)]}
    tool = Tool("f", None, schema(a=either) | {"$defs": {"Either": either}})
    assert len(typescript((tool,))) < 2_000_000


@pytest.mark.parametrize("broken", [{"properties": 3}, {"properties": {"a": 1}}, {"required": 1}])
def test_a_wrong_schema_is_counted(broken):
    assert counter_for_model(load_catalog().find("gpt-5")).tools((Tool("f", None, broken),)) > 0


def prompt_tokens(exchange) -> int | None:
    """The tokens of the request, as the vendor reported them; None if it did not."""
    answers = [exchange.get("response")]
    for line in (exchange.get("sse") or "").splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            answers.append(event.get("response") or event)
    usages = [
        answer["usage"] for answer in answers if isinstance(answer, dict) and answer.get("usage")
    ]
    return (usages[-1].get("prompt_tokens") or usages[-1].get("input_tokens")) if usages else None


@pytest.mark.parametrize(
    ("protocol", "limit"),
    [("openai-chat", 0.02), ("openai-responses", 0.04)],
)
def test_recorded_requests_with_tools_are_counted_as_openai_does(protocol, limit):
    errors = []
    for exchange in recorded(protocol):
        body, tokens = exchange["request"], prompt_tokens(exchange)
        if exchange["host"] != "api.openai.com" or not tokens or not isinstance(body, dict):
            continue
        tools = body.get("tools") or []
        media = any(word in json.dumps(body) for word in ("image", '"file"', "audio", "input_file"))
        formatted = "json_schema" in json.dumps([body.get("response_format"), body.get("text")])
        unknown = {tool.get("type") for tool in tools} - {"function"}
        if not tools or unknown or media or formatted:  # these have tokens of their own
            continue
        if body.get("previous_response_id") or body.get("conversation"):
            continue
        request = weft.decode(body, protocol)
        counter = counter_for_model(load_catalog().find(request.model), protocol)
        error = abs(counter.request(request.messages, request.tools) - tokens) / tokens
        errors.append(error)
        assert tokens < 1000 or error < 0.1
    errors.sort()
    assert len(errors) > 30
    assert errors[len(errors) // 2] < limit
