"""The history of a thread for the page: graph, reading an earlier commit, branches."""

from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import orjson
import pytest

import weft
from servers import weft_serve
from weft.gateway import compare_words
from weft.model import Checkpoint, Message, Text, ToolResult

SECONDS = 60


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with weft_serve(tmp_path_factory.mktemp("history")) as running:
        yield running


def read(gateway, path, **query):
    with urlopen(f"{gateway.url}{path}?{urlencode(query)}", timeout=SECONDS) as reply:
        return orjson.loads(reply.read())


def write(gateway, path, **fields):
    headers = {"content-type": "application/json"}
    request = Request(f"{gateway.url}{path}", data=orjson.dumps(fields), headers=headers)
    with urlopen(request, timeout=SECONDS) as reply:
        return orjson.loads(reply.read())


def refused(ask, *args, **fields):
    """The status, the message and the field of an answer that says no."""
    with pytest.raises(HTTPError) as caught:
        ask(*args, **fields)
    with caught.value as reply:
        error = orjson.loads(reply.read())["error"]
        return reply.code, error["message"], error["place"]


def texts(view):
    return [part["text"] for row in view["rows"] for part in row["parts"] if "text" in part]


def add_forked(gateway, name):
    """A thread with two branches that were merged; returns the ids of its commits by name."""
    with weft.open(gateway.store, name) as main:
        ids = {"root": main.system("You help.").id, "question": main.user("Which database?").id}
        with main.fork("side") as side:
            ids["theirs"] = side.assistant("SQLite.").id
        ids["ours"] = main.assistant("PostgreSQL.").id
        ids["merge"] = main.merge("side").id
        main.tag("decided")
        ids["last"] = main.user("Thanks.").id
    return ids


def test_the_graph_has_every_commit_once_with_columns_and_refs(gateway):
    ids = add_forked(gateway, "graph")
    graph = read(gateway, "/api/graph", thread="graph")
    rows = {id: number for number, (id, *_) in enumerate(graph["commits"])}
    assert rows.keys() == set(ids.values())
    commits = {
        name: dict(zip(("id", "kind", "lane", "created", "label", "parents"), row, strict=True))
        for row in graph["commits"]
        for name, id in ids.items()
        if id == row[0]
    }
    assert [commits[name]["kind"] for name in ("root", "question", "theirs", "merge")] == [
        "system",
        "user",
        "assistant",
        "merge",
    ]
    assert commits["theirs"]["label"] == "SQLite."
    parents = {name: [row for row, _ in commit["parents"]] for name, commit in commits.items()}
    assert parents["merge"] == [rows[ids["ours"]], rows[ids["theirs"]]]
    assert parents["theirs"] == [rows[ids["question"]]]
    assert parents["root"] == []
    assert commits["ours"]["lane"] != commits["theirs"]["lane"]
    assert graph["lanes"] == 2
    assert graph["refs"] == {
        ids["last"]: ["main"],
        ids["theirs"]: ["side"],
        ids["merge"]: ["tag:decided"],
    }
    assert graph["branches"] == ["main", "side"]
    with weft.open(gateway.store, "graph") as main:
        new = main.assistant("You are welcome.").id
    later = read(gateway, "/api/graph", thread="graph")["commits"]
    assert [row[0] for row in later] == [new, *(row[0] for row in graph["commits"])]
    with weft.open(gateway.store, "graph") as main:
        main.undo()
    assert read(gateway, "/api/graph", thread="graph") == graph


def test_a_graph_with_a_limit_is_the_beginning_of_the_whole_graph(gateway):
    with weft.open(gateway.store, "long graph") as main:
        main.user("first")
        for number in range(40):
            if number % 10 == 0:
                with main.fork(f"side-{number}") as side:
                    for step in range(number):
                        side.user(f"side {number} step {step}")
            main.user(f"main {number}")
        main.merge("side-20")
    whole = read(gateway, "/api/graph", thread="long graph")
    size = len(whole["commits"])
    assert not whole["more"]
    for limit in (1, 3, 30, size - 1, size, size + 1):
        part = read(gateway, "/api/graph", thread="long graph", limit=limit)
        beginning = [
            [*facts, [parent for parent in parents if parent[0] < limit]]
            for *facts, parents in whole["commits"][:limit]
        ]
        assert part["commits"] == beginning
        assert part["more"] is (limit < size)
        assert part["refs"] == whole["refs"]


