"""A fifth protocol needs one package and one line of `PACKAGES`, and nothing else."""

import ast
from pathlib import Path

import pytest

import weft
from weft.client import make_provider
from weft.codec import CODECS, PACKAGES

SOURCE = Path(weft.__file__).parent
PROTOCOLS = tuple(PACKAGES)
FIFTH = {"model": "m", "turns": [{"who": "user", "says": "hello"}], "limit": 20}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(PACKAGES, "fifth", "fifth_protocol")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_are_translated_to_it_and_back(protocol):
    translated = weft.translate(FIFTH, "fifth", protocol)
    round_trip = weft.translate(translated.body, protocol, "fifth", "m")
    assert round_trip.body == FIFTH


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whole_answers_are_translated_to_it_and_back(protocol):
    translated = weft.translate_response({"model": "m", "reply": "yes"}, "fifth", protocol)
    round_trip = weft.translate_response(translated.body, protocol, "fifth")
    assert round_trip.body == {"model": "m", "reply": "yes"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_streams_are_translated_to_it_and_back(protocol):
    frames = b'data: {"text":"a"}\n\ndata: {"text":"b"}\n\ndata: {"done":true}\n\n'
    forward = weft.StreamTranslator("fifth", protocol)
    backward = weft.StreamTranslator(protocol, "fifth")
    out = backward.feed(forward.feed(frames) + forward.close()) + backward.close()
    assert out == frames


def test_an_upstream_can_use_it():
    provider = make_provider("mine", "fifth", "https://five.example", key="k")
    assert provider.auth_headers() == {"x-fifth-key": "k"}
    assert not provider.at_vendor


def test_a_thread_decodes_its_answers_and_encodes_its_requests():
    thread = weft.open()
    thread.user("hello")
    thread.assistant({"model": "m", "reply": "yes"})
    assert [message.text for message in thread.compile().messages] == ["hello", "yes"]


def tables(path: Path):
    """Literals that name protocols, and how many different ones they name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Dict | ast.Tuple | ast.List | ast.Set):
            words = {item.value for item in ast.walk(node) if isinstance(item, ast.Constant)}
            yield node.lineno, words & {*PROTOCOLS}


def test_no_other_module_has_a_table_of_all_protocols():
    """What differs between protocols is a field of `Codec`, so that nothing else must be edited."""
    outside = [path for path in SOURCE.rglob("*.py") if "codec" not in path.parts]
    tables_found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in outside
        for line, names in tables(path)
        if len(names) > 2
    ]
    assert outside
    assert tables_found == []


def test_every_codec_is_registered_under_its_own_name():
    assert [codec.protocol for codec in CODECS.values()] == [*PROTOCOLS, "fifth"]
