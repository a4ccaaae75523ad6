"""Types of the arguments of `Thread`'s methods, and checks before anything reaches the store.

Stored objects are permanent, so a wrong type must be refused at the call, also for callers who use
no type checker. Every refusal is a `WrongValue` that names the argument.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from weft.compact import Clip, Importance, Replacement, Scorer, Trigger
from weft.errors import ThreadError, WrongValue
from weft.history import PRIORITIES
from weft.model import Message, Request

Replacements = Sequence[Replacement | Mapping[str, Any]]
"""The summaries of ranges that `Thread.compact` takes."""


class CompactOptions(Struct, frozen=True, kw_only=True):
    """The options of a compaction with a model; see `Thread.compact`.

    - `first`, `last`: the ids of the first and the last message to replace. Without `first` the
      range begins after the system messages, without `last` it ends with the thread.
    - `limit`: a second, larger budget, for messages that must stay and do not fit `budget`. Unread
      tool results are shortened only if they do not fit `limit` either.
    - `verbatim`: how many tokens of old messages stay verbatim instead of being folded. `scorer`
      decides which messages are the most important.
    - `chunk`: the most tokens in one request for a summary.
    - `clip`: how many batches a summary shows, and when those in the middle are summarised again
      (`Clip`).
    - `force`: write the summary even if it saves nothing.
    - `fallback`: continue without the model if it fails; by default only with a `budget`.
    - `count`: counts the tokens of a message; by default the thread's own tokenizer.
    - `live`: the agent's next request. If it is set, the request for a summary is this request with
      the instruction to summarise at its end, so that the vendor's cache is used.
    """

    budget: int | None = None
    limit: int | None = None
    keep: int | None = None
    first: str | None = None
    last: str | None = None
    prompt: str | None = None
    chunk: int | None = None
    clip: Clip = Clip()
    verbatim: int = 0
    scorer: Scorer = Importance()
    retain: tuple[str, ...] = ()
    trigger: Trigger = "manual"
    force: bool = True
    fallback: bool | None = None
    count: Callable[[Message], int] | None = None
    live: Request | None = None
    note: str | None = None

    @property
    def has_range(self) -> bool:
        return self.first is not None or self.last is not None

    @property
    def falls_back(self) -> bool:
        return self.budget is not None if self.fallback is None else self.fallback

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that the thread may have afterwards: `budget`, or `limit` if larger."""
        if self.budget is None or self.limit is None:
            return self.budget
        return max(self.budget, self.limit)


CONTROL_CHARACTERS = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))
"""Control characters, and Unicode's line and paragraph separators."""


def check_text(field: str, value: Any) -> str:
    """The value, if it is a text."""
    if not isinstance(value, str):
        raise WrongValue(field, f"must be a string, not {_kind(value)}")
    return value


def check_texts(**values: Any) -> None:
    """Refuse values that are neither texts nor `None`."""
    for field, value in values.items():
        if value is not None:
            check_text(field, value)


def read_note(note: Any, message: Any) -> str | None:
    """The commit note. `message` is an alias of `note`; giving both is an error."""
    if message is None:
        return None if note is None else check_text("note", note)
    if note is not None:
        raise WrongValue("message", "is an alias of `note`: pass only one of them")
    return check_text("message", message)


def check_flag(field: str, value: Any) -> bool:
    """The value, if it is a bool."""
    if not isinstance(value, bool):
        raise WrongValue(field, f"must be true or false, not {_kind(value)}")
    return value


def check_hook(value: Any) -> Any:
    """The value, if it can be called."""
    if not callable(value):
        raise WrongValue("hook", f"must be a function, not {_kind(value)}")
    return value


MAX_COUNT = 2**63 - 1
"""The largest number that Python's own sequences and the stores count to."""


def check_count(field: str, value: Any) -> None:
    """Refuse anything but a non-negative integer or `None`."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongValue(field, f"must be a number, not {_kind(value)}")
    if value < 0:
        raise WrongValue(field, f"must not be negative: {value}")
    if value > MAX_COUNT:
        raise WrongValue(field, f"must be at most {MAX_COUNT}")


def check_name(field: str, value: Any) -> str:
    """The value, if it is a text without line breaks or control characters."""
    name = check_text(field, value)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise WrongValue(field, f"is not UTF-8: {name!r}") from None
    if not CONTROL_CHARACTERS.isdisjoint(name):
        raise WrongValue(field, f"must be one line of plain characters: {name!r}")
    return name


def check_thread_name(name: Any) -> str:
    """The value, if a thread can have this name."""
    if not check_name("thread", name).strip():
        raise ThreadError("a thread needs a name that is not blank")
    return name


def check_priority(value: Any) -> None:
    """Refuse anything but one of the four priorities."""
    if value not in PRIORITIES:
        priorities = ", ".join(PRIORITIES)
        raise WrongValue("priority", f"{value!r} is unknown; the priorities are {priorities}")


def check_objects(**values: Any) -> None:
    """Refuse values that are neither JSON objects nor `None`."""
    for field, value in values.items():
        if value is not None:
            _check_object(field, value)


def _check_object(field: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise WrongValue(field, f"must be an object, not {_kind(value)}")
    for key in cast(dict[Any, Any], value):
        check_text(f"a key of {field}", key)
    try:
        _check_json(field, value)
    except RecursionError:
        raise WrongValue(field, "is nested too deeply, or contains itself") from None


def _check_json(field: str, value: Any) -> None:
    """Refuse values that JSON cannot represent, such as a set or a date."""
    match value:
        case None | str() | bool() | int() | float():
            pass
        case dict():
            for key, item in cast(dict[Any, Any], value).items():
                check_text(f"a key of {field}", key)
                _check_json(f"{field}.{key}", item)
        case list() | tuple():
            for index, item in enumerate(cast(list[Any], value)):
                _check_json(f"{field}[{index}]", item)
        case _:
            raise WrongValue(
                field, f"is a {_kind(value)}, which JSON cannot represent; write it as text"
            )


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
