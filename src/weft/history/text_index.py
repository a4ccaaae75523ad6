"""The text index: which terms occur in which commits, and the ranking of commits for a query.

The index has *segments*. A segment covers up to `SEGMENT_SIZE` commits (its documents), numbered
from 0 and sorted by thread, so that a thread is one range of numbers. For each term a segment has
the numbers of the documents with the term, and how often each of them has it. The terms are spread
over buckets by their first letters, and a query reads only the buckets of its terms. A small
segment has one bucket for everything; small segments are merged when there are enough of them.

A store keeps segments without interpreting them, so every store gives the same results. Segments
that cannot be written, because the store is read-only, are used from memory.

Ranking is BM25 (https://www.staff.city.ac.uk/~sbrp622/papers/foundations_bm25_review.pdf) with the
statistics of the searched threads only.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from zlib import crc32

from msgspec import Struct

from weft.store import BUCKETS, IndexBlock, IndexedCommits, NewSegment, Store

SEGMENT_SIZE = 2048
"""The most documents of a segment; their numbers fit into two bytes."""

SMALL_SIZE = 512
"""Segments with fewer documents have one bucket, and are merged."""

SMALL_SEGMENTS = 16
"""The most small segments that are left unmerged."""

SMALL_BUCKET = BUCKETS - 1
"""The only bucket of a small segment."""

PREFIX = 3
"""Terms with the same first letters are in the same bucket."""

SATURATION, LENGTH_SHARE = 1.2, 0.5
"""The constants `k1` and `b` of BM25, as usual."""

MAX_SCORED = 6_000
"""How many postings are scored. Beyond that, only commits that already have a score count."""

NOTE_MARK = "@"
"""The terms of a commit's note and metadata begin with this sign, which no other term has.

