"""`search` and `recall`: find messages that were ever in a thread, live or not.

`search` returns every message that has all the words of a query, or that matches a regular
expression. If no message has all the words, it returns those with some of them. Filters narrow the
search. It also returns the notes, metadata, tags, titles and names that have all the words;
`Hit.kind` says what a hit is.

`recall` returns originals: the message with an id or a checkpoint, or else the messages that match
some words best. `recall_page` returns the same in pages of limited size:

- For an id, or the handle of a shortened result (`id/block`), the page is a part of the original
  text. Its offset counts characters.
- For words, the page is a list of messages, the best match first, and each message whole. A message
  that is too long for the page is cut to the parts that match best, with the call that reads it
  whole. The offset counts hits.

A page has at most the given number of tokens. It says how much is left, and the offset of the next
page.
"""

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import Any

from msgspec import Struct, structs

from weft.compact.names import find_names
from weft.errors import Ambiguous, NotFound, WrongValue
from weft.history import (
    TAG,
    Located,
    Matches,
    RecallFilter,
    Rewrite,
    Row,
    Word,
    compile_slots,
    count_terms,
    decode_body,
    is_visible,
    message_words,
    note_texts,
    parse_query,
    read_ancestors,
    read_every_commit,
    read_tags,
    recall_commits,
    search_matches,
)
from weft.ids import Id
from weft.lazy import lazy_pattern
from weft.model import (
    SYSTEM_ROLES,
    Message,
    Text,
    ToolResult,
    display_text,
    speaker,
    texts,
    without_markers,
)
from weft.store import Step, Store

from .arguments import check_count, check_flag, check_text
from .handle import Handle
from .lineage import read_versions, written_messages
from .resolve import MIN_PREFIX, find_row, require_commit

LIMIT = 50
"""The most hits by default."""

THREAD_KINDS = ("title", "name")
"""The kinds of hits that are threads."""

ROLES = ("user", "assistant", "tool", *sorted(SYSTEM_ROLES))
HITS_AT_ONCE = 50
"""Commits whose messages are compared with the branch at once."""

RECALL_TOKENS = 2500
"""The default size of a page."""

MESSAGE_SHARE = 0.34
"""The part of a page that one message may use while others wait; a longer one is cut."""

MIN_CUT_TOKENS = 40
"""A message is not cut to less than this, but left for the next page."""

SAMPLE_LENGTH = 2000
"""The characters of a text from which its characters per token are measured."""

LINE_LENGTH = 160
"""Longer lines are split before the best lines of a message are chosen."""

REPEATED_WEIGHT = 0.4
"""The weight of a word that an earlier chosen line has, relative to its weight before."""

MAX_NAMES = 60
NAMES_SHARE = 0.1
"""The most names of messages that were cut, and the part of a page that they may use."""

NAME_KINDS = ("path", "symbol", "error")
"""The kinds of names that are listed."""

ID_LENGTH = 8
"""The hex digits of the id that reads a message that was cut."""

PAGE_HITS = 50
"""The most hits on one page."""

QUERY_SHARE = 0.06
"""The part of a page that a repeated query may use; a longer one is not repeated."""

MICROSECOND = 1e-6
_ID_OR_BLOCK = lazy_pattern(r"([0-9a-f]{4,40})(?:/(\d{1,4}))?")
"""The id of a message, or the handle of a shortened result (`id/block`)."""

Moment = datetime | float | str | None
"""A time: a `datetime`, seconds since 1970, or ISO 8601 text; without a zone it is local."""

FindRow = Callable[[Id], Row | None]
"""Returns the row with this id as the branch has it now."""


class Hit(Struct, frozen=True):
    """A search result: a message, or a note, tag or name.

    `id` is the id of the message. `live` says whether a model still sees this text, and `summary`
    whether a compaction wrote it. `speaker` and `calls` say who speaks and which tools are called,
    in a form for people. `created` is the time of its commit, in `thread`.

    `kind` is `message`, `note` or `metadata` (of a commit), `tag`, or `title` or `name` (of the
    thread). All kinds but `message` have no role, and their `speaker` is the kind. Their `id` is
    the id of the message that they are about, or else of the commit, and `live` says whether the
    branch has that commit.
    """

    id: str
    text: str
    live: bool
    role: str
    commit: str
    summary: bool = False
    speaker: str = ""
    calls: str = ""
    thread: str = ""
    created: datetime | None = None
    kind: str = "message"


