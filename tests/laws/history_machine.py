"""Runs every operation in any order on every store: the state machine for laws 5 to 10.

The stores get the same operations and must agree on every id and every error. Each rule asserts its
own promise; the invariants hold after every step.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import weft
from laws.judges import LISTS, judge, request
from weft.errors import ThreadError
from weft.history import Row, Setup, View, compile_present, compile_slots, visible_rows
from weft.model import Message, Origin, Text, Thinking, ToolCall, ToolResult, side
from weft.thread import CommitInfo, Thread, archive_bytes, fsck, import_bytes

WORDS = st.text("abcxyz \n<|é漢", min_size=0, max_size=8)
SAID = st.text("abc é漢", min_size=1, max_size=8).filter(str.strip)
PICK = st.integers(0, 10_000)
STRATEGY = st.sampled_from([None, "ours", "theirs", "concat"])
PRIORITY = st.sampled_from(["skip", "normal", "important", "pinned"])
POLICIES = ("auto", "inline", "demote")


class History(RuleBasedStateMachine):
    """One thread in memory, in a file and, if there is a server, in PostgreSQL."""

    address: Callable[[], str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        targets: list[Any] = [None, Path(self.folder.name) / "a.db"]
        if self.address is not None:
            targets.append(type(self).address())  # pyright: ignore
        self.threads = [weft.open(target, checkpoints=True) for target in targets]
        self.branches = ["main"]
        self.number = 0
        self.heads: list[tuple[str | None, list[Row]]] = []
        self.signed: dict[str, tuple[Message, ...]] = {}
        self.cold: list[tuple[Thread, View]] = []

    def teardown(self) -> None:
        """After any operations, every store is valid, and an archive restores all of it."""
        try:
            for thread in self.threads:
                assert fsck(thread.store).flaws == ()
            self.archived()
        finally:
            for thread in self.threads:
                thread.close()
            self.folder.cleanup()

    def archived(self) -> None:
        copy = weft.open()
        import_bytes(copy.store, archive_bytes(self.threads[1].store, ["default"]))
        again = weft.open(copy.store, branch=self.one.current)
        assert (again.branches(), again.tags()) == (self.one.branches(), self.one.tags())
        assert again.compile().rows == self.one.compile().rows
        assert attempts(again) == attempts(self.one)
        assert fsck(copy.store).flaws == ()

    @property
    def one(self) -> Thread:
        return self.threads[0]

    def all(self, verb: Callable[[Thread], Any]) -> Any:
        """Run an operation on every store; they must agree on the result or the error."""
        results: list[Any] = []
        for thread in self.threads:
            try:
                result = verb(thread)
                results.append(result.id if isinstance(result, CommitInfo) else result)
            except ThreadError as error:
                results.append(str(error))
        assert all(result == results[0] for result in results)
        head = self.one.head
        self.heads.append((None if head is None else head.id, rows(self.one)))
        return results[0]

    def append(self, verb: Callable[[Thread], Any]) -> str:
        """Law 5: the next request starts with the previous one, for every vendor."""
        before = {key: sent for key in requests() if (sent := self.sent(*key)) is not None}
        id = self.all(verb)
        for key, sent in before.items():
            after = self.sent(*key, whole=False)
            assert after is not None
            assert after[: len(sent)] == sent, key
        return id

    def sent(self, protocol: str, policy: str, *, whole: bool = True) -> list[Any] | None:
        """The list that a vendor would get; `None` if the last message is not the user's."""
        context = self.one.compile()
        if whole and not ends_with_user(context.messages):
            return None
        return request(context, protocol, system=policy)[LISTS[protocol]]

    @rule(text=WORDS, name=st.sampled_from([None, "bob"]))
    def user(self, text: str, name: str | None) -> None:
        self.append(lambda t: t.user(text, name=name))

    @rule(text=WORDS)
    def assistant(self, text: str) -> None:
        self.append(lambda t: t.assistant(text))

    @rule(text=SAID)
    def system(self, text: str) -> None:
        self.all(lambda t: t.system(text))

    @rule()
    def think(self) -> None:
        self.number += 1
        signature = f"sig{self.number}"
        before = self.one.compile().messages
        blocks = (Thinking("hm", signature), Text("so it is"))
        texts = Message("assistant", blocks, origin=Origin("anthropic"))
        self.append(lambda t: t.commit_message(texts))
        self.signed[signature] = before

    @rule()
    def call_and_result(self) -> None:
        self.number += 1
        asked = ToolCall(f"c{self.number}", "f", "{}")
        self.all(lambda t: t.commit_message(Message("assistant", (Text("go"), asked))))
        self.all(lambda t: t.tool_result(asked.id, "done", reminder="remember"))

    @rule()
    def call_alone(self) -> None:
        self.number += 1
        asked = ToolCall(f"c{self.number}", "f", "{}")
        self.all(lambda t: t.commit_message(Message("assistant", (asked,))))

    @precondition(lambda self: bool(open_calls(rows(self.one))))
    @rule(pick=PICK, text=SAID)
    def answer_open_call(self, pick: int, text: str) -> None:
        """Several branches may answer one call, each with its own text."""
        calls = open_calls(rows(self.one))
        self.all(lambda t: t.tool_result(calls[pick % len(calls)], f"{t.current} {text}"))

    @rule(name=st.sampled_from(["style", "tone"]), text=SAID)
    def directive(self, name: str, text: str) -> None:
        self.all(lambda t: t.directive(name, text))
        named = [r for r in rows(self.one) if r.message.name == name and r.message.role == "system"]
        assert len(named) <= len(self.branches)  # a merge may bring another branch's

    @rule(name=st.sampled_from("fgh"))
    def setup(self, name: str) -> None:
        self.all(lambda t: t.setup(tools=[{"name": name, "parameters": {"type": "object"}}]))

    def line(self, pick: int) -> Row:
        present = rows(self.one)
        return present[pick % len(present)]

    @precondition(lambda self: bool(rows(self.one)))
    @rule(pick=PICK, text=WORDS)
    def edit(self, pick: int, text: str) -> None:
        row, before = self.line(pick), rows(self.one)
        self.all(lambda t: t.edit(hex_of(row), text))
        self.local(before, row)

    @precondition(lambda self: bool(rows(self.one)))
    @rule(pick=PICK, priority=PRIORITY)
    def annotate(self, pick: int, priority: Any) -> None:
        row, before = self.line(pick), rows(self.one)
        self.all(lambda t: t.annotate(hex_of(row), priority))
        self.local(before, row)

    @precondition(lambda self: bool(rows(self.one)))
    @rule(pick=PICK, version=st.integers(0, 3))
    def restore(self, pick: int, version: int) -> None:
        row, before = self.line(pick), rows(self.one)
        self.all(lambda t: t.restore(hex_of(row), version))
        self.local(before, row)

    @precondition(lambda self: bool(rows(self.one)))
    @rule(pick=PICK)
    def note(self, pick: int) -> None:
        row, before = self.line(pick), rows(self.one)
        self.all(lambda t: t.note(hex_of(row), "a note"))
        assert rows(self.one) == before

    def local(self, before: list[Row], touched: Row) -> None:
        """Law 6: messages that an operation does not name keep their content, position and
        priority."""
        after = rows(self.one)
        assert [row.id for row in after] == [row.id for row in before]
        outside = zip(before, after, strict=True)
        assert all(old == new for old, new in outside if old.id != touched.id)

    @rule(pick=PICK)
    def branch(self, pick: int) -> None:
        name = f"b{len(self.branches)}"
        made = self.all(lambda t: t.branch(name))
        if "empty" not in str(made):
            self.branches.append(name)
        self.switch(pick)

    def other(self, pick: int) -> str:
        return self.branches[pick % len(self.branches)]

    @rule(pick=PICK)
    def switch(self, pick: int) -> None:
        self.all(lambda t: t.switch(self.other(pick)))

    @rule(pick=PICK, strategy=STRATEGY)
    def merge(self, pick: int, strategy: str | None) -> None:
        self.previewed(lambda t, **o: t.merge(self.other(pick), strategy, **o))
        answered = [
            block.call_id
            for row in rows(self.one)
            for block in row.message.blocks
            if isinstance(block, ToolResult)
        ]
        assert len(answered) == len(set(answered))

    @rule(pick=PICK, settle=STRATEGY)
    def squash(self, pick: int, settle: str | None) -> None:
        """None of our messages is removed, and each equals one of the two sides."""
        name = self.other(pick)
        before, there = rows(self.one), lines_by_slot(self.one, name)
        options = {"text": "S", "settle": settle}
        self.previewed(lambda t, **o: t.merge(name, "squash", **options, **o))
        after = {row.id: row.message for row in rows(self.one)}
        for row in before:
            if has_result(row) and settle in ("theirs", "concat"):
                continue  # the result of a call that both sides answered may be theirs
            assert row.id in after
            if settle != "concat":
                assert after[row.id] in (row.message, there.get(row.id, row).message)

    @rule(pick=PICK, strategy=STRATEGY)
    def rebase(self, pick: int, strategy: str | None) -> None:
        self.previewed(lambda t, **o: t.rebase(self.other(pick), strategy, **o))
        self.once()

    @precondition(lambda self: any(head for head, _ in self.heads))
    @rule(pick=PICK, strategy=STRATEGY)
    def cherry_pick(self, pick: int, strategy: str | None) -> None:
        heads = [head for head, _ in self.heads if head is not None]
        id = heads[pick % len(heads)]
        self.previewed(lambda t, **o: t.cherry_pick(id, strategy, **o))
        self.once()

    @precondition(lambda self: any(head for head, _ in self.heads))
    @rule(pick=PICK)
    def reset(self, pick: int) -> None:
        heads = [(head, lines) for head, lines in self.heads if head is not None]
        id, lines = heads[pick % len(heads)]
        self.previewed(lambda t, **o: t.reset(id, **o))
        assert rows(self.one) == lines

    def once(self) -> None:
        slots = [row.id for row in rows(self.one)]
        assert len(slots) == len(set(slots))

    def previewed(self, verb: Any) -> None:
        """A preview shows exactly what the operation then does, and changes nothing."""
        before = rows(self.one)
        try:
            expected = verb(self.one, preview=True)
        except ThreadError:
            expected = None
        assert rows(self.one) == before
        result = self.all(verb)
        if expected is None or "choose" in str(result) or "changes what" in str(result):
            assert rows(self.one) == before
        else:
            assert contents(rows(self.one)) == contents(expected.rows)
            assert (expected.setup or Setup()) == self.one.compile().setup

    @precondition(lambda self: len(self.one.checkpoints()) >= 2)
    @rule(pick=PICK, other=PICK, summary=WORDS)
    def compact(self, pick: int, other: int, summary: str) -> None:
        marks = [mark.id for mark in self.one.checkpoints()]
        low, high = sorted((pick % len(marks), other % len(marks)))
        part = {"from": marks[low], "to": marks[high], "summary": summary}
        self.folded(lambda t: str(t.compact([part])))

    @rule(share=st.integers(1, 9))
    def compact_to_budget(self, share: int) -> None:
        budget = self.one.compile().tokens * share // 10
        self.folded(lambda t: str(t.compact(budget=budget)))

    def folded(self, verb: Callable[[Thread], Any]) -> None:
        pinned = [row for row in rows(self.one) if row.priority == "pinned"]
        self.all(verb)
        assert [row for row in rows(self.one) if row in pinned] == pinned

    @precondition(lambda self: self.one.head is not None)
    @rule(pick=PICK)
    def revert(self, pick: int) -> None:
        log = self.one.log()
        id = log[pick % len(log)].id
        before = (rows(self.one), self.one.compile().setup)
        self.previewed(lambda t, **o: t.revert(id, "ours", **o))
        if (rows(self.one), self.one.compile().setup) != before:
            self.taken_back(before)

    def taken_back(self, before: tuple[list[Row], Setup]) -> None:
        """A revert is an ordinary commit: reverting it at once restores the earlier state."""
        head = self.one.head
        assert head is not None
        self.all(lambda t: t.revert(head.id))
        assert (rows(self.one), self.one.compile().setup) == before

    @rule(words=st.lists(SAID, min_size=1, max_size=3))
    def imported(self, words: list[str]) -> None:
        """A list is imported to the empty branch or next to the user's work; importing it twice
        changes nothing."""
        data = orjson.dumps([{"role": "user", "content": word} for word in words])
        work = self.one.branches()
        self.all(lambda t: t.import_bytes(data).new)
        now = self.one.branches()
        assert {name: now[name] for name in work} == work
        assert self.all(lambda t: t.import_bytes(data).new) == 0
        self.branches = list(dict.fromkeys([*self.branches, *now]))

    @rule(
        words=st.lists(WORDS, min_size=1, max_size=3),
        fails=st.booleans(),
        inner=st.sampled_from(["none", "lands", "fails"]),
    )
    def batch(self, words: list[str], fails: bool, inner: str) -> None:
        """A batch is committed completely or not at all, and so is a nested one."""
        before, branch = rows(self.one), self.one.current

        def nested(t: Thread) -> None:
            with suppress(KeyError), t.batch():
                t.user("inner")
                if t.current != "main" and "main" in t.branches():
                    t.switch("main")
                    t.switch(branch)
                if inner == "fails":
                    raise KeyError

        def together(t: Thread) -> None:
            with t.batch():
                for word in words:
                    t.user(word)
                if inner != "none":
                    nested(t)
                if fails:
                    raise ThreadError("no")

        self.all(together)
        landed = 0 if fails else len(words) + (inner == "lands")
        assert len(rows(self.one)) == len(before) + landed
        assert self.one.current == branch

    @precondition(lambda self: self.one.head is not None)
    @rule()
    def tag(self) -> None:
        self.number += 1
        name = f"t{self.number}"
        self.all(lambda t: t.tag(name))
        assert all(t.compile(name).rows == self.one.compile().rows for t in self.threads)
        assert all(t.tags() == self.one.tags() for t in self.threads)

    @precondition(lambda self: self.one.head is not None)
    @rule(text=WORDS)
    def attempt(self, text: str) -> None:
        """A failed answer changes no message and no name, and belongs to its branch."""
        before = (rows(self.one), self.one.store.refs(self.one.name))
        partial = Message("assistant", (Text(text),))
        self.all(lambda t: t.record_attempt(partial, reason="stopped").state)
        assert (rows(self.one), self.one.store.refs(self.one.name)) == before
        assert self.one.attempts()[-1].text == text

    @invariant()
    def every_store_has_the_same_attempts(self) -> None:
        for thread in self.threads[1:]:
            assert attempts(thread) == attempts(self.one)

    @rule(pick=PICK, text=WORDS)
    def somebody_else(self, pick: int, text: str) -> None:
        """Another handle writes, on this or on another branch; our handle has none of it cached."""
        self.all(lambda t: elsewhere(t, self.other(pick)).user(text))

    @rule()
    def undo(self) -> None:
        """Law 10: undo restores the view, and redo restores what was undone."""
        before = (self.one.current, rows(self.one))
        if not self.undone_alone(lambda t: t, self.one.current):
            return
        self.all(lambda t: t.redo())
        assert (self.one.current, rows(self.one)) == before
        self.all(lambda t: t.undo())
        self.branches = [name for name in self.branches if name in (*self.one.branches(), "main")]

    @rule()
    def undo_turn(self) -> None:
        """Law 10 for a turn: one redo restores it, and the branch moves alone or not at all."""
        name, refs = self.one.current, self.one.store.refs(self.one.name)
        before = (name, rows(self.one))
        undone = self.all(lambda t: t.undo(turn=True))
        after = self.one.store.refs(self.one.name)
        changed = {ref for ref in refs.keys() | after if refs.get(ref) != after.get(ref)}
        if isinstance(undone, str):
            assert "no turn to undo" in undone
            assert not changed
            return
        if undone.verb == "turn":
            assert changed == {name}
            assert undone.commit.messages[0].role == "user"
        self.all(lambda t: t.redo())
        assert (self.one.current, rows(self.one)) == before
        assert self.one.store.refs(self.one.name) == refs
        self.all(lambda t: t.undo(turn=True))
        self.branches = [name for name in self.branches if name in (*self.one.branches(), "main")]

    @rule(pick=PICK)
    def somebody_else_undoes(self, pick: int) -> None:
        """Law 10 for another handle: it undoes the last move of its own branch, and no name."""
        name, before = self.other(pick), (self.one.current, rows(self.one))
        if self.undone_alone(lambda t: elsewhere(t, name), name, names=False):
            self.all(lambda t: elsewhere(t, name).redo())
        assert (self.one.current, rows(self.one)) == before

    def undone_alone(
        self, pick: Callable[[Thread], Thread], branch: str, *, names: bool = True
    ) -> bool:
        """Whether undo by this handle did anything. All other branches must be unchanged."""
        refs = self.one.store.refs(self.one.name)
        undone = self.all(lambda t: pick(t).undo())
        after = self.one.store.refs(self.one.name)
        changed = {ref for ref in refs.keys() | after if refs.get(ref) != after.get(ref)}
        if isinstance(undone, str):
            assert "nothing to undo" in undone
            assert not changed
            return False
        if undone.ref != branch or undone.verb == "switch":
            assert names
            assert undone.verb in ("switch", "branch", "delete", "tag", "untag")
            assert changed <= {undone.ref, f"tag:{undone.ref}"}
        else:
            assert changed == {branch}
        return True

    @invariant()
    def incremental_is_from_scratch(self) -> None:
        """Law 7, including tokens, setup and thinking; and law 9: all stores compile to the
        same."""
        compiled = self.one.compile()
        for thread in self.threads:
            fresh = weft.open(thread.store, branch=thread.current).compile()
            assert fresh.rows == compiled.rows
            assert fresh.sendable == compiled.sendable
            assert (fresh.tokens, fresh.setup, fresh.head) == (
                compiled.tokens,
                compiled.setup,
                compiled.head,
            )
            end = weft.open(thread.store, branch=thread.current).compile(last=2)
            assert end.rows == compiled.rows[-2:]

    @precondition(lambda self: self.one.head is not None)
    @rule()
    def cold_without_the_dropped(self) -> None:
        """Each store has handles that read only what was present when they were opened."""
        self.cold = [(thread, cold) for thread in self.threads if (cold := present(thread))]

    @invariant()
    def what_is_present_is_from_scratch(self) -> None:
        """Law 7, for a compile that does not read the dropped messages, and for what follows it."""
        whole = [scratch(thread) for thread in self.threads]
        for thread, view in zip(self.threads, whole, strict=True):
            cold = present(thread)
            if cold is not None:
                assert same(cold, view)
        for thread, cold in self.cold:
            head = thread.store.read_ref(thread.name, thread.current)
            steps = [] if head is None else thread.store.walk(thread.name, head)
            ids = [step.commit.id for step in steps]
            if cold.head in ids:
                assert same(cold.extend(steps[ids.index(cold.head) + 1 :]), scratch(thread))

    @invariant()
    def a_line_alone_is_that_of_the_list(self) -> None:
        slots = {row.id for _, lines in self.heads for row in lines if row.id is not None}
        by_id = {row.id: row for row in rows(self.one)}
        whole = {slot: by_id[slot] for slot in slots if slot in by_id}
        for thread in self.threads:
            head = thread.store.read_ref(thread.name, thread.current)
            if head is not None:
                assert compile_slots(thread.store, thread.name, head, slots) == whole

    @invariant()
    def every_vendor_can_be_sent_it(self) -> None:
        """Law 8: pairs and order are valid for every vendor."""
        judge(self.one.compile())

    @invariant()
    def no_signature_outlives_its_beginning(self) -> None:
        """Law 8, thinking: each sent signature follows the prefix that it was signed for."""
        context = self.one.compile()
        for row, message in zip(*aligned(context), strict=True):
            for block in message.blocks:
                if isinstance(block, Thinking):
                    place = context.rows.index(row)
                    assert context.messages[:place] == self.signed[str(block.signature)]

    @invariant()
    def what_was_reachable_stays_so(self) -> None:
        for head, lines in self.heads[-3:]:
            if head is not None:
                handle = self.threads[1]._handle
                assert handle.view(bytes.fromhex(head)).rows == lines


