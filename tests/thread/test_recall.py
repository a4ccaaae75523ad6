"""`recall_page`: originals in bounded pages, in every store, from any source of a message."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import weft
from summarisers import talk
from weft.errors import WrongValue
from weft.model import Message, Text, ToolCall
from weft.store import MemoryStore, SqliteStore, Store, open_store
from weft.tokens import counter_for

LOG = "\n".join(f"line {n} of the log" for n in range(3000))

BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda _: SqliteStore(":memory:"),
    "postgres": lambda request: open_store(request.getfixturevalue("postgres")),
}


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = BACKENDS[request.param](request)
    yield opened
    opened.close()


def read(thread: Any) -> str:
    """A call and its long result; the result's id."""
    thread.commit_message(Message("assistant", (ToolCall("c1", "read", '{"path": "a.log"}'),)))
    return thread.tool_result("c1", LOG).id


def pages(thread: Any, name: str, tokens: int = 800) -> str:
    text, offset = "", 0
    while True:
        page = thread.recall_page(name, tokens=tokens, offset=offset)
        assert counter_for("o200k").message(Message("user", (Text(page.text),))) <= tokens
        text += page.body
        if page.next is None:
            return text
        assert f"offset={page.next}" in page.text
        offset = page.next


def test_a_shortened_result_is_recalled_in_full_while_active_and_after_compaction(
    store: Store,
) -> None:
    with weft.open(store) as thread:
        thread.user("What does the log say?")
        id = read(thread)
        [thinned] = thread.compact(budget=600).thinned
        assert thinned.id == id
        assert pages(thread, f"{id[:12]}/0") == LOG
        assert pages(thread, id) == LOG
        thread.assistant("Nothing.")
        talk(thread, 2)
        thread.compact(keep=1)
        assert pages(thread, f"{id[:12]}/0") == LOG


def test_a_merged_result_is_recalled_too(store: Store) -> None:
    with weft.open(store) as thread:
        thread.user("What does the log say?")
        thread.branch("side")
        thread.switch("side")
        id = read(thread)
        thread.compact(budget=600)
        thread.assistant("Nothing.")
        thread.switch("main")
        thread.user("Go on.")
        thread.merge("side")
        talk(thread, 2)
        thread.compact(keep=1)
        assert pages(thread, f"{id[:12]}/0") == LOG


def test_a_cherry_picked_result_is_recalled_too(store: Store) -> None:
    with weft.open(store) as thread:
        thread.user("What does the log say?")
        thread.branch("other")
        id = read(thread)
        picks = [info.id for info in thread.log(2)]
        thread.switch("other")
        thread.user("Wait.")
        for pick in reversed(picks):
            thread.cherry_pick(pick)
        [thinned] = thread.compact(budget=600).thinned
        assert thinned.id == id
        thread.assistant("Nothing.")
        talk(thread, 2)
        thread.compact(keep=1)
        assert pages(thread, f"{id[:12]}/0") == LOG


def test_an_edited_message_is_recalled_with_its_new_text() -> None:
    with weft.open() as thread:
        id = thread.user("The key is 1.").id
        thread.edit(id, "The key is 2.")
        assert thread.recall_page(id).body == "The key is 2."


def size(text: str) -> int:
    return counter_for("o200k").message(Message("user", (Text(text),)))


def test_messages_that_are_too_long_are_cut_and_can_be_read_on() -> None:
    with weft.open() as thread:
        for n in range(30):
            thread.user(f"Part {n}: " + "filler " * 300 + f"needle_{n} found " + "filler " * 300)
            thread.assistant("ok")
        first = thread.recall_page("needle_7 found", tokens=400)
        assert "needle_7 found" in first.body
        listed, offset, texts = 0, 0, []
        while True:
            page = thread.recall_page("found", tokens=900, offset=offset)
            texts.append(page.body)
            listed += page.body.count(" reads all)")
            if page.next is None:
                break
            offset = page.next
        assert listed == 30
        assert len(texts) > 3


@pytest.mark.parametrize("tokens", [500, 1000])
def test_a_page_holds_whole_messages_and_fills_its_tokens(tokens: int) -> None:
    texts = [f"The harbour plan {n}: " + f"we move crane number {n} again. " * 8 for n in range(40)]
    with weft.open() as thread:
        for text in texts:
            thread.user(text.strip())
        page = thread.recall_page("harbour plan crane", tokens=tokens)
        assert tokens * 0.9 <= size(page.text) <= tokens
        whole = [text for text in texts if text.strip() in page.body]
        assert len(whole) >= tokens // 110
        assert page.body.count("harbour plan") <= len(whole) + 1  # only the last one is cut


def test_a_first_message_longer_than_the_page_is_shown_as_its_best_part() -> None:
    story = "They walked along the river and talked about nothing in particular. "
    with weft.open() as thread:
        id = thread.user(story * 60 + "The code of the safe is 4711. " + story * 60).id
        page = thread.recall_page("Which code has the safe?", tokens=120)
        assert "The code of the safe is 4711." in page.body
        assert f'recall("{id[:8]}") reads all' in page.body
        assert size(page.text) <= 120


SCRIPTS = {
    "english": ("The meeting about the bridge was moved to hall {}.", "Where is the bridge?"),
    "russian": ("Совещание о мосте перенесли в зал {}.", "Где совещание о мосте?"),
    "korean": ("다리 회의는 {}번 방으로 옮겼어요.", "다리 회의는 어디예요?"),
    "chinese": ("关于大桥的会议改到第{}号厅了。", "大桥的会议在哪里？"),
    "japanese": ("橋の会議は{}番の部屋に移りました。", "橋の会議はどこですか。"),
}


