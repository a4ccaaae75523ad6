"""Search over everything that was ever in context, live or not.

The text index is filled lazily, because that would double the cost of a commit: `index_behind` adds
new commits before a search, on close, and while the gateway has nothing else to do.

- `search_commits` returns the commits that have every word of a query, the best first; if there are
  none, the commits that have some of the words.
- `recall_commits` returns the commits that answer a question best, whatever words they use.

Both use the same index and the same ranking. A query without words (only punctuation) is searched
as a substring.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain

from msgspec import Struct

from weft.errors import Damaged, StoreError
from weft.ids import Id
from weft.model import Message
from weft.store import NewSegment, Step, Store

from .objects import decode_entry
from .oplog import read_operations
from .terms import STOP_TERMS, Word, count_terms, split_words
from .text_index import (
    SEGMENT_SIZE,
    SMALL_SEGMENTS,
    SMALL_SIZE,
    Document,
    TextIndex,
    make_segment,
    merge_segments,
)

PAGE = 512
CLOSING_PAGES = 8
"""The most pages that are indexed when a store is closed. A search indexes the rest."""

WORD = re.compile(r"\w", re.UNICODE)
PART_WEIGHT = 0.5
"""The weight of a part of an identifier, beside 1 for the whole."""

WEAKEST = 0.2
"""The lowest score of a recalled commit, as a share of the best one."""

_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")


def index_behind(store: Store, pages: int | None = None) -> int:
    """Index all new commits, or at most this many pages of them; returns how many."""
    indexed = 0
    while pages is None or indexed < pages * PAGE:
        size = SEGMENT_SIZE if pages is None else min(SEGMENT_SIZE, pages * PAGE - indexed)
        segment = _next_segment(store, size, 0)
        if segment is None:
            break
        if _add(store, segment):
            indexed += segment.size
    return indexed


def open_index(store: Store, thread: str | None = None) -> TextIndex:
    """The index with all commits; those that a read-only store cannot take are only in memory."""
    unwritten: list[NewSegment] = []
    try:
        index_behind(store)
    except Damaged:
        raise
    except StoreError:
        after = 0
        while segment := _next_segment(store, SEGMENT_SIZE, after):
            unwritten.append(segment)
            after = max(int.from_bytes(own.keys[-8:], "little") for own in segment.commits)
    return TextIndex(store, thread, unwritten)


def _next_segment(store: Store, size: int, after: int) -> NewSegment | None:
    """A segment of the next unindexed commits."""
    documents: list[Document] = []
    while len(documents) < size and (
        commits := store.unindexed(min(PAGE, size - len(documents)), after)
    ):
        documents += [
            Document(item.key, item.thread, item.created, count_terms(commit_text(item.contents)))
            for item in commits
        ]
        after = commits[-1].key
        if len(commits) < PAGE:
            break
    return make_segment(documents) if documents else None


def _add(store: Store, segment: NewSegment) -> bool:
    """Add a segment, merged with small ones if there are many; false if another writer did."""
    sizes = store.segments()
    small = [number for number, size in sizes.items() if size < SMALL_SIZE]
    waiting = sum(sizes[number] for number in small)
    if segment.size >= SMALL_SIZE or not small:
        return store.add_segment(segment)
    if segment.size + waiting < SMALL_SIZE and len(small) < SMALL_SEGMENTS:
        return store.add_segment(segment)
    owned = store.indexed_commits(segments=small)
    blocks = store.index_blocks(None, small)
    parts = [
        (
            [commits for commits in owned if commits.segment == number],
            [block for of, block in blocks if of == number],
        )
        for number in small
    ]
    merged = merge_segments([*parts, (segment.commits, segment.blocks)])
    return store.add_segment(merged, small)


class Query(Struct, frozen=True):
    """The words of a query, without stop words unless there is nothing else."""

    words: tuple[Word, ...]
    is_phrase: bool
    """Whether all words are stop words, which mean something only together."""


def parse_query(text: str) -> Query:
    """The words that count in a query."""
    words = tuple(dict.fromkeys(split_words(text)))
    content = tuple(word for word in words if not word.is_stop_word)
    return Query(content or words, not content)


def search_commits(store: Store, thread: str, query: str, limit: int) -> list[Step]:
    """The commits that have every word of the query, best first; else those that have some."""
    parsed = parse_query(query)
    if not parsed.words:
        steps = read_every_commit(store, thread)
        return [step for step in steps if query in commit_text(step.contents)][:limit]
    index = open_index(store, thread)
    matches = [match_word(index, word) for word in parsed.words]
    complete = set(matches[0].positions).intersection(*(one.positions for one in matches[1:]))
    scores = index.score_postings(weighted for one in matches for weighted in one.weighted)
    if complete:
        scores = {position: scores[position] for position in complete}
    elif parsed.is_phrase:
        return []
    best = nlargest(limit, scores.items(), key=lambda item: (item[1], item[0]))
    steps = [step for _, step in store.read_keys([index.keys[position] for position, _ in best])]
    if parsed.is_phrase:
        phrase = " ".join(query.casefold().split())
        steps = [
            step
            for step in steps
            if phrase in " ".join(commit_text(step.contents).casefold().split())
        ]
    return steps


class WordMatch(Struct, frozen=True):
    """The commits with one word of a query, and what they are scored by."""

    positions: Mapping[int, int]
    weighted: list[tuple[dict[int, int], float]]


def match_word(index: TextIndex, word: Word) -> WordMatch:
    """The commits that have all parts of a word; else longer words that begin with or have it."""
    parts = [index.find(part) for part in word.parts]
    everywhere = min(parts, key=len)
    for other in parts:
        if other is not everywhere:
            everywhere = {at: times for at, times in everywhere.items() if at in other}
    name = word.parts[0]
    weighted = [(everywhere, 1.0)]
    if len(parts) > 1:
        name = word.whole[0]
        whole = _joined(index, [name, *index.variants(name, within=False)])
        weighted = [(whole, 1.0)]
        weighted += [
            (found, PART_WEIGHT)
            for part, found in zip(word.parts, parts, strict=True)
            if part not in STOP_TERMS
        ]
    if everywhere:
        return WordMatch(everywhere, weighted)
    for within in (False, True):
        # A stem that ends in `i` may stand for a word in `y`.
        found = _joined(index, index.variants(name.removesuffix("i"), within=within))
        if found:
            return WordMatch(found, [*weighted, (found, 1.0)])
    return WordMatch({}, weighted)


def _joined(index: TextIndex, terms: Sequence[str]) -> dict[int, int]:
    """The postings of several terms as if they were one term."""
    joined: dict[int, int] = {}
    for term in terms:
        for position, times in index.find(term).items():
            joined[position] = joined.get(position, 0) + times
    return joined


def threads_with(store: Store, query: str) -> set[str] | None:
    """The threads in which a search finds something; `None` if only reading them all would tell."""
    parsed = parse_query(query)
    if not parsed.words or parsed.is_phrase:
        return None
    index = open_index(store)
    matches = [match_word(index, word).positions for word in parsed.words]
    complete = set(matches[0]).intersection(*matches[1:])
    return index.threads_of(complete or set[int]().union(*matches))


def recall_commits(store: Store, thread: str, query: str, limit: int) -> list[Step]:
    """The commits that have some words of the query, best first."""
    parsed = parse_query(query)
    if not parsed.words or parsed.is_phrase:
        return search_commits(store, thread, query, limit)
    index = open_index(store, thread)
    matches = [match_word(index, word) for word in parsed.words]
    scores = index.score_postings(weighted for one in matches for weighted in one.weighted)
    best = nlargest(limit, scores.items(), key=lambda item: (item[1], item[0]))
    floor = best[0][1] * WEAKEST if best else 0.0
    keys = [index.keys[position] for position, score in best if score >= floor]
    return [step for _, step in store.read_keys(keys)]


def read_every_commit(store: Store, thread: str) -> Iterator[Step]:
    """Every commit that a branch or the operation log reaches."""
    visited: set[Id] = set()
    logged = (
        head
        for operation in read_operations(store, thread)
        for head in (operation.new, operation.old)
    )
    for head in chain(store.refs(thread).values(), logged):
        waiting = [] if head is None else [head]
        while waiting:
            tip = waiting.pop()
            if tip in visited:
                continue
            for step in reversed(store.walk(thread, tip)):
                if step.commit.id in visited:
                    break
                visited.add(step.commit.id)
                waiting += step.commit.parents[1:]
                yield step


def commit_text(contents: tuple[bytes, ...]) -> str:
    """The text by which a search finds a commit."""
    return "\n".join(text for text in map(_entry_text, contents) if text)


def _entry_text(content: bytes) -> str:
    """The searchable text of an entry; empty if it is damaged, so that others are still found."""
    try:
        message = decode_entry(content)
    except Damaged:
        return ""
    return message_words(message)


def message_words(message: Message) -> str:
    """The searchable text of a message: its author's name, text, thinking, and calls."""
    words = [message.name or "", message.text]
    for block in message.blocks:
        match block.__struct_config__.tag:
            case "thinking":
                words.append(getattr(block, "text", ""))
            case "call":
                words += [getattr(block, "name", ""), _plain_json(getattr(block, "arguments", ""))]
            case _:
                pass
    return "\n".join(word for word in words if word)


def _plain_json(arguments: str) -> str:
    """JSON text without its escapes: the `n` of an escaped line end is not part of a word."""
    if "\\" not in arguments:
        return arguments
    return _ESCAPE.sub(_unescaped, arguments)


def _unescaped(match: re.Match[str]) -> str:
    if match[0][1] == "u":
        return chr(int(match[0][2:], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[0][1], match[0][1])
