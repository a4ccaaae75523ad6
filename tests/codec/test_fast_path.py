"""The fast path gives the same body and the same losses as the codecs' tables."""

import json
import random

import orjson
import pytest
from hypothesis import given, settings, strategies as st

import weft
from corpus import recorded
from weft.catalog import load_catalog
from weft.codec import CODECS, Target, read_simple, verbatim, write_request
from weft.errors import Refused
from weft.exact_json import loads as loads_exactly

NO_RESULT = "no result was recorded for this call"
WIRES = [("anthropic", "openai-chat"), ("openai-chat", "anthropic")]


class LeftToCodecs(Exception):
    """The fast path asked for the decoded request."""


def fast(body, source, target, model=None):
    """What the fast path writes; `None` if it leaves the body to the codecs."""
    reader, writer = CODECS[source], CODECS[target]

    def decode():
        raise LeftToCodecs

    request = read_simple(body, reader, writer, model, decode)
    if request is None:
        return None
    destination = Target(load_catalog().find(request.setup.model), embed=verbatim)
    try:
        return write_request(request, writer, destination)
    except LeftToCodecs:
        return None


def outcome(body, source, target, **options):
    """The body, the sorted losses and the sidecar of a translation."""
    try:
        done = weft.translate(body, source, target, **options)
    except Refused as error:
        return "refused", error.message, error.param, error.status
    actual_result = json.loads(done.body) if isinstance(done.body, bytes) else done.body
    losses = sorted((loss.path, loss.code, loss.detail, loss.level) for loss in done.losses)
    return actual_result, list(actual_result), losses, done.path, done.sidecar


def assert_same(body, source, target, **options):
    """Assert that bytes, which may take the fast path, and a dict, which never does, give the
    same."""
    assert outcome(orjson.dumps(body), source, target, **options) == outcome(
        body, source, target, **options
    )


def call(call_id="call_1", name="look", arguments='{"path":"a"}'):
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def use(call_id="call_1", name="look", arguments=None):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {"path": "a"}}