def present(thread: Thread) -> View | None:
    """The view of a cold compile that reads only present messages, if there is one."""
    head = thread.store.read_ref(thread.name, thread.current)
    return None if head is None else compile_present(thread.store, thread.name, head, 0)


def scratch(thread: Thread) -> View:
    head = thread.store.read_ref(thread.name, thread.current)
    return View() if head is None else View().extend(thread.store.walk(thread.name, head))


def same(one: View, other: View) -> bool:
    """Whether two views are equal in all that a compile shows."""
    slots = [row.id for row in other.rows if row.id is not None]
    return (
        (one.rows, one.setup, one.head, one.depth)
        == (other.rows, other.setup, other.head, other.depth)
        and one.stale_signatures() == other.stale_signatures()
        and [*map(one.commit_of, slots)] == [*map(other.commit_of, slots)]
        and one.tokens(len_of) == other.tokens(len_of)
        and [*map(one.find, slots)] == [*map(other.find, slots)]
    )


def len_of(message: Message) -> int:
    return 1 + len(message.text)


def open_calls(lines: list[Row]) -> list[str]:
    """The calls without a result, in messages that a vendor may get together."""
    blocks = [block for row in lines for block in row.message.blocks]
    answered = {block.call_id for block in blocks if isinstance(block, ToolResult)}
    return [b.id for b in blocks if isinstance(b, ToolCall) and b.id not in answered]


