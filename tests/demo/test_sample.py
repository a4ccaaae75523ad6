"""The sample thread and its tools."""

import pytest

from weft.demo import SAMPLE, demo_tools, ensure_sample
from weft.errors import ThreadError
from weft.store import open_store
from weft.thread import open as open_thread


def test_an_empty_store_gets_the_sample():
    store = open_store(None)
    ensure_sample(store)
    thread = open_thread(store, SAMPLE)
    compiled = thread.compile()
    assert thread.current == "main"
    assert sorted(thread.branches()) == ["main", "try-streaming"]
    assert list(compiled.priorities).count("pinned") == 2
    assert [info.kind for info in thread.log()].count("compact") == 1
    assert "summary" in compiled.kinds
    assert thread.log()[-1].metadata == {"sample": True}


def test_the_samples_pins_survive_its_compaction_unchanged():
    store = open_store(None)
    ensure_sample(store)
    thread = open_thread(store, SAMPLE)
    (compaction,) = [info for info in thread.log() if info.kind == "compact"]
    before = thread.compile(compaction.parents[0]).rows
    pinned = [row.message for row in before if row.priority == "pinned"]
    assert pinned
    assert [message for message in pinned if message not in thread.compile().messages] == []


def test_the_samples_compaction_can_be_reverted():
    store = open_store(None)
    ensure_sample(store)
    thread = open_thread(store, SAMPLE)
    folded = len(thread.compile())
    (compaction,) = [info for info in thread.log() if info.kind == "compact"]
    thread.revert(compaction)
    assert len(thread.compile()) > folded
    assert "longest page query" in thread.compile().to_text()


def test_a_store_with_threads_is_unchanged():
    store = open_store(None)
    open_thread(store, "mine").user("hi")
    ensure_sample(store)
    ensure_sample(store)
    assert [record.name for record in store.threads()] == ["mine"]


def find_tool(store, name):
    functions = (getattr(t, "function", t) for t in demo_tools(store, store.threads))
    return next(function for function in functions if function.__name__ == name)


def test_a_deleted_sample_is_not_recreated():
    store = open_store(None)
    ensure_sample(store)
    open_thread(store, SAMPLE).delete()
    ensure_sample(store)
    assert store.threads() == []


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("6 * 7", "42"),
        ("4200 / 12", "350"),
        ("-(1 + 2) % 5", "2"),
        ("7 // 2", "3"),
        ("1 / 8", "0.125"),
    ],
)
def test_calculate_evaluates_arithmetic(expression, result):
    assert find_tool(open_store(None), "calculate")(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "1 / 0",
        "9 ** 9 ** 9",
        "__import__('os')",
        "x",
        "'a' * 3",
        "True + 1",
        "1e400",
        "9" * 99 + "*" + "9" * 99,
        "(" * 500 + "1" + ")" * 500,
    ],
)
def test_calculate_refuses_anything_else(expression):
    calculate = find_tool(open_store(None), "calculate")
    with pytest.raises(ThreadError):
        calculate(expression)


def test_search_threads_finds_text_in_any_thread():
    store = open_store(None)
    open_thread(store, "one").user("the vault's word is marzipan")
    search = find_tool(store, "search_threads")
    assert "marzipan" in search("marzipan")
    assert "no message" in search("nougat")
