"""A body that repeats an earlier one: the parsed value is that of the whole body, always."""

import json
from random import Random
from typing import Any

import pytest

from weft.codec import CODECS, edit_json, find_layout
from weft.errors import Refused
from weft.gateway import ParsedBodies, ParsedBody, body_key, parse_body, parse_reusing

LONG = "The module reads its settings once. " * 20
TEXTS = (LONG, 'quotes " and \\ and }],[{"', "\u00e9\u4e2d\U0001f600 ", '","messages":[1],"a":"')


def message(protocol: str, role: str, text: str) -> dict[str, Any]:
    if protocol == "gemini":
        return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
    if protocol == "openai-responses":
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return {"role": role, "content": text}


def body_of(protocol: str, items: list[Any], order: int, **members: Any) -> dict[str, Any]:
    member = CODECS[protocol].conversation_member
    parts: list[dict[str, Any]] = [{"model": "m"}, {member: items}, {"max_tokens": 9, **members}]
    parts = parts[order:] + parts[:order]
    return {name: value for part in parts for name, value in part.items()}


def same(body: bytes, protocol: str, earlier: ParsedBody | None) -> ParsedBody:
    """Parse a body after an earlier one, and compare everything with a parse of the whole."""
    codec = CODECS[protocol]
    parsed = parse_reusing(body, codec.conversation_member, earlier)
    whole = parse_body(body)
    assert parsed.raw == whole
    assert json.dumps(parsed.raw) == json.dumps(whole)  # the order of members too
    if parsed.layout is not None:
        assert parsed.layout == find_layout(body, codec.conversation_member)
        changed = {**parsed.raw, "model": "other"}
        edited = edit_json(body, parsed.raw, changed, parsed.layout)
        assert edited == edit_json(body, whole, changed)
    if codec.decode_with_known is not None:
        request = codec.decode_with_known(parsed.raw, None, parsed.messages)
        decoded = codec.decode_request(whole, None)
        assert (request.messages, request.marks) == (decoded.messages, decoded.marks)
        assert (request.params, request.raw, request.rest) == (
            decoded.params,
            decoded.raw,
            decoded.rest,
        )
        parsed.keep_messages(request)
    return parsed


@pytest.mark.parametrize("protocol", sorted(CODECS))
def test_a_growing_and_changing_conversation_is_parsed_as_a_whole_body(protocol: str) -> None:
    member, reused = CODECS[protocol].conversation_member, 0
    for seed in range(40):
        random = Random(seed)
        indent = random.choice((None, None, 2))
        order = random.randrange(3)
        items: list[Any] = []
        parsed: ParsedBody | None = None
        for turn in range(14):
            text = f"{turn} {random.choice(TEXTS)}{LONG * random.randrange(8)}"
            items.append(message(protocol, "user", text))
            if random.random() < 0.15:  # an edit, a rewind, a compaction
                del items[random.randrange(len(items)) : -1]
            if random.random() < 0.1:
                items[random.randrange(len(items))] = message(
                    protocol, "user", random.choice(TEXTS)
                )
            members = {"temperature": random.random()} if random.random() < 0.3 else {}
            text = json.dumps(
                body_of(protocol, items, order, **members),
                indent=indent,
                ensure_ascii=random.random() < 0.2,
            )
            earlier, parsed = parsed, same(text.encode(), protocol, parsed)
            old = [] if earlier is None else earlier.raw[member]
            reused += sum(a is b for a, b in zip(old, parsed.raw[member], strict=False))
            items.append(message(protocol, "assistant", f"{turn} {random.choice(TEXTS)}"))
    assert reused > 100


def anthropic(items: list[Any], **members: Any) -> bytes:
    return json.dumps({"model": "m", "messages": items, "max_tokens": 9, **members}).encode()


def conversation(count: int) -> list[Any]:
    roles = ("user", "assistant")
    return [
        {"role": roles[n % 2], "content": [{"type": "text", "text": f"{n} {LONG * 4}"}]}
        for n in range(count)
    ]


def test_equal_items_are_the_same_objects_and_are_not_decoded_again() -> None:
    items = conversation(9)
    earlier = same(anthropic(items[:7]), "anthropic", None)
    parsed = same(anthropic(items), "anthropic", earlier)
    assert len(earlier.messages) == 7
    old, new = earlier.raw["messages"], parsed.raw["messages"]
    assert [n for n in range(9) if n < 7 and old[n] is new[n]] == [0, 1, 2, 3, 4, 5]
    assert parsed.messages[:6] == earlier.messages[:6]
    assert all(
        one is other for one, other in zip(parsed.messages[:6], earlier.messages, strict=False)
    )


