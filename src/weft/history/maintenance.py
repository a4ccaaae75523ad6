"""Maintenance of a store: fsck, gc and forget.

Fsck checks every hash, parent, ref and checksum of a store, and repairs what it can.

- An entry must hash to its id, and so must a commit with its parents, entries and body.
- Columns that no id covers must match their checksum.
- The text index must have every commit, and the terms of sampled commits must fit their text.
- A tombstone is not damage: the object keeps its id, and its new bytes have a checksum.

`repair` changes only damaged objects:

- A damaged message becomes a row with the text `[damaged]`.
- A commit with a damaged body keeps its messages and loses its note and metadata. What a compaction
  or an edit had replaced is shown again. A branch ends before the first commit that needs what was
  lost.
- A branch that points at a missing commit goes back to the newest one that the log has for it.
- A damaged text index is built again.

Gc deletes commits that no branch reaches and that undo no longer needs. All ancestors of a branch
stay. They include the originals of every compaction. Commits that the operation log mentions within
the retention time stay too, so that undo and redo still work. A thread that was deleted before the
retention time is removed completely.

Forget erases a text from the whole store. The text is replaced by a mark in every entry, attempt,
note and metadata string that contains it.

- The objects keep their ids, as tombstones, so the graph and all references stay valid.
- The text index is updated, and the store's files are rewritten.
- If the same message is committed again, it has the same id and so stays forgotten.
- Titles, and names that nobody uses any more (deleted threads, branches and tags), lose the text.
  A live name is how others refer to a thread, a branch or a tag, so it stays and is reported.

The text is found in every JSON spelling, in JSON inside JSON strings, and in base64. A base64 file
that contains it is replaced whole. Compressed and encrypted data is not searched.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, count
from math import ceil
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from weft import exact_json
from weft.errors import Damaged, StoreError
from weft.ids import Id, object_id
from weft.lazy import lazy_pattern
from weft.model import Message, Text
from weft.store import (
    Dropped,
    Flaw,
    Landing,
    Maintenance,
    ObjectFormat,
    Step,
    Store,
    Tombstone,
    deleted_name,
    read_deleted_name,
)

from .compile import View
from .graph import TAG
from .objects import (
    PLAIN_BODIES,
    Append,
    Body,
    Insert,
    InsertedRow,
    Rewrite,
    commit_id,
    damaged_attempt,
    decode_attempt,
    decode_body,
    decode_entry,
    encode_body,
)
from .search import find_index_flaws, rebuild_index

DAMAGED = "[damaged]"
ROW_ROLES = frozenset({"user", "assistant", "system", "developer", "tool"})
"""The roles of messages that are rows; entries with other roles are attachments."""

Tombstones = dict[tuple[str, Id], Tombstone]
"""By the kind of the object (`entry` or `commit`) and its id."""

Checksum = Callable[[tuple[object, ...]], int]
"""The store's checksum over the values of some columns."""


class Report(Struct, frozen=True):
    """How many objects were checked, and the flaws."""

    entries: int
    commits: int
    forgotten: int
    flaws: tuple[Flaw, ...]
    attempts: int = 0

    @property
    def clean(self) -> bool:
        return not self.flaws

    def to_dict(self) -> dict[str, object]:
        return {**msgspec.to_builtins(self), "clean": self.clean}


def examine(store: Store, checksum: Checksum) -> Report:
    """Check every object; damage that stops the check is reported as a flaw too."""
    maintenance = store.maintenance()
    flaws: list[Flaw] = []
    counts = {"entry": 0, "commit": 0, "attempt": 0}
    tombstones: Tombstones = {}
    try:
        tombstones = maintenance.tombstones()
        checks = {
            "entry": _check_entries(maintenance, tombstones, checksum),
            "commit": _check_commits(maintenance, tombstones, checksum),
            "attempt": _check_attempts(maintenance),
        }
        for kind, results in checks.items():
            for flaw in results:
                counts[kind] += 1
                flaws += [] if flaw is None else [flaw]
        flaws += maintenance.flaws()
        damaged_ids = {
            bytes.fromhex(flaw.name) for flaw in flaws if flaw.kind in ("entry", "commit")
        }
        unreliable = damaged_ids | {id for _, id in tombstones}
        flaws += find_index_flaws(store, counts["commit"], unreliable)
    except StoreError as error:
        flaws.append(Flaw("file", "store", str(error)))
    forgotten = sum(tombstone.reason == "forgotten" for tombstone in tombstones.values())
    return Report(
        counts["entry"],
        counts["commit"],
        forgotten,
        tuple(dict.fromkeys(flaws)),
        counts["attempt"],
    )


