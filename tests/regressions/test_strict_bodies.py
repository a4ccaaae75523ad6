"""What a request body must be: strict JSON, with an id for every result."""

import pytest

import weft

QUESTION = b'{"model":"m","messages":[{"role":"user","content":"%s"}]}'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xef\xbb\xbf" + QUESTION % b"q", "byte order mark"),
        (QUESTION % rb"\ud83d", "surrogate"),
    ],
)
def test_a_body_that_is_not_strict_json_is_refused_with_its_position(body, reason):
    with pytest.raises(weft.Refused, match=reason):
        weft.translate(body, "openai-chat", "anthropic")


def test_a_result_without_the_id_of_its_call_is_refused_with_its_path():
    body = {"model": "m", "input": [{"type": "function_call_output", "output": "x"}]}
    with pytest.raises(weft.Refused, match="call_id"):
        weft.translate(body, "openai-responses", "anthropic")
