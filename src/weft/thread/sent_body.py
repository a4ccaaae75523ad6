"""What left for a model, byte by byte, kept beside its answer as pieces.

A client's body cannot be written again from the thread: its spacing, its order of members, its
parameters and cache marks are its own. So the answer's commit carries an *imprint*: the body's
pieces (`pieces.py`), taken from the body that the answer before was given to and from all that
was committed since, with a hash to prove the result. A turn so costs what is new in it.

The imprint rides along as an attachment, an entry that no model is shown: ids cover it, an archive
carries it, `fsck` checks it, `gc` keeps it as long as its commit, and `forget` cleans it. What it
is taken from are stored bytes alone, so neither the catalogue nor a codec has a say in it. Tools
that no body before has are an attachment of their own: the same in every thread, kept once.

Bodies stand on each other in a chain. It begins anew after so many turns that making a body again
stays quick, and so few times that all beginnings together stay in proportion to the thread.
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
"""How many of the newest commits to look through for the answer before."""

LINKS = 64
BYTES_PER_LINK = 4096
"""A chain may be this long, and longer by one for each so many bytes of its body."""

DIFFERS = "what it is made of is not the same any more"
WORDY = 2048
"""Bytes of its own from which on a body's tools are worth an entry."""

REMEMBERED = 32 * 1024 * 1024
LEAST = 4096
"""What a small body costs in memory at least: the serialiser leaves spare room behind it."""


class SentRequest(Struct, frozen=True):
    """A request as it leaves: its bytes, whom they are for, and the commit that they speak of."""

    body: bytes
    protocol: str
    model: str
    head: str | None


class SentBodyDelta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the bytes of a request are put together again.

    `base` is the answer whose request it goes on from, `link` its place in that chain, `tools` what
    it says of them where it is the first. There are no `pieces` where words in it were forgotten:
    they must not come back by this door.
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
        """What is told of it; its pieces mean nothing by themselves."""
        return msgspec.to_builtins(structs.replace(self, pieces=None, tools=None))


class Bodies:
    """The bodies that left last, by their hashes; the oldest go when they get too large.

    May be used from any thread.
    """

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._size = 0
        self._bodies: dict[str, bytes] = {}
        self._lock = Lock()

    def get(self, hash: str) -> bytes | None:
        return self._bodies.get(hash)

    def put(self, hash: str, body: bytes) -> None:
        with self._lock:
            if self._bodies.pop(hash, None) is None:
                self._size += max(len(body), LEAST)
            self._bodies[hash] = body
            while self._size > self._limit and len(self._bodies) > 1:
                self._size -= max(len(self._bodies.pop(next(iter(self._bodies)))), LEAST)


def encode_sent_body(
    store: Store, thread: str, letter: SentRequest, bodies: Bodies
) -> SentBodyDelta:
    """The imprint of a request that leaves now; writes nothing.

    Raises `WrongValue` for bytes that are no words.
    """
    hash = hash_body(letter.body)
    head = None if letter.head is None else bytes.fromhex(letter.head)
    base = None if head is None else _find_base(store, thread, head, bodies)
    steps = _since(store, thread, head, None) if base is None else base.steps
    bodies.put(hash, letter.body)
    taken = SentBodyDelta(
        head=letter.head,
        protocol=letter.protocol,
        model=letter.model,
        hash=hash,
        size=len(letter.body),
    )
    if describe_loss(store, steps) is not None:
        return taken
    try:
        pieces, tools = _cut(letter.body, b"" if base is None else base.body, _known(steps))
    except UnicodeDecodeError as error:
        raise WrongValue("sent", f"must be UTF-8: {error}") from None
    return structs.replace(
        taken,
        base=None if base is None else steps[0].commit.id.hex(),
        link=0 if base is None else base.link + 1,
        pieces=pieces,
        tools=tools,
    )


def rebuild_sent_body(
    store: Store, thread: str, answer: Step, bodies: Bodies | None = None
) -> bytes:
    """The body that an answer's imprint is of, proven by its hash.

    Raises `ThreadError` that says why it cannot be made.
    """
    links = [answer]
    pools: list[list[Step]] = []
    try:
        imprint = _must_read(answer)
        body = _assemble(store, thread, links, pools, bodies)
        if hash_body(body) == imprint.hash:
            return body
        why = DIFFERS
    except (ThreadError, Damaged) as error:
        why = str(error)
    raise ThreadError(describe_loss(store, [*links, *(s for steps in pools for s in steps)]) or why)


def _assemble(
    store: Store, thread: str, links: list[Step], pools: list[list[Step]], bodies: Bodies | None
) -> bytes:
    """The body behind a chain that begins with `links`; what it is made of is left in the lists."""
    body: bytes | None = None
    chain: list[SentBodyDelta] = []
    while body is None:
        imprint = _must_read(links[-1])
        body = None if bodies is None or not chain else bodies.get(imprint.hash)
        if body is not None:
            break
        chain.append(imprint)
        base = None if imprint.base is None else _read_base(store, thread, imprint.base)
        head = None if imprint.head is None else bytes.fromhex(imprint.head)
        pools.append(_since(store, thread, head, base))
        if base is None:
            body = b""
        else:
            links.append(base)
    for imprint, steps in zip(reversed(chain), reversed(pools), strict=True):
        if imprint.pieces is None:
            raise ThreadError(
                "words in it were forgotten before it was sent, and are not kept again"
            )
        tools = [] if imprint.tools is None else [imprint.tools.encode()]
        body = join(imprint.pieces, make_pool(body, [*_known(steps), *tools]))
    return body


