"""Fills in members that an answer lacks.

The vendors' SDKs do not validate answers. So some servers leave out ids, types and arguments, or
send an object where the protocol has JSON text. Weft decodes such answers and writes complete ones.
Each value that was filled in is reported as a loss of form.

Only answers are completed. A request with the same error is refused, with its path.
"""

from typing import Any, cast

from msgspec import structs

from weft import exact_json
from weft.model import JsonObject, Response

from .base import Losses
from .calls import GENERATED_ID_PREFIX


def read_call_id(raw: JsonObject, key: str, number: int, path: str, losses: Losses) -> str:
    """The id of a call; generated from its number if the upstream sent none."""
    value = raw.get(key)
    if isinstance(value, str):  # an empty id stays: its own protocol gets it back
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        losses.add(f"{path}.{key}", "value_retyped", "number -> string")
        return str(value)
    losses.add(f"{path}.{key}", "missing_value_added", f"{GENERATED_ID_PREFIX}{number}")
    return f"{GENERATED_ID_PREFIX}{number}"


def arguments_text(value: Any, path: str, losses: Losses) -> Any:
    """The arguments of a function call as JSON text; `{}` if there are none."""
    if value is None:
        losses.add(path, "missing_value_added", "{}")
        return "{}"
    if isinstance(value, dict | list):
        losses.add(path, "value_retyped", "object -> JSON text")
        return exact_json.dumps(value).decode()
    return value


def arguments_object(value: Any, path: str, losses: Losses) -> Any:
    """The arguments of a function call as an object; `{}` if there are none.

    A text becomes `{"input": text}`: in these protocols a custom tool is a function with one
    `input`, and some servers send only the text.
    """
    if value is None or value == "":
        losses.add(path, "missing_value_added", "{}")
        return {}
    if not isinstance(value, str):
        return value
    try:
        parsed: Any = exact_json.loads(value)
    except exact_json.JSONDecodeError:
        parsed = value
    if isinstance(parsed, dict):
        losses.add(path, "value_retyped", "JSON text -> object")
        return cast(JsonObject, parsed)
    losses.add(path, "value_retyped", "JSON text -> input")
    return {"input": value}


def with_text(raw: JsonObject, key: str, path: str, losses: Losses) -> JsonObject:
    """The object, with an empty text if this member is missing or null."""
    if raw.get(key) is not None:
        return raw
    losses.add(f"{path}.{key}", "missing_value_added", '""')
    return {**raw, key: ""}


def with_type(raw: JsonObject, types: dict[str, str], path: str, losses: Losses) -> JsonObject:
    """The object, with a `type` if it has none: the first one in `types` whose member it has."""
    if isinstance(raw.get("type"), str):
        return raw
    for member, kind in types.items():
        if member in raw:
            losses.add(f"{path}.type", "missing_value_added", kind)
            return {**raw, "type": kind}
    return raw


def optional_text(value: Any) -> str | None:
    """An id or a model name: text, a number as text, or None for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def text_piece(value: Any) -> str:
    """A piece of streamed text: empty for null, and the JSON text of an object."""
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return exact_json.dumps(value).decode()
    return str(value)


def count_of(raw: JsonObject, key: str) -> int | None:
    """A token count, or `None`. Gemini's servers may write 64-bit numbers as strings."""
    value = raw.get(key)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def with_repairs(response: Response, losses: Losses) -> Response:
    """The response, with these losses as its repairs."""
    if not losses.items:
        return response
    return structs.replace(response, repairs=tuple(losses.items))
