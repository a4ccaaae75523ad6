"""Answers of this protocol with gaps, completed before they are read."""

from weft.codec.base import Losses, members
from weft.codec.lenient import WHY, arguments_object
from weft.model import JsonObject

from .blocks import DATA


def complete_part(raw: JsonObject, path: str, losses: Losses) -> JsonObject:
    """A part in camel case. Some servers write all members of a part, most of them as null."""
    data = [key for key in raw if key in DATA]
    empty = [key for key in data if raw[key] is None]
    if empty and len(data) - len(empty) == 1:
        raw = {key: value for key, value in raw.items() if key not in empty}
        losses.add(
            path,
            f"null for {', '.join(empty)}",
            "the upstream wrote members that say nothing",
            "form",
        )
    elif empty == data == ["text"]:
        raw = {**raw, "text": ""}
        losses.add(f"{path}.text", "nothing: an empty text was added", WHY, "form")
    call = members(raw.get("functionCall"))
    if call is not None and isinstance(call.get("args"), str):
        args = arguments_object(call["args"], f"{path}.functionCall.args", losses)
        raw = {**raw, "functionCall": {**call, "args": args}}
    return raw