class Filter(Struct, frozen=True):
    """Further conditions that a hit must meet."""

    role: str | None = None
    branch: str | None = None
    since: float | None = None
    until: float | None = None
    regex: bool = False
    path: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the filter has no conditions."""
        return self == Filter()

    @property
    def is_about_messages(self) -> bool:
        """Whether only messages can meet the conditions."""
        return self.role is not None or self.path is not None

    def accepts_time(self, created: float) -> bool:
        is_late_enough = self.since is None or created >= self.since
        return is_late_enough and (self.until is None or created <= self.until)

    def accepts(self, message: Message) -> bool:
        """Whether the message has the role and mentions the path."""
        if self.role is not None and message.role != self.role:
            return False
        return self.path is None or _mentions(message_words(message), self.path)


class RecallPage(Struct, frozen=True, kw_only=True):
    """One page of the originals that `recall_page` found.

    `body` is the text of the originals. `note` says how much is left. `next` is the offset of the
    next page, or `None` if this is the last one.
    """

    body: str
    note: str = ""
    next: int | None = None

    @property
    def text(self) -> str:
        """The page as a model reads it."""
        return "\n\n".join(part for part in (self.body, self.note) if part)


def make_filter(
    role: str | None = None,
    branch: str | None = None,
    since: Moment = None,
    until: Moment = None,
    regex: bool = False,
    path: str | None = None,
) -> Filter:
    """The filter of these arguments; raises `WrongValue`."""
    if role is not None and check_text("role", role) not in ROLES:
        raise WrongValue("role", f"{role!r} is unknown; the roles are {', '.join(ROLES)}")
    if branch is not None:
        check_text("branch", branch)
    start, end = read_moment("since", since), read_moment("until", until)
    # A `datetime` is less exact than a commit's time. A filter with a hit's time must find the hit.
    start = None if start is None else start - MICROSECOND
    end = None if end is None else end + MICROSECOND
    if path is not None and not check_text("path", path).strip():
        raise WrongValue("path", "is empty; leave it out for all messages")
    return Filter(role, branch, start, end, check_flag("regex", regex), path)


def read_moment(field: str, value: Any) -> float | None:
    """A time in seconds since 1970; raises `WrongValue`."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            hint = "write it as 2026-01-31 or 2026-01-31T12:00"
            raise WrongValue(field, f"{value!r} is not a time: {hint}") from None
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = type(value).__name__
        raise WrongValue(field, f"must be a datetime, seconds or ISO 8601 text, not {kind}")
    return float(value)


def search(handle: Handle, query: str, limit: int = LIMIT, filter: Filter = Filter()) -> list[Hit]:  # noqa: B008
    """All messages that match, the most relevant first; then tags, notes and metadata that match.

    A smaller limit returns the first hits of a larger one.
    """
    check_count("limit", limit)
    if not check_text("query", query).strip():
        if filter.path is None:
            return []
        query = filter.path
    handle = handle if filter.branch is None else handle.on_branch(filter.branch)
    matches = _candidates(handle, query, filter)
    handles = {handle.name: handle}
    hits = list(islice(_message_hits(handles, query, matches.messages, filter), limit))
    if filter.is_about_messages or len(hits) == limit:
        return hits
    listed = {hit.commit for hit in hits}
    tags = _tag_hits(handle, query, filter)
    notes = _note_hits(handles, query, matches.notes, filter)
    return list(islice(chain(hits, tags, (h for h in notes if h.commit not in listed)), limit))


def _note_hits(
    handles: Mapping[str, Handle], query: str, commits: Iterator[Located], filter: Filter
) -> Iterator[Hit]:
    """The notes and metadata of these commits that match; at most one hit for each commit."""
    matches = _matcher(query, filter)
    for thread, step in commits:
        commit = step.commit
        note, metadata = _notes_of(step)
        lines = [line for line in metadata.splitlines() if matches(line)]
        if filter.regex and not matches(note) and not lines:
            continue
        kind = "note" if note and (matches(note) or not lines) else "metadata"
        yield Hit(
            _note_target(step),
            note if kind == "note" else "\n".join(lines) or metadata,
            commit.id in _on_branch(handles[thread], [commit.id]),
            "",
            commit.id.hex(),
            speaker=kind,
            thread=thread,
            created=datetime.fromtimestamp(commit.created, UTC),
            kind=kind,
        )


def _on_branch(handle: Handle, commits: Sequence[Id]) -> Collection[Id]:
    """Those of these commits that the handle's branch has."""
    head = handle.head()
    return () if head is None else handle.store.read_depths(handle.name, head, commits)


def _note_target(step: Step) -> str:
    """The id of the message that a commit's note or tag is about, or else of the commit."""
    if step.commit.kind == "note":
        return str((decode_body(step).metadata or {}).get("about", step.commit.id.hex()))
    slots = {slot for slot, _ in written_messages(step)}
    return slots.pop().hex() if len(slots) == 1 else step.commit.id.hex()


