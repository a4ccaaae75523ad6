"""The history of a thread for the page: graph, branches, differences, merges, cherry-picks.

    GET  /api/graph?thread=&limit=       the commits of all branches and tags, newest first
    GET  /api/versions?thread=&branch=   messages that have other versions on other branches
    GET  /api/diff?thread=&a=&b=         the difference of two branches, tags or commits
    GET  /api/message?thread=&branch=&id=   the whole text of one message
    GET  /api/sent?thread=&branch=&id=   the request that an answer was made from
    POST /api/branch {name, at, before, text}
    POST /api/merge {branch, name, answers, preview}
    POST /api/cherry-pick {branch, id, answers, preview}
    POST /api/note {id, text}, /api/tag {name, at}, /api/untag {name}, /api/delete-branch {name}

A graph may have many thousand commits, so each is a short list:

    [id, kind, lane, created, label, parents]

`kind` is the role of an appended message, or else the kind of the commit. `parents` has one pair
`[row, lane]` per parent: its position in the list, and the lane of the line that leads there.
`reverted` has the ids of commits that were reverted on every branch that has them. With `limit`,
only the newest commits are sent, and `more` is true if there are others.

The lines of a difference are `{kind, id, role, unchanged, before, after, words}`. A changed message
has `words`: pieces `[sign, text]`, where the sign is `=` (on both sides), `-` (before) or `+`
(after). `answers` resolve conflicts: a mapping from conflict id to `ours`, `theirs`, `concat` or a
text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, cast

from msgspec import Struct

from weft import exact_json
from weft.errors import Refused, WeftError
from weft.history import (
    CHOICES,
    TAG,
    AnyConflict,
    Conflict,
    Diff,
    DiffLine,
    ResultConflict,
    Rewrite,
    Row,
    Setup,
    assign_lanes,
    decode_appended,
    decode_body,
    newest_first,
    read_branches,
    read_reachable,
    read_until_known,
)
from weft.ids import Id
from weft.model import JsonObject, Refusal, Text, ToolResult, texts
from weft.store import Step
from weft.thread import (
    ChainLink,
    CommitInfo,
    MergePreview,
    Preview,
    Thread,
    find_reverted,
    open as open_thread,
)

from .api_call import DEFAULT_BRANCH, ApiCall, Handler
from .thread_views import (
    GraphCommit,
    ThreadView,
    describe_commit,
    excerpt,
    message_text,
    result_text,
)

SENT_REQUEST_LENGTH = 200_000
"""How many characters of a sent request the page shows."""
LABEL_LENGTH = 90
"""How many characters of a commit's text the graph shows."""
NEAR_FORK = 8
"""How many commits after a fork are searched for a message: notes and annotations may come first.
"""
DIFF_LINES = 500
"""How many lines of a difference are sent."""
DIFF_TEXT_LENGTH = 20_000
"""How many characters of a message are sent with a line of a difference."""
COMPARED_PIECES = 2000
"""Texts with more words are compared line by line, because the time grows quadratically."""

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


def show_graph(call: ApiCall) -> JsonObject:
    """The commits of all branches and tags, with their lanes."""
    record = call.thread_record()
    if record is None:
        return {
            "commits": [],
            "more": False,
            "lanes": 0,
            "refs": {},
            "branches": [],
        }
    store, name = call.store, record.name
    refs = store.refs(name)
    limit = call.number("limit")
    graph = _read_graph(call, name, refs.values(), limit)
    ordered = newest_first(_find_reachable(graph, refs.values()))[:limit]
    positions = {id: position for position, (id, _) in enumerate(ordered)}
    reverted = _find_reverted(graph, read_branches(store, name).values())
    commits: list[list[Any]] = []
    lane_count = 0
    has_more = False
    for placed in assign_lanes(ordered):
        commit = graph[placed.id]
        parents = [
            [positions[parent], lane] for parent, lane in placed.parents if parent in positions
        ]
        has_more = has_more or len(parents) < len(commit.parents)
        lane_count = max(lane_count, placed.lane + 1, *(lane + 1 for _, lane in parents))
        created = round(commit.created, 3)
        commits.append([placed.id.hex(), commit.kind, placed.lane, created, commit.label, parents])
    return {
        "commits": commits,
        "reverted": [id.hex() for id in reverted if id in positions],
        "more": has_more,
        "lanes": lane_count,
        "refs": _refs_by_commit(refs),
        "branches": sorted(read_branches(store, name)),
    }


