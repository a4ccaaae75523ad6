"""Search over all messages that were ever in a thread, live or not.

The text index is filled lazily, because indexing at once would double the cost of a commit.
`index_new_commits` adds new commits before a search, on close, and while the gateway is idle.

- `search_commits` returns the commits that have every word of a query, the best first; if there are
  none, the commits that have some of the words.
- `recall_commits` returns the commits that answer a question best, whatever words they use.

Both use the same index and the same ranking. A query without words (only punctuation) is searched
as a substring.

The index also has the notes and the metadata of commits, as terms of their own. `search_matches`
finds them beside messages; a recall does not, because they are for people.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import wraps
from heapq import heapify, heappop, nlargest
from itertools import chain, islice
from typing import Any, ParamSpec, TypeVar, cast

from msgspec import Struct, json

from weft.errors import Damaged, StoreError
from weft.ids import Id
from weft.lazy import lazy_pattern
from weft.model import JsonObject, Message, Thinking, ToolCall
from weft.store import BUCKETS, Flaw, NewSegment, Step, Store

from .objects import PLAIN_BODIES, STOP_REASON, decode_body_data, decode_entry
from .oplog import read_operations
from .terms import STOP_TERMS, Word, count_terms, split_words
from .text_index import (
    MAX_COUNT,
    MAX_SCORED,
    NOTE_MARK,
    SEGMENT_SIZE,
    SMALL_SEGMENTS,
    SMALL_SIZE,
    Document,
    IndexChanged,
    TextIndex,
    make_segment,
    merge_segments,
    read_segment,
)

Args = ParamSpec("Args")
Result = TypeVar("Result")

PAGE = 512
"""How many commits are read at once."""

CLOSING_PAGES = 8
"""The most pages that are indexed when a store is closed. A search indexes the rest."""

READ_AT_ONCE = 50
"""How many matching commits are read at once: as many as a list of hits shows by default."""

SAMPLE = 32
"""How many commits of a segment `fsck` compares with their text, at least."""

COMMON_PART = 1000
"""If a part of an identifier is in more commits, a recall searches only the whole identifier."""

PART_WEIGHT = 0.5
"""The weight of a part of an identifier, beside 1 for the whole."""

MAX_REFUSALS = 20
"""How often a segment may be refused because another writer was first."""

SHARING_COMMITS = 200
"""How many of the best commits give a share of their scores to their neighbours."""

NEXT_SHARE, PREVIOUS_SHARE = 0.35, 0.15
"""The share of a commit's score that the next and the previous commit get."""

FORM_LENGTH, FORM_ENDING = 5, 2
"""A word with so many letters is also recalled with another ending of about so many letters."""

FORM_WEIGHT = 0.5
"""The weight of other forms of a word, beside 1 for the word itself."""

STOP_WEIGHT = 0.35
"""The weight of stop words on a page. They only order commits that other words have found."""

MIN_SHARE = 0.15
"""The lowest score in a list of hits, as a share of the best one; a page is filled anyway."""

OWN_METADATA = frozenset(
    {"about", "answer", "picked_from", "rebased_from", "restores", "sent", STOP_REASON}
)
"""Members of a commit's metadata that Weft writes for itself."""

REWRITE_METADATA = frozenset(
    (
        *("answered_twice", "batches", "by", "dropped_calls", "failures", "made", "method", "pins"),
        *("ranges", "squashed", "stripped", "thinned", "trigger"),
    )
)
"""Members that Weft writes into the metadata of compactions and merges."""

_ESCAPE = lazy_pattern(r"\\(?:u[0-9a-fA-F]{4}|.)")


