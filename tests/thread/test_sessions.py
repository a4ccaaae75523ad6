"""A session is one thread: the imported file, longer and older copies, and exports of it."""

import json

import pytest

import weft
from claude_lines import SESSION, Session
from weft.store import MemoryStore
from weft.thread import export_bytes, find_local_thread, import_bytes, link_session, session_name


@pytest.fixture
def store():
    return MemoryStore()


def conversation(turns):
    session = Session()
    for number in range(turns):
        session.user(f"question {number}")
        session.says(f"m{number}", f"answer {number}")
    return session


def recorded_session(store, turns):
    """The thread of a session that the gateway recorded."""
    name = session_name("claude-code", SESSION)
    thread = weft.open(store, name)
    for number in range(turns):
        thread.user(f"question {number}")
        thread.assistant(f"answer {number}")
    link_session(store, name, name)
    return thread


def take(store, data):
    (imported,) = import_bytes(store, data)
    return imported


def texts(store, thread=SESSION, branch=None):
    return [m.text for m in weft.open(store, thread, branch=branch).compile().messages]


def test_an_older_copy_moves_nothing_back(store):
    newer, older = conversation(3), conversation(2)
    take(store, newer.data)
    imported = take(store, older.data)
    assert (imported.new, imported.behind) == (0, ("main",))
    assert texts(store)[-1] == "answer 2"
    assert export_bytes(store, SESSION, "claude-code")[0] == newer.data


def test_an_older_copy_with_lines_at_its_end_moves_nothing_back(store):
    newer, older = conversation(3), conversation(2)
    older.raw({"type": "summary", "summary": "what it was about", "leafUuid": older.last})
    take(store, newer.data)
    imported = take(store, older.data)
    assert (imported.new, imported.behind) == (0, ("main",))
    assert texts(store)[-1] == "answer 2"


def test_a_copy_from_before_a_rewind_moves_nothing_back(store):
    session = conversation(2)
    older = session.data
    session.user("another question 1", parent=session.uuid(2))
    session.says("m9", "another answer 1")
    take(store, session.data)
    imported = take(store, older)
    assert (imported.new, imported.behind) == (0, ("main",))
    assert texts(store) == ["question 0", "answer 0", "another question 1", "another answer 1"]


def test_a_longer_copy_moves_the_branch_forward(store):
    take(store, conversation(2).data)
    imported = take(store, conversation(3).data)
    assert (imported.new, imported.behind) == (2, ())
    assert texts(store)[-1] == "answer 2"


def test_an_export_of_another_thread_comes_back_to_it(store):
    thread = weft.open(store, "mine")
    thread.user("a")
    thread.assistant("b")
    for format in ("claude-code", "codex"):
        data = export_bytes(store, "mine", format)[0]
        imported = take(store, data)
        assert (imported.thread, imported.new, imported.behind) == ("mine", 0, ("main",))


def test_messages_that_the_client_adds_to_an_export_are_appended(store):
    thread = weft.open(store, "mine")
    thread.user("a")
    thread.assistant("b")
    lines = export_bytes(store, "mine", "claude-code")[0].splitlines()
    last = json.loads(lines[-1])
    session = Session(last["sessionId"])
    session.last = last["uuid"]
    session.user("c")
    session.says("m1", "d")
    imported = take(store, b"\n".join(lines) + b"\n" + session.data)
    assert (imported.thread, imported.new) == ("mine", 2)
    assert texts(store, "mine") == ["a", "b", "c", "d"]
    assert thread.branches().keys() == {"main"}


def test_an_export_of_a_gateway_thread_has_the_id_of_its_session(store):
    name = session_name("claude-code", SESSION)
    weft.open(store, name).user("a")
    data = export_bytes(store, name, "claude-code")[0]
    assert json.loads(data.splitlines()[0])["sessionId"] == SESSION
    assert take(store, data).thread == name


def test_a_compacted_session_gets_only_what_it_lacks_from_its_file(store):
    thread = recorded_session(store, 4)
    tagged = {"good": thread.tag("good", "HEAD~2").id}
    thread.compact(keep=1, summary="The first questions.")
    imported = take(store, conversation(4).data)
    assert (imported.thread, imported.new) == (thread.name, 0)
    thread.user("question 4")
    thread.assistant("answer 4")
    assert take(store, conversation(5).data).new == 0
    assert take(store, conversation(6).data).new == 2
    assert thread.branches().keys() == {"main"}
    assert thread.tags() == tagged
    shown = texts(store, thread.name)
    assert "The first questions." in shown[0]
    assert shown[1:] == ["question 3", "answer 3"] + [
        f"{role} {number}" for number in (4, 5) for role in ("question", "answer")
    ]


def test_an_import_moves_no_tag(store):
    thread = recorded_session(store, 3)
    tagged = thread.tag("good").id
    thread.undo()
    thread.undo(turn=True)
    thread.user("another question")
    thread.assistant("another answer")
    thread.tag("good", tagged)
    assert take(store, conversation(4).data).thread == thread.name
    assert thread.tags() == {"good": tagged}
    assert texts(store, thread.name)[-1] == "another answer"


def test_a_file_under_a_linked_id_belongs_to_the_thread(store):
    take(store, conversation(2).data)
    other = "5e55104e-0000-4000-8000-00000000000f"
    link_session(store, SESSION, session_name("claude-code", other))
    resumed = conversation(3)
    data = resumed.data.replace(SESSION.encode(), other.encode())
    imported = take(store, data)
    assert (imported.thread, imported.new) == (SESSION, 2)
    assert texts(store)[-2:] == ["question 2", "answer 2"]


def test_a_session_is_found_by_its_name_after_a_rename(store):
    take(store, conversation(2).data)
    weft.open(store, SESSION).rename("greetings")
    imported = take(store, conversation(3).data)
    assert (imported.thread, imported.new) == ("greetings", 2)
    assert find_local_thread(store, session_name("claude-code", SESSION)) == "greetings"


def test_an_empty_thread_cannot_continue_a_session(store):
    weft.open(store, "empty")
    with pytest.raises(weft.ThreadError, match="has no messages"):
        link_session(store, "empty", "claude-x")