def _tag_hits(handle: Handle, query: str, filter: Filter) -> list[Hit]:
    """The tags of a thread that match, in order of their names."""
    matches = _name_matcher(query, filter)
    tags = {name: id for name, id in read_tags(handle.store, handle.name).items() if matches(name)}
    if not tags:
        return []
    reachable = _reachable(handle, filter)
    steps = handle.store.read_commits(handle.name, list(set(tags.values())))
    by_id = {step.commit.id: step for step in steps}
    on_branch = _on_branch(handle, list(by_id))
    return [
        Hit(
            _note_target(by_id[id]),
            name,
            id in on_branch,
            "",
            id.hex(),
            speaker="tag",
            thread=handle.name,
            created=datetime.fromtimestamp(by_id[id].commit.created, UTC),
            kind="tag",
        )
        for name, id in sorted(tags.items())
        if id in by_id
        and filter.accepts_time(by_id[id].commit.created)
        and (reachable is None or id in reachable)
    ]


def _title_hits(handle: Handle, query: str, filter: Filter) -> list[Hit]:
    """A hit for the title or the name of a thread, if it matches; its commit is the head."""
    store, record = handle.store, handle.store.read_thread(handle.name)
    if record is None:  # deleted meanwhile
        return []
    matches = _name_matcher(query, filter)
    names = [("title", record.title or ""), ("name", record.name)]
    kind, text = next(((kind, text) for kind, text in names if matches(text)), ("", ""))
    head = store.read_ref(record.name, filter.branch or record.head) if kind else None
    if head is None:
        return []
    (step,) = store.read_commits(record.name, [head])
    if not filter.accepts_time(step.commit.created):
        return []
    created = datetime.fromtimestamp(step.commit.created, UTC)
    id = head.hex()
    return [
        Hit(id, text, True, "", id, speaker=kind, thread=record.name, created=created, kind=kind)
    ]


def _unique(hits: Iterable[Hit]) -> Iterator[Hit]:
    """The first hit of each message."""
    returned: set[tuple[str, str]] = set()
    for hit in hits:
        if (hit.thread, hit.id) not in returned:
            returned.add((hit.thread, hit.id))
            yield hit


def _message_hits(
    handles: Mapping[str, Handle], query: str, commits: Iterator[Located], filter: Filter
) -> Iterator[Hit]:
    """The messages of these commits that match the query, each once, in the same order.

    If the version of a message that a model still sees matches too, it is the hit.
    """
    matches = _matcher(query, filter)

    def read_page(page: Sequence[Located]) -> Iterator[Hit]:
        by_thread: dict[str, list[Step]] = {}
        for thread, step in page:
            by_thread.setdefault(thread, []).append(step)
        finders = {name: _row_finder(handles[name], steps) for name, steps in by_thread.items()}
        for thread, step in page:
            messages = written_messages(step)
            hits = read_hits(step, finders[thread], thread)
            for hit, (slot, message) in zip(hits, messages, strict=True):
                # The index splits words in its own way and may match where plain text does not. So
                # if a commit has a single message, the match is that message.
                is_only = not filter.regex and len(messages) == 1
                if not filter.accepts(message):
                    continue
                if is_only or matches(message_words(message)):
                    yield (
                        hit
                        if hit.live
                        else _current_version(hit, message, finders[thread](slot), query)
                    )

    pages = iter(lambda: list(islice(commits, HITS_AT_ONCE)), [])
    return _unique(hit for page in pages for hit in read_page(page))


def _current_version(hit: Hit, message: Message, row: Row | None, query: str) -> Hit:
    """The hit with the text that a model sees now, if that has the same words of the query."""
    if row is None or not is_visible(row):
        return hit
    found = _words_in(message, query)
    if not found or not found <= _words_in(row.message, query):
        return hit
    current = row.message
    return structs.replace(
        hit,
        text=current.text,
        live=True,
        role=current.role,
        speaker=speaker(current),
        calls=display_text(current, ""),
    )


def _words_in(message: Message, query: str) -> set[Word]:
    """The words of a query that a message has."""
    terms = count_terms(message_words(message))
    words = parse_query(query).words
    return {word for word in words if all(part in terms for part in word.required)}