def index_new_commits(
    store: Store, pages: int | None = None, progress: Callable[[int, int], None] | None = None
) -> int:
    """Index all new commits, or at most this many pages of them; returns how many.

    It gives up if other writers keep adding commits first. `progress` is called with how many
    commits are indexed, and how many there are.
    """
    indexed = refusals = 0
    total = 0 if progress is None else store.count_unindexed()
    while pages is None or indexed < pages * PAGE:
        size = SEGMENT_SIZE if pages is None else min(SEGMENT_SIZE, pages * PAGE - indexed)
        segment = _next_segment(store, size, 0)
        if segment is None:
            break
        if _add_segment(store, segment):
            indexed += segment.size
            if progress is not None:
                progress(min(indexed, total), total)
        elif (refusals := refusals + 1) == MAX_REFUSALS:
            break
    return indexed


def index_after_write(store: Store) -> None:
    """Index the new commits of a finished write, up to `CLOSING_PAGES`.

    The write is done and reported, so a failure here (a full disk, a store in use) must not make it
    look failed. The next search indexes what is missing, and reports what is wrong.
    """
    with suppress(StoreError):
        index_new_commits(store, CLOSING_PAGES)


def open_index(store: Store, thread: str | None = None) -> TextIndex:
    """The index with all commits; if the store is read-only, new ones are indexed in memory."""
    try:
        index_new_commits(store)
    except Damaged:
        raise
    except StoreError:
        pass  # the store cannot be written: the remaining commits are indexed below
    unwritten: list[NewSegment] = []
    after = 0
    while segment := _next_segment(store, SEGMENT_SIZE, after):
        unwritten.append(segment)
        after = max(int.from_bytes(commits.keys[-8:], "little") for commits in segment.commits)
    return TextIndex(store, thread, unwritten)


def _next_segment(store: Store, size: int, after: int) -> NewSegment | None:
    """A segment of at most `size` unindexed commits, from those with a key above `after`."""
    documents: list[Document] = []
    while len(documents) < size:
        commits = store.unindexed(min(PAGE, size - len(documents)), after)
        for commit in commits:
            terms = count_terms(commit_text(commit.contents))
            length = sum(terms.values())
            terms |= _note_terms(commit.kind, commit.data)
            documents.append(Document(commit.key, commit.thread, commit.created, length, terms))
            after = commit.key
        if len(commits) < PAGE:
            break
    return make_segment(documents) if documents else None


def _add_segment(store: Store, segment: NewSegment) -> bool:
    """Add a segment, merged with small ones if there are many.

    False if another writer has changed the index meanwhile.
    """
    sizes = store.segments()
    small = [number for number, size in sizes.items() if size < SMALL_SIZE]
    small_total = sum(sizes[number] for number in small)
    if segment.size >= SMALL_SIZE or not small:
        return store.add_segment(segment)
    if segment.size + small_total < SMALL_SIZE and len(small) < SMALL_SEGMENTS:
        return store.add_segment(segment)
    commit_lists = store.indexed_commits(segments=small)
    blocks = store.index_blocks(None, small)
    parts = [
        (
            [commits for commits in commit_lists if commits.segment == number],
            [block for segment_number, block in blocks if segment_number == number],
        )
        for number in small
    ]
    merged = merge_segments([*parts, (segment.commits, segment.blocks)])
    return store.add_segment(merged, small)


def find_index_flaws(store: Store, commits: int, unreliable: Set[Id]) -> list[Flaw]:
    """The flaws of the text index; `commits` is the number of commits of the store.

    Every segment is read. The terms of some of its commits are compared with their text. Commits
    that are in `unreliable`, or have an entry there, are not compared.
    """
    flaws: list[Flaw] = []
    for number, size in store.segments().items():
        try:
            commit_lists = store.indexed_commits(segments=[number])
            blocks = store.index_blocks(range(BUCKETS), [number])
            terms = read_segment(size, commit_lists, [block for _, block in blocks])
            problem = _check_terms(store, terms, unreliable)
        except ValueError as error:
            problem = str(error)
        except TypeError:
            problem = "a column has a value of another type"
        # Another process may have merged the segment into a larger one meanwhile.
        if problem is not None and number in store.segments():
            flaws.append(Flaw("index", f"segment {number}", problem))
    if (missing := commits - _count_indexed(store)) > 0:
        flaws.append(Flaw("index", "text", f"does not have {missing} commits"))
    return flaws


