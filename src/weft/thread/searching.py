"""Search over what was ever said in a thread, or in all threads of a store, with filters."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from weft.errors import NotFound, WrongValue
from weft.history import message_words, read_ancestors, read_every_commit, search_commits
from weft.ids import Id
from weft.model import SYSTEM_ROLES
from weft.store import Step, Store

from .arguments import check_count, check_flag, check_text
from .handle import Handle
from .lineage import written_lines
from .looking import LIMIT, Hit, find_lines, read_hits

ROLES = ("user", "assistant", "tool", *sorted(SYSTEM_ROLES))
ALL = 2**31 - 1
"""How many commits are looked at where filters choose among them: the limit is of what is left."""

Moment = datetime | float | str | None
"""A time: a `datetime`, seconds since 1970, or ISO 8601 text; without a zone it is local."""


class Filter(Struct, frozen=True):
    """Which hits are wanted, besides having the words."""

    role: str | None = None
    branch: str | None = None
    since: float | None = None
    until: float | None = None
    regex: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it lets everything pass."""
        return self == Filter()

    def takes_time(self, created: float) -> bool:
        after = self.since is None or created >= self.since
        return after and (self.until is None or created <= self.until)


def make_filter(
    role: str | None, branch: str | None, since: Moment, until: Moment, regex: bool
) -> Filter:
    """The filter of these arguments; raises `WrongValue` for one that means nothing."""
    if role is not None and check_text("role", role) not in ROLES:
        raise WrongValue("role", f"{role!r} is unknown; the roles are {', '.join(ROLES)}")
    if branch is not None:
        check_text("branch", branch)
    start, end = read_moment("since", since), read_moment("until", until)
    return Filter(role, branch, start, end, check_flag("regex", regex))


def read_moment(field: str, value: Any) -> float | None:
    """A time in seconds; raises `WrongValue` for what is none."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            wrong = f"{value!r} is no time: write it as 2026-01-31 or 2026-01-31T12:00"
            raise WrongValue(field, wrong) from None
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = type(value).__name__
        raise WrongValue(field, f"must be a datetime, seconds or ISO 8601 text, not {kind}")
    return float(value)


def search(handle: Handle, query: str, limit: int = LIMIT, only: Filter = Filter()) -> list[Hit]:  # noqa: B008
    """Everything ever in context that has all these words, live first, then best first.

    A line is found once, as it is now where that has the words, else as it was when it had them.
    """
    check_count("limit", limit)
    if not check_text("query", query).strip():
        return []
    fits = _pattern(query) if only.regex else _words(query)
    place = handle if only.branch is None else handle.twin(only.branch)
    found = _commits(place, query, limit, only)
    find = find_lines(place, found)
    hits: list[Hit] = []
    for step in found:
        lines = written_lines(step)
        for hit, (_, message) in zip(read_hits(step, find, handle.name), lines, strict=True):
            said = message_words(message)
            taken = fits(said) or (not only.regex and len(lines) == 1)
            if taken and (only.role is None or message.role == only.role):
                hits.append(hit)
    once: dict[str, Hit] = {}
    for hit in sorted(hits, key=lambda hit: not hit.live):
        once.setdefault(hit.id, hit)
    return list(once.values())[:limit]


def search_all(
    store: Store, query: str, limit: int, only: Filter, thread: str | None = None
) -> list[Hit]:
    """What all threads have, or one: live first, then the newest."""
    check_count("limit", limit)
    if thread is not None and store.read_thread(check_text("thread", thread)) is None:
        raise NotFound("thread", thread)
    found: list[Hit] = []
    has_branch = False
    for record in store.threads():
        if thread is not None and record.name != thread:
            continue
        if only.branch is not None and store.read_ref(record.name, only.branch) is None:
            continue
        has_branch = True
        found += search(Handle(store, record), query, limit, only)
    if only.branch is not None and not has_branch:
        raise NotFound("branch", only.branch)
    found.sort(key=lambda hit: (not hit.live, -hit.created.timestamp() if hit.created else 0.0))
    return found[:limit]


def _commits(handle: Handle, query: str, limit: int, only: Filter) -> Sequence[Step]:
    """The commits that may hold hits, best first."""
    store, name = handle.store, handle.name
    reachable: set[Id] | None = None
    if only.branch is not None:
        head = store.read_ref(name, only.branch)
        if head is None:
            raise NotFound("branch", only.branch)
        reachable = {step.commit.id for step in read_ancestors(store, name, head)}
    if only.regex:
        steps = read_every_commit(store, name)
    else:
        steps = search_commits(store, name, query, limit if only.is_open else ALL)
    return [
        step
        for step in steps
        if only.takes_time(step.commit.created)
        and (reachable is None or step.commit.id in reachable)
    ]


def _pattern(query: str) -> Callable[[str], bool]:
    try:
        pattern = re.compile(query)
    except (re.error, OverflowError, RecursionError) as error:
        raise WrongValue("query", f"is no regular expression: {error}") from None
    return lambda text: pattern.search(text) is not None


def _words(query: str) -> Callable[[str], bool]:
    words = [word.casefold() for word in query.split()]

    def fits(text: str) -> bool:
        folded = text.casefold()
        return all(word in folded for word in words)

    return fits