@given(
    script=st.sampled_from(sorted(SCRIPTS)),
    tokens=st.sampled_from([60, 80, 120, 200, 500, 1000]),
    repeats=st.lists(st.integers(1, 60), min_size=1, max_size=75),
    compacted=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_the_pages_have_every_match_once_and_within_their_tokens(
    script: str, tokens: int, repeats: list[int], compacted: bool
) -> None:
    line, question = SCRIPTS[script]
    with weft.open() as thread:
        for number, times in enumerate(repeats):
            thread.user(f"M{number:04d}M " + line.format(number) * (times if times > 50 else 1))
            if compacted and number in (10, 30):
                thread.compact(keep=1)
        seen: list[str] = []
        offset = 0
        while True:
            page = thread.recall_page(question, tokens=tokens, offset=offset)
            assert size(page.text) <= tokens
            seen += [part for part in re.findall(r"^user: M(\d{4})M", page.body, re.MULTILINE)]
            if page.next is None:
                break
            assert page.next > offset
            assert f"offset={page.next}" in page.note
            offset = page.next
        assert len(seen) == len(set(seen))
        if tokens >= 500:
            assert len(seen) == len(repeats)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Хозяин квартиры хочет 940 в месяц.", "Сколько просят за квартиру?"),
        ("Die Beschädigungen am Dach sind alt.", "Wer zahlt die Beschädigung?"),
        ("집주인이 월세를 94만 원으로 정했어.", "월세가 얼마였지?"),
        ("小屋钥匙挂在蓝色水壶后面。", "花园小屋的钥匙藏在哪里？"),
        ("物置の鍵は青いじょうろの後ろです。", "庭の物置の鍵はどこに隠しましたか。"),
    ],
)
def test_a_question_finds_its_words_with_other_endings(text: str, question: str) -> None:
    with weft.open() as thread:
        talk(thread, 10)
        thread.user(text)
        talk(thread, 10)
        assert thread.recall(question)[0].text == text
        assert text in thread.recall_page(question, tokens=100).body


@pytest.mark.parametrize(
    "words", ["nothing like this", "abcdef", "0123456789ab/0", "0123456789ab/99"]
)
def test_an_unknown_query_gives_an_empty_page(words: str) -> None:
    with weft.open() as thread:
        talk(thread, 2)
        page = thread.recall_page(words)
        assert (page.text, page.next) == ("", None)


@pytest.mark.parametrize(
    "options", [{"tokens": 0}, {"tokens": -1}, {"offset": -1}, {"offset": "x"}]
)
def test_wrong_numbers_are_refused(options: Any) -> None:
    with weft.open() as thread, pytest.raises(WrongValue):
        thread.recall_page("x", **options)


@pytest.mark.parametrize("tokens", [1, 5, 41, 60])
def test_a_tiny_page_still_makes_progress(tokens: int) -> None:
    with weft.open() as thread:
        id = thread.user("word " * 40).id
        text, offset = "", 0
        while True:
            page = thread.recall_page(id, tokens=tokens, offset=offset)
            text += page.body
            if page.next is None:
                break
            assert page.next > offset
            offset = page.next
        assert text == "word " * 40


def test_a_query_also_finds_the_answer_next_to_its_match(store: Store) -> None:
    with weft.open(store) as thread:
        talk(thread, 4)
        thread.user("Should charge requests be retried?")
        thread.assistant("No, never. Support does it by hand.")
        talk(thread, 4)
        page = thread.recall_page("Do we retry a charge request?", tokens=200)
        assert "never. Support does it by hand" in page.body
        assert page.body.index("retried?") < page.body.index("never. Support")
        # The list of hits has only messages with the words.
        assert [hit.text for hit in thread.recall("retry charge")] == [
            "Should charge requests be retried?"
        ]


def test_a_recall_is_filtered_by_path_and_time(store: Store) -> None:
    with weft.open(store) as thread:
        call = ToolCall("c1", "Edit", '{"path": "/home/me/src/app/users.py", "new": "timeout = 5"}')
        first = thread.commit_message(Message("assistant", (call,)))
        thread.tool_result("c1", "done")
        thread.user("The timeout of src/app/users_old.py is wrong, too.")
        moment = thread.user("A timeout elsewhere.").created
        by_path = {"path": "app/users.py"}
        assert [hit.id for hit in thread.recall("timeout", **by_path)] == [first.id]
        assert [hit.id for hit in thread.recall("", **by_path)] == [first.id]
        assert [hit.id for hit in thread.search("timeout", **by_path)] == [first.id]
        assert "[calls Edit" in thread.recall_page("timeout", **by_path).body
        later = thread.recall("timeout", since=moment)
        assert [hit.text for hit in later] == ["A timeout elsewhere."]
        assert len(thread.recall("timeout", until=moment)) == 3
        assert thread.recall_page("timeout", until="2001-01-01").text == ""


def test_a_long_match_shows_its_best_lines_and_where_the_rest_is() -> None:
    lines = [f"    step {n}" for n in range(60)]
    lines[20] = "    retries = read_setting('max_retries')"
    lines[40] = "see lib/worker_pool.py"
    with weft.open() as thread:
        id = thread.user("\n".join(lines)).id
        page = thread.recall_page("which setting limits the retries", tokens=150)
        assert "max_retries" in page.body
        assert "step 55" not in page.body
        assert "[...]" in page.body
        assert f'recall("{id[:8]}") reads all' in page.body
        assert "Also in these messages: lib/worker_pool.py" in page.body