def _count_indexed(store: Store) -> int:
    """How many commits the index has, including those that the next search will add.

    Another process may add a segment between the two counts; then both are made again.
    """
    while True:
        segments = store.segments()
        count, after = sum(segments.values()), 0
        while page := store.unindexed(PAGE, after):
            count, after = count + len(page), page[-1].key
        if store.segments() == segments:
            return count


def _check_terms(
    store: Store, terms: Mapping[int, Mapping[str, int]], unreliable: Set[Id]
) -> str | None:
    """What is wrong with the terms of a sample of these commits; `None` if nothing is."""
    keys = list(terms)
    sample = keys[:: max(1, len(keys) // SAMPLE)]
    steps = store.read_keys(sample)
    if len(steps) != len(sample):
        return "it has commits that do not exist"
    for key, (_, step) in zip(sample, steps, strict=True):
        if unreliable.isdisjoint((step.commit.id, *step.commit.entries)):
            counts = count_terms(commit_text(step.contents))
            counts |= _note_terms(step.commit.kind, step.commit.data)
            if {term: min(count, MAX_COUNT) for term, count in counts.items()} != terms[key]:
                return f"the terms of commit {step.commit.id.hex()} are not those of its text"
    return None


def rebuild_index(store: Store) -> None:
    """Drop the text index and build it again."""
    store.maintenance().drop_index()
    index_new_commits(store)


class Query(Struct, frozen=True):
    """The words of a query; stop words are only included if there are no other words."""

    words: tuple[Word, ...]
    is_phrase: bool
    """Whether all words are stop words, which mean something only together."""


def retried(search: Callable[Args, Result]) -> Callable[Args, Result]:
    """The search, repeated on a new index if another writer has merged parts of the old one."""

    @wraps(search)
    def search_again(*args: Args.args, **options: Args.kwargs) -> Result:
        for _ in range(MAX_REFUSALS):
            with suppress(IndexChanged):
                return search(*args, **options)
        return search(*args, **options)

    return search_again


def parse_query(text: str) -> Query:
    """The words that count in a query."""
    words = tuple(dict.fromkeys(split_words(text)))
    content = tuple(word for word in words if not word.is_stop_word)
    return Query(content or words, not content)


Located = tuple[str, Step]
"""The name of a thread, and one of its commits."""


class Matches(Struct, frozen=True):
    """The commits whose messages match a query, and those whose note or metadata does.

    Both are in the order of relevance, and among equals the newest comes first. They are read from
    the store as they are consumed.
    """

    messages: Iterator[Located]
    notes: Iterator[Located]


@retried
def search_commits(store: Store, thread: str, query: str, limit: int) -> list[Step]:
    """The commits that have every word of the query, best first; else those that have some."""
    parsed = parse_query(query)
    if not parsed.words:
        messages = _substring_matches(store, [thread], query).messages
    else:
        messages = _match_messages(store, open_index(store, thread), parsed, query)[0]
    return [step for _, step in islice(messages, max(0, limit))]


@retried
def search_matches(store: Store, query: str, thread: str | None = None) -> Matches:
    """The commits of a thread, or of a store, that have every word of the query.

    The words are in the messages of a commit, or in its note and metadata. If no commit has them
    all, the messages with some of the words.
    """
    parsed = parse_query(query)
    if not parsed.words:
        names = [record.name for record in store.threads()] if thread is None else [thread]
        return _substring_matches(store, names, query)
    index = open_index(store, thread)
    notes = _match_notes(store, index, parsed, query)
    messages, is_complete = _match_messages(store, index, parsed, query)
    first_note = next(notes, None)
    if first_note is None:
        return Matches(messages, notes)
    return Matches(messages if is_complete else iter(()), chain([first_note], notes))


def _substring_matches(store: Store, threads: Iterable[str], query: str) -> Matches:
    """The commits that contain the query as a substring, for a query without words."""
    messages: list[Located] = []
    notes: list[Located] = []
    for thread in threads:
        for step in read_every_commit(store, thread):
            if query in commit_text(step.contents):
                messages.append((thread, step))
            if query in "\n".join(note_texts(step.commit.kind, step.commit.data)):
                notes.append((thread, step))
    return Matches(iter(messages), iter(notes))


def _match_messages(
    store: Store, index: TextIndex, parsed: Query, query: str
) -> tuple[Iterator[Located], bool]:
    """The commits whose messages match, best first, and whether they have every word."""
    matches = match_words(index, parsed.words)
    complete = _positions_with_all(matches)
    scores = index.score_postings(weighted for match in matches for weighted in match.weighted)
    if complete:
        scores = {position: scores[position] for position in complete}
    elif parsed.is_phrase:
        return iter(()), False
    steps = _best_first(store, index, scores)
    if not parsed.is_phrase:
        return steps, bool(complete)
    with_phrase = (
        (thread, step) for thread, step in steps if _has_phrase(commit_text(step.contents), query)
    )
    first = next(with_phrase, None)
    return (iter(()), False) if first is None else (chain([first], with_phrase), True)


def _match_notes(store: Store, index: TextIndex, parsed: Query, query: str) -> Iterator[Located]:
    """The commits whose note or metadata has every word, best first."""
    matches = match_notes(index, parsed.words)
    complete = _positions_with_all(matches)
    scores = index.score_postings(weighted for match in matches for weighted in match.weighted)
    for thread, step in _best_first(store, index, {each: scores[each] for each in complete}):
        texts = note_texts(step.commit.kind, step.commit.data)
        if not parsed.is_phrase or _has_phrase("\n".join(texts), query):
            yield thread, step


def match_notes(index: TextIndex, words: Iterable[Word]) -> list["WordMatch"]:
    """The commits that have each word, or one that begins with it, in their note or metadata.

    A word is not searched inside other words: that would read the whole index, and most commits
    have neither note nor metadata.
    """
    note_words = [
        Word(
            tuple(NOTE_MARK + part for part in word.required),
            tuple(NOTE_MARK + part for part in word.extra),
            word.identifier and NOTE_MARK + word.identifier,
        )
        for word in words
    ]
    index.load(term for word in note_words for term in (*word.required, *word.extra))
    return [match_word(index, word) for word in note_words]


def _positions_with_all(matches: Sequence["WordMatch"]) -> set[int]:
    """The positions that have every word."""
    return set(matches[0].positions).intersection(*(match.positions for match in matches[1:]))


def _best_first(store: Store, index: TextIndex, scores: Mapping[int, float]) -> Iterator[Located]:
    """The commits at these positions, the best first; read in pages as they are consumed."""
    queue = [(-score, -position) for position, score in scores.items()]
    heapify(queue)
    while queue:
        page = [heappop(queue) for _ in range(min(READ_AT_ONCE, len(queue)))]
        yield from store.read_keys([index.keys[-position] for _, position in page])


def _has_phrase(text: str, phrase: str) -> bool:
    """Whether the text has the phrase, in any case and with any whitespace."""
    return " ".join(phrase.casefold().split()) in " ".join(text.casefold().split())


class WordMatch(Struct, frozen=True):
    """The commits with one word of a query, and the weighted postings for their scores.

    `positions` says how often the commit at each position has the word. `forms` are terms that
    count as other forms of it.
    """

    positions: Mapping[int, int]
    weighted: list[tuple[dict[int, int], float]]
    forms: Sequence[str] = ()


def match_words(index: TextIndex, words: Sequence[Word]) -> list[WordMatch]:
    """The commits with each word; a word that does not occur is searched inside other words."""
    index.load(term for word in words for term in (*word.required, *word.extra))
    return [match_word(index, word, within=True) for word in words]


def match_distinctive_words(index: TextIndex, words: Sequence[Word]) -> dict[Word, WordMatch]:
    """The commits with each word; very common words are left out if there are rarer ones."""
    index.load(term for word in words for term in (*word.required, *word.extra))
    document_counts = {
        word: max(index.estimate_document_count(part) for part in word.required) for word in words
    }
    matches: dict[Word, WordMatch] = {}
    scored = 0

    def identifiers_then_rare(word: Word) -> tuple[bool, int]:
        return not word.identifier, document_counts[word]

    # In this order, common words use what the others leave of the limit.
    for word in sorted(words, key=identifiers_then_rare):
        match = match_identifier(index, word.identifier) if word.identifier else None
        if match is not None and match.positions and document_counts[word] > COMMON_PART:
            matches[word] = match
        elif scored and scored + document_counts[word] > MAX_SCORED:
            continue
        else:
            matches[word] = with_other_forms(index, word, match_word(index, word))
        scored += sum(len(postings) for postings, _ in matches[word].weighted)
    if not scored:  # a last resort, because it reads the whole index
        return {word: match_word(index, word, within=True) for word in words}
    return matches


def with_other_forms(index: TextIndex, word: Word, match: WordMatch) -> WordMatch:
    """The match, with words that only have another ending.

    Stems are made for English. Most other languages have endings, too (квартиру, квартиры), and
    this needs no rules for any of them.
    """
    term = word.required[0]
    if len(word.required) > 1 or len(term) < FORM_LENGTH or not term.isalpha():
        return match
    stem = term[: max(FORM_LENGTH - 1, len(term) - FORM_ENDING)]
    forms = [
        form
        for form in (stem, *index.variants(stem, within=False))
        if form != term and len(form) <= len(term) + FORM_ENDING
    ]
    postings = _union_postings(index, forms)
    if not postings:
        return match
    weighted = [*match.weighted, (postings, FORM_WEIGHT)]
    return WordMatch({**postings, **match.positions}, weighted, forms)


def match_identifier(index: TextIndex, name: str) -> WordMatch:
    """The commits that have an identifier, or a longer one that begins with it, as a whole."""
    postings = _union_postings(index, [name, *index.variants(name, within=False)])
    return WordMatch(postings, [(postings, 1.0)])


def match_word(index: TextIndex, word: Word, *, within: bool = False) -> WordMatch:
    """The commits that have all parts of a word; else longer words that begin with it.

    With `within`, also words that have it anywhere.
    """
    parts = [index.find(part) for part in word.required]
    common = min(parts, key=len)
    for postings_of_part in parts:
        if postings_of_part is not common:
            common = {
                position: count
                for position, count in common.items()
                if position in postings_of_part
            }
    name = word.required[0]
    weighted = [(common, 1.0)]
    if len(parts) > 1:
        if word.identifier:
            name = word.identifier
            weighted = match_identifier(index, name).weighted
        weighted += [
            (postings, PART_WEIGHT)
            for part, postings in zip(word.required, parts, strict=True)
            if part not in STOP_TERMS
        ]
    if common:
        return WordMatch(common, weighted)
    for anywhere in [False, True] if within else [False]:
        # A stem that ends in `i` may belong to a word that ends in `y`.
        postings = _union_postings(index, index.variants(name.removesuffix("i"), within=anywhere))
        if postings:
            return WordMatch(postings, [*weighted, (postings, 1.0)])
    return WordMatch({}, weighted)


def _union_postings(index: TextIndex, terms: Sequence[str]) -> dict[int, int]:
    """The postings of several terms as if they were one term."""
    union: dict[int, int] = {}
    for term in terms:
        for position, count in index.find(term).items():
            union[position] = union.get(position, 0) + count
    return union


@retried
def threads_with(store: Store, query: str) -> set[str] | None:
    """The threads in which a search finds something; `None` if the index cannot answer that."""
    parsed = parse_query(query)
    if not parsed.words or parsed.is_phrase:
        return None
    index = open_index(store)
    matches = match_words(index, parsed.words)
    complete = _positions_with_all(matches) | _positions_with_all(match_notes(index, parsed.words))
    partial = set[int]().union(*(match.positions for match in matches))
    return index.threads_of(complete or partial)


class Recalled(Struct, frozen=True):
    """The commits that a query recalls, best first, and how much each of its terms counts."""

    steps: list[Step]
    weights: dict[str, float]


class RecallFilter(Struct, frozen=True):
    """The limits of a recall: a time range, and a path that the commits must mention."""

    since: float | None = None
    until: float | None = None
    path: str | None = None

    def positions(self, index: TextIndex) -> set[int] | None:
        """The positions within the limits; `None` for all."""
        if self.since is None and self.until is None and self.path is None:
            return None
        low = float("-inf") if self.since is None else self.since
        high = float("inf") if self.until is None else self.until
        passing = {
            position for position, created in enumerate(index.created) if low <= created <= high
        }
        for word in parse_query(self.path or "").words:
            passing &= match_word(index, word).positions.keys()
        return passing


EVERYTHING = RecallFilter()


@retried
def recall_commits(
    store: Store,
    thread: str,
    query: str,
    limit: int,
    recall_filter: RecallFilter = EVERYTHING,
    *,
    neighbours: bool = False,
) -> Recalled:
    """The commits that have some words of the query, best first.

    With `neighbours`, also commits without such words that are next to a good match.
    """
    parsed = parse_query(query)
    if not parsed.words or (parsed.is_phrase and recall_filter == EVERYTHING):
        terms = {part: 1.0 for word in parsed.words for part in word.required}
        return Recalled(search_commits(store, thread, query, limit), terms)
    index = open_index(store, thread)
    passing = recall_filter.positions(index)
    matches = match_distinctive_words(index, tuple(dict.fromkeys(_separate(parsed.words))))
    weights: dict[str, float] = {}
    for word, match in matches.items():
        weight = index.inverse_document_frequency(len(match.positions)) / len(word.required)
        for term in (*word.required, *word.extra):
            weights[term] = max(weights.get(term, 0.0), weight)
        for form in match.forms:
            weights[form] = max(weights.get(form, 0.0), weight * FORM_WEIGHT)
    weighted = [pair for match in matches.values() for pair in match.weighted]
    scores = index.score_postings(weighted)
    if neighbours:
        stop_scores = _score_stop_words(index, query)
        scores = {each: score + stop_scores.get(each, 0.0) for each, score in scores.items()}
    if passing is not None:
        scores = {position: score for position, score in scores.items() if position in passing}
    allowed = passing if neighbours else scores.keys()
    candidates = [
        (position, score)
        for position, score in _share_scores(scores, len(index)).items()
        if allowed is None or position in allowed
    ]
    best = nlargest(limit, candidates, key=_score_then_position)
    min_score = best[0][1] * MIN_SHARE if best and not neighbours else 0.0
    keys = [index.keys[position] for position, score in best if score >= min_score]
    return Recalled([step for _, step in store.read_keys(keys)], weights)


def _score_stop_words(index: TextIndex, query: str) -> dict[int, float]:
    """The scores for the stop words of a query that are rare enough to tell something here."""
    terms = {word.required[0] for word in split_words(query) if word.is_stop_word}
    index.load(terms)
    rare = [term for term in terms if index.estimate_document_count(term) <= COMMON_PART]
    return index.score_postings((index.find(term), STOP_WEIGHT) for term in sorted(rare))


def _separate(words: Iterable[Word]) -> Iterator[Word]:
    """The words, and each pair of characters of a text without spaces as a word of its own.

    Such a text may be a whole question, so no message has all its pairs.
    """
    for word in words:
        if len(word.required) > 1 and not word.identifier:
            yield from (Word((part,)) for part in word.required)
        else:
            yield word


def _share_scores(scores: Mapping[int, float], size: int) -> dict[int, float]:
    """The best scores, where a commit also gets a share of the scores of its neighbours.

    An answer often repeats no word of its question, so the question's score must count for it.
    """
    best = dict(nlargest(SHARING_COMMITS, scores.items(), key=_score_then_position))
    shared = dict(best)
    for position, score in best.items():
        for neighbour, share in ((position + 1, NEXT_SHARE), (position - 1, PREVIOUS_SHARE)):
            if 0 <= neighbour < size:
                own_score = shared.get(neighbour, scores.get(neighbour, 0.0))
                shared[neighbour] = own_score + share * score
    return shared


def _score_then_position(item: tuple[int, float]) -> tuple[float, int]:
    return item[1], item[0]


def read_every_commit(store: Store, thread: str) -> Iterator[Step]:
    """Every commit that a branch or the operation log reaches."""
    visited: set[Id] = set()
    logged = (
        head
        for operation in read_operations(store, thread)
        for head in (operation.new, operation.old)
    )
    for head in chain(store.refs(thread).values(), logged):
        pending = [] if head is None else [head]
        while pending:
            tip = pending.pop()
            if tip in visited:
                continue
            for step in reversed(store.walk(thread, tip)):
                if step.commit.id in visited:
                    break
                visited.add(step.commit.id)
                pending += step.commit.parents[1:]
                yield step


def note_texts(kind: str, data: bytes) -> tuple[str, str]:
    """The note and the metadata by which a search finds a commit, from its kind and data.

    A note that only repeats the beginning of the message is left out, and so is the metadata that
    Weft writes itself. Both are empty if the data is damaged.
    """
    try:
        body = decode_body_data(data)
    except Damaged:
        return "", ""
    note = body.note if isinstance(body.note, str) else ""
    if body.metadata is None:
        return note, ""
    own_keys = OWN_METADATA
    if kind in ("compact", "merge"):
        own_keys |= REWRITE_METADATA
    caller_metadata = {key: value for key, value in body.metadata.items() if key not in own_keys}
    return note, "\n".join(_metadata_lines(caller_metadata))


def _metadata_lines(members: JsonObject, prefix: str = "") -> Iterator[str]:
    """A line `key: value` for each value; nested keys are joined by dots."""
    for key, value in members.items():
        values = cast(list[Any], value) if isinstance(value, list) else [value]
        for item in values:
            if isinstance(item, dict):
                yield from _metadata_lines(cast(JsonObject, item), f"{prefix}{key}.")
            else:
                text = item if isinstance(item, str) else json.encode(item).decode()
                yield f"{prefix}{key}: {text}"


def _note_terms(kind: str, data: bytes) -> dict[str, int]:
    """The terms of a commit's note and metadata."""
    if data in PLAIN_BODIES:
        return {}
    terms = count_terms("\n".join(note_texts(kind, data)))
    return {NOTE_MARK + term: count for term, count in terms.items()}


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
    texts = [message.name or "", message.text]
    for block in message.blocks:
        if isinstance(block, Thinking):
            texts.append(block.text)
        elif isinstance(block, ToolCall):
            texts += [block.name, _plain_json(block.arguments)]
    return "\n".join(text for text in texts if text)


def _plain_json(arguments: str) -> str:
    """JSON text without its escapes: the `n` of an escaped line end is not part of a word."""
    if "\\" not in arguments:
        return arguments
    return _ESCAPE.sub(_unescaped, arguments)


def _unescaped(match: re.Match[str]) -> str:
    if match[0][1] == "u":
        return chr(int(match[0][2:], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[0][1], match[0][1])
