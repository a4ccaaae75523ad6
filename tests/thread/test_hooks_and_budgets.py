"""Budgets and hooks: what is checked before a commit, and what is called after it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import structs

import weft
from fresh import fresh
from weft.compact import SystemMessage
from weft.errors import BudgetExceeded, ThreadError
from weft.history import Draft
from weft.model import Message, Text
from weft.thread import Budget, BudgetWarning, SentRequest, Thread

WORD = "word " * 20


def texts(thread: Thread) -> list[str]:
    return [row["content"] for row in thread.compile().to_dicts()]


def test_a_rejected_commit_leaves_no_trace(tmp_path: Path) -> None:
    with weft.open(tmp_path / "a.db", budget=Budget(30)) as t:
        t.user("short")
        with pytest.raises(BudgetExceeded) as refused:
            t.user("a secret that must not stay: " + WORD * 3)
        assert refused.value.needed > refused.value.budget == 30
        assert texts(t) == ["short"]
        assert t.search("secret") == []
        assert t.stats().commits == 1
    assert b"secret that must" not in (tmp_path / "a.db").read_bytes()


def test_the_budget_counts_what_is_sent() -> None:
    t = weft.open(budget=Budget(40))
    first = t.user(WORD)
    t.skip(first)
    t.user(WORD)  # the hidden one weighs nothing
    with pytest.raises(BudgetExceeded):
        t.annotate(first, "normal")
    with pytest.raises(BudgetExceeded):
        t.edit(t.compile().ids[0], WORD * 3)
    assert len(t.compile()) == 1


def test_a_change_that_shrinks_is_never_refused() -> None:
    store = weft.open().store
    whole = weft.open(store)
    ids = [whole.user(WORD).id for _ in range(5)]
    t = weft.open(store, budget=Budget(10))
    t.skip(ids[0])
    t.compact([{"summary": "S"}])
    t.edit(t.compile().ids[0], "s")
    assert texts(t) == ["s"]


def test_a_merge_and_a_cherry_pick_are_checked_too() -> None:
    t = weft.open(budget=Budget(40))
    t.user("a")
    t.branch("f")
    t.branch("g")
    t.switch("f")
    added = t.user(WORD)
    t.switch("g")
    t.user("other " + WORD)
    for refused in (lambda: t.merge("f"), lambda: t.cherry_pick(added), lambda: t.rebase("f")):
        with pytest.raises(BudgetExceeded):
            refused()
    assert len(t.compile()) == 2


def test_a_warning_allows_the_commit() -> None:
    t = weft.open(budget=Budget(5, "warn"))
    with pytest.warns(BudgetWarning, match="budget of 5"):
        t.user(WORD)
    assert len(t.compile()) == 1


def test_a_callback_can_make_room() -> None:
    asked: list[tuple[int, int]] = []

    def fold(needed: int, limit: int) -> None:
        asked.append((needed, limit))
        t.compact([{"summary": "S"}])

    t = weft.open(checkpoints=True, budget=Budget(60, fold))
    for _ in range(4):
        t.user(WORD)
    assert asked
    assert all(needed > limit == 60 for needed, limit in asked)
    assert t.compile().tokens <= 60
    assert "S" in texts(t)


def test_a_callback_can_refuse() -> None:
    t = weft.open(budget=Budget(5, lambda *_: False))
    with pytest.raises(BudgetExceeded):
        t.user(WORD)
    assert len(t.compile()) == 0


@pytest.mark.parametrize("wrong", [(-1, "reject"), (5, "shout")])
def test_a_meaningless_budget_is_refused(wrong: tuple[int, str]) -> None:
    with pytest.raises(ThreadError):
        Budget(*wrong)  # pyright: ignore[reportArgumentType]


def test_every_write_runs_the_hooks() -> None:
    t = weft.open(checkpoints=True)
    asked: list[str] = []
    committed: list[str] = []

    def before(draft: Draft) -> None:
        asked.append(draft.kind)

    t.before(before)
    t.after(lambda info: committed.append(info.kind))
    t.system("s")
    id = t.user("u").id
    t.assistant({"id": "x", "content": [{"type": "text", "text": "a"}], "role": "assistant"})
    t.tool_result("c", "r")
    t.commit({"content_type": "output", "text": "o"})
    t.commit_message(Message("user", (Text("m"),)))
    t.setup()
    t.edit(id, "U")
    t.pin(id)
    t.compact([{"summary": "S"}])
    kinds = ["append"] * 6 + ["setup", "edit", "annotate", "compact"]
    assert asked == committed == kinds


def test_a_hook_stops_a_commit_and_the_later_hooks() -> None:
    t = weft.open()
    later: list[Draft] = []

    def stop(draft: Draft) -> None:
        if any("secret" in message.text for message in draft.messages):
            raise ThreadError("secrets stay outside")

    t.before(stop)
    t.before(lambda draft: later.append(draft))
    t.user("fine")
    with pytest.raises(ThreadError, match="secrets"):
        t.user("a secret")
    assert texts(t) == ["fine"]
    assert len(later) == 1


def test_a_hook_can_replace_the_message() -> None:
    t = weft.open()

    def mask(draft: Draft) -> Draft:
        masked = tuple(
            Message(m.role, (Text(m.text.replace("4711", "****")),)) for m in draft.messages
        )
        return structs.replace(draft, messages=masked)

    t.before(mask)
    t.user("my pin is 4711")
    t.assistant({"choices": [{"message": {"role": "assistant", "content": "It is 4711."}}]})
    t.tool_result("c", "4711")
    t.commit({"content_type": "output", "text": "4711"})
    t.system("4711 is a secret", message="why: 4711")  # a note of the user's own stays
    assert texts(t) == ["my pin is ****", "It is ****.", "****", "****", "**** is a secret"]
    assert [info.message for info in t.log() if "4711" in str(info.message)] == ["why: 4711"]


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ((), "must be 1, not 0"),  # an append of nothing
        ((Message("user", (Text("a"),)), Message("user", (Text("b"),))), "must be 1, not 2"),
        ((Message("attachment", ()),), "must be 1, not 0"),  # what rides along is not said
    ],
)
def test_a_hook_must_return_exactly_one_message(messages: tuple[Message, ...], error: str) -> None:
    t = weft.open()
    first = t.user("first")
    t.before(lambda draft: structs.replace(draft, messages=messages))
    for say in (lambda: t.user("second"), lambda: t.edit(first, "other words")):
        with pytest.raises(ThreadError, match=error):
            say()
    assert texts(t) == ["first"]


@pytest.mark.parametrize("words", ["an answer", "it is 4711"])
def test_a_hook_sees_messages_and_not_the_sent_request(words: str) -> None:
    t = weft.open()
    counts: list[int] = []

    def mask(draft: Draft) -> Draft:
        counts.append(len(draft.messages))
        masked = tuple(
            Message(m.role, (Text(m.text.replace("4711", "****")),)) for m in draft.messages
        )
        return structs.replace(draft, messages=masked)

    t.before(mask)
    t.user("hello")
    body = b'{"messages": [], "words": "of the body alone, and of nobody else"}'
    request = SentRequest(body, "own", "m", t.compile().head)
    answer = t.assistant(words, sent=request)
    assert counts == [1, 1]
    assert texts(t) == ["hello", words.replace("4711", "****")]
    assert t.show(answer, sent=True).body == body


def test_commits_by_a_hook_run_no_hooks() -> None:
    t = weft.open()
    t.after(lambda info: t.note(info, "seen") and None)
    t.user("a")
    assert [info.kind for info in t.log()] == ["note", "append"]


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_a_handle_works_in_thread_pools_and_event_loops(backend: str, tmp_path: Path) -> None:
    t = weft.open(None if backend == "memory" else tmp_path / "a.db")

    async def chat() -> None:
        await asyncio.gather(*(asyncio.to_thread(t.user, f"loop {n}") for n in range(20)))

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(t.user, f"pool {n}") for n in range(20)]
        asyncio.run(chat())
        infos = [future.result() for future in running]
        pins = list(pool.map(t.pin, infos))
    assert len({info.id for info in pins}) == 20
    compiled = t.compile()
    assert sorted(texts(t)) == sorted(
        f"{where} {n}" for where in ("loop", "pool") for n in range(20)
    )
    assert sum(priority == "pinned" for priority in compiled.priorities) == 20
    assert fresh(t).compile() == compiled
    t.close()


def test_a_compaction_reports_the_committed_plan() -> None:
    """Another writer is first, while the compaction is on its way."""
    t = weft.open(checkpoints=True)
    other = weft.open(t.store)
    for n in range(3):
        t.user(f"u{n}")
    late = Message("user", (Text("late " * 50),))

    def interrupt(event: SystemMessage) -> None:
        if event.data == {"status": "compacting"}:
            other.commit_message(late)

    t.listen(interrupt)
    result = t.compact([{"summary": "S"}])
    assert texts(t) == ["S"]
    assert result.commit is not None
    info = t.show(result.commit)
    assert result.messages == info.metadata["ranges"][0]["messages"] == 4
    assert result.tokens_before > 50
    assert info.message == f"compact {result.tokens_before} to {result.tokens_after} tokens"
    assert result.tokens_after == t.compile().tokens
