"""A text is erased however JSON spells it."""

import json

import pytest

from weft.history.forget import without

SECRET = 'Straße 🌳 "a/b"\nc'
PLAIN = json.dumps(SECRET)
ROWS = {
    "plain": PLAIN,
    "letters as they are": json.dumps(SECRET, ensure_ascii=False),
    "slashes escaped": PLAIN.replace("/", "\\/"),
    "capitals in escapes": PLAIN.replace("\\u00df", "\\u00DF"),
    "letters escaped without need": PLAIN.replace("S", "\\u0053"),
    "a newline by its number": PLAIN.replace("\\n", "\\u000a"),
}


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ROWS)
def test_a_text_is_found_in_every_spelling(name: str, depth: int) -> None:
    data = f'{{"before":{json.dumps("x /")},"text":{ROWS[name]},"after":"y"}}'
    for _ in range(depth):
        data = json.dumps({"line": data, "other": "\\u0041 stays"})
    cleaned = without(data.encode(), SECRET).decode()
    for _ in range(depth):
        outer = json.loads(cleaned)
        assert outer["other"] == "\\u0041 stays"
        cleaned = outer["line"]
    assert json.loads(cleaned) == {"before": "x /", "text": "[forgotten]", "after": "y"}


def test_what_says_something_else_stays_byte_by_byte() -> None:
    data = b'{"text":"a \\\\/ b, a\\\\u002fc and \\\\ude00"}'
    assert without(data, SECRET) == data


def test_forgetting_the_mark_itself_ends() -> None:
    assert json.loads(without(b'{"a":"x\\\\/ forgotten"}', "forgotten"))["a"] == "x\\/ [forgotten]"