def repair(store: Store, report: Report, created: float) -> list[str]:
    """Repair the damage as far as possible; returns one line per repair."""
    maintenance = store.maintenance()
    repairs: list[str] = []
    with store.transaction():
        damaged = {(flaw.kind, flaw.name) for flaw in report.flaws}
        for id, data in list(maintenance.entries()):
            if ("entry", id.hex()) in damaged:
                maintenance.write_tombstone("entry", id, _damaged_entry(data), "damaged", created)
                repairs.append(f"entry {id.hex()} now says {DAMAGED}")
        lost_rewrites: set[str] = set()  # threads with a lost operation on earlier messages
        for thread, step in list(maintenance.commits()):
            if ("commit", step.commit.id.hex()) in damaged and not _is_intact(step):
                body = encode_body(Body(_substitute_op(store, thread, step)))
                maintenance.write_tombstone("commit", step.commit.id, body, "damaged", created)
                name = step.commit.id.hex()
                line = f"commit {name} keeps its messages and loses its note and metadata"
                if step.commit.kind != "append":
                    line += "; what it had replaced is shown again"
                    lost_rewrites.add(thread)
                repairs.append(line)
        for key, _, attempt in list(maintenance.attempts()):
            if ("attempt", str(key)) in damaged:
                maintenance.put_attempt(key, "failed", damaged_attempt(DAMAGED))
                repairs.append(f"an attempt at commit {attempt.commit.hex()} now says {DAMAGED}")
        repairs += maintenance.repair_structure()
        for thread in sorted(lost_rewrites):
            branches = [name for name in store.refs(thread) if not name.startswith(TAG)]
            lines = [truncate_damaged_branch(store, thread, name, created) for name in branches]
            repairs += [line for line in lines if line is not None]
    if any(flaw.kind == "index" for flaw in report.flaws):
        rebuild_index(store)
        repairs.append("the text index was built again")
    return repairs


def _substitute_op(store: Store, thread: str, step: Step) -> Append | Rewrite:
    """The operation for a commit whose own operation is lost.

    The messages of a compaction, an edit or a merge are added at the end: what they replaced is not
    known, so it stays. New rows get their old slots, so that later commits find them.
    """
    commit = step.commit
    if commit.kind == "append":
        return Append()
    numbers = [n for n, data in enumerate(step.contents) if decode_entry(data).role in ROW_ROLES]
    if not numbers:
        return Rewrite()
    steps = store.walk(thread, commit.parents[0]) if commit.parents else []
    try:
        rows = View().extend(steps).rows
    except Damaged:  # an earlier commit needs lost messages, so the branch will end before this
        return Rewrite()
    kind = "summary" if commit.kind == "compact" else "dialogue"
    inserted = tuple(InsertedRow(number, kind=kind) for number in numbers)
    return Rewrite(insert=(Insert(inserted, rows[-1].id if rows else None),))


def truncate_damaged_branch(store: Store, thread: str, branch: str, created: float) -> str | None:
    """Move a branch with lost commits to the last commit that can still be compiled.

    A later commit may refer to rows that only a lost commit has. Returns a line about the repair;
    `None` if the whole branch can be compiled.
    """
    head = store.read_ref(thread, branch)
    tombstones = store.maintenance().tombstones()
    view, has_lost_commit = View(), False
    for step in [] if head is None else store.walk(thread, head):
        try:
            view = view.extend([step])
        except Damaged:
            break
        has_lost_commit = has_lost_commit or ("commit", step.commit.id) in tombstones
    if view.head == head:
        return None
    # `salvage` makes a second branch for commits after a lost one. The commits before the lost one
    # are on the first branch already, so they need no second one.
    last_readable = view.head if has_lost_commit else None
    landing = Landing(verb="repair", ref=branch, old=head, new=last_readable, created=created)
    store.land(thread, landing)
    outcome = f"ends at {last_readable.hex()}" if last_readable else "is not kept"
    return f"branch {branch!r} of thread {thread!r} {outcome}: later commits need lost messages"


