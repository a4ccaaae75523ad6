"""The cost of translating a body is linear in its length, also for unusual bodies.

Each row is translated twice, the second time with ten times the length. Linear cost is ten times as
much. A search from the start for each path, id or difference would make it a hundred times.
"""

import orjson
import pytest

import weft
from growth import grows_linearly

A, C, R, G = "anthropic", "openai-chat", "openai-responses", "gemini"
MANY = 5000
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


PICTURE = [
    {"type": "text", "text": "look"},
    {"type": "image_url", "image_url": {"url": "https://a/b"}},
]
BODIES = {
    "one id in all turns": lambda n: chat(*[USER, calls("x"), result("x")] * (n // 3)),
    "parallel calls of one id": lambda n: chat(USER, calls(*["x"] * n), *[result("x")] * n),
    "parallel calls of refused ids": lambda n: chat(
        USER, calls(*(f"c.{i}" for i in range(n))), *(result(f"c.{i}") for i in range(n))
    ),
    "calls without results": lambda n: chat(USER, calls(*(f"c{i}" for i in range(n))), USER),
    "results without calls": lambda n: chat(*(result(f"c{i}") for i in range(n))),
    "instructions between words that repeat": lambda n: chat(
        *[USER, {"role": "developer", "content": "be brief"}] * (n // 2)
    ),
    "results with pictures": lambda n: chat(
        USER,
        calls(*(f"c{i}" for i in range(n))),
        *({**result(f"c{i}"), "content": PICTURE} for i in range(n)),
    ),
    "calls with members of their own": lambda n: responses(
        *(
            {"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}", "id": "i"}
            for i in range(n)
        )
    ),
    "tools with members of their own": lambda n: responses(
        {"role": "user", "content": "hi"},
        tools=[
            {"type": "function", "name": f"f{i}", "parameters": {"type": "object"}, "odd": 1}
            for i in range(n)
        ],
    ),
}


@pytest.mark.parametrize("target", [A, C, R, G])
@pytest.mark.parametrize("name", BODIES)
def test_the_cost_of_an_odd_body_grows_with_its_length(name, target):
    source, _ = BODIES[name](3)
    if source == target:
        pytest.skip("the same protocol")

    def there_and_back(body):
        done = weft.translate(orjson.dumps(body), source, target)
        round_trip = weft.translate(done.body, target, source, model="m", sidecar=done.sidecar)
        assert orjson.loads(round_trip.body) == body

    short, long = BODIES[name](MANY // 10)[1], BODIES[name](MANY)[1]
    assert grows_linearly(there_and_back, short, long, times=10)
