"""Time grows with the length of a body, not with its square, however odd the body is.

Each row takes well under a second where every step is looked at once, and ten or more where a path,
an id or a difference is looked for from the beginning each time.
"""

from time import perf_counter

import orjson
import pytest
from hypothesis import given, strategies as st

import weft
from weft.codec.sidecar import differing

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
MANY = 5000
SECONDS = 6
USER = {"role": "user", "content": "hi"}


def calls(*ids):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids
        ],
    }


def result(call_id):
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def chat(*messages, **members):
    return C, {"model": "m", "messages": list(messages), **members}


def responses(*items, **members):
    return R, {"model": "m", "input": list(items), **members}


LONG = range(MANY)
PICTURE = [
    {"type": "text", "text": "look"},
    {"type": "image_url", "image_url": {"url": "https://a/b"}},
]
BODIES = {
    "one id in all turns": chat(*[USER, calls("x"), result("x")] * (MANY // 3)),
    "parallel calls of one id": chat(USER, calls(*["x"] * MANY), *[result("x")] * MANY),
    "parallel calls of refused ids": chat(
        USER, calls(*(f"c.{n}" for n in LONG)), *(result(f"c.{n}") for n in LONG)
    ),
    "calls without results": chat(USER, calls(*(f"c{n}" for n in LONG)), USER),
    "results without calls": chat(*(result(f"c{n}") for n in LONG)),
    "instructions between words that repeat": chat(
        *[USER, {"role": "developer", "content": "be brief"}] * (MANY // 2)
    ),
    "results with pictures": chat(
        USER,
        calls(*(f"c{n}" for n in LONG)),
        *({**result(f"c{n}"), "content": PICTURE} for n in LONG),
    ),
    "calls with members of their own": responses(
        *(
            {"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}", "id": "i"}
            for n in LONG
        )
    ),
    "tools with members of their own": responses(
        {"role": "user", "content": "hi"},
        tools=[
            {"type": "function", "name": f"f{n}", "parameters": {"type": "object"}, "odd": 1}
            for n in LONG
        ],
    ),
}


@pytest.mark.parametrize(
    ("name", "target"),
    [(name, t) for name, (source, _) in BODIES.items() for t in (A, C, R, G) if t != source],
)
def test_a_long_odd_body_takes_no_longer_than_its_length(name, target):
    source, body = BODIES[name]
    data = orjson.dumps(body)
    start = perf_counter()
    done = weft.translate(data, source, target)
    home = weft.translate(done.body, target, source, model="m", sidecar=done.sidecar)
    assert perf_counter() - start < SECONDS
    assert orjson.loads(home.body) == body


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_what_lies_between_differing_regions_is_the_same(ours, theirs):
    made, done = [], 0
    for i, j, start, end in differing(ours, theirs):
        made += theirs[done:start] + ours[i:j]
        done = end
    assert made + theirs[done:] == ours
    assert list(differing(ours, ours)) == []