def attempts(thread: Thread) -> list[tuple[str, str, str]]:
    return [(a.commit, a.state, a.text) for a in thread.attempts()]


def has_result(row: Row) -> bool:
    return any(isinstance(block, ToolResult) for block in row.message.blocks)


def elsewhere(thread: Thread, branch: str) -> Thread:
    """Another handle on a branch of the same thread."""
    return weft.open(thread.store, thread.name, True, branch=branch)


def aligned(context: weft.CompiledContext) -> tuple[list[Row], list[Message]]:
    """The sent rows, and their sent messages."""
    sent = list(context._sendable_rows[0])
    known = {row.id: row for row in context.rows}
    return [known[row.id] for row in sent], [row.message for row in sent]


def requests() -> list[tuple[str, str]]:
    return [(protocol, policy) for protocol in LISTS for policy in POLICIES]


def ends_with_user(messages: tuple[Message, ...]) -> bool:
    """Whether a request ends where a model would answer, with no open call before."""
    asked = [b.id for m in messages for b in m.blocks if isinstance(b, ToolCall)]
    answered = [b.call_id for m in messages for b in m.blocks if isinstance(b, ToolResult)]
    return (
        bool(messages)
        and side(messages[-1].role) == "user"
        and bool(messages[-1].text.strip())
        and sorted(asked) == sorted(answered)
    )


def lines_by_slot(thread: Thread, branch: str) -> dict[bytes | None, Row]:
    head = thread.store.read_ref(thread.name, branch)
    return {row.id: row for row in thread._handle.view(head).rows}


def contents(lines: Any) -> list[tuple[Message, str]]:
    return [(row.message, row.kind) for row in visible_rows(lines)]


def rows(thread: Thread) -> list[Row]:
    handle = thread._handle
    return handle.view(handle.head()).rows


def hex_of(row: Row) -> str:
    assert row.id is not None
    return row.id.hex()
