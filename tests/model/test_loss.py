"""Loss codes: each one in the source is in the table, each one in the table is used."""

import ast
from pathlib import Path

import pytest

import weft
from weft.model import LOSS_CODES, Loss, loss_json, make_loss

SOURCE = Path(weft.__file__).parent
TABLE = SOURCE / "model" / "loss.py"


def strings(path):
    tree = ast.parse(path.read_text())
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}


def reported(path):
    """The codes that a module passes to `Losses.add`, `Losses.param` and `make_loss`."""
    for call in ast.walk(ast.parse(path.read_text())):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        owner = ast.unparse(call.func)
        if name in ("add", "param") and ("losses." in owner or "repairs." in owner):
            yield from (a.value for a in call.args[1:2] if isinstance(a, ast.Constant))
        elif name == "make_loss":
            yield from (a.value for a in call.args[:1] if isinstance(a, ast.Constant))


def test_every_code_in_the_source_is_in_the_table():
    codes = {code for path in SOURCE.rglob("*.py") for code in reported(path)}
    assert len(codes) > 80  # the walk finds the calls
    assert codes - LOSS_CODES.keys() == set()


def test_every_code_in_the_table_is_used():
    used = set().union(*(strings(path) for path in SOURCE.rglob("*.py") if path != TABLE))
    assert LOSS_CODES.keys() - used == set()


@pytest.mark.parametrize("code", LOSS_CODES)
def test_a_code_ends_in_the_verb_of_its_kind(code):
    """A reader of a log sees the kind in most codes; a code never contradicts its kind."""
    kind = LOSS_CODES[code].kind
    words = {"dropped", "changed", "added", "moved"} & set(code.split("_"))
    assert words <= {kind} or (words, kind) in EXCEPTIONS


EXCEPTIONS = [
    ({"dropped"}, "changed"),  # a boundary is dropped: the text around it is changed
    ({"added"}, "changed"),  # content that was missing is now empty
]


def test_text_for_people_comes_from_the_fields():
    loss = make_loss("param_dropped", "top_k", "top_k")
    assert loss == Loss("param_dropped", "dropped", "top_k", "top_k", "meaning")
    assert (loss.what, loss.why) == ("parameter top_k", "the target has no such parameter")
    assert str(loss) == "top_k: dropped parameter top_k (the target has no such parameter)"


def test_a_control_character_in_a_name_is_escaped():
    assert make_loss("param_dropped", "x", "a\x1b[2Jb").what == r"parameter 'a\x1b[2Jb'"


def test_a_loss_of_an_unknown_code_is_readable():
    loss = Loss("of_a_later_version", "dropped", "a", "b")
    assert str(loss) == "a: dropped b"


def test_json_keeps_the_old_members_and_adds_the_new():
    assert loss_json(make_loss("result_added", "messages[1]")) == {
        "path": "messages[1]",
        "what": "an error result",
        "why": "the call has no result",
        "code": "result_added",
        "kind": "added",
        "detail": "",
        "level": "meaning",
    }
