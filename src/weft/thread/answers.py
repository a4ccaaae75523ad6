"""Whole answers of any vendor, as they come from a wire or an SDK, and which wire they are of."""

from typing import Any, cast

from weft.codec import CODECS
from weft.errors import ThreadError
from weft.model import JsonObject, Message, Response

SHAPES: dict[str, str] = {
    "choices": "openai-chat",
    "output": "openai-responses",
    "candidates": "gemini",
    "content": "anthropic",
}
"""The member that only one vendor's answer has, and the protocol it betrays."""


def read_answer(answer: Any) -> Response:
    """The response that a vendor's whole answer means; raises `ThreadError` where it is none."""
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, Message):
        return Response(answer)
    raw = _plain(answer)
    protocol = next((name for member, name in SHAPES.items() if member in raw), None)
    if protocol is None or protocol not in CODECS:
        raise ThreadError(f"an answer with {', '.join(sorted(raw)[:6])} is of no known vendor")
    return CODECS[protocol].decode_response(raw)


def describe_generation(response: Response) -> JsonObject | None:
    """What is worth keeping of how an answer was made: the model, the answer's id, why it ended."""
    found: JsonObject = {}
    if response.model:
        found["model"] = response.model
    if response.id:
        found["response_id"] = response.id
    if response.stop is not None:
        found["stop"] = response.stop.raw or response.stop.kind
    return found or None


def _plain(answer: Any) -> JsonObject:
    """The dict behind an SDK's object; what was not set stays unset."""
    if isinstance(answer, dict):
        return cast(JsonObject, answer)
    dump = getattr(answer, "model_dump", None)
    if not callable(dump):
        raise ThreadError(f"a {type(answer).__name__} is no answer: give text, a dict or an object")
    return cast(JsonObject, dump(mode="json", exclude_unset=True, by_alias=True))
