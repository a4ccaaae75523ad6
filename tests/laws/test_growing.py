"""A longer conversation does not change its prefix, in any protocol.

Vendors cache a prefix by its bytes. A request that writes an earlier turn differently is charged in
full again.
"""

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import weft
from corpus import recorded, sent_by_clients
from laws.judges import LISTS
from laws.wire_bodies import BODIES, MODEL, PROTOCOLS

PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS if a != b]
SETUP = {
    "anthropic": ("system", "tools"),
    "openai-chat": ("tools",),
    "openai-responses": ("instructions", "tools"),
    "gemini": ("systemInstruction", "tools"),
}
SPOKEN = frozenset(
    {
        "custom_tool_call",
        "function_call",
        "reasoning",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""Item types of Responses that come from the assistant or its server."""


def is_answer(item):
    """Whether an item comes from the model."""
    return item.get("role") in ("assistant", "model") or item.get("type") in SPOKEN


def turns_of(body, protocol):
    """The body before each answer of the model."""
    texts = body.get(LISTS[protocol])
    for at in range(1, len(texts) if isinstance(texts, list) else 0):
        if is_answer(texts[at]) and not is_answer(texts[at - 1]):
            yield body | {LISTS[protocol]: texts[:at]}


def changed(body, source, target):
    """The turns whose own translation is not a prefix of the translation of the whole body."""
    model, name = body.get("model", MODEL["gemini"]), LISTS[target]
    whole = orjson.loads(weft.translate(orjson.dumps(body), source, target, model=model).body)
    texts = body.get(LISTS[source])
    has_tools = isinstance(texts, list) and any("tools" in item for item in texts)
    setup = [key for key in SETUP[target] if key != "tools" or not has_tools]  # on the way
    turns = []
    for number, earlier in enumerate(turns_of(body, source)):
        sent = orjson.loads(weft.translate(orjson.dumps(earlier), source, target, model=model).body)
        same = all(sent.get(key) == whole.get(key) for key in setup)
        if not same or whole[name][: len(sent[name])] != sent[name]:
            turns.append(number)
    return turns


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_earlier_request_is_a_prefix_of_a_later_one(source, target, data):
    assert changed(data.draw(BODIES[source]), source, target) == []


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_recorded_conversations_keep_their_prefix(source, target):
    bodies = [(exchange["id"], exchange["request"]) for exchange in recorded(source)]
    moved, refused = {}, 0
    for key, body in bodies + sent_by_clients(source):
        try:
            turns = changed(body, source, target)
        except weft.Refused:
            refused += 1
            continue
        if turns:
            moved[key] = turns
    assert moved == {}