def test_versions_of_a_message_are_found_where_branches_part(gateway):
    def versions(branch):
        rows = read(gateway, "/api/versions", thread="versions", branch=branch)["versions"]
        return {
            row: [(each["branch"], each["row"]) for each in versions if each["current"]]
            + [(each["branch"], each["row"]) for each in versions]
            for row, versions in rows.items()
        }

    with weft.open(gateway.store, "versions") as main:
        question = main.user("Which database?").id
        first = main.assistant("SQLite.").id
        assert versions("main") == {}
        with main.fork("again", at=question) as again:
            again.annotate(question, "pinned")  # not a message
            second = again.assistant("PostgreSQL.").id
            later = again.user("Why?").id
        with main.fork("deeper", at=later) as deeper:
            deeper.assistant("It scales.")
        with main.fork("edited", at=question) as edited:
            edited.edit(question, "Which file format?")
            third = edited.assistant("Parquet.").id
        with main.fork("thanks", at=first) as thanks:
            thanks.user("Thanks.")  # the main branch has no message there
        main.merge("thanks")
    # The current version comes first here, then all of them by time.
    assert versions("main") == {
        first: [("main", first), ("main", first), ("again", second)],
        question: [("main", question), ("main", question), ("edited", question)],
    }
    assert versions("again") == {
        second: [("again", second), ("main", first), ("again", second)],
        question: [("again", question), ("again", question), ("edited", question)],
    }
    assert versions("deeper") == {
        second: [("deeper", second), ("main", first), ("deeper", second)],
        question: [("deeper", question), ("deeper", question), ("edited", question)],
    }
    assert versions("edited") == {
        question: [("edited", question), ("main", question), ("edited", question)],
    }
    assert third not in versions("edited")
    assert read(gateway, "/api/versions", thread="nothing-yet")["versions"] == {}


def test_a_thread_without_commits_has_an_empty_graph(gateway):
    graph = read(gateway, "/api/graph", thread="nothing-yet")
    assert graph == {"commits": [], "more": False, "lanes": 0, "refs": {}, "branches": []}


def test_an_earlier_commit_shows_the_thread_at_that_time(gateway):
    ids = add_forked(gateway, "travel")
    newest = read(gateway, "/api/rows", thread="travel")
    assert newest["commit"] is None
    then = read(gateway, "/api/rows", thread="travel", until=ids["question"])
    assert texts(then) == ["You help.", "Which database?"]
    assert (then["head"], then["commit"]["number"], then["commit"]["of"]) == (ids["question"], 2, 5)
    elsewhere = read(gateway, "/api/rows", thread="travel", until=ids["theirs"])
    assert texts(elsewhere) == ["You help.", "Which database?", "SQLite."]
    assert elsewhere["branch"] == "main"
    assert [elsewhere["commit"][key] for key in ("branch", "number", "of")] == ["side", 3, 3]
    assert texts(read(gateway, "/api/rows", thread="travel")) == texts(newest)
    code, message, place = refused(read, gateway, "/api/rows", thread="travel", until="00" * 20)
    assert (code, place) == (404, "until")
    assert "no commit" in message


def test_a_branch_starts_at_any_commit(gateway):
    ids = add_forked(gateway, "fork")
    branch = {"thread": "fork", "name": "again", "at": ids["question"]}
    answer = write(gateway, "/api/branch", **branch)
    assert answer["message"] == f"Branch again starts at {ids['question'][:7]}."
    view = read(gateway, "/api/rows", thread="fork", branch="again")
    assert (texts(view)[-1], view["head"]) == ("Which database?", ids["question"])
    assert refused(write, gateway, "/api/branch", **{**branch, "name": "x", "at": "77"})[0] == 404


