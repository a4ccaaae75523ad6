"""One function writes requests; everything that sends or shows one goes through it."""

import ast
from pathlib import Path

import weft

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
