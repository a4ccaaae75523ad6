"""One translator for answers: `weft.codec.answer`. No other module decodes or encodes them."""

import ast
from pathlib import Path

import pytest

import weft

SOURCE = Path(weft.__file__).parent

DECODERS = {
    "codec/answer.py",
    "thread/append.py",  # a caller appends an answer that it got from a vendor's SDK
    "thread/transfer/claude_code.py",  # an imported transcript holds answers
}
ENCODERS = {"codec/answer.py"}


def readers(*names: str) -> set[str]:
    """The modules that read one of these attributes, outside the protocol packages."""
    modules = (path for path in SOURCE.rglob("*.py") if path.parent.parent.name != "codec")
    return {
        path.relative_to(SOURCE).as_posix()
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in names
    }


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        (("decode_response", "stream_decoder"), DECODERS),
        (("encode_response", "stream_encoder"), ENCODERS),
    ],
    ids=["decode", "encode"],
)
def test_only_the_answer_module_uses_the_answer_side_of_a_codec(names, allowed):
    assert readers(*names) == allowed


def test_every_caller_uses_the_one_translator():
    modules = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "AnswerTranslator(" in path.read_text() and path.name != "answer.py"
    }
    assert modules == {
        "gateway/exchange.py",
        "translation.py",
    }