UNKNOWN = "f" * 40


@pytest.mark.parametrize(
    ("ask", "path", "fields"),
    [
        (write, "/api/branch", {"at": UNKNOWN, "name": "x"}),
        (write, "/api/branch", {"at": UNKNOWN, "name": "x", "before": True}),
        (write, "/api/branch", {"at": UNKNOWN, "name": "x", "text": "other"}),
        (write, "/api/tag", {"at": UNKNOWN, "name": "x"}),
        (write, "/api/note", {"id": UNKNOWN, "text": "x"}),
        (write, "/api/revert", {"id": UNKNOWN}),
        (write, "/api/annotate", {"id": UNKNOWN, "priority": "skip"}),
        (write, "/api/edit", {"id": UNKNOWN, "text": "x"}),
        (write, "/api/cherry-pick", {"id": UNKNOWN}),
        (write, "/api/cherry-pick", {"id": UNKNOWN, "preview": True}),
        (write, "/api/merge", {"name": UNKNOWN}),
        (read, "/api/rows", {"until": UNKNOWN}),
        (read, "/api/commit", {"id": UNKNOWN}),
        (read, "/api/diff", {"a": UNKNOWN, "b": "main"}),
        (read, "/api/diff", {"a": "main", "b": UNKNOWN}),
        (read, "/api/message", {"id": UNKNOWN}),
        (read, "/api/sent", {"id": UNKNOWN}),
        (read, "/api/result", {"call": "x", "until": UNKNOWN}),
        (read, "/api/thread", {"until": UNKNOWN}),
        (read, "/api/media", {"row": UNKNOWN}),
    ],
)
def test_an_unknown_id_is_an_error(gateway, tmp_path, ask, path, fields):
    name = tmp_path.name  # of this row only
    ids = add_forked(gateway, name)
    assert refused(ask, gateway, path, thread=name, **fields)[0] == 404
    with weft.open(gateway.store, name) as thread:
        assert (set(thread.branches()), thread.head.id) == ({"main", "side"}, ids["last"])


def test_a_branch_can_end_with_a_message_or_before_an_answer(gateway):
    with weft.open(gateway.store, "again") as thread:
        for number in range(4):
            thread.user(f"question {number} " + "with more words " * 20)
            thread.assistant(f"answer {number} " + "and more words " * 20)
        summary = thread.compact(budget=300).commit
    rows = read(gateway, "/api/rows", thread="again")["rows"]
    (summary_row,) = [row for row in rows if row["kind"] == "summary"]
    branched = write(gateway, "/api/branch", thread="again", at=summary_row["id"])
    assert (branched["branch"], branched["commit"]) == ("main-2", summary)
    last = rows[-1]["id"]
    fields = {"thread": "again", "at": last, "before": True}
    assert write(gateway, "/api/branch", **fields)["branch"] == "main-3"
    view = read(gateway, "/api/rows", thread="again", branch="main-3")
    assert view["rows"][-1]["role"] == "user"
    assert view["unanswered"]
    with weft.open(gateway.store, "again") as thread:
        first = thread.log()[-1].id
        only_answer = weft.open(gateway.store, "only-answer").assistant("hello").id
    refusal = refused(
        write, gateway, "/api/branch", thread="only-answer", at=only_answer, before=True
    )
    assert refusal == (400, "there is no message before this answer", "at")
    edited = write(
        gateway, "/api/branch", thread="again", at=first, text="another question", name="e"
    )
    view = read(gateway, "/api/rows", thread="again", branch="e")
    assert texts(view) == ["another question"]
    assert edited["commit"] == first
    text = read(gateway, "/api/message", thread="again", branch="e", id=first)
    assert text == {"id": first, "role": "user", "text": "another question"}
    assert refused(read, gateway, "/api/message", thread="again", id="77")[0] == 404
    parts = (Text("what I wrote"), ToolResult("c", (Text("a result"),)), Checkpoint("abc123"))
    with weft.open(gateway.store, "again") as thread:
        mixed = thread.commit_message(Message("user", parts)).id  # an edit replaces the first part
    assert read(gateway, "/api/message", thread="again", id=mixed)["text"] == "what I wrote"
    with weft.open(gateway.store, "again") as thread:
        assert set(thread.branches()) == {"main", "main-2", "main-3", "e"}