def search_all(
    store: Store, query: str, limit: int, filter: Filter, thread: str | None = None
) -> list[Hit]:
    """Like `search`, over all threads of a store or one of them.

    Titles and names of threads that match come before everything else. The matches of a regular
    expression, and those on the branches of one name, are listed thread by thread, the thread that
    was active last first.
    """
    check_count("limit", limit)
    if thread is not None:
        record = store.read_thread(check_text("thread", thread))
        if record is None:
            raise NotFound("thread", thread)
        return search(Handle(store, record), query, limit, filter)
    active = store.last_active()
    handles = {
        record.name: Handle(store, record)
        for record in sorted(store.threads(), key=lambda record: -active.get(record.name, 0.0))
    }
    if filter.branch is not None:
        handles = {
            name: handle
            for name, handle in handles.items()
            if store.read_ref(name, filter.branch) is not None
        }
        if not handles:
            raise NotFound("branch", filter.branch)
    hits = (
        _search_each(handles, query, limit, filter)
        if (filter.regex or filter.branch is not None or not query.strip())
        else _search_together(store, handles, query, filter)
    )
    return list(islice(hits, limit))


def _search_each(
    handles: Mapping[str, Handle], query: str, limit: int, filter: Filter
) -> Iterator[Hit]:
    """The hits of each thread; names of threads first."""
    if query.strip() and not filter.is_about_messages:
        for handle in handles.values():
            yield from _title_hits(handle, query, filter)
    for handle in handles.values():
        yield from search(handle, query, limit, filter)


def _search_together(
    store: Store, handles: Mapping[str, Handle], query: str, filter: Filter
) -> Iterator[Hit]:
    """The hits of all threads, the most relevant first; names of threads before messages."""
    if not filter.is_about_messages:
        for name in handles.keys() & named_threads(store, query):
            yield from _title_hits(handles[name], query, filter)
    matches = _accepted(search_matches(store, query), filter, handles.keys())
    listed: set[str] = set()
    for hit in _message_hits(handles, query, matches.messages, filter):
        listed.add(hit.commit)
        yield hit
    if filter.is_about_messages:
        return
    is_match = _name_matcher(query)
    tagged = {thread for thread, ref, _ in store.find_refs(TAG) if is_match(ref.removeprefix(TAG))}
    for name in sorted(tagged & handles.keys()):
        yield from _tag_hits(handles[name], query, filter)
    for hit in _note_hits(handles, query, matches.notes, filter):
        if hit.commit not in listed:
            yield hit


def named_threads(store: Store, query: str) -> set[str]:
    """The threads whose name, title or tags match a query."""
    matches = _name_matcher(query)
    by_name = {
        record.name
        for record in store.threads()
        if matches(record.name) or matches(record.title or "")
    }
    tags = store.find_refs(TAG)
    return by_name | {thread for thread, ref, _ in tags if matches(ref.removeprefix(TAG))}


def recall(handle: Handle, query: str, limit: int = LIMIT, filter: Filter = Filter()) -> list[Hit]:  # noqa: B008
    """The originals of an id or a checkpoint; else the best matches of words, summaries last."""
    check_text("wanted", query)
    check_count("limit", limit)
    hits = _hits_by_id(handle, query, limit) if filter.is_open else None
    return _recall_words(handle, query, limit, filter)[0] if hits is None else hits


def _hits_by_id(handle: Handle, query: str, limit: int) -> list[Hit] | None:
    """The originals of an id or a checkpoint; `None` if the query is neither."""
    name = query.strip().removeprefix("<checkpoint:").removesuffix(">")
    if handle.store.has_checkpoint(handle.name, name):
        hits = [hit for hit in search(handle, name, limit) if name in hit.text]
        hits = [hit for hit in hits if hit.kind == "message"]
        return sorted(hits, key=lambda hit: hit.summary)
    row = find_row(handle, name)
    if row is not None and row.id is not None:
        id, message = row.id.hex(), row.message
        return [
            Hit(
                id,
                message.text,
                is_visible(row),
                message.role,
                id,
                speaker=speaker(message),
                calls=display_text(message, ""),
                thread=handle.name,
            )
        ]
    try:
        commit = require_commit(handle, name) if len(name) >= MIN_PREFIX else None
    except (NotFound, Ambiguous):
        commit = None
    if commit is None:
        return None
    (step,) = handle.store.read_commits(handle.name, [commit])
    return read_hits(step, handle.view(handle.head()).find, handle.name)