def _read_graph(
    call: ApiCall, thread: str, heads: Iterable[Id], limit: int | None
) -> Mapping[Id, GraphCommit]:
    """The commits that these heads reach; with `limit`, only the newest, at least that many."""
    views = call.state.views
    graph = dict(views.graph(thread)) if limit is None else {}
    for id, step in read_reachable(call.store, thread, heads, limit, known=graph).items():
        commit = step.commit
        info = CommitInfo(step, lambda _: 0)
        kind, label = _describe(info)
        graph[id] = GraphCommit(commit.created, commit.parents, kind, label, info.reverts)
    if limit is None:
        views.set_graph(thread, graph)
    return graph


def _find_reachable(
    graph: Mapping[Id, GraphCommit], heads: Iterable[Id]
) -> dict[Id, tuple[float, tuple[Id, ...]]]:
    """The time and the parents of each commit that the heads reach. All others were undone."""
    reachable: dict[Id, tuple[float, tuple[Id, ...]]] = {}
    pending = list(heads)
    while pending:
        id = pending.pop()
        if id not in reachable and id in graph:
            commit = graph[id]
            reachable[id] = (commit.created, commit.parents)
            pending += commit.parents
    return reachable


def _find_reverted(graph: Mapping[Id, GraphCommit], heads: Iterable[Id]) -> set[Id]:
    """The commits that were reverted on every branch that has them."""
    if all(commit.reverts is None for commit in graph.values()):
        return set()

    def read(id: Id) -> ChainLink | None:
        commit = graph.get(id)
        return (
            None if commit is None else ChainLink(next(iter(commit.parents), None), commit.reverts)
        )

    return find_reverted(heads, read)


class Version(Struct, frozen=True):
    """One version of a message: the commit that wrote it, and the id of its row."""

    commit: Id
    created: float
    row: Id


def show_versions(call: ApiCall) -> JsonObject:
    """The messages of a branch that have other versions on other branches, by row.

    Two branches have versions of the same message where they part: both continue with a message of
    the same role (a regenerated answer), or one of them edits a message. The versions of a row are
    sorted by time: `{branch, row, current}`.
    """
    record = call.thread_record()
    if record is None:
        return {"versions": {}}
    store, name = call.store, record.name
    branch, heads = call.thread_and_branch()[1], read_branches(store, name)
    view = call.state.views.read(store, name, branch, heads.get(branch))
    own_commits = {id: position for position, id in enumerate(view.facts)}
    versions_by_row: dict[Id, dict[Version, str]] = {}
    for other in sorted(heads, key=lambda each: (each != DEFAULT_BRANCH, each)):
        if heads[other] in own_commits:
            continue
        their_steps = read_until_known(store, name, heads[other], own_commits)
        if not their_steps:
            continue
        parents = their_steps[0].commit.parents
        fork = own_commits[parents[0]] if parents else -1
        our_commits = list(islice(own_commits, fork + 1, fork + 1 + NEAR_FORK))
        our_steps = store.read_commits(name, our_commits)
        pair = _version_pair(_first_message(our_steps), _first_message(their_steps), view)
        if pair is not None:
            ours, theirs = pair
            branch_of_version = versions_by_row.setdefault(ours.row, {ours: branch})
            branch_of_version.setdefault(theirs, other)
    return {
        "versions": {
            row.hex(): [
                {"branch": name, "row": version.row.hex(), "current": name == branch}
                for version, name in sorted(
                    branch_of_version.items(), key=lambda item: item[0].created
                )
            ]
            for row, branch_of_version in versions_by_row.items()
        }
    }


def _first_message(steps: Sequence[Step]) -> Step | None:
    """The commit that appends or edits the first message; None if it is not near the fork."""
    near = steps[:NEAR_FORK]
    return next((step for step in near if step.commit.kind in ("append", "edit")), None)


def _version_pair(
    ours: Step | None, theirs: Step | None, view: ThreadView
) -> tuple[Version, Version] | None:
    """The two versions of a message after a fork, ours first; None if it has only one.

    `ours` and `theirs` are the first messages on both sides.
    """
    edited_row = _edited_row(ours) or _edited_row(theirs)
    if edited_row is not None:
        return _version_of_row(edited_row, ours, view), _version_of_row(edited_row, theirs, view)
    if ours is None or theirs is None:
        return None
    if decode_appended(ours).role != decode_appended(theirs).role:
        return None
    return _appended_version(ours), _appended_version(theirs)