They do not count for the length of a document, so they do not change how messages are ranked.
"""

MAX_VARIANTS = 24
"""How many longer terms a search uses instead of a term that does not occur."""

COUNT_BITS = 8
MAX_COUNT = 2**COUNT_BITS - 1
"""A term that occurs more often in a document counts as often as this: one byte."""

_Postings = tuple["array[int]", bytes]
"""Document numbers in ascending order, and how often each has the term."""

SegmentParts = tuple[Sequence[IndexedCommits], Sequence[IndexBlock]]
"""The commits and the blocks of a segment."""


class Document(Struct, frozen=True, gc=False):
    """A commit to index: its number in the store, the number of its thread, and its terms.

    `length` is the number of words of its messages.
    """

    key: int
    thread: int
    created: float
    length: int
    terms: Mapping[str, int]


def make_segment(documents: Sequence[Document]) -> NewSegment:
    """A segment of these documents."""
    ordered = sorted(documents, key=lambda document: (document.thread, document.key))
    postings: defaultdict[str, list[int]] = defaultdict(list)
    for number, document in enumerate(ordered):
        base = number << COUNT_BITS
        for term, count in document.terms.items():
            postings[term].append(base + (count if count <= MAX_COUNT else MAX_COUNT))
    rows = [
        (document.thread, document.key, document.created, document.length) for document in ordered
    ]
    return _pack_segment(rows, postings)


def merge_segments(parts: Sequence[SegmentParts]) -> NewSegment:
    """One segment with the documents of several."""
    rows = sorted(
        (commits.thread, key, created, length, part, commits.first + offset)
        for part, (commit_lists, _) in enumerate(parts)
        for commits in commit_lists
        for offset, (key, length, created) in enumerate(_unpack_commits(commits))
    )
    # For each part and each of its document numbers: the new number, shifted as in a posting.
    bases = [
        [0] * sum(len(commits.keys) // 8 for commits in commit_lists) for commit_lists, _ in parts
    ]
    for number, (*_, part, old_number) in enumerate(rows):
        bases[part][old_number] = number << COUNT_BITS
    postings: defaultdict[str, list[int]] = defaultdict(list)
    for part, (_, blocks) in enumerate(parts):
        base = bases[part]
        for block in blocks:
            for term, (numbers, counts) in _read_all(block):
                postings[term] += [
                    base[number] + count for number, count in zip(numbers, counts, strict=True)
                ]
    for values in postings.values():
        values.sort()
    return _pack_segment([row[:4] for row in rows], postings)


def _pack_segment(
    rows: Sequence[tuple[int, int, float, int]], postings: Mapping[str, Sequence[int]]
) -> NewSegment:
    """The segment of documents (thread, key, time, length), sorted by thread.

    A posting is the number of a document and, in the lowest bits, how often it has the term.
    """
    commits: list[IndexedCommits] = []
    start = 0
    while start < len(rows):
        thread = rows[start][0]
        end = bisect_left(rows, thread + 1, lo=start, key=lambda row: row[0])
        _, keys, created, lengths = zip(*rows[start:end], strict=True)
        data = array("d", [sum(lengths), *created]).tobytes() + array("I", lengths).tobytes()
        commits.append(IndexedCommits(thread, start, array("q", keys).tobytes(), data))
        start = end
    is_small = len(rows) < SMALL_SIZE
    by_bucket: defaultdict[int, list[str]] = defaultdict(list)
    for term in postings:
        by_bucket[SMALL_BUCKET if is_small else _bucket(term)].append(term)
    blocks = [
        _pack_block(bucket, [(term, postings[term]) for term in sorted(terms)])
        for bucket, terms in sorted(by_bucket.items())
    ]
    return NewSegment(len(rows), tuple(commits), tuple(blocks))


def _pack_block(bucket: int, postings: Iterable[tuple[str, Sequence[int]]]) -> IndexBlock:
    """A line `term offset count` for each term; the postings follow each other without a gap.

    The postings of a term are all document numbers, two bytes each, and then all counts.
    """
    lines: list[str] = []
    packed: list[bytes] = []
    offset = 0
    for term, values in postings:
        size = len(values)
        lines.append(f"\n{term} {offset} {size}")
        packed.append(array("H", [value >> COUNT_BITS for value in values]).tobytes())
        packed.append(bytes([value & MAX_COUNT for value in values]))
        offset += 3 * size
    lines.append("\n")
    return IndexBlock(bucket, "".join(lines).encode(), b"".join(packed))


def _read_all(block: IndexBlock) -> Iterable[tuple[str, _Postings]]:
    """Every term of a block with its postings."""
    for line in block.terms.splitlines():
        if line:
            term, offset, count = line.split(b" ")
            yield term.decode(), _read_postings(block, int(offset), int(count))


def _read_postings(block: IndexBlock, offset: int, count: int) -> _Postings:
    middle, end = offset + 2 * count, offset + 3 * count
    return array("H", block.postings[offset:middle]), block.postings[middle:end]


def _bucket(term: str) -> int:
    """The bucket of a term in a segment that is not small."""
    return crc32(term[:PREFIX].encode()) % SMALL_BUCKET


def _unpack_commits(commits: IndexedCommits) -> Iterable[tuple[int, int, float]]:
    """The key, the length and the time of each commit."""
    keys = array("q", commits.keys)
    times = array("d", commits.data[8 : 8 * len(keys) + 8])
    lengths = array("I", commits.data[8 * len(keys) + 8 :])
    return zip(keys, lengths, times, strict=True)


def read_segment(
    size: int, commit_lists: Sequence[IndexedCommits], blocks: Iterable[IndexBlock]
) -> dict[int, dict[str, int]]:
    """The terms of every commit of a segment, by the key of the commit.

    Raises `ValueError`, with what is wrong, if the segment is not one that `make_segment` or
    `merge_segments` could have written.
    """
    keys: list[int] = []
    lengths: list[int] = []
    for commits in commit_lists:
        if commits.first != len(keys):
            raise ValueError("its commits are not numbered without a gap")
        if len(commits.data) != 8 + len(commits.keys) // 8 * 12:
            raise ValueError("the times and lengths of its commits do not have the right size")
        for key, length, _ in _unpack_commits(commits):
            keys.append(key)
            lengths.append(length)
    if len(keys) != size or len(set(keys)) != size:
        raise ValueError(f"it has {len(set(keys))} commits instead of {size}")
    documents: list[dict[str, int]] = [{} for _ in keys]
    for block in blocks:
        _read_block(block, documents, is_small=size < SMALL_SIZE)
    for key, length, terms in zip(keys, lengths, documents, strict=True):
        counts = [count for term, count in terms.items() if not term.startswith(NOTE_MARK)]
        is_capped = MAX_COUNT in counts and sum(counts) < length
        if sum(counts) != length and not is_capped:
            raise ValueError(f"the terms of commit number {key} are not complete")
    return dict(zip(keys, documents, strict=True))


def _read_block(block: IndexBlock, documents: list[dict[str, int]], *, is_small: bool) -> None:
    """Add the terms of a block to those of the documents; raises `ValueError` if it is damaged."""
    end = 0
    for line in block.terms.split(b"\n")[1:-1]:
        name, offset, size = line.split(b" ")
        term = name.decode()
        if int(offset) != end or block.bucket != (SMALL_BUCKET if is_small else _bucket(term)):
            raise ValueError(f"the term {term!r} is not where it belongs")
        numbers, counts = _read_postings(block, end, int(size))
        end += 3 * int(size)
        if end > len(block.postings) or list(numbers) != sorted(set(numbers)):
            raise ValueError(f"the postings of the term {term!r} are damaged")
        for number, count in zip(numbers, counts, strict=True):
            if number >= len(documents) or not count or term in documents[number]:
                raise ValueError(f"the postings of the term {term!r} are damaged")
            documents[number][term] = count
    if end != len(block.postings):
        raise ValueError("a block has postings without a term")


class _DocumentRange(Struct, frozen=True, gc=False):
    """A range of documents of one thread and segment; document `first` is at position `start`."""

    segment: int
    first: int
    size: int
    start: int


class IndexChanged(Exception):
    """Another writer has merged or removed a segment that this index reads: open it again."""


class TextIndex:
    """The index of one thread, or of all threads of a store, at one moment.

    A *position* is the index of a commit among the searched ones, in the order of their arrival.
    """

    def __init__(
        self, store: Store, thread: str | None = None, unwritten: Sequence[NewSegment] = ()
    ) -> None:
        self._store = store
        # The loaded blocks by bucket: for each range of documents, and without repetition.
        self._range_blocks: dict[int, list[tuple[_DocumentRange, IndexBlock]]] = {}
        self._blocks: dict[int, list[IndexBlock]] = {}
        self.keys: array[int] = array("q")
        self.lengths: array[int] = array("I")
        self.created: array[float] = array("d")
        self._ranges: list[_DocumentRange] = []
        commit_lists = store.indexed_commits(thread)
        # The numbers of stored segments start at 1; these have negative numbers.
        self._unwritten = {-number: segment for number, segment in enumerate(unwritten, start=1)}
        if unwritten:
            thread_number = None if thread is None else store.thread_number(thread)
            for number, segment in self._unwritten.items():
                commit_lists += [
                    IndexedCommits(
                        commits.thread, commits.first, commits.keys, commits.data, number
                    )
                    for commits in segment.commits
                    if thread_number is None or commits.thread == thread_number
                ]
        # By the first key: eight bytes, little-endian.
        commit_lists.sort(key=lambda commits: commits.keys[7::-1])
        total = 0.0
        for commits in commit_lists:
            size = len(commits.keys) // 8
            self._ranges.append(
                _DocumentRange(commits.segment, commits.first, size, len(self.keys))
            )
            self.keys.frombytes(commits.keys)
            total += array("d", commits.data[:8])[0]
            self.created.frombytes(commits.data[8 : 8 * size + 8])
            self.lengths.frombytes(commits.data[8 * size + 8 :])
        self._by_segment: defaultdict[int, list[_DocumentRange]] = defaultdict(list)
        for document_range in self._ranges:
            self._by_segment[document_range.segment].append(document_range)
        self.mean_length = total / max(1, len(self.lengths))

    def __len__(self) -> int:
        return len(self.keys)

    def load(self, terms: Iterable[str]) -> None:
        """Read the buckets of these terms in one call."""
        buckets = {_bucket(term) for term in terms} - self._blocks.keys()
        if buckets:
            if SMALL_BUCKET not in self._blocks:
                buckets.add(SMALL_BUCKET)
            self._read_buckets(sorted(buckets))

    def _read_buckets(self, buckets: Sequence[int] | None) -> None:
        """Load these buckets, or all."""
        stored = [number for number in self._by_segment if number > 0]
        blocks = self._store.index_blocks(buckets, stored)
        if not self._store.segments().keys() >= set(stored):
            raise IndexChanged
        for number, segment in self._unwritten.items():
            blocks += [
                (number, block)
                for block in segment.blocks
                if buckets is None or block.bucket in buckets
            ]
        for bucket in range(BUCKETS) if buckets is None else buckets:
            self._range_blocks[bucket], self._blocks[bucket] = [], []
        for segment, block in blocks:
            self._blocks[block.bucket].append(block)
            self._range_blocks[block.bucket] += [
                (document_range, block) for document_range in self._by_segment[segment]
            ]

    def find(self, term: str) -> dict[int, int]:
        """How often the term occurs at each position that has it."""
        postings: dict[int, int] = {}
        for document_range, block, offset, size in self._find_postings(term):
            postings.update(_positions(document_range, _read_postings(block, offset, size)))
        return postings

    def estimate_document_count(self, term: str) -> int:
        """About how many commits have the term, without reading its postings."""
        return sum(
            min(size, document_range.size)
            for document_range, _, _, size in self._find_postings(term)
        )

    def _find_postings(self, term: str) -> Iterator[tuple[_DocumentRange, IndexBlock, int, int]]:
        """Where the postings of a term are: range, block, offset, and how many there are."""
        self.load([term])
        needle = b"\n%b " % term.encode()
        for document_range, block in (
            *self._range_blocks[_bucket(term)],
            *self._range_blocks[SMALL_BUCKET],
        ):
            start = block.terms.find(needle)
            if start >= 0:
                end = block.terms.index(b"\n", start + 1)
                offset, size = block.terms[start + len(needle) : end].split(b" ")
                yield document_range, block, int(offset), int(size)

    def variants(self, term: str, *, within: bool) -> list[str]:
        """Longer terms that begin with this one; with `within`, terms that contain it anywhere.

        They are terms of messages, or of notes if `term` is a term of notes.
        """
        mark = term[: len(NOTE_MARK)] if term.startswith(NOTE_MARK) else ""
        if len(term) < PREFIX + len(mark):
            return []
        if within:
            self._read_buckets(None)
            blocks = [block for bucket in self._blocks.values() for block in bucket]
            first = mark.encode() or b"(?!%b)" % NOTE_MARK.encode()
            inner = re.escape(term.removeprefix(mark).encode())
            pattern = rb"\n(%b[^ \n]*%b[^ \n]*) " % (first, inner)
        else:
            self.load([term])
            blocks = [*self._blocks[_bucket(term)], *self._blocks[SMALL_BUCKET]]
            pattern = rb"\n(%b[^ \n]+) " % re.escape(term.encode())
        names: dict[bytes, None] = {}
        for block in blocks:
            # Lookahead is not needed: a match ends before the next line begins.
            names.update(dict.fromkeys(re.findall(pattern, block.terms)))
            if len(names) > MAX_VARIANTS * 4:  # enough to choose the shortest ones from
                break
        shortest = sorted(names, key=lambda name: (len(name), name))
        return [name.decode() for name in shortest[:MAX_VARIANTS] if name != term.encode()]

    def threads_of(self, positions: Iterable[int]) -> set[str]:
        """The threads of these positions."""
        starts = [document_range.start for document_range in self._ranges]
        ranges = {bisect_right(starts, position) - 1 for position in positions}
        first_keys = [self.keys[starts[number]] for number in ranges]  # a range has one thread
        return {name for name, _ in self._store.read_keys(first_keys)}

    def inverse_document_frequency(self, document_count: int) -> float:
        """The weight of a term that occurs in this many commits."""
        return log(1 + (len(self) - document_count + 0.5) / (document_count + 0.5))

    def score_postings(self, weighted: Iterable[tuple[dict[int, int], float]]) -> dict[int, float]:
        """The BM25 score for postings with weights; rare terms decide which commits are scored."""
        scores: dict[int, float] = {}
        scored = 0
        fixed = SATURATION * (1 - LENGTH_SHARE)
        slope = SATURATION * LENGTH_SHARE / max(1.0, self.mean_length)
        lengths = self.lengths
        for postings, weight in sorted(weighted, key=lambda item: len(item[0])):
            if not postings:
                continue
            factor = weight * (SATURATION + 1) * self.inverse_document_frequency(len(postings))
            if scored + len(postings) > MAX_SCORED and scores:
                for position in postings.keys() & scores.keys():
                    count = postings[position]
                    scores[position] += factor * count / (count + fixed + slope * lengths[position])
                continue
            scored += len(postings)
            for position, count in postings.items():
                gain = factor * count / (count + fixed + slope * lengths[position])
                scores[position] = scores.get(position, 0.0) + gain
        return scores


def _positions(documents: _DocumentRange, postings: _Postings) -> Iterable[tuple[int, int]]:
    """The postings of the documents in a range: position and count."""
    numbers, counts = postings
    low = bisect_left(numbers, documents.first)
    high = bisect_left(numbers, documents.first + documents.size, lo=low)
    shift = documents.start - documents.first
    return zip([number + shift for number in numbers[low:high]], counts[low:high], strict=True)