WRONG_ID = "does not hash to its id"
WRONG_TOMBSTONE = "is a tombstone whose checksum does not fit"


def _check_entries(
    maintenance: Maintenance, tombstones: Tombstones, checksum: Checksum
) -> Iterator[Flaw | None]:
    """The flaw of each entry, or `None` if it is intact."""
    for id, data in maintenance.entries():
        tombstone = tombstones.get(("entry", id))
        if tombstone is None:
            is_intact, problem = object_id("entry", data) == id, WRONG_ID
        else:
            is_intact, problem = checksum((data,)) == tombstone.checksum, WRONG_TOMBSTONE
        yield None if is_intact else Flaw("entry", id.hex(), problem)


def _check_commits(
    maintenance: Maintenance, tombstones: Tombstones, checksum: Checksum
) -> Iterator[Flaw | None]:
    """The flaw of each commit, or `None` if it is intact."""
    for thread, step in maintenance.commits():
        commit = step.commit
        tombstone = tombstones.get(("commit", commit.id))
        if tombstone is None:
            is_intact, problem = _is_intact(step), WRONG_ID
        else:
            is_intact, problem = checksum((commit.data,)) == tombstone.checksum, WRONG_TOMBSTONE
        yield None if is_intact else Flaw("commit", commit.id.hex(), problem, thread)


def _check_attempts(maintenance: Maintenance) -> Iterator[Flaw | None]:
    """The flaw of each attempt, or `None`. Attempts have no id; the store checks their checksum."""
    for key, thread, attempt in maintenance.attempts():
        try:
            decode_attempt(attempt)
        except StoreError:
            yield Flaw("attempt", str(key), "cannot be decoded as an attempt", thread)
        else:
            yield None


