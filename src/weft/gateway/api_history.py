"""The history of a thread for the page: its commit graph.

    GET /api/graph?thread=     the commits of all branches and tags, newest first

A graph may have many thousand commits, so each is a short list:

    [id, kind, lane, created, label, parents]

`kind` is the role of an appended message, or else the kind of the commit. `parents` has one pair
`[row, lane]` per parent: its position in the list, and the lane of the line that leads there.
"""

from collections.abc import Sequence
from typing import Any

from weft.history import (
    TAG,
    assign_lanes,
    newest_first,
    read_branches,
    read_reachable,
)
from weft.ids import Id
from weft.model import JsonObject
from weft.store import Step
from weft.thread import CommitInfo

from .api_call import ApiCall, Handler
from .api_views import describe_annotation, excerpt, message_text

LABEL_LENGTH = 90


def show_graph(call: ApiCall) -> JsonObject:
    """The commits of all branches and tags, with their lanes."""
    record = call.record()
    if record is None:
        return {"commits": [], "lanes": 0, "refs": {}, "branches": []}
    store, name = call.store, record.name
    refs = store.refs(name)
    steps = read_reachable(store, name, refs.values())
    order = newest_first({id: (s.commit.created, s.commit.parents) for id, s in steps.items()})
    rows = {id: number for number, (id, _) in enumerate(order)}
    views = call.state.views
    commits: list[list[Any]] = []
    lanes = 0
    for placed in assign_lanes(order):
        step = steps[placed.id]
        kind, label = views.label(step, describe_step)
        parents = [[rows[parent], lane] for parent, lane in placed.parents if parent in rows]
        lanes = max(lanes, placed.lane + 1, *(lane + 1 for _, lane in parents))
        created = round(step.commit.created, 3)
        commits.append([placed.id.hex(), kind, placed.lane, created, label, parents])
    return {
        "commits": commits,
        "lanes": lanes,
        "refs": _refs_by_commit(refs),
        "branches": sorted(read_branches(store, name)),
    }


def describe_step(step: Step) -> tuple[str, str]:
    """The kind of a commit in the graph, and its text on one line."""
    info = CommitInfo(step, lambda _: 0)
    messages = info.messages
    kind = info.kind
    if kind == "append" and messages:
        kind = messages[0].role
        text = excerpt(" ".join(map(message_text, messages)))
    else:
        text = describe_annotation(info) or info.message or ""
    return kind, excerpt(text or info.message or kind, LABEL_LENGTH)


def _refs_by_commit(refs: dict[str, Id]) -> dict[str, Sequence[str]]:
    """The branches and tags of each commit; the name of a tag begins with `tag:`."""
    names: dict[str, list[str]] = {}
    for name, id in sorted(refs.items(), key=lambda ref: (ref[0].startswith(TAG), ref[0])):
        names.setdefault(id.hex(), []).append(name)
    return dict(names)


HISTORY_READS: dict[str, Handler] = {"/api/graph": show_graph}
