"""Law 2: a request that is translated to another protocol and back without its sidecar is
unchanged, or a loss of one of the two directions names every difference.

These do not count as differences:

- Gemini's two spellings of a name, and its two members for a schema (the loss names the one that
  the caller used); Chat's two names for the token limit.
- The text of a call's arguments and the same arguments as an object: `""` is `{}`.
"""

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import weft
from corpus import recorded, sent_by_clients
from laws.differences import Report, differences
from laws.wire_bodies import BODIES, MODEL, PROTOCOLS
from weft.codec import CODECS
from weft.model import Params

PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS if a != b]
WORDS = {
    protocol: {name: table.path(name) for name in Params.__struct_fields__} | table.paths
    for protocol, table in ((protocol, CODECS[protocol].fields) for protocol in PROTOCOLS)
}
"""The path of each parameter in each protocol."""

DIALECTS = {"parameters": "parametersJsonSchema", "responseSchema": "responseJsonSchema"}
CALLERS = frozenset({"args", "response", *DIALECTS.values()})
LIMITS = ("max_tokens", "max_completion_tokens")


def as_gemini(value):
    """A body with one spelling and one schema member; the caller's own data is unchanged."""
    if isinstance(value, dict):
        named = {gemini_name(key): inner for key, inner in value.items()}
        return {key: inner if key in CALLERS else as_gemini(inner) for key, inner in named.items()}
    return [as_gemini(item) for item in value] if isinstance(value, list) else value


def gemini_name(name):
    head, *tail = name.split("_")
    camel = head + "".join(word.capitalize() for word in tail) if head and all(tail) else name
    return DIALECTS.get(camel, camel)


def as_openai(value):
    """A body with its arguments as objects."""
    if isinstance(value, dict):
        return {
            key: parse_arguments(inner) if key == "arguments" else as_openai(inner)
            for key, inner in value.items()
        }
    return [as_openai(item) for item in value] if isinstance(value, list) else value


def parse_arguments(arguments):
    try:
        return orjson.loads(arguments) if arguments.strip() else {}
    except (AttributeError, orjson.JSONDecodeError):
        return arguments


def as_chat(body):
    body = as_openai(body)
    if sum(name in body for name in LIMITS) == 1:
        return {LIMITS[1] if key in LIMITS else key: inner for key, inner in body.items()}
    return body


SAME = {
    "anthropic": lambda body: body,
    "openai-chat": as_chat,
    "openai-responses": as_openai,
    "gemini": as_gemini,
}


def caller_path(path, protocol, body):
    if protocol == "openai-chat" and path in LIMITS and sum(name in body for name in LIMITS) == 1:
        return LIMITS[1]
    if protocol != "gemini":
        return path
    return ".".join(gemini_name(step) for step in path.split("."))


def unnamed(body, source, target):
    """The differences of a round trip that no loss names; `None` if there are no differences."""
    out = weft.translate(body, source, target, model=MODEL.get(source))
    between = orjson.loads(orjson.dumps(out.body))
    round_trip = weft.translate(between, target, source, model=body.get("model", MODEL["gemini"]))
    returned = orjson.loads(orjson.dumps(round_trip.body))
    if returned == body:
        return None
    ours, theirs = SAME[source](body), SAME[source](returned)
    if target == "gemini":
        assert ("stream" in out.path) == bool(body.get("stream"))
    losses = [(caller_path(loss.path, source, body), loss.code) for loss in out.losses]
    at_home = [caller_path(loss.path, target, between) for loss in round_trip.losses]
    report = Report(ours, losses, between, at_home)
    return [
        difference.path
        for difference in differences(ours, theirs)
        if not report.names(difference, WORDS[source], WORDS[target])
    ]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_differences_after_a_round_trip_are_reported(source, target):
    bodies = [(exchange["id"], exchange["request"]) for exchange in recorded(source)]
    equal, named, refused, failures = 0, 0, 0, {}
    for key, body in bodies + sent_by_clients(source):
        try:
            unreported = unnamed(body, source, target)
        except weft.Refused:
            refused += 1
            continue
        equal += unreported is None
        named += unreported == []
        if unreported:
            failures[key] = unreported
    print(f"{source} -> {target}: {equal} equal, {named} with named differences, {refused} refused")
    assert failures == {}


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_differences_after_a_generated_round_trip_are_reported(source, target, data):
    assert not unnamed(data.draw(BODIES[source]), source, target)


LOST = [
    ({"a": 1, "b": 2}, {"a": 1}, ["b"], []),  # it went away
    ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a"], []),  # a loss above names it
    ({"a": {"b": 1}}, {"a": {}}, ["a.b.c"], []),  # and so does one inside
    ({"a": {"b": 1}}, {"a": {}}, ["a.c", "b"], [("a", "b")]),  # but not one beside it
    ({"a": [{"x": "u"}, {"x": "v"}]}, {"a": [{"x": "v"}]}, [], [("a", 0)]),  # no loss at all
    ({"a": [{"x": "u"}, {"x": "v"}]}, {"a": [{"x": "v"}]}, ["a[1]"], [("a", 0)]),  # of another
    ({"a": [{"x": "u"}]}, {"a": [{"x": "u"}, {"x": "v"}]}, ["a[0]"], []),  # a neighbour was added
    ({"a": [{"x": "u"}]}, {"a": [{"x": "u"}, {"x": "v"}]}, ["b"], [("a", 1)]),
    ({"a": [{"x": "u"}]}, {"a": [], "b": "u"}, ["a[0]"], []),  # it moved
    ({"a": True}, {"a": 1}, [], [("a",)]),  # JSON tells them apart
]


@pytest.mark.parametrize(("ours", "theirs", "losses", "unreported"), LOST)
def test_the_law_can_fail(ours, theirs, losses, unreported):
    report = Report(ours, [(path, "it") for path in losses], {}, [])
    assert [d.path for d in differences(ours, theirs) if not report.names(d, {}, {})] == unreported


def test_of_two_equal_elements_either_may_be_reported():
    """The first of two system messages comes back as `instructions`. If two are equal, it cannot be
    told which one was removed."""
    alike = {"role": "system", "content": "be brief"}
    body = {"model": "m", "input": [alike, alike, {"role": "user", "content": "hi"}]}
    assert unnamed(body, "openai-responses", "openai-chat") == []
