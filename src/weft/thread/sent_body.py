"""Sent request bodies, stored byte by byte as a difference to bytes that are already stored.

A client's body cannot be written again from the thread, because the thread does not have its
spacing, order of members, parameters and cache marks. So the answer's commit stores a
`SentBodyDelta`: the body as pieces (`json_delta`) of the previous body and of everything committed
since, with a hash of the result. A turn stores only the bytes that are new in it.

The delta is stored as an attachment, an entry that no model sees. Ids cover it, archives contain
it, `fsck` checks it, `gc` keeps it as long as its commit, and `forget` erases texts in it. It
refers to stored bytes only, so it does not depend on the catalogue or the codecs. New tools are
stored as a separate attachment: other threads have the same tools, and equal attachments are stored
once.

Each body refers to the previous one, so bodies form a chain. Rebuilding a body costs about as much
as reading its thread. After `MAX_LINKS` turns a new chain starts. The first delta of a chain is
large, because it has no previous body to refer to.
"""

from collections.abc import Iterable, Sequence
from threading import Lock

import msgspec
from msgspec import Struct, structs

from weft import exact_json
from weft.errors import Damaged, ThreadError, WrongValue
from weft.history import Series, decode_entry
from weft.ids import Id, IdHasher, object_id
from weft.model import JsonObject, Message, Opaque
from weft.store import Step, Store

from .json_delta import Piece, apply_pieces, encode_pieces
from .source_lines import ATTACHMENT

FORMAT = "sent"
TOOLS_FORMAT = "sent-tools"
NEARBY = (4, 32, 256)
"""How many of the newest commits to search for the previous answer."""

MAX_LINKS = 1024
"""The maximum length of a chain."""

PAGE = 256
"""How many commits are read at once to rebuild a body."""

MIN_TOOLS_SIZE = 2048
"""Tools get an entry of their own only if a body has more new characters than this."""

CACHE_BYTES = 32 * 1024 * 1024
"""The memory for cached bodies."""

RECENT_BYTES = 16 * 1024 * 1024
"""The memory for the bytes of commits that this process has written."""

MIN_BODY = 4096
"""The memory that even a small body needs: the serialiser over-allocates."""


class SentRequest(Struct, frozen=True):
    """A request that was sent: its bytes, protocol and model, and the commit that it contains."""

    body: bytes
    protocol: str
    model: str
    head: str | None


class SentBodyDelta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to rebuild the bytes of a request.

    - `base`: the id of the commit with the previous answer. The pieces refer to the body of the
      request for that answer.
    - `link`: the number of this delta in its chain. Each delta refers to the one before it; the
      first is 0.
    - `tools`: the JSON text of the tools, if this is the first body with them.
    - `pieces`: `None` if a text in the request was forgotten, because such a text must not be
      stored again.
    """

    head: str | None
    protocol: str
    model: str
    hash: str
    size: int
    base: str | None = None
    link: int = 0
    pieces: list[Piece] | None = None
    tools: str | None = None

    def to_dict(self) -> JsonObject:
        """The delta as JSON, without pieces and tools, which are large.

        Pieces are also useless without the bytes that they refer to.
        """
        return exact_json.to_builtins(structs.replace(self, pieces=None, tools=None))


class CachedBody(Struct, frozen=True):
    """A body that was sent.

    It equals the previous body up to position `shared_end`, which is outside of all strings.
    `hasher` has hashed the bytes before it. So the next body of the conversation is hashed and
    searched only from there.
    """

    body: bytes
    shared_end: int
    hasher: IdHasher


class RecentCommits(Struct, frozen=True):
    """Commits that this process has written, as the next sent body needs them.

    `stored` are their bytes (`_stored_bytes`), `ids` the ids of the commits and their entries, and
    `parent` is the commit before them. If the last of them is an answer, `delta` is the delta that
    it stores.
    """

    parent: Id | None
    stored: tuple[bytes, ...]
    ids: tuple[Id, ...]
    delta: SentBodyDelta | None = None

    @property
    def size(self) -> int:
        """About how many bytes of memory they need, with the overhead of Python's objects."""
        return sum(map(len, self.stored)) + 100 * len(self.ids) + 1000