def _recall_words(
    handle: Handle, query: str, limit: int, filter: Filter, *, neighbours: bool = False
) -> tuple[list[Hit], dict[str, float]]:
    """The messages that match words best, summaries last, and the weight of each term.

    With `neighbours`, also messages without these words that are next to a good match.
    """
    words = query if query.strip() else filter.path or ""
    recall_filter = RecallFilter(filter.since, filter.until, filter.path)
    recalled = recall_commits(
        handle.store, handle.name, words, limit, recall_filter, neighbours=neighbours
    )
    # A page does not say which hits are live, and looking that up would read the whole thread.
    # Its offset must stay right when more is read, so summaries are only moved within a page.
    find = _no_row if neighbours else _row_finder(handle, recalled.steps)
    hits = _unique(
        hit
        for step in recalled.steps
        for hit, (_, message) in zip(
            read_hits(step, find, handle.name), written_messages(step), strict=True
        )
        if filter.accepts(message)
    )
    size = PAGE_HITS if neighbours else limit
    blocks = iter(lambda: list(islice(hits, size)), [])
    ordered = (hit for block in blocks for hit in sorted(block, key=lambda hit: hit.summary))
    return list(islice(ordered, limit)), recalled.weights


def recall_page(
    handle: Handle,
    query: str,
    *,
    tokens: int = RECALL_TOKENS,
    offset: int = 0,
    filter: Filter = Filter(),  # noqa: B008
) -> RecallPage:
    """One page of the originals of an id, a handle, a checkpoint or words."""
    check_text("wanted", query)
    check_count("tokens", tokens)
    check_count("offset", offset)
    if tokens < 1:
        raise WrongValue("tokens", "must be at least 1")
    match = _ID_OR_BLOCK.fullmatch(query.strip())
    if match is not None:
        id, block = match[1], match[2]
        text = _original_text(handle, id, block)
        if text is not None:
            return _text_page(handle, query.strip(), text, tokens, offset)
        if block is not None:  # a handle of no message; it cannot be words
            return RecallPage(body="")
    return _hits_page(handle, query, tokens, offset, filter)


def read_hits(step: Step, find: FindRow, thread: str) -> list[Hit]:
    """One hit for each message that a commit wrote."""
    op = decode_body(step).op
    is_compaction = step.commit.kind == "compact" and isinstance(op, Rewrite)
    changed = {change.slot for change in op.change} if isinstance(op, Rewrite) else set[Id]()
    return [
        Hit(
            slot.hex(),
            message.text,
            _is_live(find(slot), message),
            message.role,
            step.commit.id.hex(),
            summary=is_compaction and slot not in changed,
            speaker=speaker(message),
            calls=display_text(message, ""),
            thread=thread,
            created=datetime.fromtimestamp(step.commit.created, UTC),
        )
        for slot, message in written_messages(step)
    ]


def _row_finder(handle: Handle, steps: Sequence[Step]) -> FindRow:
    """A function that finds the current rows of these commits, without compiling all others."""
    head = handle.head()
    if head is not None and not handle.has_view(head):
        slots = {slot for step in steps for slot, _ in written_messages(step)}
        return compile_slots(handle.store, handle.name, head, slots).get
    return handle.view(head).find


def _no_row(_: Id) -> None:
    return None


def _is_live(row: Row | None, message: Message) -> bool:
    return row is not None and is_visible(row) and row.message == message


def _candidates(handle: Handle, query: str, filter: Filter) -> Matches:
    """The commits that may contain hits, the most relevant first."""
    if filter.regex:
        steps = read_every_commit(handle.store, handle.name)
        located = [(handle.name, step) for step in steps]
        notes = [pair for pair in located if any(_notes_of(pair[1]))]
        matches = Matches(iter(located), iter(notes))
    else:
        matches = search_matches(handle.store, query, handle.name)
    return _accepted(matches, filter, {handle.name}, _reachable(handle, filter))


def _accepted(
    matches: Matches, filter: Filter, threads: Container[str], reachable: set[Id] | None = None
) -> Matches:
    """The commits in these threads, on the filter's branch, and in its time."""

    def accepted(commits: Iterator[Located]) -> Iterator[Located]:
        return (
            (thread, step)
            for thread, step in commits
            if thread in threads
            and filter.accepts_time(step.commit.created)
            and (reachable is None or step.commit.id in reachable)
        )

    return Matches(accepted(matches.messages), accepted(matches.notes))


def _notes_of(step: Step) -> tuple[str, str]:
    return note_texts(step.commit.kind, step.commit.data)


def _reachable(handle: Handle, filter: Filter) -> set[Id] | None:
    """The commits of the branch that the search is limited to; `None` for all commits."""
    if filter.branch is None:
        return None
    head = handle.store.read_ref(handle.name, filter.branch)
    if head is None:
        raise NotFound("branch", filter.branch)
    return {step.commit.id for step in read_ancestors(handle.store, handle.name, head)}


def _matcher(query: str, filter: Filter) -> Callable[[str], bool]:
    """A function that says whether a text has one of the query's words, or matches its regex."""
    return _regex_matcher(query) if filter.regex else _words_matcher(query)


