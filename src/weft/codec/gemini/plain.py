"""Messages in Gemini's shape, outside of a request: what the encoder writes for any model."""

from collections.abc import Sequence

from weft.catalog import load_catalog
from weft.codec.base import Target
from weft.model import JsonObject, Message, Request

from .request import encode_request


def write_messages(messages: Sequence[Message]) -> JsonObject:
    """`system_instruction` and `contents`: all system texts joined by a blank line, or `None`."""
    request = Request(model="", messages=tuple(messages))
    body = encode_request(request, Target(load_catalog().find(""))).body
    parts = body.get("systemInstruction", {}).get("parts", ())
    system = "\n\n".join(part["text"] for part in parts if part.get("text"))
    return {"system_instruction": system or None, "contents": body["contents"]}
