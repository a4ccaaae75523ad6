"""`search`: which words find which messages, and in which order, in every store."""

import random
import sqlite3
from pathlib import Path

import pytest

import weft
from weft.history import count_terms
from weft.model import Message, Text, ToolCall
from weft.store import MemoryStore, SqliteStore, Store, open_store
from weft.thread import Hit, forget, fsck

FINDS = [  # the text, the query, whether it is found
    ("m3 (src/café.py)", "M3", True),
    ("m3 (src/café.py)", "m39", False),
    ("m3 (src/café.py)", "cafe", True),  # accents do not matter
    ("m3 (src/café.py)", "src/café.py", True),
    ("m3 (src/café.py)", '"m3', True),  # signs around a word mean nothing
    ("call getUserById here", "getUser", True),
    ("call getUserById here", "get_user_by_id", True),
    ("call getUserById here", "get-user", True),
    ("call getUserById here", "userby", True),  # inside an identifier
    ("call getUserById here", "getGroup", False),
    ("the key is max_retry_count", "retryCount", True),
    ("the key is max-retry-count", "max_retry", True),
    ("set app.cache.ttl to 5", "cache.ttl", True),
    ("see src/web/page.js", "web/page.js", True),
    ("an HTTPServer starts", "http server", True),
    ("two parsers were tested", "parser test", True),  # endings
    ("the stories were moved", "story moving", True),
    ("東京都庁は新宿にあります", "都庁", True),
    ("東京都庁は新宿にあります", "大阪", False),
    ("그는 한국어를 배운다", "한국어", True),
    ("the naïve Straße", "strasse naive", True),
    ("ＡＢＣ１２３", "abc123", True),  # full width
    ("to be or not to be", "to be or not", True),  # only stop words: a phrase
    ("be not or to", "to be or not", False),
    ("deadbeef1234 was reverted", "deadbeef", True),
    ("the user's file isn't there", "user file", True),
    ("nothing else", "*", False),
]


@pytest.mark.parametrize(("text", "query", "is_match"), FINDS)
def test_what_a_query_finds(text: str, query: str, is_match: bool) -> None:
    with weft.open() as thread:
        thread.user(text)
        thread.user("and something entirely different: 5511")
        assert [hit.text for hit in thread.search(query)] == ([text] if is_match else [])


def test_matches_of_all_words_come_before_partial_matches(store: Store) -> None:
    with weft.open(store) as thread:
        thread.user("The cache is cold.")
        thread.user("The cache of the parser is warm.")
        thread.user("The parser is slow, the parser is old.")
        assert [hit.text for hit in thread.search("parser cache")] == [
            "The cache of the parser is warm."
        ]
        # No message has all three, so those with some of them are listed.
        assert len(thread.search("parser cache lion")) == 3
        assert thread.search("lion tiger") == []


def test_words_of_calls_are_found_and_escapes_are_not_words(store: Store) -> None:
    with weft.open(store) as thread:
        call = ToolCall("c1", "Write", '{"path": "a.py", "content": "x\\nneedle\\u0021 = 1"}')
        thread.commit_message(Message("assistant", (call,)))
        assert [hit.calls for hit in thread.search("needle")] != []
        assert thread.search("nneedle") == []


def test_a_speaker_name_is_found(store: Store) -> None:
    with weft.open(store) as thread:
        thread.commit_message(Message("user", (Text("I like tea."),), name="Priya"))
        thread.user("I like coffee.")
        assert [hit.text for hit in thread.search("priya")] == ["I like tea."]


def fill(store: Store, messages: int) -> list[str]:
    """Two threads with invented messages, indexed in parts of many sizes; the queries for them."""
    chance = random.Random(5)
    words = [f"{chance.choice('bdfgklmnprst')}{a}{b}" for a in "aeiou" for b in "dlmnrstvz"]
    for name in ("one", "two"):
        thread = weft.open(store, name)
        for number in range(messages):
            thread.user(" ".join(chance.choices(words, k=chance.randint(2, 30))))
            if number % 37 == 0:
                thread.search(words[number % len(words)])
    return [" ".join(chance.sample(words, k=chance.randint(1, 3))) for _ in range(20)]


