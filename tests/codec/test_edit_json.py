"""`edit_json` changes some values of a JSON text and keeps all other bytes."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from weft.codec import edit_json

TEXT = (
    b' { "a" : 1.0 , "b":[ {"x" : "\\u00e9"} , {"y": 2 } ], "c" : {"k":"v\\"}" } , "model":"m" } '
)
VALUE: dict[str, Any] = json.loads(TEXT)
X, Y = {"x": "é"}, {"y": 2}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, TEXT),
        ({"model": "z"}, TEXT.replace(b'"m"', b'"z"')),
        ({"b": [X, {"y": 3}]}, TEXT.replace(b'"y": 2', b'"y": 3')),
        ({"b": [{**X, "q": 1}, Y]}, TEXT.replace(b'"\\u00e9"', b'"\\u00e9","q":1')),
        (
            {"b": [Y, X]},
            TEXT.replace(b'[ {"x" : "\\u00e9"} , {"y": 2 } ]', b'[{"y": 2 },{"x" : "\\u00e9"}]'),
        ),
        (
            {"b": [Y]},
            TEXT.replace(b'[ {"x" : "\\u00e9"} , {"y": 2 } ]', b'[{"y": 2 }]'),
        ),
        ({"new": None}, TEXT.replace(b'"m"', b'"m","new":null')),
    ],
    ids=["nothing", "a member", "an inner one", "one more", "another order", "an item less", "new"],
)
def test_only_changed_values_are_rewritten(change: dict[str, Any], expected: bytes) -> None:
    assert edit_json(TEXT, VALUE, {**VALUE, **change}) == expected


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        (b'{"a":1, "b" : 1.50}', {"b": 1.5}, b'{"b":1.50}'),
        (b'{"a":1,"a":2}', {"a": 3}, b'{"a":3}'),  # given twice: no place is the right one
        (b"{ }", {"a": 1}, b'{"a":1 }'),
        (b"[]", [1], b"[1]"),
        (b'"s"', 5, b"5"),
        (b"[1]", {"a": [1]}, b'{"a":[1]}'),
        (b'{"a": [1], "b": 2}', {"a": [1.0], "b": 2}, b'{"a": [1.0], "b": 2}'),
        (b'{"a": {"x": 1}}', {"a": {"x": True}}, b'{"a": {"x": true}}'),
        (b'[[{"x": 0}], 1]', [[{"x": False}], 1], b'[[{"x": false}], 1]'),
        (b"[[1], [2]]", [[2], [1.0]], b"[[2],[1.0]]"),
    ],
)
def test_other_shapes_are_spliced(text: bytes, new: Any, expected: bytes) -> None:
    assert edit_json(text, json.loads(text), new) == expected


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([0.0, 1.0])
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


@given(JSON, JSON, st.sampled_from([None, 1, "\t "]), st.booleans())
def test_the_result_equals_the_new_value_for_any_two_values(
    old: Any, new: Any, indent: Any, escaped: bool
) -> None:
    text = json.dumps(old, indent=indent, ensure_ascii=escaped).encode()
    edited = json.loads(edit_json(text, old, new))
    assert json.dumps(edited, sort_keys=True) == json.dumps(new, sort_keys=True)  # 1 == True
    assert edit_json(text, old, old) == text