def sent_body_entries(imprint: SentBodyDelta) -> tuple[Message, ...]:
    """The entries that carry an imprint beside its answer."""
    bare = structs.replace(imprint, tools=None)
    record = Message(ATTACHMENT, (Opaque(FORMAT, msgspec.to_builtins(bare)),))
    if imprint.tools is None:
        return (record,)
    return Message(ATTACHMENT, (Opaque(FRAME, {"text": imprint.tools}),)), record


def read_sent_body(step: Step) -> SentBodyDelta | None:
    """The imprint that a commit carries; raises `ThreadError` where it lost its form."""
    raw = _carried(step, 1, FORMAT)
    if raw is None:
        return None
    frame = _carried(step, 2, FRAME)
    try:
        imprint = msgspec.convert(raw, SentBodyDelta)
        return imprint if frame is None else structs.replace(imprint, tools=str(frame["text"]))
    except (msgspec.ValidationError, KeyError) as error:
        raise ThreadError(f"its record cannot be read: {error}") from None


def _carried(step: Step, place: int, format: str) -> JsonObject | None:
    """What rides along in this format, so many places from the end."""
    if len(step.contents) <= place:
        return None
    message = decode_entry(step.contents[-place])
    block = message.blocks[0] if message.role == ATTACHMENT and message.blocks else None
    return block.raw if isinstance(block, Opaque) and block.protocol == format else None


def hash_body(body: bytes) -> str:
    """The proof of a body."""
    return object_id("sent", body).hex()


def describe_loss(store: Store, steps: Sequence[Step]) -> str | None:
    """What of these commits lost its bytes, in words; `None` where all are whole."""
    stones: dict[tuple[str, Id], Any] = store.maintenance().tombstones()
    if not stones:
        return None
    for step in steps:
        for key in (("commit", step.commit.id), *(("entry", id) for id in step.commit.entries)):
            if key in stones:
                kind, id = key
                return f"{kind} {id.hex()[:12]}, which it is made of, was {stones[key].reason}"
    return None


class _Base(Struct, frozen=True):
    """The body that a chain goes on from; `steps` are its answer and all commits since."""

    body: bytes
    link: int
    steps: list[Step]


def _find_base(store: Store, thread: str, head: Id, bodies: Bodies) -> _Base | None:
    """The nearest answer before; `None` where there is none, or a chain has to begin anew."""
    for limit in NEARBY:
        steps = store.walk(thread, head, limit=limit)
        for place in range(len(steps) - 1, -1, -1):
            try:
                imprint = read_sent_body(steps[place])
                if imprint is None:
                    continue
                if imprint.pieces is None or imprint.link > LINKS + imprint.size // BYTES_PER_LINK:
                    return None
                body = bodies.get(imprint.hash)
                if body is None:
                    body = rebuild_sent_body(store, thread, steps[place], bodies)
                return _Base(body, imprint.link, steps[place:])
            except (ThreadError, Damaged):  # that body cannot be had: this one stands by itself
                return None
        if len(steps) < limit:
            break
    return None


def _read_base(store: Store, thread: str, id: str) -> Step:
    found = store.read_commits(thread, [bytes.fromhex(id)])
    if not found:
        raise ThreadError(f"the answer before it, {id[:12]}, is gone")
    return found[0]


def _must_read(step: Step) -> SentBodyDelta:
    imprint = read_sent_body(step)
    if imprint is None:
        raise ThreadError(f"the answer before it, {step.commit.id.hex()[:12]}, has no record")
    return imprint


def _since(store: Store, thread: str, head: Id | None, base: Step | None) -> list[Step]:
    """The commits from the answer before on, itself included, up to `head`."""
    if head is None:
        return []
    steps = store.walk(thread, head, after=0 if base is None else base.depth - 1)
    if not steps:
        raise ThreadError(f"commit {head.hex()[:12]}, which it speaks of, is gone")
    return steps


def _cut(body: bytes, before: bytes, known: Sequence[bytes]) -> tuple[list[Piece], str | None]:
    """The pieces of a body, and its tools where the body is much shorter with them known."""
    pieces = cut(body, before, known)
    tools = _tools(body) if _words(pieces) > WORDY else None
    if tools is None:
        return pieces, None
    shorter = cut(body, before, known, tools.encode())
    saved = _words(pieces) - _words(shorter)
    return (shorter, tools) if saved > WORDY // 2 else (pieces, None)


def _words(pieces: Iterable[Piece]) -> int:
    """How much a body says in words of its own."""
    return sum(len(piece) for piece in pieces if isinstance(piece, str))


def _tools(body: bytes) -> str | None:
    """What a body says of its tools, as it says it."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return None
    return bytes(members["tools"]).decode() if "tools" in members else None


def _known(steps: Iterable[Step]) -> Sequence[bytes]:
    """All bytes of these commits but what rides along with them."""
    known: list[bytes] = []
    for step in steps:
        known.append(step.commit.data)
        known += step.contents[:1] if step.commit.kind == "append" else step.contents
    return known
