"""One function writes all requests that Weft sends or shows."""

import ast
import copy
import json
from pathlib import Path

import pytest
from msgspec import structs

import weft
from weft.catalog import Model, load_catalog
from weft.codec import CODECS, Target, parsed, write_request
from weft.model import Message, Origin, Request, Text, Thinking

SOURCE = Path(weft.__file__).parent
CALLERS = {
    "client/ask.py",
    "gateway/outgoing.py",
    "thread/transfer/bodies.py",
    "thread/compiled.py",
    "translation.py",
}


def calls(name):
    """The modules that call a function or method of this name."""
    modules = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                if name == getattr(called, "attr", getattr(called, "id", None)):
                    modules.add(str(path.relative_to(SOURCE)))
    return modules


def test_only_write_request_calls_an_encoder():
    shows = {"codec/gemini/request.py"}  # `to_gemini()` shows messages; nobody sends them
    assert calls("encode_request") - shows == {"codec/outgoing.py", "codec/fast_path.py"}


def test_every_sender_calls_write_request():
    assert calls("write_request") >= CALLERS


def test_the_fast_path_is_a_part_of_write_request():
    assert calls("write_simple") == {"codec/outgoing.py"}


TEXT = {"type": "text", "text": "words"}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [TEXT]}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
TOOL = {"name": "look", "description": "d", "input_schema": {"type": "object"}}
ASKED = [{"role": "user", "content": "hello"}]
UNMARKED = [
    {"messages": ASKED},
    {"messages": ASKED, "system": "be brief"},
    {"messages": ASKED, "system": ""},
    {"messages": ASKED, "system": []},
    {"messages": ASKED, "system": [TEXT, TEXT], "tools": []},
    {"messages": ASKED, "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}]},
    {"messages": [{"role": "user", "content": [TEXT, {"type": "text", "text": ""}]}]},
    {"messages": [*ASKED, {"role": "assistant", "content": []}]},
    {
        "messages": [
            *ASKED,
            {"role": "assistant", "content": [TEXT, CALL]},
            {"role": "user", "content": [RESULT]},
        ],
        "tools": [TOOL],
        "system": [TEXT],
    },
]


@pytest.mark.parametrize("members", UNMARKED)
def test_cache_marks_are_the_same_on_the_fast_path(members):
    """The gateway adds marks to a parsed body of the upstream's own protocol, and writes other
    bodies."""
    raw = {"model": "m", "max_tokens": 9, **copy.deepcopy(members)}
    before = copy.deepcopy(raw)
    codec, target = CODECS["anthropic"], Target(Model(name="m"), cache="auto")
    request = codec.decode_request(raw, None)
    own = structs.replace(target, embed=parsed, enforce=True)
    written = write_request(request, codec, own)
    marked = codec.add_cache_marks(raw, request, target)
    assert raw == before
    assert {name: marked.get(name) for name in codec.rewritable_members} == {
        name: written.body.get(name, raw.get(name)) for name in codec.rewritable_members
    }
    assert marked != raw
    assert not written.losses
    assert codec.add_cache_marks(marked, codec.decode_request(marked, None), target) is None


THOUGHTS = {
    "anthropic": Thinking("hidden plan", "c2lnbmF0dXJlLW9mLWFub3RoZXI="),
    "openai-chat": Thinking("hidden plan", ext={"openai-chat": {"item": "reasoning_content"}}),
    "openai-responses": Thinking("hidden plan", "gAAAAABsealed"),
    "gemini": Thinking("hidden plan", "c2lnbmF0dXJl"),
}
KNOWN = {
    "anthropic": "claude-sonnet-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-3-pro-preview",
}


def written_with_thinking(protocol, origin, model, provider=None):
    """The body and the loss codes of a conversation whose answer has thinking of this origin."""
    answer = Message("assistant", (THOUGHTS[protocol], Text("An answer.")), origin=origin)
    request = Request(model, (Message("user", (Text("q"),)), answer, Message("user", (Text("r"),))))
    target = Target(load_catalog().find(model), provider=provider)
    written = write_request(request, CODECS[protocol], target)
    return json.dumps(written.body), [loss.code for loss in written.losses]


@pytest.mark.parametrize("protocol", CODECS)
@pytest.mark.parametrize(
    ("maker", "target"),
    [
        (("one", "some-model"), ("two", "some-model")),
        (("one", "kimi-k2"), ("one", None)),
        ((None, "deepseek-reasoner"), (None, None)),
        (("one", "moonshotai/kimi-k2"), (None, "qwen3-235b")),
        ((None, "KNOWN"), (None, "glm-4.6")),
    ],
)
def test_thinking_never_goes_to_another_provider_or_vendor(protocol, maker, target):
    provider, model = target
    origin = Origin(protocol, maker[0], maker[1].replace("KNOWN", KNOWN[protocol]))
    body, codes = written_with_thinking(protocol, origin, model or KNOWN[protocol], provider)
    assert "hidden plan" not in body
    assert (THOUGHTS[protocol].signature or "hidden plan") not in body
    assert codes.count("thinking_of_another_model") == 1


@pytest.mark.parametrize("protocol", CODECS)
@pytest.mark.parametrize(
    ("maker", "target"),
    [
        (("one", "some-model"), ("one", "some-model")),
        (("one", "some-model"), ("one", "other-model")),
        ((None, "some-model"), (None, "proxy-name")),
        ((None, "proxy-name"), (None, None)),
        ((None, "KNOWN"), (None, "proxy-name")),
        ((None, None), (None, None)),
        ((None, "KNOWN-20990101"), (None, None)),
        (("one", "KNOWN"), ("one", None)),
    ],
)
def test_thinking_goes_back_to_its_vendor(protocol, maker, target):
    """Also to a model with another name, or to another model of the vendor, which can decide
    itself."""
    known = KNOWN[protocol]
    provider, model = maker[0], maker[1] and maker[1].replace("KNOWN", known)
    origin = Origin(protocol, provider, model)
    body, codes = written_with_thinking(protocol, origin, target[1] or known, target[0])
    assert "hidden plan" in body
    assert "thinking_of_another_model" not in codes