class _BodyCache:
    """Bodies by their hash; the oldest are dropped when they need too much memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._bodies: dict[str, CachedBody] = {}

    def get(self, hash: str) -> CachedBody | None:
        return self._bodies.get(hash)

    def put(self, hash: str, cached: CachedBody) -> None:
        self.remove(hash)
        self._bodies[hash] = cached
        self._size += max(len(cached.body), MIN_BODY)
        while self._size > self._limit and len(self._bodies) > 1:
            self.remove(next(iter(self._bodies)))

    def remove(self, hash: str) -> CachedBody | None:
        cached = self._bodies.pop(hash, None)
        if cached is not None:
            self._size -= max(len(cached.body), MIN_BODY)
        return cached


class SentBodyCache:
    """A cache of the newest sent bodies and commits; may be used from any OS thread.

    A body that a later body continues is needed only if the conversation forks, so such bodies have
    a smaller cache of their own.
    """

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._newest = _BodyCache(limit)
        self._continued = _BodyCache(limit // 4)
        self._recent: dict[tuple[str, Id], RecentCommits] = {}  # by thread and last commit
        self._recent_size = 0
        self._lock = Lock()

    def get(self, hash: str) -> bytes | None:
        """The bytes of a body."""
        cached = self.cached(hash)
        return None if cached is None else cached.body

    def cached(self, hash: str) -> CachedBody | None:
        """A body with its hasher."""
        return self._newest.get(hash) or self._continued.get(hash)

    def put(self, hash: str, cached: CachedBody, base: str | None = None) -> None:
        """Cache a body; `base` is the hash of the body that it continues."""
        with self._lock:
            continued = None if base is None else self._newest.remove(base)
            if base is not None and continued is not None:
                self._continued.put(base, continued)
            self._newest.put(hash, cached)

    def add_commits(self, thread: str, series: Series, delta: SentBodyDelta | None = None) -> None:
        """Cache commits that were written, so that they need not be read for the next body."""
        contents = dict(series.entries)
        stored: list[bytes] = []
        ids: list[Id] = []
        for commit in series.commits:
            entries = [contents[id] for id in commit.entries]
            stored += (commit.data, *(entries[:1] if commit.kind == "append" else entries))
            ids += (commit.id, *commit.entries)
        if delta is not None:  # its pieces and tools are not needed for the next body
            delta = structs.replace(delta, pieces=None if delta.pieces is None else [], tools=None)
        parents = series.commits[0].parents
        recent = RecentCommits(parents[0] if parents else None, tuple(stored), tuple(ids), delta)
        with self._lock:
            self._drop(thread, series.commits[-1].id)
            self._recent[thread, series.commits[-1].id] = recent
            self._recent_size += recent.size
            while self._recent_size > RECENT_BYTES:
                self._drop(*next(iter(self._recent)))

    def _drop(self, thread: str, commit: Id) -> None:
        recent = self._recent.pop((thread, commit), None)
        self._recent_size -= 0 if recent is None else recent.size

    def recent(self, thread: str, commit: Id) -> RecentCommits | None:
        """The commits that this process wrote together and that end with this one, if any."""
        return self._recent.get((thread, commit))


def encode_sent_body(
    store: Store, thread: str, request: SentRequest, bodies: SentBodyCache
) -> SentBodyDelta:
    """The delta of a request that is being sent; writes nothing.

    Raises `WrongValue` if the bytes are not UTF-8.
    """
    head = None if request.head is None else bytes.fromhex(request.head)
    base = None if head is None else _find_recent_base(thread, head, bodies)
    if base is None and head is not None:
        base = _find_base(store, thread, head, bodies)
    if base is None:
        steps = [] if head is None else _Ancestors(store, thread).since(head, None)
        ids, stored = _object_ids(steps), _stored_bytes(steps)
    else:
        ids, stored = base.ids, base.stored
    base_body = None if base is None else base.body
    try:
        pieces, tools, shared_end = _encode_body(request.body, base_body, stored)
    except UnicodeDecodeError as error:
        raise WrongValue("sent", f"must be UTF-8: {error}") from None
    hash, hasher = _hash_from_base(request.body, shared_end, base_body)
    cached = CachedBody(request.body, shared_end, hasher)
    bodies.put(hash, cached, None if base is None else base.hash)
    delta = SentBodyDelta(
        head=request.head,
        protocol=request.protocol,
        model=request.model,
        hash=hash,
        size=len(request.body),
    )
    if _describe_tombstone(store, ids) is not None:  # a text in it was forgotten: store no pieces
        return delta
    return structs.replace(
        delta,
        base=None if base is None else base.answer.hex(),
        link=0 if base is None else base.link + 1,
        pieces=pieces,
        tools=tools,
    )


def _hash_from_base(
    body: bytes, shared_end: int, base_body: CachedBody | None
) -> tuple[str, IdHasher]:
    """The hash of a body, and a hasher for the bytes before `shared_end`.

    The bytes that the hasher of the previous body has seen are not hashed again.
    """
    hasher, hashed = IdHasher(FORMAT), 0
    if base_body is not None and base_body.shared_end <= shared_end:
        hasher, hashed = base_body.hasher.copy(), base_body.shared_end
    view = memoryview(body)
    hasher.update(view[hashed:shared_end])
    full_hasher = hasher.copy()
    full_hasher.update(view[shared_end:])
    return full_hasher.id().hex(), hasher


def rebuild_sent_body(
    store: Store, thread: str, answer: Step, bodies: SentBodyCache | None = None
) -> bytes:
    """The body of an answer's request, verified by its hash.

    Raises `ThreadError` with the reason if it cannot be rebuilt.
    """
    ancestors = _Ancestors(store, thread)
    try:
        delta = _require_delta(answer)
        body = _assemble(ancestors, delta, bodies)
        if hash_body(body) == delta.hash:
            return body
        reason = "the bytes that it refers to have changed"
    except (ThreadError, Damaged) as error:
        reason = str(error)
    raise ThreadError(describe_loss(store, [answer, *ancestors.returned]) or reason)


class _Ancestors:
    """Reads the commits between two commits of a thread, page by page.

    `returned` are all commits that `since` has returned so far.
    """

    def __init__(self, store: Store, thread: str) -> None:
        self.returned: list[Step] = []
        self._store, self._thread = store, thread
        self._steps: list[Step] = []  # newest first
        self._positions: dict[Id, int] = {}

    def since(self, head: Id, base: Id | None) -> list[Step]:
        """The commits from `base` up to `head`, both included; all if there is no base."""
        if head not in self._positions and not self._find(head):
            self._steps, self._positions = [], {}
            self._read(head, None)
            if head not in self._positions:
                raise ThreadError(f"its commit {head.hex()[:12]} is gone")
        while base not in self._positions and self._read(head, self._steps[-1].depth - 1):
            pass
        if base is not None and base not in self._positions:
            raise ThreadError(f"the previous answer {base.hex()[:12]} is gone")
        start = self._positions[head]
        stop = len(self._steps) if base is None else self._positions[base] + 1
        steps = self._steps[start:stop][::-1]
        self.returned += steps
        return steps

    def _find(self, head: Id) -> bool:
        """Whether a commit is an ancestor of the commits that were read; reads on to find it."""
        if not self._steps:
            return False
        newest = self._steps[0].commit.id
        while head not in self._positions and self._read(newest, self._steps[-1].depth - 1):
            pass
        return head in self._positions

    def _read(self, head: Id, max_depth: int | None) -> bool:
        """Read the next page, from this depth down; false if there is none."""
        if max_depth == 0:
            return False
        steps = self._store.walk(self._thread, head, until=max_depth, limit=PAGE)
        for step in reversed(steps):
            self._positions[step.commit.id] = len(self._steps)
            self._steps.append(step)
        return bool(steps)


def _assemble(ancestors: _Ancestors, delta: SentBodyDelta, bodies: SentBodyCache | None) -> bytes:
    """The body that a delta describes, rebuilt from the start of its chain or a cached body."""
    body: bytearray | None = None
    chain: list[tuple[SentBodyDelta, list[Step]]] = []
    while body is None:
        base = None if delta.base is None else bytes.fromhex(delta.base)
        head = None if delta.head is None else bytes.fromhex(delta.head)
        steps = [] if head is None else ancestors.since(head, base)
        chain.append((delta, steps))
        if base is None:
            body = bytearray()
            break
        delta = _require_delta(steps[0])
        cached = None if bodies is None else bodies.get(delta.hash)
        body = None if cached is None else bytearray(cached)
    for delta, steps in reversed(chain):
        if delta.pieces is None:
            raise ThreadError(
                "it contained a forgotten text when it was sent, so it was not stored"
            )
        tools = [] if delta.tools is None else [delta.tools.encode()]
        apply_pieces(body, delta.pieces, [*_stored_bytes(steps), *tools])
    return bytes(body)


def sent_body_entries(delta: SentBodyDelta) -> tuple[Message, ...]:
    """The entries that store a delta with its answer."""
    delta_without_tools = structs.replace(delta, tools=None)
    record = Message(ATTACHMENT, (Opaque(FORMAT, exact_json.to_builtins(delta_without_tools)),))
    if delta.tools is None:
        return (record,)
    return Message(ATTACHMENT, (Opaque(TOOLS_FORMAT, {"text": delta.tools}),)), record


def has_sent_body(step: Step) -> bool:
    """Whether a delta is stored with a commit."""
    return _attachment(step, 1, FORMAT) is not None


def read_sent_body(step: Step) -> SentBodyDelta | None:
    """The delta that is stored with a commit; raises `ThreadError` if it is damaged."""
    raw = _attachment(step, 1, FORMAT)
    if raw is None:
        return None
    tools = _attachment(step, 2, TOOLS_FORMAT)
    try:
        delta = msgspec.convert(raw, SentBodyDelta)
        return delta if tools is None else structs.replace(delta, tools=str(tools["text"]))
    except (msgspec.ValidationError, KeyError) as error:
        raise ThreadError(f"its record cannot be read: {error}") from None


def _attachment(step: Step, position: int, format: str) -> JsonObject | None:
    """The attachment in this format at this position from the end."""
    if len(step.contents) <= position:
        return None
    message = decode_entry(step.contents[-position])
    block = message.blocks[0] if message.role == ATTACHMENT and message.blocks else None
    return block.raw if isinstance(block, Opaque) and block.protocol == format else None


def hash_body(body: bytes) -> str:
    """The hash that verifies a body."""
    return object_id(FORMAT, body).hex()


def describe_loss(store: Store, steps: Sequence[Step]) -> str | None:
    """Which of these commits lost bytes, and why; `None` if all are complete."""
    return _describe_tombstone(store, _object_ids(steps))


def _describe_tombstone(store: Store, ids: Sequence[Id]) -> str | None:
    """A sentence about the first of these objects whose bytes were removed; `None` if none was."""
    maintenance = store.maintenance()
    tombstones = maintenance.tombstones(ids) if ids and maintenance.has_tombstones() else {}
    for kind, id in tombstones:
        return f"{kind} {id.hex()[:12]}, which it refers to, was {tombstones[kind, id].reason}"
    return None


def _object_ids(steps: Iterable[Step]) -> list[Id]:
    """The ids of commits and their entries."""
    return [id for step in steps for id in (step.commit.id, *step.commit.entries)]


class _Base(Struct, frozen=True):
    """The previous body of a chain, and the commit of its answer.

    `stored` and `ids` are the bytes and the ids of that commit and of all commits since.
    """

    answer: Id
    body: CachedBody
    hash: str
    link: int
    stored: Sequence[bytes]
    ids: Sequence[Id]


def _find_recent_base(thread: str, head: Id, bodies: SentBodyCache) -> _Base | None:
    """The previous answer, if this process has written everything since, and has its body."""
    groups: list[RecentCommits] = []
    commit: Id | None = head
    while commit is not None and len(groups) < NEARBY[0]:
        recent = bodies.recent(thread, commit)
        if recent is None:
            return None
        groups.insert(0, recent)
        delta = recent.delta
        if delta is None:
            commit = recent.parent
            continue
        body = bodies.cached(delta.hash)
        if body is None or _ends_chain(delta):
            return None
        stored = [data for group in groups for data in group.stored]
        ids = [id for group in groups for id in group.ids]
        return _Base(commit, body, delta.hash, delta.link, stored, ids)
    return None


def _ends_chain(delta: SentBodyDelta) -> bool:
    """Whether the body after this one must start a new chain."""
    return delta.pieces is None or delta.link > MAX_LINKS


def _find_base(store: Store, thread: str, head: Id, bodies: SentBodyCache) -> _Base | None:
    """The previous answer; `None` if there is none, or if a new chain has to start."""
    for limit in NEARBY:
        steps = store.walk(thread, head, limit=limit)
        for index in range(len(steps) - 1, -1, -1):
            try:
                delta = read_sent_body(steps[index])
                if delta is None:
                    continue
                if _ends_chain(delta):
                    return None
                body = bodies.cached(delta.hash)
                if body is None:
                    rebuilt = rebuild_sent_body(store, thread, steps[index], bodies)
                    body = CachedBody(rebuilt, 0, IdHasher(FORMAT))
                steps_since = steps[index:]
                answer = steps_since[0].commit.id
                return _Base(
                    answer,
                    body,
                    delta.hash,
                    delta.link,
                    _stored_bytes(steps_since),
                    _object_ids(steps_since),
                )
            except (ThreadError, Damaged):  # that body cannot be rebuilt: start a new chain
                return None
        if len(steps) < limit:
            break
    return None


def _require_delta(step: Step) -> SentBodyDelta:
    delta = read_sent_body(step)
    if delta is None:
        raise ThreadError(f"the previous answer {step.commit.id.hex()[:12]} has no record")
    return delta


def _encode_body(
    body: bytes, base_body: CachedBody | None, stored: Sequence[bytes]
) -> tuple[list[Piece], str | None, int]:
    """The pieces of a body, its tools if they are stored separately, and where its new text starts.

    Tools are stored separately if that saves much.
    """
    base_bytes, base_end = (b"", 0) if base_body is None else (base_body.body, base_body.shared_end)
    pieces, start = encode_pieces(body, base_bytes, stored, previous_shared_end=base_end)
    is_large = _new_text_size(pieces) > MIN_TOOLS_SIZE
    # Tools that the previous body has too are not part of the new text.
    tools = _read_tools(body) if is_large and body.find(b'"tools"', start) >= 0 else None
    if tools is None:
        return pieces, None, start
    pieces_with_tools, _ = encode_pieces(body, base_bytes, stored, tools.encode(), base_end)
    saved = _new_text_size(pieces) - _new_text_size(pieces_with_tools)
    if saved > MIN_TOOLS_SIZE // 2:
        return pieces_with_tools, tools, start
    return pieces, None, start


def _new_text_size(pieces: Iterable[Piece]) -> int:
    """The number of characters that no stored bytes contain."""
    return sum(len(piece) for piece in pieces if isinstance(piece, str))


def _read_tools(body: bytes) -> str | None:
    """The tools of a body as JSON text."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return None
    return bytes(members["tools"]).decode() if "tools" in members else None


def _stored_bytes(steps: Iterable[Step]) -> Sequence[bytes]:
    """All bytes of these commits, without attachments."""
    contents: list[bytes] = []
    for step in steps:
        contents.append(step.commit.data)
        contents += step.contents[:1] if step.commit.kind == "append" else step.contents
    return contents