def _is_intact(step: Step) -> bool:
    """Whether a commit can be decoded and hashes to its id."""
    commit = step.commit
    try:
        id = commit_id(commit.kind, commit.parents, commit.entries, commit.data)
        decode_body(step)
    except (StoreError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return id == commit.id


def _damaged_entry(data: bytes) -> bytes:
    """The replacement for a damaged message, with its role if that can be read."""
    try:
        role = decode_entry(data).role
    except StoreError:
        role = "user"
    return msgspec.json.encode(Message(role, (Text(DAMAGED),)), order="sorted")


OBJECT_FORMAT = ObjectFormat(
    entry_id=partial(object_id, "entry"),
    commit_id=commit_id,
    damaged_entry=_damaged_entry,
    plain_bodies=tuple(PLAIN_BODIES),
)
"""The object format, with which a store recognises objects in a damaged file."""


class Swept(Struct, frozen=True):
    """How many objects were removed from all threads; `threads` counts removed deleted threads."""

    commits: int
    entries: int
    operations: int
    threads: int = 0

    def to_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


MARK_ATTEMPTS = 5
"""How often the unreachable commits of a thread are looked up again because it changed."""

Progress = Callable[[int, int], None]
"""Called with how many threads are done, and how many there are."""


def sweep(
    store: Store,
    since: float,
    *,
    preview: bool = False,
    shrink: bool = False,
    progress: Progress | None = None,
) -> Swept:
    """Delete unreachable commits that the operation log has not mentioned since `since`.

    Reads without a lock and deletes in short transactions, so that others can go on writing. A
    thread that is written to all the time is left for the next run. `shrink` gives the free space
    back to the disk; for that the whole store is rewritten, and all writers wait.
    """
    maintenance = store.maintenance()
    expired = {
        record.name
        for record in store.threads(deleted=True)
        if _was_deleted_before(record.name, since)
    }
    names = [record.name for record in (*store.threads(), *store.threads(deleted=True))]
    total = Swept(0, 0, 0)
    for number, thread in enumerate(names, 1):
        dropped = _sweep_thread(maintenance, thread, since, thread in expired, preview)
        is_gone = thread in expired and (preview or maintenance.drop_thread(thread))
        total = Swept(
            total.commits + dropped.commits,
            total.entries + dropped.entries,
            total.operations + dropped.operations,
            total.threads + is_gone,
        )
        if progress is not None:
            progress(number, len(names))
    if shrink and not preview:
        try:
            maintenance.scrub()
        except StoreError as error:
            raise StoreError(
                f"{total.commits} commits were removed, but the store could not be rewritten, so "
                f"that its file has its old size: {error}"
            ) from None
    return total


def _sweep_thread(
    maintenance: Maintenance, thread: str, since: float, is_expired: bool, preview: bool
) -> Dropped:
    """Delete the unreachable commits of one thread."""
    total = Dropped()
    for _ in range(MARK_ATTEMPTS):
        graph = maintenance.commit_graph(thread)
        heads = set[Id]() if is_expired else maintenance.referenced_commits(thread, since)
        reachable = _with_ancestors(heads, graph.parents)
        unreachable = [id for id in graph.parents if id not in reachable]
        if preview or not unreachable:
            return total + Dropped(len(unreachable))
        total += maintenance.drop(thread, unreachable[::-1], graph)
        if total.is_complete:
            break
    return total


def _was_deleted_before(name: str, time: float) -> bool:
    """Whether the name is that of a thread that was deleted before this time."""
    deleted = read_deleted_name(name)
    return deleted is not None and deleted[1] < time


def _with_ancestors(heads: Iterable[Id], parents: dict[Id, tuple[Id, ...]]) -> set[Id]:
    """These commits and all their ancestors."""
    reached: set[Id] = set()
    pending = list(heads)
    while pending:
        id = pending.pop()
        if id not in reached:
            reached.add(id)
            pending.extend(parents.get(id, ()))
    return reached


FORGOTTEN = "[forgotten]"
FORGOTTEN_FILE = b64encode(FORGOTTEN.encode()).decode()
MAX_NESTING = 3  # of JSON in JSON strings: arguments, in a session line, in a request body
SHORTEST_IN_BASE64 = 6  # bytes; shorter texts occur in every long file by chance
URL_SAFE = str.maketrans("+/", "-_")

# A surrogate pair, another `\\u` escape, or a short escape of JSON.
_ESCAPES = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[\"\\/bfnrt]"
)
_ESCAPE = lazy_pattern(_ESCAPES)
_BASE64 = lazy_pattern(r"[A-Za-z0-9+/_-]+={0,2}")
_CHARACTER = lazy_pattern(rf"{_ESCAPES}|.", re.DOTALL)


class LiveName(Struct, frozen=True):
    """A name that is in use and contains a forgotten text; `kind` says what it is the name of."""

    kind: Literal["thread", "branch", "tag"]
    thread: str
    name: str


class Erased(Struct, frozen=True):
    """The objects that contained the text.

    `names` is the number of titles and unused names that contained it. `live_names` are names in
    use, which still contain it. A thread's name is listed after the names of its branches and tags.
    """

    entries: tuple[Id, ...]
    commits: tuple[Id, ...]
    attempts: tuple[int, ...] = ()
    names: int = 0
    live_names: tuple[LiveName, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries or self.commits or self.attempts or self.names)

    def to_dict(self) -> dict[str, Any]:
        return {
            "entries": [id.hex() for id in self.entries],
            "commits": [id.hex() for id in self.commits],
            "attempts": len(self.attempts),
            "names": self.names,
            "live_names": [msgspec.structs.asdict(name) for name in self.live_names],
        }


class _Renames(Struct, frozen=True):
    """The names to change: threads, their titles, and the refs of each thread, by their old name.

    `live` are the names that stay.
    """

    threads: dict[str, str]
    titles: dict[str, str]
    refs: dict[str, dict[str, str]]
    live: tuple[LiveName, ...]

    @property
    def count(self) -> int:
        refs = sum(map(len, self.refs.values()))
        return len(self.threads) + len(self.titles) + refs

    def apply(self, store: Store) -> None:
        for thread, names in self.refs.items():
            store.maintenance().rename_refs(thread, names)
        for thread, title in self.titles.items():
            store.describe_thread(thread, title=title)
        for thread, name in self.threads.items():
            store.rename_thread(thread, name)


def _plan_renames(store: Store, text: str) -> _Renames:
    """The titles and unused names that contain the text, with the names that replace them."""
    plan = _Renames({}, {}, {}, ())
    live: list[LiveName] = []
    deleted = store.threads(deleted=True)
    taken = {record.name for record in deleted}
    for record in [*store.threads(), *deleted]:
        thread = record.name
        deletion = read_deleted_name(thread)
        if record.title is not None and text in record.title:
            plan.titles[thread] = _without_text(record.title, text)
        names = store.maintenance().ref_names(thread)
        used = set(names)
        for ref, is_live in names.items():
            prefix = TAG if ref.startswith(TAG) else ""
            name = ref.removeprefix(prefix)
            if text not in name:
                continue
            if is_live and deletion is None:
                live.append(LiveName("tag" if prefix else "branch", thread, name))
            else:
                renames = plan.refs.setdefault(thread, {})
                renames[ref] = _free_name(used, prefix.__add__, _without_text(name, text))
        if deletion is None and text in thread:
            live.append(LiveName("thread", thread, thread))
        elif deletion is not None and text in deletion[0]:
            old_name, moment = deletion
            make = partial(deleted_name, moment=moment)
            plan.threads[thread] = _free_name(taken, make, _without_text(old_name, text))
    return msgspec.structs.replace(plan, live=tuple(live))


def _without_text(name: str, text: str) -> str:
    return name.replace(text, FORGOTTEN)


def _free_name(taken: set[str], make: Callable[[str], str], name: str) -> str:
    """`make(name)`, with a number if that is taken; the result is added to `taken`."""
    numbered = (f"{name}-{number}" for number in count(2))
    candidates = (make(each) for each in chain([name], numbered))
    free_name = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(free_name)
    return free_name


def plan_forget(store: Store, text: str) -> Erased:
    """The objects that contain the text; writes nothing."""
    maintenance = store.maintenance()
    renames = _plan_renames(store, text)
    return Erased(
        tuple(id for id, data in maintenance.entries() if erase(data, text) != data),
        tuple(
            step.commit.id
            for _, step in maintenance.commits()
            if erase(step.commit.data, text) != step.commit.data
        ),
        tuple(
            key
            for key, _, attempt in maintenance.attempts()
            if erase(attempt.data, text) != attempt.data
        ),
        renames.count,
        renames.live,
    )


def forget_text(store: Store, text: str, created: float) -> Erased:
    """Erase the text from the whole store, on every thread and branch."""
    with store.transaction():
        erased = plan_forget(store, text)
        maintenance = store.maintenance()
        for id, data in list(maintenance.entries()):
            if id in erased.entries:
                maintenance.write_tombstone("entry", id, erase(data, text), "forgotten", created)
        for _, step in list(maintenance.commits()):
            if step.commit.id in erased.commits:
                data = erase(step.commit.data, text)
                maintenance.write_tombstone("commit", step.commit.id, data, "forgotten", created)
        for key, _, attempt in list(maintenance.attempts()):
            if key in erased.attempts:
                maintenance.put_attempt(key, attempt.state, erase(attempt.data, text))
        for thread, ids in _changed_commits(store, erased).items():
            maintenance.unindex(thread, ids)
        _plan_renames(store, text).apply(store)
    try:
        store.maintenance().scrub()
    except StoreError as error:
        raise StoreError(
            "the text is erased from every thread, but the store could not be rewritten, so that "
            f"its file may still contain it: {error}. Run `weft forget` again when that is solved"
        ) from None
    return erased


def erase(data: bytes, text: str) -> bytes:
    """The JSON with a mark in place of the text in every string."""
    escaped = msgspec.json.encode(text)[1:-1]
    base64_parts = _in_base64(text)
    may_contain = escaped in data or text.encode() in data or b"\\" in data
    if not may_contain and not any(part.encode() in data for part in base64_parts):
        return data
    value = exact_json.loads(data)
    cleaned = _cleaned(value, text, _spellings(text), base64_parts)
    # Decoding keeps the order of members, which is the canonical one.
    return data if cleaned == value else exact_json.encode(cleaned)


def _spellings(text: str) -> list[str]:
    """The text itself, and its spellings in JSON strings, up to `MAX_NESTING` levels deep."""
    spellings = [text]
    for _ in range(MAX_NESTING):
        spellings += [
            json.dumps(spelling, ensure_ascii=ensure_ascii)[1:-1]
            for spelling in spellings
            for ensure_ascii in (True, False)
        ]
    return sorted(set(spellings), key=len, reverse=True)


def _in_base64(text: str) -> list[str]:
    """The base64 of the text at each of the three byte offsets that it can have in a file.

    The first and last character also encode bits of the neighbouring bytes, so they are left out.
    """
    data = text.encode(errors="surrogatepass")
    if len(data) < SHORTEST_IN_BASE64:
        return []
    parts: list[str] = []
    for offset in range(3):
        encoded = b64encode(bytes(offset) + data).decode()  # a character encodes 6 bits
        start, end = ceil(8 * offset / 6), 8 * (offset + len(data)) // 6
        parts += [encoded[start:end], encoded[start:end].translate(URL_SAFE)]
    return sorted(set(parts))


def _cleaned(value: Any, text: str, spellings: list[str], base64_parts: list[str]) -> Any:
    if isinstance(value, str):
        for spelling in spellings:
            value = value.replace(spelling, FORGOTTEN)
        value = _without_files(value, base64_parts)
        return _without_other_spellings(value, text) if "\\" in value else value
    if isinstance(value, list):
        return [_cleaned(item, text, spellings, base64_parts) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return {
            _cleaned(key, text, spellings, base64_parts): _cleaned(
                item, text, spellings, base64_parts
            )
            for key, item in members.items()
        }
    return value


def _without_files(value: str, base64_parts: list[str]) -> str:
    """The string with a mark for every run of base64 that contains one of these parts."""
    if not any(part in value for part in base64_parts):
        return value
    return _BASE64.sub(
        lambda run: FORGOTTEN_FILE if any(part in run[0] for part in base64_parts) else run[0],
        value,
    )


def _without_other_spellings(value: str, text: str) -> str:
    """The string without the text in any other spelling that JSON allows (`\\/`, `\\u0041`)."""
    for depth in range(1, MAX_NESTING + 1):
        plain = value
        for _ in range(depth):
            plain = _ESCAPE.sub(_unescaped, plain)
        if text not in plain:
            continue
        for start, end in reversed(_find_spans(value, text, depth)):
            if "\\" in value[start:end]:  # the unescaped spelling was replaced before
                value = value[:start] + FORGOTTEN + value[end:]
    return value


def _find_spans(value: str, text: str, depth: int) -> list[tuple[int, int]]:
    """The start and end of each occurrence of the text in a string with `depth` levels of JSON."""
    # For each character of the decoded text: where its spelling is in the original string.
    spans = [(position, position + 1) for position in range(len(value))]
    for _ in range(depth):
        characters = list(_CHARACTER.finditer(value))
        spans = [
            (spans[character.start()][0], spans[character.end() - 1][1]) for character in characters
        ]
        value = "".join(_ESCAPE.sub(_unescaped, character[0]) for character in characters)
    matches = re.finditer(re.escape(text), value)
    return [(spans[hit.start()][0], spans[hit.end() - 1][1]) for hit in matches]


def _unescaped(escape: re.Match[str]) -> str:
    return cast(str, json.loads(f'"{escape[0]}"'))


def _changed_commits(store: Store, erased: Erased) -> dict[str, list[Id]]:
    """The commits whose text has changed, by thread."""
    entries, commits = set(erased.entries), set(erased.commits)
    changed: dict[str, list[Id]] = {}
    for thread, step in store.maintenance().commits():
        if step.commit.id in commits or entries.intersection(step.commit.entries):
            changed.setdefault(thread, []).append(step.commit.id)
    return changed
