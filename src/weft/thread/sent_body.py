"""Sent request bodies, stored byte by byte as a difference to bytes that are already stored.

A client's body cannot be written again from the thread: its spacing, order of members, parameters
and cache marks are its own. So the answer's commit stores a `SentBodyDelta`: the body as pieces
(`json_delta`) of the previous body and of everything committed since, with a hash of the result. So
a turn costs only what is new in it.

The delta is stored as an attachment, an entry that no model sees. Ids cover it, archives contain
it, `fsck` checks it, `gc` keeps it as long as its commit, and `forget` erases texts in it. It
refers to stored bytes only, so it does not depend on the catalogue or the codecs. Tools that no
earlier body has are an attachment of their own, because they are the same in every thread and are
stored once.

Bodies refer to each other in a chain. A chain starts anew after some turns, so that rebuilding a
body stays fast, but rarely enough that all starts together stay small compared to the thread.
"""

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct, structs

from weft.errors import Damaged, ThreadError, WrongValue
from weft.history import decode_entry
from weft.ids import Id, object_id
from weft.model import JsonObject, Message, Opaque
from weft.store import Step, Store

from .json_delta import Piece, cut, join, make_pool
from .source_lines import ATTACHMENT

FORMAT = "sent"
FRAME = "sent-tools"
NEARBY = (4, 32, 256)
"""How many of the newest commits to search for the previous answer."""

LINKS = 64
BYTES_PER_LINK = 4096
"""The maximum length of a chain, and one more for each this many bytes of its body."""

DIFFERS = "the bytes that it refers to have changed"
TOOLS_WORTH_STORING = 2048
"""If a body has more bytes of its own than this, its tools may get an entry of their own."""

CACHE_BYTES = 32 * 1024 * 1024
MIN_BODY = 4096
"""The memory that a small body uses at least: the serialiser over-allocates."""


class SentRequest(Struct, frozen=True):
    """A request that was sent: its bytes, protocol and model, and the commit that it contains."""

    body: bytes
    protocol: str
    model: str
    head: str | None


class SentBodyDelta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to rebuild the bytes of a request.

    `base` is the answer whose request it refers to, `link` its position in that chain, and `tools`
    the tools, if this is the first body with them. There are no `pieces` if a text in the request
    was forgotten: it must not be stored again.
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
        """The delta as JSON, without the pieces, which mean nothing by themselves."""
        return msgspec.to_builtins(structs.replace(self, pieces=None, tools=None))


