"""Invalid input is refused with its path, and no other exception is raised."""

import copy
import json
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import orjson
import pytest

import weft
from corpus import recorded
from laws.wire_bodies import MODEL, PROTOCOLS
from weft.codec import CODECS
from weft.errors import UpstreamFailed
from weft.model import ToolCall, ToolResult

PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS]
WRONG = [
    None,
    True,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "\ud800",
    float("nan"),
    [],
    [1],
    ["x"],
    [[]],
    [{}],
    [None],
    {},
    {"a": 1},
    {"type": "x"},
    {"type": []},
    {1: 2},
]
"""The values that replace a valid one."""


def body_with(protocol, **members):
    """A small body of a protocol with these members set."""
    message = {"role": "user", "content": "hi"}
    bodies = {
        "anthropic": {"model": "m", "max_tokens": 5, "messages": [message]},
        "openai-chat": {"model": "m", "messages": [message]},
        "openai-responses": {"model": "m", "input": [message]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    }
    return bodies[protocol] | members


def attempt(body, source, target):
    """The refusal of a body; `None` if it and its sidecar are translated."""
    refused = None
    try:
        done = weft.translate(body, source, target, model=MODEL.get(source))
        orjson.dumps(done.sidecar)
    except weft.Refused as error:
        refused = error
    assert refused is None or (refused.status == 400 and isinstance(refused.param, str))
    return refused


@pytest.mark.parametrize("text", [b"", b"{", b"nil", b'{"a": NaN}', b"\xff\xfe", b'{"a": "\xed"}'])
def test_a_body_that_is_not_json_is_refused(text):
    with pytest.raises(weft.Refused, match="not JSON"):
        weft.translate(text, "openai-chat", "anthropic")


@pytest.mark.parametrize("text", [b"[]", b'"hi"', b"3", b"null"])
def test_a_body_that_is_not_an_object_is_refused(text):
    with pytest.raises(weft.Refused, match="not an object"):
        weft.translate(text, "openai-chat", "anthropic")


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_ten_thousand_nested_lists_are_refused(source, target):
    pit = b"[" * 10_000 + b"]" * 10_000
    small = orjson.dumps(body_with(source, metadata=0))
    with pytest.raises(weft.Refused):
        weft.translate(small.replace(b'"metadata":0', b'"metadata":' + pit), source, target)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_deep_nesting_that_json_can_read_breaks_nothing(source, target):
    pit = b"[" * 900 + b"]" * 900
    small = orjson.dumps(body_with(source, metadata=0))
    attempt(small.replace(b'"metadata":0', b'"metadata":' + pit), source, target)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_string_of_fifty_megabytes_is_translated_in_bounded_memory(source, target):
    size = 50_000_000
    body = orjson.loads(orjson.dumps(body_with(source)).replace(b'"hi"', b'"' + b"x" * size + b'"'))
    tracemalloc.start()
    refused = attempt(body, source, target)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused is None
    assert peak < size * 12


def cyclic():
    loop: list = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (cyclic(), "metadata.deep[0]"),
        ({1: 2}, "metadata.deep"),
        ("\ud800", "metadata.deep"),
        (10**5000, "metadata.deep"),
        ({1, 2}, "metadata.deep"),
    ],
    ids=["a cycle", "a key that is no string", "half a character", "5,001 digits", "a set"],
)
@pytest.mark.parametrize("source", PROTOCOLS)
def test_a_value_that_json_cannot_express_is_refused_with_its_path(value, path, source):
    error = attempt(body_with(source, metadata={"deep": value}), source, "anthropic")
    assert error is not None
    assert error.param.startswith(path)


def test_a_nan_is_refused():
    body = body_with("openai-chat", temperature=float("nan"))
    assert attempt(body, "openai-chat", "anthropic").param == "temperature"


@pytest.mark.parametrize("target", PROTOCOLS)
def test_calls_with_the_same_id_are_translated(target):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    body = weft.translate(body_with("openai-chat", messages=messages), "openai-chat", target).body
    request = CODECS[target].decode_request(body, "m")
    blocks = [block for message in request.messages for block in message.blocks]
    called = [block.id for block in blocks if isinstance(block, ToolCall)]
    answered = [block.call_id for block in blocks if isinstance(block, ToolResult)]
    assert len(called) == 2
    assert answered == called
    assert len(set(called)) == (1 if target == "openai-chat" else 2)  # its own body is not changed