def _version_of_row(row: Id, step: Step | None, view: ThreadView) -> Version:
    """The version of a row after this commit: the edited one, or the original if it has no edit."""
    if step is not None and _edited_row(step) == row:
        return Version(step.commit.id, step.commit.created, row)
    facts = view.facts.get(row)
    return Version(row, 0.0 if facts is None else facts.created, row)


def _appended_version(step: Step) -> Version:
    return Version(step.commit.id, step.commit.created, step.commit.id)


def _edited_row(step: Step | None) -> Id | None:
    """The row that a commit edits; None if it edits none."""
    if step is None or step.commit.kind != "edit":
        return None
    op = decode_body(step).op
    return op.change[0].slot if isinstance(op, Rewrite) and op.change else None


def _describe(info: CommitInfo) -> tuple[str, str]:
    """The kind of a commit in the graph, and its text on one line."""
    kind, text = describe_commit(info)
    return kind, excerpt(text, LABEL_LENGTH)


def _refs_by_commit(refs: dict[str, Id]) -> dict[str, Sequence[str]]:
    """The branches and tags of each commit; the name of a tag begins with `tag:`."""
    names: dict[str, list[str]] = {}
    for name, id in sorted(refs.items(), key=lambda ref: (ref[0].startswith(TAG), ref[0])):
        names.setdefault(id.hex(), []).append(name)
    return dict(names)


def show_message(call: ApiCall) -> JsonObject:
    """The text of one message, for a person to edit; of a tool message, its first result."""
    message = _find_row(call, call.text("id")).message
    text_blocks = [block for block in message.blocks if isinstance(block, Text | Refusal)]
    results = [block for block in message.blocks if isinstance(block, ToolResult)]
    text = "\n".join(texts(text_blocks or results[:1]))
    return {"id": call.text("id"), "role": message.role, "text": text}


def show_sent_request(call: ApiCall) -> JsonObject:
    """The request that the model got for an answer, as indented JSON; a long one is cut.

    `bytes` is the size of what was sent, `length` the number of characters of the whole text.
    """
    body = call.thread().show(call.text("id"), sent=True).body
    try:
        text = exact_json.dumps(exact_json.loads(body), option=exact_json.OPT_INDENT_2).decode()
    except exact_json.JSONDecodeError:
        text = body.decode(errors="replace")
    return {"text": text[:SENT_REQUEST_LENGTH], "length": len(text), "bytes": len(body)}


def show_diff(call: ApiCall) -> JsonObject:
    """The difference of two branches, tags or commits, line by line and as readable text."""
    diff = call.thread().diff(call.text("a"), call.text("b"))
    return {"text": str(diff), **diff_json(diff)}


def diff_json(diff: Diff) -> JsonObject:
    """A difference as JSON for the page; at most `DIFF_LINES` lines are sent."""
    lines = [_line_json(line) for line in diff.changes[:DIFF_LINES]]
    return {
        "lines": lines,
        "left_out": len(diff.changes) - len(lines),
        "unchanged": diff.unchanged,
        "before": diff.tokens_before,
        "after": diff.tokens_after,
    }


def _line_json(line: DiffLine) -> JsonObject:
    old_text, new_text = (
        None if row is None else _row_text(row)[:DIFF_TEXT_LENGTH]
        for row in (line.before, line.after)
    )
    row = line.after or line.before
    return {
        "kind": line.kind,
        "id": line.id,
        "role": "" if row is None else row.message.role,
        "unchanged": line.unchanged,
        "before": _side_json(line.before),
        "after": _side_json(line.after),
        "words": None
        if old_text is None or new_text is None
        else compare_words(old_text, new_text),
    }


def _side_json(row: Row | None) -> JsonObject | None:
    if row is None:
        return None
    text = _row_text(row)
    return {"text": text[:DIFF_TEXT_LENGTH], "length": len(text), "priority": row.priority}


def _row_text(row: Row) -> str:
    """The readable text of a row: its text and calls, or else its results."""
    results = (block for block in row.message.blocks if isinstance(block, ToolResult))
    return message_text(row.message) or "\n".join(map(result_text, results))


