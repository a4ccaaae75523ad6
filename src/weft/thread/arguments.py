"""What the verbs take: looked at once, at the door, so that a wrong type never reaches the store.

A type checker says the same earlier, but not everybody has one, and what lands is there for good.
"""

from typing import Any, cast

from weft.errors import ThreadError, WrongValue
from weft.history import PRIORITIES

CONTROL = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))


def check_text(field: str, value: Any) -> str:
    """The value, if it is text."""
    if not isinstance(value, str):
        raise WrongValue(field, f"must be a string, not {_kind(value)}")
    return value


def check_flag(field: str, value: Any) -> bool:
    """The value, if it is true or false."""
    if not isinstance(value, bool):
        raise WrongValue(field, f"must be true or false, not {_kind(value)}")
    return value


def check_function(field: str, value: Any) -> Any:
    """The value, if it can be called."""
    if not callable(value):
        raise WrongValue(field, f"must be a function, not {_kind(value)}")
    return value


def check_count(field: str, value: Any) -> None:
    """Refuse what is no number of things; nothing given means all of them."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongValue(field, f"must be a number, not {_kind(value)}")
    if value < 0:
        raise WrongValue(field, f"must not be negative: {value}")


def check_name(field: str, value: Any) -> str:
    """The value, if it is a name that fits on one line."""
    name = check_text(field, value)
    if not CONTROL.isdisjoint(name):
        raise WrongValue(field, f"must be one line of plain characters: {name!r}")
    return name


def check_thread_name(name: Any) -> str:
    """The value, if a thread can have this name."""
    if not check_name("thread", name).strip():
        raise ThreadError("a thread needs a name that is not blank")
    return name


def check_priority(value: Any) -> None:
    """Refuse what is none of the four priorities."""
    if value not in PRIORITIES:
        known = ", ".join(PRIORITIES)
        raise WrongValue("priority", f"{value!r} is unknown; the priorities are {known}")


def check_beside(**given: Any) -> None:
    """Refuse texts and objects beside a message that are neither given rightly nor left out."""
    for field, value in given.items():
        if value is None:
            continue
        if field in OBJECTS:
            _check_object(field, value)
        else:
            check_text(field, value)


OBJECTS = frozenset({"metadata", "generation_config"})


def _check_object(field: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise WrongValue(field, f"must be an object, not {_kind(value)}")
    for key in cast(dict[Any, Any], value):
        check_text(f"a key of {field}", key)
    try:
        _check_json(field, value)
    except RecursionError:
        raise WrongValue(field, "is nested too deeply, or holds itself") from None


def _check_json(field: str, value: Any) -> None:
    """Refuse what would come back as something else: a set as a list, a date as a text."""
    match value:
        case None | str() | bool() | int() | float():
            pass
        case dict():
            for key, item in cast(dict[Any, Any], value).items():
                check_text(f"a key of {field}", key)
                _check_json(f"{field}.{key}", item)
        case list() | tuple():
            for place, item in enumerate(cast(list[Any], value)):
                _check_json(f"{field}[{place}]", item)
        case _:
            raise WrongValue(
                field, f"is a {_kind(value)}, which JSON cannot hold; write it as text"
            )


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
