"""Laws 6 to 10 of history, over random sequences of every operation on every store."""

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import weft
from weft.errors import MergeConflict, ThreadError
from weft.history import Row
from weft.model import Message, Text, ToolCall, ToolResult
from weft.thread import Thread

WORDS = st.text("abcxyz \n<|é漢", min_size=0, max_size=8)
PICK = st.integers(0, 10_000)
STEPS = settings(max_examples=25, stateful_step_count=25, deadline=None)


class History(RuleBasedStateMachine):
    """The same verbs on a memory store and on a file must give the same ids and the same lists."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "a.db"
        self.pair = [weft.open(checkpoints=True), weft.open(self.file, checkpoints=True)]
        self.branches = ["main"]
        self.calls = 0
        self.heads: list[tuple[str | None, list[Row]]] = []

    def teardown(self) -> None:
        for thread in self.pair:
            thread.close()
        self.folder.cleanup()

    def both(self, verb: Any) -> Any:
        """Run a verb on both stores; they agree on the result or on the refusal."""
        results: list[Any] = []
        for thread in self.pair:
            try:
                result = verb(thread)
                results.append(result.id if isinstance(result, weft.CommitInfo) else result)
            except ThreadError as error:
                results.append(str(error))
        assert results[0] == results[1]
        self.heads.append((self.head(), rows(self.pair[0])))
        return results[0]

    def head(self) -> str | None:
        head = self.pair[0].head
        return None if head is None else head.id

    @rule(text=WORDS, name=st.sampled_from([None, "bob"]))
    def user(self, text: str, name: str | None) -> None:
        self.both(lambda t: t.user(text, name=name))

    @rule(text=WORDS)
    def assistant(self, text: str) -> None:
        self.both(lambda t: t.assistant(text))

    @rule()
    def call_and_result(self) -> None:
        self.calls += 1
        asked = ToolCall(f"c{self.calls}", "f", "{}")
        self.both(lambda t: t.commit_message(Message("assistant", (Text("go"), asked))))
        self.both(lambda t: t.tool_result(asked.id, "done", reminder="remember"))

    @precondition(lambda self: bool(rows(self.pair[0])))
    @rule(pick=PICK, text=WORDS)
    def edit(self, pick: int, text: str) -> None:
        before = rows(self.pair[0])
        row = before[pick % len(before)]
        assert row.id is not None
        id = row.id.hex()
        self.both(lambda t: t.edit(id, text))
        self.local(before, {row.id})

    @precondition(lambda self: bool(rows(self.pair[0])))
    @rule(pick=PICK, priority=st.sampled_from(["skip", "normal", "important", "pinned"]))
    def annotate(self, pick: int, priority: Any) -> None:
        before = rows(self.pair[0])
        row = before[pick % len(before)]
        assert row.id is not None
        id = row.id.hex()
        self.both(lambda t: t.annotate(id, priority))
        self.local(before, {row.id})

    def local(self, before: list[Row], touched: set[bytes | None]) -> None:
        """Law 6: what an operation does not name stays as it was, in place, with its priority."""
        after = rows(self.pair[0])
        assert [row.id for row in after] == [row.id for row in before]
        outside = zip(before, after, strict=True)
        assert all(old == new for old, new in outside if old.id not in touched)

    @rule(pick=PICK)
    def branch(self, pick: int) -> None:
        name = f"b{len(self.branches)}"
        made = self.both(lambda t: t.branch(name))
        if "empty" not in str(made):
            self.branches.append(name)
        self.switch(pick)

    @rule(pick=PICK)
    def switch(self, pick: int) -> None:
        name = self.branches[pick % len(self.branches)]
        self.both(lambda t: t.switch(name))

    @rule(pick=PICK, strategy=st.sampled_from([None, "ours", "theirs", "concat"]))
    def merge(self, pick: int, strategy: str | None) -> None:
        name = self.branches[pick % len(self.branches)]
        before = rows(self.pair[0])
        try:
            expected = self.pair[0].merge(name, strategy, preview=True)
        except ThreadError:
            return
        self.both(lambda t: t.merge(name, strategy))
        after = rows(self.pair[0])
        assert tuple(after) == (expected.rows if not expected.conflicts else tuple(before))
        answered = [b.call_id for r in after for b in r.message.blocks if isinstance(b, ToolResult)]
        assert len(answered) == len(set(answered))

    @precondition(lambda self: len(self.pair[0].checkpoints()) >= 2)
    @rule(pick=PICK, other=PICK, summary=WORDS)
    def compact(self, pick: int, other: int, summary: str) -> None:
        marks = [mark.id for mark in self.pair[0].checkpoints()]
        low, high = sorted((pick % len(marks), other % len(marks)))
        part = {"from": marks[low], "to": marks[high], "summary": summary}
        pinned = [row for row in rows(self.pair[0]) if row.priority == "pinned"]
        self.both(lambda t: str(t.compact([part])))
        after = rows(self.pair[0])
        assert [row for row in after if row in pinned] == pinned

    @precondition(lambda self: self.pair[0].head is not None)
    @rule(pick=PICK)
    def revert(self, pick: int) -> None:
        log = self.pair[0].log()
        id = log[pick % len(log)].id
        self.both(lambda t: t.revert(id, "ours"))

    @rule()
    def undo(self) -> None:
        """Law 10: undo restores the view, and redo brings back what was undone."""
        before = (self.pair[0].current, rows(self.pair[0]))
        refused = self.both(lambda t: t.undo())
        if refused == "there is nothing to undo":
            return
        self.both(lambda t: t.redo())
        assert (self.pair[0].current, rows(self.pair[0])) == before
        self.both(lambda t: t.undo())

    @invariant()
    def incremental_is_from_scratch(self) -> None:
        """Law 7, tokens included; and law 9: both stores compile to the same."""
        kept = self.pair[0].compile()
        with weft.open(self.file) as fresh:
            scratch = fresh.compile()
            assert scratch.rows == kept.rows
            assert scratch.ids == kept.ids
            assert scratch.tokens == kept.tokens == self.pair[1].compile().tokens

    @invariant()
    def every_vendor_can_be_sent_it(self) -> None:
        """Law 8: calls and results stand in pairs, whatever was edited, skipped, folded, merged."""
        compiled = self.pair[0].compile()
        sent = compiled.to_openai_params(model="gpt-5")["messages"]
        waiting: set[str] = set()
        for row in sent:
            if row["role"] == "tool":
                waiting.remove(row["tool_call_id"])
                continue
            assert not waiting
            waiting = {call["id"] for call in row.get("tool_calls", [])}
        assert not waiting
        turns = compiled.to_anthropic_params(model="claude-sonnet-4-5")["messages"]
        for turn, following in pairwise([*turns, {"content": []}]):
            answered = ids_of(following, "tool_result", "tool_use_id")
            assert sorted(ids_of(turn, "tool_use", "id")) == sorted(answered)

    @invariant()
    def what_was_reachable_stays_so(self) -> None:
        for head, lines in self.heads[-3:]:
            if head is not None:
                assert list(self.pair[1]._handle.view(bytes.fromhex(head)).rows) == lines


def ids_of(turn: dict[str, Any], kind: str, field: str) -> list[str]:
    content = turn["content"]
    blocks = [] if isinstance(content, str) else content
    return [block[field] for block in blocks if block["type"] == kind]


def rows(thread: Thread) -> list[Row]:
    handle = thread._handle
    return handle.view(handle.head()).rows


History.TestCase.settings = STEPS
test_laws_6_to_10_hold_over_any_sequence = History.TestCase


def test_law_9_no_update_is_lost_between_handles(tmp_path: Path) -> None:
    """Several handles of one branch, each from its own thread: every turn is there, once."""
    from threading import Thread as Worker

    threads = [weft.open(tmp_path / "a.db") for _ in range(4)]

    def write(number: int) -> None:
        for turn in range(25):
            threads[number].user(f"{number}:{turn}")

    workers = [Worker(target=write, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    said = [row["content"] for row in threads[0].compile().to_dicts()]
    assert sorted(said) == sorted(f"{n}:{turn}" for n in range(4) for turn in range(25))
    for number in range(4):
        own = [text for text in said if text.startswith(f"{number}:")]
        assert own == [f"{number}:{turn}" for turn in range(25)]
    for thread in threads:
        thread.close()


def test_law_9_a_conflict_changes_nothing() -> None:
    t = weft.open()
    id = t.user("a").id
    t.branch("x")
    t.edit(id, "b")
    t.switch("x")
    t.edit(id, "c")
    before = t.log()
    try:
        t.merge("main")
    except MergeConflict:
        assert t.log() == before