def test_a_refused_edit_leaves_no_branch(gateway):
    with weft.open(gateway.store, "no-edit") as thread:
        thread.user("hello")
        setup = thread.setup(params=weft.Params(temperature=0.5)).id
    fields = {"thread": "no-edit", "at": setup, "name": "x", "text": "a setup has no text"}
    assert refused(write, gateway, "/api/branch", **fields)[0] in (404, 422)
    with weft.open(gateway.store, "no-edit") as thread:
        assert set(thread.branches()) == {"main"}


def add_conflict(gateway, name):
    """Two branches that edited the same message; the branch also has a message of its own."""
    with weft.open(gateway.store, name) as main:
        question = main.user("Write to the red file tonight.").id
        with main.fork("side") as side:
            side.edit(question, "Write to the blue file tonight.")
            side.assistant("Done on the side.")
        main.edit(question, "Write to the green file tonight.")
        main.assistant("Done here.")
    return question


def test_a_diff_has_lines_and_words(gateway):
    question = add_conflict(gateway, "diff")
    labels = {row[4] for row in read(gateway, "/api/graph", thread="diff")["commits"]}
    assert "Write to the blue file tonight." in labels  # an edit is shown with its text
    with weft.open(gateway.store, "diff") as main:
        main.user("shared?")
    diff = read(gateway, "/api/diff", thread="diff", a="side", b="main")
    kinds = [(line["kind"], line["unchanged"]) for line in diff["lines"]]
    assert kinds == [("changed", 0), ("removed", 0), ("added", 0), ("added", 0)]
    changed = diff["lines"][0]
    assert changed["id"] == question
    assert changed["words"] == [
        ["=", "Write to the "],
        ["-", "blue"],
        ["+", "green"],
        ["=", " file tonight."],
    ]
    assert [line["role"] for line in diff["lines"][1:]] == ["assistant", "assistant", "user"]
    assert "green file" in diff["text"]  # the readable text stays
    same = read(gateway, "/api/diff", thread="diff", a="main", b="main")
    assert (same["lines"], same["unchanged"]) == ([], 3)
    with weft.open(gateway.store, "diff") as main:
        before = main.head.id
        main.user("and more")
    later = read(gateway, "/api/diff", thread="diff", a=before, b="main")
    assert [(line["kind"], line["unchanged"]) for line in later["lines"]] == [("added", 3)]
    assert refused(read, gateway, "/api/diff", thread="diff", a="main", b="none")[0] == 404


@pytest.mark.parametrize(
    ("before", "after", "pieces"),
    [
        ("", "", []),
        ("a b", "a b", [["=", "a b"]]),
        ("a b", "a c", [["=", "a "], ["-", "b"], ["+", "c"]]),
        ("x", "", [["-", "x"]]),
        ("w " * 3000, "w " * 3000, [["=", "w " * 3000]]),  # by lines: one line
        ("a\n" * 3000, "b\n" * 3000, [["-", "a\n" * 3000], ["+", "b\n" * 3000]]),  # as a whole
    ],
)
def test_the_word_diff_of_two_texts(before, after, pieces):
    assert compare_words(before, after) == pieces


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("ours", "Write to the green file tonight."),
        ("theirs", "Write to the blue file tonight."),
        ("Write to both files.", "Write to both files."),
    ],
)
def test_a_conflict_is_resolved_by_an_answer(gateway, answer, text):
    name = f"conflict-{answer[:6]}"
    question = add_conflict(gateway, name)
    fields = {"thread": name, "name": "side"}
    preview = write(gateway, "/api/merge", **fields, preview=True)
    (conflict,) = preview["conflicts"]
    assert (conflict["id"], conflict["kind"], conflict["role"]) == (question, "edited", "user")
    assert conflict["base"] == "Write to the red file tonight."
    assert conflict["ours"] == "Write to the green file tonight."
    assert conflict["theirs"] == "Write to the blue file tonight."
    assert ["-", "green"] in conflict["words"]
    assert [line["kind"] for line in preview["lines"]] == ["added"]
    assert refused(write, gateway, "/api/merge", **fields)[0] == 422  # nothing resolves it
    head = read(gateway, "/api/head", thread=name)["head"]
    resolved = write(gateway, "/api/merge", **fields, answers={question: answer}, preview=True)
    assert resolved["conflicts"] == []
    assert read(gateway, "/api/head", thread=name)["head"] == head  # previews write nothing
    merged = write(gateway, "/api/merge", **fields, answers={question: answer})
    assert merged["message"] == "Merged side."
    view = read(gateway, "/api/rows", thread=name)
    assert (view["head"], texts(view)) == (
        merged["commit"],
        [text, "Done here.", "Done on the side."],
    )