def result(call_id="call_1", content="found"):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def tool(call_id="call_1", content="found"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def text(words="so"):
    return {"type": "text", "text": words}


def marked(block, mark=True):
    return {**block, "cache_control": {"type": "ephemeral"} if mark else None}


def thinking():
    return {"type": "thinking", "thinking": "so", "signature": "c2ln"}


def system(content="now"):
    return {"role": "system", "content": content}


def user(content="hello"):
    return {"role": "user", "content": content}


def assistant(content="hi", **more):
    return {"role": "assistant", "content": content, **more}


CALLED = [assistant(None, tool_calls=[call()]), tool()]
USED = [assistant([use()]), user([result()])]

SIMPLE = [
    ("openai-chat", [user()]),
    ("openai-chat", [user([text(), text()]), assistant(), user()]),
    ("openai-chat", [{"role": "system", "content": "brief"}, user(), assistant([text()]), user()]),
    ("openai-chat", [{"role": "developer", "content": [text()]}, user()]),
    ("openai-chat", [user(), *CALLED]),
    ("openai-chat", [user(), assistant("see", tool_calls=[call()]), tool(content=[text()])]),
    (
        "openai-chat",
        [
            user(),
            assistant(None, tool_calls=[call("a"), call("b", arguments='{ "n": 1.5 }')]),
            tool("b"),
            tool("a"),
            user(),
        ],
    ),
    ("openai-chat", [user(), assistant("", tool_calls=[call()]), tool(), user()]),
    ("openai-chat", [user(), assistant([], tool_calls=[call()]), tool(), user()]),
    ("openai-chat", [user(), assistant([text()], tool_calls=[call()]), tool()]),
    ("openai-chat", [user(), assistant([text(), text()], tool_calls=[call()]), tool()]),
    ("openai-chat", [user(), {"role": "assistant", "tool_calls": [call()]}, tool(), user()]),
    ("openai-chat", [{"role": "system", "content": "brief"}, user(), assistant("it is \n")]),
    ("anthropic", [user(), *USED[:1], user([{**result(), "is_error": True}])]),
    ("anthropic", [user(), *USED[:1], user([{**result(), "is_error": False}])]),
    (
        "anthropic",
        [
            user(),
            *USED[:1],
            user([{**result(content=NO_RESULT), "is_error": True}]),
        ],
    ),
    ("anthropic", [user()]),
    ("anthropic", [user([marked(text())])]),
    ("anthropic", [user([marked(text(), None), text()])]),
    ("anthropic", [user(), assistant([marked(use())]), user([marked(result())])]),
    ("anthropic", [user(), system(), assistant()]),
    ("anthropic", [user(), assistant(), system([marked(text()), text()]), system(), user()]),
    ("anthropic", [user(), assistant([thinking(), text()]), user()]),
    ("anthropic", [user(), assistant([thinking(), thinking(), text(), use()]), *USED[1:]]),
    ("anthropic", [user(), assistant([text(), thinking(), text(), thinking(), use()]), *USED[1:]]),
    ("anthropic", [user(), assistant([thinking(), use()]), *USED[1:], system()]),
    ("anthropic", [assistant(), user([text(), text()])]),
    ("anthropic", [user(), assistant([text()]), assistant([text(), text()])]),
    ("anthropic", [user(), *USED]),
    ("anthropic", [user(), assistant([text(), use()]), user([result(content=[text()])])]),
    ("anthropic", [user(), assistant([text(), text(" "), use()]), user([result()]), user()]),
    ("anthropic", [user(), assistant([use("a"), use("b")]), user([result("b"), result("a")])]),
    (
        "anthropic",
        [user(), assistant([use("a"), use("b")]), user([result("a")]), user([result("b")])],
    ),
    (
        "anthropic",
        [user(), assistant([use(arguments={"n": [1.5, None, {"é": 2**63}]})]), user([result()])],
    ),
]

UNUSUAL = [
    # more than words, calls and results
    ("anthropic", [user([text(), {"type": "image", "source": {"type": "url", "url": "x:y"}}])]),
    ("anthropic", [system(), user()]),
    ("anthropic", [user(), *USED[:1], system(), *USED[1:]]),
    ("anthropic", [user(), assistant([thinking()])]),
    ("anthropic", [user(), assistant([{"type": "thinking", "thinking": "so"}, text()])]),
    ("anthropic", [user(), *USED[:1], user([result(content=[marked(text())])])]),
    ("openai-chat", [user(), system(), assistant(), user()]),  # the model takes none there
    ("openai-chat", [user(), {"role": "developer", "content": "now"}, assistant(), user()]),
    ("openai-chat", [{**user(), "name": "bo"}]),
    ("openai-chat", [user(), assistant(None, refusal="no"), user()]),
    # calls without results, results without calls, and whatever stands between them
    ("anthropic", [user(), *USED[:1]]),
    ("anthropic", [user(), *USED[1:]]),
    ("anthropic", [user(), *USED[:1], user([*USED[1]["content"], text()])]),
    ("anthropic", [user(), *USED[:1], user([text(), *USED[1]["content"]])]),
    ("anthropic", [user(), assistant([use(), text()]), *USED[1:]]),
    ("anthropic", [user(), *USED, *USED]),
    ("openai-chat", [user(), CALLED[0], user(), CALLED[1]]),
    ("openai-chat", [user(), *CALLED, CALLED[1]]),
    ("openai-chat", [user(), *CALLED, *CALLED]),
    # ids, names and arguments that the target refuses
    ("anthropic", [user(), assistant([use("c" * 41)]), user([result("c" * 41)])]),
    ("anthropic", [user(), assistant([use("a-x12345678")]), user([result("a-x12345678")])]),
    ("anthropic", [user(), assistant([use(name="a.b")]), *USED[1:]]),
    ("openai-chat", [user(), assistant(None, tool_calls=[call("a.b")]), tool("a.b")]),
    ("openai-chat", [user(), assistant(None, tool_calls=[call(arguments="")]), tool()]),
    ("openai-chat", [user(), assistant(None, tool_calls=[call(arguments="[1]")]), tool()]),
    ("openai-chat", [user(), assistant(None, tool_calls=[call(arguments="{")]), tool()]),
    # words that say nothing, or in a form that the target has not
    ("openai-chat", [user(" \n")]),
    ("openai-chat", [user([text(), text("")])]),
    ("openai-chat", [user(), assistant([text("")], tool_calls=[call()]), tool()]),
    ("openai-chat", [user(), assistant([text(), text(" ")], tool_calls=[call()]), tool()]),
    ("openai-chat", [user(), {"role": "assistant"}, user()]),
    ("openai-chat", [user(), assistant([]), user()]),
    ("openai-chat", [user(), assistant(None), user()]),
    ("anthropic", [user("")]),
    ("anthropic", [user([])]),
    # parts that do not say what they are
    ("anthropic", [user([{"text": "so"}])]),
    ("anthropic", [user(), *USED[:1], user([result(content=[{"text": "so"}])])]),
    ("openai-chat", [user([{"text": "so"}])]),
    ("openai-chat", [user(), assistant([{"text": "so"}]), user()]),
    ("openai-chat", [user(), *CALLED[:1], tool(content=[{"text": "so"}])]),
    ("openai-chat", [{"role": "system", "content": [{"text": "so"}]}, user()]),
    # ends that the target does not take
    ("openai-chat", [assistant(), user()]),
    ("openai-chat", [{"role": "system", "content": "brief"}]),
    ("openai-chat", []),
]


def body_of(messages, **setup):
    return {"model": "claude-opus-4-1", "max_tokens": 9, **setup, "messages": messages}


def other(source):
    return dict(WIRES)[source]


@pytest.mark.parametrize(("source", "messages"), SIMPLE)
def test_a_simple_conversation_is_written_as_by_the_tables(source, messages):
    body = body_of(messages)
    assert fast(orjson.dumps(body), source, other(source)) is not None
    assert_same(body, source, other(source))


@pytest.mark.parametrize(("source", "messages"), UNUSUAL)
def test_any_other_content_is_left_to_the_tables(source, messages):
    body = body_of(messages)
    assert fast(orjson.dumps(body), source, other(source)) is None
    assert_same(body, source, other(source))


def test_a_model_without_prefill_support_gets_none():
    body = body_of([user(), assistant()])
    assert fast(orjson.dumps(body), "openai-chat", "anthropic") is not None
    body["model"] = "claude-opus-4-8"
    assert fast(orjson.dumps(body), "openai-chat", "anthropic") is None
    assert_same(body, "openai-chat", "anthropic")


IN_PLACE = [
    [user(), system(), assistant(), user()],
    [user(), *CALLED, system([text(), text()]), assistant(), user(), system()],
    [user(), assistant(), user(), system([text()])],
]
OUT_OF_PLACE = [
    [user(), assistant(), system(), user()],
    [user(), system(), user()],
    [user(), system(), system(), assistant(), user()],
    [user(), CALLED[0], system(), CALLED[1]],
    [user(), system(" "), assistant(), user()],
    [user(), system([text(), text("")]), assistant(), user()],
]


@pytest.mark.parametrize("messages", IN_PLACE)
def test_a_model_that_accepts_later_system_messages_gets_them(messages):
    body = {**body_of(messages), "model": "claude-opus-4-8"}
    assert fast(orjson.dumps(body), "openai-chat", "anthropic") is not None
    for options in POLICIES:
        assert_same(body, "openai-chat", "anthropic", **options)


@pytest.mark.parametrize("messages", OUT_OF_PLACE)
def test_a_misplaced_system_message_is_left_to_the_tables(messages):
    body = {**body_of(messages), "model": "claude-opus-4-8"}
    assert fast(orjson.dumps(body), "openai-chat", "anthropic") is None
    for options in POLICIES:
        assert_same(body, "openai-chat", "anthropic", **options)


def test_an_agents_request_takes_the_fast_path_both_ways():
    messages = [
        user([text(), text()]),
        system(),
        assistant([thinking(), text(), use()]),
        user([{**result(content=[text()]), "is_error": False}]),
        system([marked(text())]),
    ]
    setup = {"system": [marked(text())], "context_management": {"edits": []}}
    body = {**body_of(messages, **setup), "model": "claude-opus-4-8"}
    assert fast(orjson.dumps(body), "anthropic", "openai-chat") is not None
    assert_same(body, "anthropic", "openai-chat")
    sent = orjson.loads(weft.translate(orjson.dumps(body), "anthropic", "openai-chat").body)
    assert fast(orjson.dumps(sent), "openai-chat", "anthropic") is not None
    assert_same(sent, "openai-chat", "anthropic")


SETUPS = {
    "anthropic": [
        {"system": "be brief"},
        {"system": [text("a"), text("b")], "temperature": 0.5},
        {"system": [{**text(), "cache_control": {"type": "ephemeral"}}]},
        {"tools": [{"name": "look", "input_schema": {"type": "object"}}], "stream": True},
        {"tools": [{"name": "a b", "input_schema": {}}], "tool_choice": {"type": "any"}},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}, "top_k": 4},
        {"stop_sequences": list("abcde"), "metadata": {"user_id": "u"}},
        {"cache_control": {"type": "ephemeral"}, "beyond": 1},
        {"temperature": "warm"},
        {"max_tokens": None},
        {"top_p": None, "stop_sequences": None, "metadata": None, "temperature": None},
    ],
    "openai-chat": [
        {"temperature": 1.5, "stop": ["\n", "END"], "stream": True},
        {"tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "required"},
        {"tools": [{"type": "custom", "custom": {"name": "look"}}]},
        {"response_format": {"type": "json_object"}, "seed": 1, "n": 2},
        {"reasoning_effort": "high", "stream_options": {"include_usage": True}},
        {"parallel_tool_calls": False, "logprobs": True},
        {"stop": 7},
        {"user": None, "stop": None, "seed": None, "response_format": None},
    ],
}