def test_every_store_ranks_equally(postgres: str) -> None:
    stores = [MemoryStore(), SqliteStore(":memory:"), open_store(postgres)]
    answers: list[list[list[str]]] = []
    for store in stores:
        queries = fill(store, 330)  # enough to merge small segments into a large one
        results = [weft.open(store, "one").search(query, 12) for query in queries]
        results += [weft.search(store, query, 12) for query in queries]
        answers.append([[hit.text for hit in hits] for hits in results])
        store.close()
    assert answers[0] == answers[1] == answers[2]
    assert all(answers[0])


def test_a_read_only_store_is_searched(postgres: str) -> None:
    store = open_store(postgres)
    thread = weft.open(store)
    thread.user("indexed already")
    assert thread.search("indexed")
    thread.user("not indexed yet")
    other = weft.open(store, "other")
    other.user("nor is this, not yet")
    store.close()
    read_only = open_store(postgres + "%20-cdefault_transaction_read_only%3Don")
    thread = weft.open(read_only)
    for query in ("indexed", "yet"):
        assert f"{query}" in thread.search(query)[0].text
    assert [hit.text for hit in thread.search("yet")] == ["not indexed yet"]
    assert {hit.thread for hit in weft.search(read_only, "yet")} == {thread.name, "other"}
    assert read_only.unindexed(9) != []
    read_only.close()


def test_forgotten_words_are_removed_from_the_index(store: Store) -> None:
    with weft.open(store) as thread:
        thread.user("the code is 4711")
        thread.user("another line")
        assert thread.search("4711")
        forget(store, "4711")
        assert thread.search("4711") == []
        assert thread.search("code")
        assert thread.search("another line")
        segments = list(store.segments())
        assert all(b"\n4711 " not in block.terms for _, block in store.index_blocks(None, segments))


@pytest.mark.parametrize(
    ("words", "term"),
    [
        ("parsers parsing parsed parser", "pars"),
        ("move moves moved moving", "mov"),
        ("story stories", "stori"),
        ("create created creating creation", "creat"),
        ("plan plans planned planning", "plan"),
        ("APIs api", "api"),
        ("class classes", "class"),
    ],
)
def test_forms_of_a_word_are_one_term(words: str, term: str) -> None:
    assert count_terms(words) == {term: len(words.split())}


def named_hits(hits: list[Hit]) -> list[tuple[str, str]]:
    return [(hit.kind, hit.text) for hit in hits]


def test_notes_tags_and_metadata_are_found_with_their_commit(store: Store) -> None:
    with weft.open(store, "work") as thread:
        first = thread.user("Which port?", metadata={"ticket": "PAY-417", "labels": ["urgent"]})
        answer = thread.assistant("Port 8443.", note="the firewall decision")
        remark = thread.note(answer, "Priya confirmed this on Tuesday.")
        thread.tag("release-2", first)
        thread.user("Thanks, that is all.")

        hits = {
            query: [(hit.kind, hit.text, hit.id, hit.commit) for hit in thread.search(query)]
            for query in ("PAY-417", "firewall decision", "priya tuesday", "release", "urgent")
        }
        assert hits == {
            "PAY-417": [("metadata", "ticket: PAY-417", first.id, first.id)],
            "firewall decision": [("note", "the firewall decision", answer.id, answer.id)],
            "priya tuesday": [("note", "Priya confirmed this on Tuesday.", answer.id, remark.id)],
            "release": [("tag", "release-2", first.id, first.id)],
            "urgent": [("metadata", "labels: urgent", first.id, first.id)],
        }
        assert all(hit.live and hit.role == "" for hit in thread.search("priya"))
        # A note is about no words of a message, and a filter for messages leaves it out.
        assert thread.search("priya", role="user") == []
        assert named_hits(thread.search("PAY-.17", regex=True)) == [("metadata", "ticket: PAY-417")]
        assert named_hits(thread.search("^release-[0-9]$", regex=True)) == [("tag", "release-2")]
        assert thread.search("priya", until=first.created) == []
        assert weft.search(store, "firewall")[0].kind == "note"
        assert fsck(store).flaws == ()