def test_a_wrong_answer_to_a_conflict_is_refused(gateway):
    add_conflict(gateway, "wrong")
    for answers, place in (([], "answers"), ({"a": 1}, "answers.a"), ({"a": " "}, "answers.a")):
        fields = {"thread": "wrong", "name": "side", "answers": answers}
        assert refused(write, gateway, "/api/merge", **fields)[::2] == (400, place)


def test_a_commit_is_cherry_picked_from_another_branch(gateway):
    add_conflict(gateway, "pick")
    with weft.open(gateway.store, "pick", branch="side") as side:
        picked = side.head.id
    fields = {"thread": "pick", "branch": "main", "id": picked}
    preview = write(gateway, "/api/cherry-pick", **fields, preview=True)
    assert [(line["kind"], line["after"]["text"]) for line in preview["lines"]] == [
        ("added", "Done on the side.")
    ]
    answer = write(gateway, "/api/cherry-pick", **fields)
    assert answer["message"] == f"Applied {picked[:7]} to main."
    assert texts(read(gateway, "/api/rows", thread="pick"))[-1] == "Done on the side."
    assert "is here already" in refused(write, gateway, "/api/cherry-pick", **fields)[1]


def test_notes_tags_and_branches_are_added_and_deleted(gateway):
    with weft.open(gateway.store, "notes") as thread:
        question = thread.user("Which database?").id
        answer = thread.assistant("SQLite.").id
    before = read(gateway, "/api/rows", thread="notes")
    assert [row["notes"] for row in before["rows"]] == [[], []]
    write(gateway, "/api/note", thread="notes", id=question, text="asked by Ann")
    new = read(gateway, "/api/rows", thread="notes", since=before["head"])
    assert (new["appended"], new["rows"]) == (True, [])  # only the row with the note is sent again
    (row,) = new["updated"]
    assert (row["id"], [note["text"] for note in row["notes"]]) == (question, ["asked by Ann"])
    write(gateway, "/api/note", thread="notes", id=question, text="and by Bob")
    rows = read(gateway, "/api/rows", thread="notes")["rows"]
    assert [note["text"] for note in rows[0]["notes"]] == ["asked by Ann", "and by Bob"]
    tagged = write(gateway, "/api/tag", thread="notes", name="decided", at=answer)
    assert tagged["message"] == f"{answer[:7]} is tagged decided."
    write(gateway, "/api/branch", thread="notes", name="side", at=question)
    refs = read(gateway, "/api/graph", thread="notes")["refs"]
    assert (refs[answer], refs[question]) == (["tag:decided"], ["side"])
    write(gateway, "/api/untag", thread="notes", name="decided")
    write(gateway, "/api/delete-branch", thread="notes", name="side")
    graph = read(gateway, "/api/graph", thread="notes")
    assert (graph["branches"], len(graph["refs"])) == (["main"], 1)
    assert refused(write, gateway, "/api/untag", thread="notes", name="decided")[0] == 404
    assert refused(write, gateway, "/api/note", thread="notes", id=question, text=" ")[2] == "text"