class Bodies:
    """A cache of the bodies that were sent last, by hash; may be used from any thread."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._bodies: dict[str, bytes] = {}
        self._lock = Lock()

    def get(self, hash: str) -> bytes | None:
        return self._bodies.get(hash)

    def put(self, hash: str, body: bytes) -> None:
        with self._lock:
            if self._bodies.pop(hash, None) is None:
                self._size += max(len(body), MIN_BODY)
            self._bodies[hash] = body
            while self._size > self._limit and len(self._bodies) > 1:
                self._size -= max(len(self._bodies.pop(next(iter(self._bodies)))), MIN_BODY)


def encode_sent_body(
    store: Store, thread: str, request: SentRequest, bodies: Bodies
) -> SentBodyDelta:
    """The delta of a request that is being sent; writes nothing.

    Raises `WrongValue` if the bytes are not UTF-8.
    """
    hash = hash_body(request.body)
    head = None if request.head is None else bytes.fromhex(request.head)
    base = None if head is None else _find_base(store, thread, head, bodies)
    steps = _since(store, thread, head, None) if base is None else base.steps
    bodies.put(hash, request.body)
    delta = SentBodyDelta(
        head=request.head,
        protocol=request.protocol,
        model=request.model,
        hash=hash,
        size=len(request.body),
    )
    if describe_loss(store, steps) is not None:
        return delta
    try:
        pieces, tools = _cut(request.body, b"" if base is None else base.body, _known(steps))
    except UnicodeDecodeError as error:
        raise WrongValue("sent", f"must be UTF-8: {error}") from None
    return structs.replace(
        delta,
        base=None if base is None else steps[0].commit.id.hex(),
        link=0 if base is None else base.link + 1,
        pieces=pieces,
        tools=tools,
    )


def rebuild_sent_body(
    store: Store, thread: str, answer: Step, bodies: Bodies | None = None
) -> bytes:
    """The body of an answer's request, verified by its hash.

    Raises `ThreadError` with the reason if it cannot be rebuilt.
    """
    links = [answer]
    pools: list[list[Step]] = []
    try:
        delta = _must_read(answer)
        body = _assemble(store, thread, links, pools, bodies)
        if hash_body(body) == delta.hash:
            return body
        why = DIFFERS
    except (ThreadError, Damaged) as error:
        why = str(error)
    raise ThreadError(describe_loss(store, [*links, *(s for steps in pools for s in steps)]) or why)


def _assemble(
    store: Store, thread: str, links: list[Step], pools: list[list[Step]], bodies: Bodies | None
) -> bytes:
    """The body at the end of a chain; fills `links` and `pools` with the commits that were used."""
    body: bytes | None = None
    chain: list[SentBodyDelta] = []
    while body is None:
        delta = _must_read(links[-1])
        body = None if bodies is None or not chain else bodies.get(delta.hash)
        if body is not None:
            break
        chain.append(delta)
        base = None if delta.base is None else _read_base(store, thread, delta.base)
        head = None if delta.head is None else bytes.fromhex(delta.head)
        pools.append(_since(store, thread, head, base))
        if base is None:
            body = b""
        else:
            links.append(base)
    for delta, steps in zip(reversed(chain), reversed(pools), strict=True):
        if delta.pieces is None:
            raise ThreadError(
                "it contained a forgotten text when it was sent, so it was not stored"
            )
        tools = [] if delta.tools is None else [delta.tools.encode()]
        body = join(delta.pieces, make_pool(body, [*_known(steps), *tools]))
    return body


def sent_body_entries(delta: SentBodyDelta) -> tuple[Message, ...]:
    """The entries that store a delta with its answer."""
    bare = structs.replace(delta, tools=None)
    record = Message(ATTACHMENT, (Opaque(FORMAT, msgspec.to_builtins(bare)),))
    if delta.tools is None:
        return (record,)
    return Message(ATTACHMENT, (Opaque(FRAME, {"text": delta.tools}),)), record


def read_sent_body(step: Step) -> SentBodyDelta | None:
    """The delta that is stored with a commit; raises `ThreadError` if it is damaged."""
    raw = _attachment(step, 1, FORMAT)
    if raw is None:
        return None
    frame = _attachment(step, 2, FRAME)
    try:
        delta = msgspec.convert(raw, SentBodyDelta)
        return delta if frame is None else structs.replace(delta, tools=str(frame["text"]))
    except (msgspec.ValidationError, KeyError) as error:
        raise ThreadError(f"its record cannot be read: {error}") from None


def _attachment(step: Step, place: int, format: str) -> JsonObject | None:
    """The attachment in this format at this position from the end."""
    if len(step.contents) <= place:
        return None
    message = decode_entry(step.contents[-place])
    block = message.blocks[0] if message.role == ATTACHMENT and message.blocks else None
    return block.raw if isinstance(block, Opaque) and block.protocol == format else None


def hash_body(body: bytes) -> str:
    """The hash that verifies a body."""
    return object_id("sent", body).hex()


def describe_loss(store: Store, steps: Sequence[Step]) -> str | None:
    """Which of these commits lost bytes, and why; `None` if all are complete."""
    stones: dict[tuple[str, Id], Any] = store.maintenance().tombstones()
    if not stones:
        return None
    for step in steps:
        for key in (("commit", step.commit.id), *(("entry", id) for id in step.commit.entries)):
            if key in stones:
                kind, id = key
                return f"{kind} {id.hex()[:12]}, which it refers to, was {stones[key].reason}"
    return None


class _Base(Struct, frozen=True):
    """The previous body of a chain; `steps` are its answer and all commits since."""

    body: bytes
    link: int
    steps: list[Step]


def _find_base(store: Store, thread: str, head: Id, bodies: Bodies) -> _Base | None:
    """The previous answer; `None` if there is none, or if a new chain has to start."""
    for limit in NEARBY:
        steps = store.walk(thread, head, limit=limit)
        for place in range(len(steps) - 1, -1, -1):
            try:
                delta = read_sent_body(steps[place])
                if delta is None:
                    continue
                if delta.pieces is None or delta.link > LINKS + delta.size // BYTES_PER_LINK:
                    return None
                body = bodies.get(delta.hash)
                if body is None:
                    body = rebuild_sent_body(store, thread, steps[place], bodies)
                return _Base(body, delta.link, steps[place:])
            except (ThreadError, Damaged):  # that body cannot be rebuilt: start a new chain
                return None
        if len(steps) < limit:
            break
    return None


def _read_base(store: Store, thread: str, id: str) -> Step:
    steps = store.read_commits(thread, [bytes.fromhex(id)])
    if not steps:
        raise ThreadError(f"the previous answer {id[:12]} is gone")
    return steps[0]


def _must_read(step: Step) -> SentBodyDelta:
    delta = read_sent_body(step)
    if delta is None:
        raise ThreadError(f"the previous answer {step.commit.id.hex()[:12]} has no record")
    return delta


def _since(store: Store, thread: str, head: Id | None, base: Step | None) -> list[Step]:
    """The commits from the previous answer up to `head`, both included."""
    if head is None:
        return []
    steps = store.walk(thread, head, after=0 if base is None else base.depth - 1)
    if not steps:
        raise ThreadError(f"its commit {head.hex()[:12]} is gone")
    return steps


def _cut(body: bytes, before: bytes, known: Sequence[bytes]) -> tuple[list[Piece], str | None]:
    """The pieces of a body, and its tools if storing them apart saves much."""
    pieces = cut(body, before, known)
    tools = _tools(body) if _own_size(pieces) > TOOLS_WORTH_STORING else None
    if tools is None:
        return pieces, None
    shorter = cut(body, before, known, tools.encode())
    saved = _own_size(pieces) - _own_size(shorter)
    return (shorter, tools) if saved > TOOLS_WORTH_STORING // 2 else (pieces, None)


def _own_size(pieces: Iterable[Piece]) -> int:
    """The characters that are only in this body."""
    return sum(len(piece) for piece in pieces if isinstance(piece, str))


def _tools(body: bytes) -> str | None:
    """The tools of a body as JSON text."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return None
    return bytes(members["tools"]).decode() if "tools" in members else None


def _known(steps: Iterable[Step]) -> Sequence[bytes]:
    """All bytes of these commits, without attachments."""
    contents: list[bytes] = []
    for step in steps:
        contents.append(step.commit.data)
        contents += step.contents[:1] if step.commit.kind == "append" else step.contents
    return contents