def _name_matcher(query: str, filter: Filter = Filter()) -> Callable[[str], bool]:  # noqa: B008
    """A function that says whether a name, title or tag matches the query or has all its words."""
    if filter.regex:
        return _regex_matcher(query)
    lower_query, words = query.strip().casefold(), parse_query(query).words

    def matches(name: str) -> bool:
        if lower_query in name.casefold():
            return True
        terms = count_terms(name) if name and words else {}
        return bool(terms) and all(part in terms for word in words for part in word.required)

    return matches


def _regex_matcher(query: str) -> Callable[[str], bool]:
    try:
        pattern = re.compile(query)
    except (re.error, OverflowError, RecursionError) as error:
        raise WrongValue("query", f"is not a regular expression: {error}") from None
    return lambda text: pattern.search(text) is not None


def _words_matcher(query: str) -> Callable[[str], bool]:
    """A function that says whether a text has one of the words of a query.

    If the query has no words, the text must contain the query itself.
    """
    words = parse_query(query).words

    def matches(text: str) -> bool:
        if not words:
            return query in text
        terms = count_terms(text)
        return any(all(part in terms for part in word.required) for word in words)

    return matches


def _text_page(handle: Handle, name: str, text: str, tokens: int, offset: int) -> RecallPage:
    """The page of a text that starts at this character."""
    start = min(offset, len(text))
    if start + _fitting_length(handle, text, start, tokens) >= len(text):
        return RecallPage(body=text[start:])

    def note(end: int) -> str:
        part = f"Characters {start:,} to {end:,} of {len(text):,}."
        return f'[{part} To read on: recall("{name}", offset={end})]'

    tokens_left = tokens - _count_text(handle, note(len(text)))
    end = _line_end(text, start, start + _fitting_length(handle, text, start, tokens_left))
    return RecallPage(body=text[start:end], note=note(end), next=end)