POLICIES = [{}, {"system": "merge"}, {"system": "demote"}, {"model": "gpt-4o"}, {"strict": True}]


@pytest.mark.parametrize("options", POLICIES, ids=str)
@pytest.mark.parametrize("source", SETUPS)
def test_the_setup_is_translated_by_the_tables(source, options):
    for setup in SETUPS[source]:
        for start, messages in SIMPLE + UNUSUAL:
            if start == source:
                assert_same(body_of(messages, **setup), source, other(source), **options)


CHOICES = [message for _, messages in SIMPLE + UNUSUAL for message in messages]


@settings(max_examples=300)
@given(st.sampled_from(list(SETUPS)), st.lists(st.sampled_from(CHOICES), max_size=8), st.data())
def test_any_conversation_gives_the_same_result_on_both_paths(source, messages, data):
    setup = data.draw(st.sampled_from(SETUPS[source]))
    assert_same(body_of(messages, **setup), source, other(source))


DAMAGE = [
    rb"\ud800",
    rb"\ud83d\ude00",
    rb"\/",
    rb"\x",
    rb"\u0000",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\x00",
    b"\n",
    b"\x7f",
    b"NaN",
    b"1e400",
    b"-0",
    b"00",
    b"1.",
    b"2.0",
    b"18446744073709551616",
    b"0.1e-400",
    b"[",
    b"}",
    b",",
    b"null",
    b'"role":"user",',
    b'"role":"assistant",',
    b'"type":"text",',
    b'"text":"x",',
    b'"content":"y",',
    b'"id":"call_1",',
    b'"input":{},',
    b'"model":"m",',
    b'"messages":[],',
]


