"""One function writes requests; everything that sends or shows one goes through it."""

import ast
import copy
from pathlib import Path

import pytest
from msgspec import structs

import weft
from weft.catalog import Model
from weft.codec import CODECS, Target, parsed, write_request

SOURCE = Path(weft.__file__).parent
CALLERS = {
    "client/ask.py",
    "gateway/outgoing.py",
    "thread/exporting/bodies.py",
    "thread/params.py",
    "translation.py",
}


def calls(name):
    """The modules that call a function or method of this name."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                if name == getattr(called, "attr", getattr(called, "id", None)):
                    found.add(str(path.relative_to(SOURCE)))
    return found


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
def test_cache_marks_are_the_same_with_and_without_writing_the_whole_body(members):
    """The gateway marks a parsed body of the upstream's protocol; others are written as a whole."""
    raw = {"model": "m", "max_tokens": 9, **copy.deepcopy(members)}
    before = copy.deepcopy(raw)
    codec, target = CODECS["anthropic"], Target(Model(name="m"), cache="auto")
    request = codec.decode_request(raw, None)
    own = structs.replace(target, embed=parsed, enforce=True)
    written = write_request(request, codec, own)
    marked = codec.add_marks(raw, request, target)
    assert raw == before
    assert {name: marked.get(name) for name in codec.rewritten} == {
        name: written.body.get(name, raw.get(name)) for name in codec.rewritten
    }
    assert marked != raw
    assert not written.losses
    assert codec.add_marks(marked, codec.decode_request(marked, None), target) is None