def _fitting_length(handle: Handle, text: str, start: int, tokens: int) -> int:
    """How many characters from `start` fit; at least one, so that a reader always advances.

    It counts at most about twice the characters that fit, however long the text is.
    """

    def fits(length: int) -> bool:
        return _count_text(handle, text[start : start + length]) <= tokens

    remaining = len(text) - start
    low, high = min(1, remaining), min(remaining, 64)
    while fits(high):
        if high == remaining:
            return remaining
        low, high = high, min(remaining, high * 2)
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _line_end(text: str, start: int, end: int) -> int:
    """The end of the last whole line, unless half of the page would be lost; then `end`."""
    after_newline = text.rfind("\n", (start + end) // 2, end) + 1
    return after_newline if after_newline > start else end


def _hits_page(handle: Handle, query: str, tokens: int, offset: int, filter: Filter) -> RecallPage:
    """The page of messages that starts at this hit."""
    stop = offset + PAGE_HITS
    limit = stop + 1  # one hit more tells whether there is a next page
    hits = _hits_by_id(handle, query, limit) if filter.is_open else None
    weights: dict[str, float] = {}
    if hits is None:
        hits, weights = _recall_words(handle, query, limit, filter, neighbours=True)
    is_short = _count_text(handle, query) <= max(tokens * QUERY_SHARE, 8)

    def note(next_offset: int) -> str:
        more = f"{len(hits) - next_offset} more" if len(hits) < limit else "More"
        call = f'recall("{query}", offset={next_offset})'
        return f"[{more} found. To read on: {call if is_short else _same_query(next_offset)}]"

    numbers = [n for n in range(offset, min(stop, len(hits))) if _text_and_calls(hits[n])]
    listed = [hits[number] for number in numbers]
    tokens_left = tokens
    while True:
        parts, names = _fill_page(handle, listed, weights, tokens_left)
        next_offset = numbers[len(parts)] if len(parts) < len(listed) else min(stop, len(hits))
        page = RecallPage(body="\n".join([*parts, names] if names else parts))
        if next_offset < len(hits):
            page = structs.replace(page, note=note(next_offset), next=next_offset)
        excess = _count_text(handle, page.text) - tokens
        if excess <= 0 or tokens_left <= 1:
            return page
        tokens_left = max(1, tokens_left - excess)


def _same_query(offset: int) -> str:
    return f"the same query with offset={offset}"


def _fill_page(
    handle: Handle, hits: Sequence[Hit], weights: Mapping[str, float], tokens: int
) -> tuple[list[str], str]:
    """The first hits that fit, and a line with other names of those that are cut.

    If all hits fit, those that are cut become longer.
    """
    names_tokens = int(tokens * NAMES_SHARE)
    share = int(tokens * MESSAGE_SHARE)
    parts, names = _take_hits(handle, hits, weights, share, tokens), ""
    while len(parts) == len(hits) and share < tokens:
        share *= 2
        longer = _take_hits(handle, hits, weights, share, tokens)
        if len(longer) < len(parts):
            break
        parts = longer
    if parts and (names := _other_names(handle, hits[: len(parts)], parts, names_tokens)):
        left = tokens - _count_text(handle, names)
        parts = _take_hits(handle, hits[: len(parts)], weights, share, left)
    return parts, names


def _take_hits(
    handle: Handle, hits: Sequence[Hit], weights: Mapping[str, float], share: int, tokens: int
) -> list[str]:
    """The first hits that fit, each with at most `share` tokens; the last may be cut further."""
    parts: list[str] = []
    for hit in hits:
        if parts and tokens < MIN_CUT_TOKENS:
            whole = _label(hit) + _text_and_calls(hit)
            if not _is_within(handle, whole, tokens):
                break
        part = _show_hit(handle, hit, weights, max(1, min(share, tokens)))
        tokens -= _count_text(handle, part)
        if parts and tokens < 0:
            break
        parts.append(part)
    return parts


def _show_hit(handle: Handle, hit: Hit, weights: Mapping[str, float], tokens: int) -> str:
    """The speaker and the text, whole if it fits; otherwise the parts that match best."""
    label, text = _label(hit), _text_and_calls(hit)
    if _is_within(handle, label + text, tokens):
        return label + text
    hint = f'\n({len(text):,} characters; recall("{hit.id[:ID_LENGTH]}") reads all)'
    tokens_left = tokens - _count_text(handle, label + hint)
    sample = text[:SAMPLE_LENGTH]
    length = max(1, tokens_left * len(sample) // _count_text(handle, sample))
    best = ""
    for _ in range(4):
        shown = _best_lines(text, weights, length)
        size = _count_text(handle, shown)
        if size <= tokens_left:
            if len(shown) <= len(best):
                break
            best = shown
        length = max(1, length * max(1, tokens_left) * 31 // (max(1, size) * 32))
    if best:
        return label + best + hint
    cut = label + text
    return cut[: _fitting_length(handle, cut, 0, tokens)]


def _is_within(handle: Handle, text: str, tokens: int) -> bool:
    """Whether a text has at most this many tokens; a long text is not counted as a whole."""
    return _count_text(handle, text[: tokens * 8]) <= tokens and (
        len(text) <= tokens * 8 or _count_text(handle, text) <= tokens
    )


def _label(hit: Hit) -> str:
    return f"{hit.speaker}: "


def _other_names(handle: Handle, hits: Sequence[Hit], parts: Sequence[str], tokens: int) -> str:
    """A line with names that the hits have and these parts of them do not; empty if none.

    A long message often has useful names outside the lines that match the query.
    """
    sort_keys: dict[str, tuple[int, int]] = {}
    shown = "\n".join(parts)
    for hit, part in zip(hits, parts, strict=True):
        if len(part) < len(_label(hit) + _text_and_calls(hit)):
            for position, (kind, name) in enumerate(find_names(_text_and_calls(hit))):
                if kind in NAME_KINDS and len(name) > 3 and name not in shown:
                    sort_keys.setdefault(name, (_name_rank(kind, name), position))
    names = sorted(sort_keys, key=sort_keys.__getitem__)[:MAX_NAMES]
    for count in range(len(names), 0, -1):
        line = f"Also in these messages: {', '.join(names[:count])}"
        if _count_text(handle, line) <= tokens:
            return line
    return ""


def _name_rank(kind: str, name: str) -> int:
    """Paths come first, and URLs last: they are long, and seldom needed again."""
    if "://" in name:
        return 2
    return 0 if kind == "path" else 1


def _mentions(text: str, path: str) -> bool:
    """Whether a text names a path, or a longer one that ends with it."""
    return re.search(rf"(?<![\w-]){re.escape(path.strip())}(?![\w-])", text) is not None


def excerpt(hit: Hit, query: str, length: int) -> str:
    """The part of a hit that has most words of a query, in one line."""
    words = parse_query(query).words
    weights = {term: 1.0 for word in words for term in (*word.required, *word.extra)}
    text = without_markers(_text_and_calls(hit))
    best = text if len(text) <= length else _best_lines(text, weights, length)
    return " ".join(best.split())[:length]


def _text_and_calls(hit: Hit) -> str:
    """The text and the calls; escaped line ends in the arguments of calls become line ends."""
    calls = hit.calls.replace("\\n", "\n").replace('\\"', '"')
    return "\n".join(part for part in (hit.text, calls) if part.strip())


def _best_lines(text: str, weights: Mapping[str, float], length: int) -> str:
    """The lines with the most, and the rarest, words of a query, in order."""
    lines = [part for line in text.splitlines() for part in _split_line(line)]
    chosen = _choose_lines(lines, weights, length)
    parts: list[str] = []
    previous = -1
    for number in sorted(chosen):
        if number != previous + 1:
            parts.append("[...]")
        parts.append(lines[number][:length])
        previous = number
    if previous < len(lines) - 1:
        parts.append("[...]")
    return "\n".join(parts)


def _choose_lines(lines: Sequence[str], weights: Mapping[str, float], length: int) -> set[int]:
    """The numbers of the best lines that fit into `length` characters, and of lines next to them.

    A word counts less in each further line, so that the lines contain as many words as possible.
    The heap has the score of each line when it was added, negated, because it pops the smallest
    item. If other lines have been chosen since, the score may be lower, and the line is added
    again.
    """
    line_terms = [[term for term in count_terms(line) if term in weights] for line in lines]
    current_weights = dict(weights)
    chosen: set[int] = set()
    characters_left = length
    candidates = [
        (-sum(weights[term] for term in terms), number)
        for number, terms in enumerate(line_terms)
        if terms
    ]
    heapify(candidates)
    while candidates and characters_left > 0:
        old_score, number = heappop(candidates)
        score = -sum(current_weights[term] for term in line_terms[number])
        is_worse_than_next = bool(candidates) and score > candidates[0][0]
        if is_worse_than_next and score > old_score:
            heappush(candidates, (score, number))
            continue
        if len(lines[number]) > characters_left and chosen:
            continue
        chosen.add(number)
        characters_left -= len(lines[number]) + 1
        for term in line_terms[number]:
            current_weights[term] *= REPEATED_WEIGHT
    for number in sorted(chosen) if chosen else [0]:
        for neighbour in (number + 1, number - 1):
            is_free = 0 <= neighbour < len(lines) and neighbour not in chosen
            if is_free and len(lines[neighbour]) < characters_left:
                chosen.add(neighbour)
                characters_left -= len(lines[neighbour]) + 1
    return chosen


def _split_line(line: str) -> list[str]:
    """A long line in parts of readable length, split after sentences or at spaces."""
    parts: list[str] = []
    start, stop = LINE_LENGTH // 2, LINE_LENGTH
    while len(line) > LINE_LENGTH * 3 // 2:
        end = max(line.rfind(mark, start, stop) for mark in (". ", "! ", "? ", "。")) + 1
        end = end or line.rfind(" ", start, stop) + 1 or stop
        parts.append(line[:end])
        line = line[end:]
    return [*parts, line]


def _original_text(handle: Handle, prefix: str, block: str | None) -> str | None:
    """The text of a message, or of one of its blocks, before a compaction shortened it.

    `None` if there is no such message or block.
    """
    message = _find_message(handle, prefix)
    if message is None:
        return None
    if block is None:
        return display_text(message)
    if int(block) >= len(message.blocks):
        return None
    result = message.blocks[int(block)]
    return (
        "\n".join(texts(result.content))
        if isinstance(result, ToolResult)
        else display_text(message)
    )


def _find_message(handle: Handle, prefix: str) -> Message | None:
    """The newest version of a message that is not from a compaction."""
    row = find_row(handle, prefix)
    slot = row.id if isinstance(row, Row) else _compacted_slot(handle, prefix)
    if slot is None:
        return None
    versions = read_versions(handle, slot)
    originals = [version for version in versions if version.kind != "compact"] or versions[:1]
    return originals[-1].message if originals else None


def _compacted_slot(handle: Handle, prefix: str) -> Id | None:
    """The slot of a message that the branch no longer has.

    Most messages have the id of their commit. Those of a merge or a cherry-pick do not, so all
    commits of the branch are searched for them.
    """
    if len(prefix) < MIN_PREFIX:
        return None
    try:
        commit = require_commit(handle, prefix)
        (step,) = handle.store.read_commits(handle.name, [commit])
        slots = {slot for slot, _ in written_messages(step)}
        if len(slots) == 1:
            return slots.pop()
    except (NotFound, Ambiguous):
        pass
    head = handle.head()
    steps = [] if head is None else handle.store.walk(handle.name, head)
    matching = {
        slot
        for step in steps
        for slot, _ in written_messages(step)
        if slot.hex().startswith(prefix)
    }
    return matching.pop() if len(matching) == 1 else None


def _count_text(handle: Handle, text: str) -> int:
    return handle.count_once(Message("user", (Text(text),)))