def places(value, path=()):
    """The path of every value inside of this one."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def mutated(value, dice):
    """A copy in which one value is wrong or one member is missing."""
    value = copy.deepcopy(value)
    paths = list(places(value))
    if not paths:
        return value
    *steps, last = dice.choice(paths)
    holder = value
    for step in steps:
        holder = holder[step]
    if isinstance(holder, dict) and dice.random() < 0.3:
        del holder[last]
    else:
        holder[last] = copy.deepcopy(dice.choice(WRONG))
    return value


def samples(protocol, member, count):
    """Recorded values that are small enough to be mutated often."""
    recorded_values = [
        exchange[member]
        for exchange in recorded(protocol)
        if exchange.get(member)
        and (exchange["status"] < 400 or member == "request")
        and len(json.dumps(exchange[member])) < 20_000
    ]
    return random.Random(member).sample(recorded_values, min(count, len(recorded_values)))


@pytest.mark.parametrize("source", PROTOCOLS)
def test_mutated_requests_are_refused_or_translated(source):
    dice = random.Random(source)
    outcomes = set()
    for body in samples(source, "request", 60):
        for _ in range(8):
            refused = attempt(mutated(body, dice), source, dice.choice(PROTOCOLS))
            outcomes.add("translated" if refused is None else "refused")
    assert outcomes == {"translated", "refused"}


@pytest.mark.parametrize("source", PROTOCOLS)
def test_mutated_answers_are_refused_or_translated(source):
    dice = random.Random(source)
    outcomes = set()
    for body in samples(source, "response", 60):
        for _ in range(8):
            try:
                done = weft.translate_response(mutated(body, dice), source, dice.choice(PROTOCOLS))
            except (weft.Refused, UpstreamFailed) as error:
                outcomes.add(str(error))
            else:
                outcomes.add(done.body != {})
    assert {type(outcome) for outcome in outcomes} == {bool, str}  # both happen
    assert not outcomes & {"", False}  # an error says why, an answer has members


@pytest.mark.parametrize("source", PROTOCOLS)
def test_mutated_streams_end_in_an_error_or_are_translated(source):
    dice = random.Random(source)
    for sse in samples(source, "sse", 12):
        frames = sse.split("\n\n")
        for _ in range(25):
            at = dice.randrange(len(frames))
            head, mark, data = frames[at].partition("data: ")
            try:
                bad = json.dumps(mutated(json.loads(data), dice))
            except ValueError:
                continue
            broken = [*frames[:at], f"{head}{mark}{bad}", *frames[at + 1 :]]
            stream = weft.StreamTranslator(source, dice.choice(PROTOCOLS))
            stream.feed("\n\n".join(broken).encode())
            stream.close()
            assert stream.ended


@pytest.mark.parametrize("source", PROTOCOLS)
def test_mutated_errors_become_errors(source):
    dice = random.Random(source)
    error = {
        "error": {"type": "x", "code": 400, "message": "no", "status": "INTERNAL"},
        "type": "error",
    }
    for number in range(300):
        body = WRONG[number] if number < len(WRONG) else mutated(error, dice)
        done = weft.translate_error(body, 400, source, dice.choice(PROTOCOLS))
        assert done.status == 400
        assert done.body


def run(*args, stdin):
    command = [str(Path(sys.executable).parent / "weft"), "translate", *args]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"not json", "not JSON"),
        (b"[]", "not an object"),
        (b'{"model": "m", "messages": 3}', "messages: must be a list"),
        (b'{"model": "m", "messages": [{"role": "user", "content": [{}]}]}', "content[0].type"),
        (b"[" * 10_000, "not JSON"),
    ],
)
def test_the_command_prints_one_line_and_fails(stdin, words):
    done = run("--from", "openai-chat", "--to", "anthropic", stdin=stdin)
    lines = done.stderr.decode().strip().splitlines()
    assert (done.returncode != 0, done.stdout, len(lines)) == (True, b"", 1)
    assert words in lines[0]


def test_a_bad_line_gets_its_own_error_and_the_others_continue():
    good = {"id": 3, "source": "openai-chat", "target": "anthropic"}
    lines = [
        b"not json",
        b"[1]",
        orjson.dumps({**good, "body": body_with("openai-chat")}),
        orjson.dumps({**good, "body": 7}),
        orjson.dumps({**good, "source": "nobody", "body": {}}),
        orjson.dumps({**good, "kind": [], "body": {}}),
        orjson.dumps({**good, "options": {"model": 3}, "body": body_with("openai-chat")}),
        orjson.dumps({**good, "sidecar": 3, "body": body_with("openai-chat")}),
        orjson.dumps({**good, "kind": "stream", "sse": [1]}),
        orjson.dumps({**good, "kind": "response", "body": {"error": {"message": "no"}}}),
    ]
    done = run("--jsonl", stdin=b"\n".join(lines))
    results = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr, len(results)) == (0, b"", len(lines))
    failed = [number for number, result in enumerate(results) if "error" in result]
    assert failed == [0, 1, 3, 4, 5, 6, 7, 8, 9]