def compare_words(before: str, after: str) -> list[list[str]]:
    """The pieces of two texts: `=` in both, `-` only before, `+` only after."""
    for pattern in (_WORDS, _LINES):
        old_pieces, new_pieces = pattern.findall(before), pattern.findall(after)
        if max(len(old_pieces), len(new_pieces)) <= COMPARED_PIECES:
            break
    else:
        return [["-", before], ["+", after]]
    pieces: list[list[str]] = []
    matcher = SequenceMatcher(None, old_pieces, new_pieces, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            pieces.append(["=", "".join(old_pieces[i1:i2])])
            continue
        pieces += [
            [sign, "".join(part)]
            for sign, part in (("-", old_pieces[i1:i2]), ("+", new_pieces[j1:j2]))
            if part
        ]
    return pieces


def branch(call: ApiCall) -> JsonObject:
    """Create a branch, by default at the newest commit.

    - `at`: a commit, or the id of the message with which the branch ends.
    - `before`: the branch ends before the answer at `at`, so that the question can be answered
      again.
    - `text`: replaces the text of the message at `at`, on the new branch only.
    - `name`: by default, the name of the branch with a number.
    """
    thread, at, text = call.thread(), call.text_or_none("at"), call.text_or_none("text")
    name = call.text_or_none("name") or _free_name(call, thread)
    start = None if at is None else _commit_of(call, thread, at)
    if start is not None and call.flag("before"):
        start = _commit_before_answer(call, thread, start)
    info = thread.branch(name, start)
    if text is not None:
        _edit_on_branch(thread, name, call.text("at"), text)
    where = "here" if at is None else f"at {info.id[:7]}"
    return {"branch": name, "commit": info.id, "message": f"Branch {name} starts {where}."}


def _edit_on_branch(thread: Thread, branch: str, id: str, text: str) -> None:
    """Edit a message on a new branch; if that is refused, the branch is deleted again."""
    try:
        open_thread(thread.store, thread.name, branch=branch).edit(id, text)
    except WeftError:
        thread.delete_branch(branch)
        raise


def _free_name(call: ApiCall, thread: Thread) -> str:
    """The name of the current branch, with the next free number."""
    stem = re.sub(r"-\d+$", "", thread.current)
    existing = call.store.refs(thread.name)
    number = 2
    while f"{stem}-{number}" in existing:
        number += 1
    return f"{stem}-{number}"


def _commit_of(call: ApiCall, thread: Thread, id: str) -> str:
    """The commit with this id, or the one that wrote the message with this id."""
    head = call.store.read_ref(thread.name, thread.current)
    try:
        row_id = bytes.fromhex(id)
    except ValueError:
        return id  # a branch, a tag or a short id
    if head is None or len(row_id) < len(head):
        return id  # no commit yet, or a short id
    if call.store.read_commits(thread.name, [row_id]):
        return id
    view = call.state.views.read(call.store, thread.name, thread.current, head)
    if row_id in view.summaries:
        return view.summaries[row_id][0].hex()
    return thread.show(id).id


def _commit_before_answer(call: ApiCall, thread: Thread, commit: str) -> str:
    """The last commit before `commit` at which the thread does not end with an answer."""
    start = bytes.fromhex(thread.show(commit).id)
    steps = call.store.walk(thread.name, start)
    for step in reversed(steps[:-1]):
        messages = thread.compile(step.commit.id.hex()).messages
        if messages and messages[-1].role != "assistant":
            return step.commit.id.hex()
    raise Refused("there is no message before this answer", param="at")


def _find_row(call: ApiCall, id: str) -> Row:
    """The row with this id on the branch of the call; raises `Refused` if there is none."""
    thread = call.thread()
    head = call.store.read_ref(thread.name, thread.current)
    view = call.state.views.read(call.store, thread.name, thread.current, head).view
    try:
        row = view.find(bytes.fromhex(id))
    except ValueError:
        row = None
    if row is None:
        raise Refused("this message is not on this branch", param="id", status=404)
    return row


def merge(call: ApiCall) -> JsonObject:
    """Merge the branch `name` into the branch of the call; a `preview` changes nothing."""
    thread, source, answers = call.thread(), call.text("name"), _read_answers(call)
    if call.flag("preview"):
        preview = thread.merge(source, answers, preview=True)
        return {
            **preview_json(preview),
            "fast_forward": preview.fast_forward,
            "message": str(preview),
        }
    call.state.runs.refuse_if_running(thread.name, thread.current)
    info = thread.merge(source, answers)
    return {"commit": getattr(info, "id", None), "message": f"Merged {source}."}


def cherry_pick(call: ApiCall) -> JsonObject:
    """Apply the commit `id` to the branch of the call; a `preview` changes nothing."""
    thread, id, answers = call.thread(), call.text("id"), _read_answers(call)
    if call.flag("preview"):
        preview = thread.cherry_pick(id, answers, preview=True)
        return {**preview_json(preview), "fast_forward": False, "message": str(preview)}
    call.state.runs.refuse_if_running(thread.name, thread.current)
    info = thread.cherry_pick(id, answers)
    message = f"Applied {id[:7]} to {thread.current}."
    return {"commit": info.id, "message": message}


def _read_answers(call: ApiCall) -> dict[str, str] | None:
    """The answers to conflicts; None if there are none."""
    answers: Any = call.fields.get("answers")
    if answers is None:
        return None
    if not isinstance(answers, dict):
        raise Refused("must map the ids of conflicts to answers", param="answers")
    answers = cast(dict[str, str], answers)
    for id, answer in cast(JsonObject, answers).items():
        if not isinstance(answer, str) or not answer.strip():
            message = f"must be {', '.join(CHOICES)} or a text"
            raise Refused(message, param=f"answers.{id}")
    return answers or None


def preview_json(preview: Preview | MergePreview) -> JsonObject:
    """What a merge or a cherry-pick would do, and its conflicts."""
    return {
        **diff_json(preview.diff),
        "conflicts": [conflict_json(conflict) for conflict in preview.conflicts],
        "setup_changes": list(preview.setup_changes),
        "cache_lost": preview.cache_lost,
    }


def conflict_json(conflict: AnyConflict) -> JsonObject:
    """Both sides of a conflict as text; a side that removed the message is null."""
    if isinstance(conflict, Conflict):
        sides = (conflict.base, conflict.ours, conflict.theirs)
        base, ours, theirs = (None if row is None else _row_text(row) for row in sides)
        role = next((row.message.role for row in sides if row is not None), "")
    elif isinstance(conflict, ResultConflict):
        base, role = None, "tool"
        ours, theirs = result_text(conflict.ours), result_text(conflict.theirs)
    else:
        role = "setup"
        sides = (conflict.base, conflict.ours, conflict.theirs)
        base, ours, theirs = (_setup_text(setup, conflict.parts) for setup in sides)
    return {
        "id": conflict.id,
        "kind": conflict.kind,
        "role": role,
        "base": base,
        "ours": ours,
        "theirs": theirs,
        "words": None if ours is None or theirs is None else compare_words(ours, theirs),
    }


def _setup_text(setup: Setup | None, parts: Sequence[str]) -> str | None:
    """The conflicting parts of a setup, as indented JSON; tools are named only."""
    if setup is None:
        return None
    members: JsonObject = {
        part: [tool.name for tool in setup.tools]
        if part == "tools"
        else getattr(setup.params, part, None)
        for part in parts
    }
    return exact_json.dumps(members, default=str, option=exact_json.OPT_INDENT_2).decode()


def note(call: ApiCall) -> JsonObject:
    """Write a note on a message or a commit, for people only."""
    info = call.thread().note(call.text("id"), call.text("text"))
    return {"commit": info.id, "message": "Noted."}


def tag(call: ApiCall) -> JsonObject:
    """Tag a commit, by default the newest."""
    name = call.text("name")
    info = call.thread().tag(name, call.text_or_none("at"))
    return {"tag": name, "commit": info.id, "message": f"{info.id[:7]} is tagged {name}."}


def untag(call: ApiCall) -> JsonObject:
    call.thread().untag(call.text("name"))
    return {"message": f"Deleted the tag {call.text('name')}."}


def delete_branch(call: ApiCall) -> JsonObject:
    """Delete a branch that is not the current one; its commits stay."""
    thread, name = call.thread(), call.text("name")
    call.state.runs.refuse_if_running(thread.name, name)
    info = thread.delete_branch(name)
    return {"commit": info.id, "message": f"Deleted the branch {name}; it ended at {info.id[:7]}."}


HISTORY_READS: dict[str, Handler] = {
    "/api/graph": show_graph,
    "/api/versions": show_versions,
    "/api/diff": show_diff,
    "/api/message": show_message,
    "/api/sent": show_sent_request,
}
HISTORY_WRITES: dict[str, Handler] = {
    "/api/branch": branch,
    "/api/merge": merge,
    "/api/cherry-pick": cherry_pick,
    "/api/note": note,
    "/api/tag": tag,
    "/api/untag": untag,
    "/api/delete-branch": delete_branch,
}