@pytest.mark.parametrize("source", SETUPS)
def test_invalid_json_and_duplicate_members_mean_the_same_on_both_paths(source):
    chance = random.Random(7)
    simple = [orjson.dumps(body_of(messages)) for start, messages in SIMPLE if start == source]
    taken = 0
    for _ in range(2000):
        data = bytearray(chance.choice(simple))
        where = chance.randrange(len(data))
        data[where : where + chance.choice((0, 0, 0, 1, 4))] = chance.choice([*DAMAGE, b""])
        data = bytes(data)
        try:
            orjson.loads(data)
            value = loads_exactly(data)  # orjson rounds numbers
        except orjson.JSONDecodeError as error:
            refused = f"the body is not JSON: {error}"
            assert outcome(data, source, other(source)) == ("refused", refused, "", 400)
            continue
        assert outcome(data, source, other(source)) == outcome(value, source, other(source))
        taken += 1
    assert taken > 200


def test_deeply_nested_lists_are_refused_on_both_paths():
    pit = b"[" * 100_000 + b"]" * 100_000
    for source in SETUPS:
        body = orjson.dumps(body_of([user(), *USED])).replace(b'{"path":"a"}', pit)
        assert outcome(body, source, other(source))[0] == "refused"


@pytest.mark.parametrize("source", SETUPS)
@pytest.mark.parametrize("depth", [240, 253, 300])
def test_a_deeply_nested_setup_is_refused_on_both_paths(source, depth):
    schema = orjson.loads(b'{"a":' * depth + b"1" + b"}" * depth)
    tool = {"name": "look", "parameters": schema}
    setup = {
        "anthropic": {"tools": [{"name": "look", "input_schema": schema}]},
        "openai-chat": {"tools": [{"type": "function", "function": tool}]},
    }
    body = json.dumps(body_of([user()], **setup[source]))
    picture = {"type": "image_url", "image_url": {"url": "x:y"}}
    if source == "anthropic":
        picture = {"type": "image", "source": {"type": "url", "url": "x:y"}}
    unusual = json.dumps(body_of([user([text(), picture])], **setup[source]))
    observed, tables = (outcome(data, source, other(source)) for data in (body, unusual))
    assert (observed[0] == "refused") == (tables[0] == "refused")
    if observed[0] == "refused":
        assert observed == tables


@pytest.mark.parametrize("source", SETUPS)
def test_recorded_conversations_give_the_same_result_on_both_paths(source):
    simple = 0
    for line in recorded(source):
        simple += fast(orjson.dumps(line["request"]), source, other(source)) is not None
        assert_same(line["request"], source, other(source))
    assert simple > 50