def test_a_message_with_a_cache_mark_is_decoded_again() -> None:
    items = conversation(9)
    mark = {"cache_control": {"type": "ephemeral"}}
    items[3]["content"][0] |= mark
    earlier = same(
        anthropic(items[:7], system=[{"type": "text", "text": "s", **mark}]), "anthropic", None
    )
    parsed = same(
        anthropic(items, system=[{"type": "text", "text": "t", **mark}]), "anthropic", earlier
    )
    assert len(earlier.messages) == 3
    assert len(parsed.messages) == 3


@pytest.mark.parametrize(
    "tail",
    [
        b',"messages":[{"role":"user","content":"other"}]}',  # which of both counts?
        b',"mess\\u0061ges":[{"role":"user","content":"other"}]}',
        b',"messages":null}',
    ],
)
def test_a_conversation_that_comes_twice_is_parsed_as_a_whole(tail: bytes) -> None:
    items = conversation(9)
    earlier = parse_reusing(anthropic(items[:7]), "messages", None)
    body = anthropic(items)[:-1] + tail
    parsed = parse_reusing(body, "messages", earlier)
    assert parsed.raw == parse_body(body)
    assert parsed.layout is None
    following = anthropic(conversation(11))
    assert parse_reusing(following, "messages", parsed).raw == parse_body(following)


@pytest.mark.parametrize("tail", [b"", b'{"role":', b"nonsense]}", b'{"role":"\xff"}]}'])
def test_the_error_of_a_broken_body_names_its_place_in_the_whole_body(tail: bytes) -> None:
    items = conversation(9)
    earlier = parse_reusing(anthropic(items[:7]), "messages", None)
    whole = anthropic(items)
    body = whole[: whole.rindex(b'{"role"')] + tail
    with pytest.raises(Refused) as expected:
        parse_body(body)
    with pytest.raises(Refused) as error:
        parse_reusing(body, "messages", earlier)
    assert str(error.value) == str(expected.value)


def test_a_nested_body_is_refused_behind_an_equal_start() -> None:
    items = conversation(9)
    earlier = parse_reusing(anthropic(items[:7]), "messages", None)
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    with pytest.raises(Refused, match="nested deeper"):
        parse_reusing(anthropic([*items, {"role": "user", "content": deep}]), "messages", earlier)


def test_bodies_with_nothing_in_common_are_not_kept() -> None:
    items = conversation(9)
    parsed: ParsedBody | None = None
    for number in range(6):
        body = json.dumps({"clock": number, "messages": items, "model": "m"}).encode()
        parsed = same(body, "anthropic", parsed)
    assert parsed is not None
    assert (parsed.body, parsed.layout) == (b"", None)


def test_of_bodies_that_are_not_kept_the_cache_has_only_the_misses() -> None:
    items = conversation(9)
    bodies = ParsedBodies(limit=100_000)
    for session in range(200):
        for number in range(6):
            body = json.dumps({"clock": number, "messages": items, "model": "m"}).encode()
            bodies.put((session,), parse_reusing(body, "messages", bodies.get((session,))))
    cached = bodies.get((199,))
    assert cached is not None
    assert (cached.raw, cached.misses) == ({}, 3)
    assert bodies.get((0,)) is None  # they count too: the cache does not grow without limit
    bodies.put((199,), parse_reusing(anthropic(items[:1]), "messages", cached))
    assert bodies.get((199,)) is None  # a small body is not reused either


def test_small_bodies_are_parsed_whole() -> None:
    body = anthropic([{"role": "user", "content": "hi"}])
    assert same(body, "anthropic", None).layout is None


def test_the_oldest_bodies_are_dropped() -> None:
    bodies = ParsedBodies(limit=200_000)
    parsed = parse_reusing(anthropic(conversation(9)), "messages", None)
    for number in range(50):
        bodies.put((number,), parsed)
        bodies.put((number,), parsed)
    assert bodies.get((0,)) is None
    assert bodies.get((49,)) is parsed
    assert bodies.get(None) is None


def test_a_key_needs_a_session_and_separates_callers_and_models() -> None:
    headers = {"x-session-id": "s"}
    key = body_key("one", "anthropic", headers, b'{"model":"a"}')
    assert key is not None
    assert key == body_key("one", "anthropic", headers, b'{"model":"a"}')
    assert key != body_key("two", "anthropic", headers, b'{"model":"a"}')
    assert key != body_key("one", "anthropic", headers, b'{"model":"b"}')
    assert key != body_key("one", "anthropic", {"session-id": "s"}, b'{"model":"a"}')
    assert body_key("one", "anthropic", {"accept": "x"}, b"{}") is None