def test_a_message_comes_before_the_note_and_is_listed_once(store: Store) -> None:
    with weft.open(store) as thread:
        thread.user("Deploy the parser.", note="the parser is deployed")
        thread.user("Something else.", note="after the parser")
        hits = named_hits(thread.search("parser"))
        assert hits == [("message", "Deploy the parser."), ("note", "after the parser")]
        # All words in a note count more than some of them in a message.
        assert named_hits(thread.search("after parser else")) != []
        assert named_hits(thread.search("after the parser"))[-1] == ("note", "after the parser")


def test_a_note_on_another_branch_is_found_as_inactive(store: Store) -> None:
    with weft.open(store) as thread:
        thread.user("Start.")
        thread.branch("side")
        thread.switch("side")
        thread.user("Aside.", note="an experiment with llamas")
        thread.switch("main")
        (hit,) = thread.search("llamas")
        assert (hit.kind, hit.live) == ("note", False)
        assert [hit.live for hit in thread.search("llamas", branch="side")] == [True]
        assert thread.search("llamas", branch="main") == []


def test_threads_are_found_by_title_name_and_tag(store: Store) -> None:
    for name in ("billing-bot", "other", "third"):
        thread = weft.open(store, name)
        thread.user(f"hello from the {len(name)}")
    store.describe_thread("other", title="Invoices are late")
    thread.tag("v1.2-final")
    assert [
        (hit.thread, *named)
        for hit in weft.search(store, "invoices late")
        for named in named_hits([hit])
    ] == [("other", "title", "Invoices are late")]
    assert named_hits(weft.search(store, "billing")) == [("name", "billing-bot")]
    assert [(hit.thread, hit.text) for hit in weft.search(store, "final")] == [
        ("third", "v1.2-final")
    ]
    head = weft.open(store, "billing-bot").head
    assert head is not None
    assert weft.search(store, "billing")[0].commit == head.id
    assert weft.search(store, "zebra") == []


def test_notes_do_not_change_the_recall_results(store: Store) -> None:
    plain, noted = weft.open(store, "plain"), weft.open(store, "noted")
    for number in range(40):
        text = f"The parser has {number} rules and {number % 7} tables."
        plain.user(text)
        noted.user(text, note=f"rules of the parser {number} " * 9, metadata={"rules": "tables"})
    for query in ("parser rules", "tables 3", "how many tables", "pars"):
        assert [hit.text for hit in noted.recall(query)] == [
            hit.text for hit in plain.recall(query)
        ]
        assert noted.recall_page(query).text.count("\n") == plain.recall_page(query).text.count(
            "\n"
        )
    assert noted.recall("metadata") == []


def test_a_forgotten_note_is_removed_from_the_index(store: Store) -> None:
    with weft.open(store) as thread:
        thread.user("a line", note="the code is 4711", metadata={"pin": "4711"})
        assert len(thread.search("4711")) == 1
        forget(store, "4711")
        assert thread.search("4711") == []
        assert fsck(store).flaws == ()
        segments = list(store.segments())
        assert all(b"4711 " not in block.terms for _, block in store.index_blocks(None, segments))


def test_an_index_from_before_notes_is_rebuilt(tmp_path: Path) -> None:
    """A store of schema 9 has an index without notes; opening it empties that index."""
    path = tmp_path / "old.db"
    with weft.open(path) as thread:
        thread.user("a line", note="an old remark")
        assert thread.search("line")
        thread.store.maintenance().drop_index()
    database = sqlite3.connect(path)
    database.execute("UPDATE indexed SET last = (SELECT max(key) FROM commits)")
    for column in ("agent", "folder"):
        database.execute(f"ALTER TABLE thread DROP COLUMN {column}")
    database.execute("PRAGMA user_version = 9")
    database.commit()
    database.close()
    with weft.open(path) as thread:
        assert named_hits(thread.search("remark")) == [("note", "an old remark")]
