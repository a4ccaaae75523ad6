"""The commands that only read: `log`, `show`, `diff`, `compile`, `search`, `recall`, `threads`,
`stats`.

`weft log --graph` shows the commits of all branches, newest first, with the graph beside them.
`draw_graph` takes commits in an order in which children come before their parents. Each lane (a
column of the graph) leads to one commit. If two lanes lead to the same commit, the right one joins
the left. A commit with two parents opens a lane.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from weft import exact_json
from weft.errors import ConfigError
from weft.history import Diff, Row, newest_first, read_branches, read_reachable
from weft.ids import Id
from weft.model import Message, ToolCall, ToolResult, display_text, speaker, thinking_text
from weft.store import Store, ThreadRecord, open_store
from weft.thread import (
    ROLES,
    ChainLink,
    CommitInfo,
    CompiledContext,
    Hit,
    RevertedCommits,
    Thread,
    find_reverted,
    open_existing,
    read_attempt,
    read_title,
    search as search_store,
    threads,
    to_text,
)

from .common import (
    REVISION,
    AddOptions,
    Verb,
    add_command_options,
    existing_store,
    existing_thread,
    print_empty,
    print_json,
    print_rows,
    run_on_thread,
    whole_number,
)
from .console import print_error
from .describe import (
    ID_LENGTH,
    PREVIEW_WIDTH,
    commit_json,
    describe,
    describe_attempt,
    group_attempts,
    marked_messages,
)
from .terminal import (
    MIN_COLUMNS,
    PLAIN,
    Screen,
    columns,
    excerpt_around,
    index_with_progress,
    paged,
    plural,
    shorten,
)

FORMATS: dict[str, Callable[[CompiledContext], Any]] = {
    "dicts": CompiledContext.to_dicts,
    "openai": CompiledContext.to_openai,
    "anthropic": CompiledContext.to_anthropic,
    "responses": CompiledContext.to_responses,
    "gemini": CompiledContext.to_gemini,
}
LOG_BATCH = 500
"""How many lines of the log are printed at once: a `print` for each line is slower."""

LINE_WIDTH = 120
"""The width of a search result if the output is not a terminal."""

THINKING_WIDTH = 80
"""The width of thinking that is shown as one line."""

DIFF_STYLES = {"-": "old", "+": "new"}


def run(args: argparse.Namespace) -> int:
    if args.command == "log" and args.name is not None:
        if args.thread is not None:
            raise ConfigError("the thread is named twice: leave out --thread")
        args.thread = args.name
    if args.command == "log" and (args.follow or args.url):
        return _follow(args)
    with nullcontext(PLAIN) if args.json else paged() as screen:
        args.screen = screen
        if args.command == "threads":
            return list_threads(args)
        if args.command == "search":
            return search(args)
        return run_on_thread(args, VERBS[args.command])


def _follow(args: argparse.Namespace) -> int:
    """Print new messages until interrupted, without a pager."""
    if not args.follow:
        raise ConfigError("--url needs --follow")
    if args.graph:
        raise ConfigError("--follow and --graph exclude each other")
    from .follow import follow_log

    return follow_log(args)


def list_threads(args: argparse.Namespace) -> int:
    """List the threads of the store, last active first.

    Subagents and side questions of a session are its children. They are counted, and listed below
    it with `--children`. JSON has every thread with its parent.
    """
    if args.deleted:
        return list_deleted(args)
    store = open_store(existing_store(args))
    try:
        last_active = store.last_active()
        newest_first = reversed(store.threads())  # decides between threads active at the same time
        records = sorted(newest_first, key=lambda record: last_active[record.name], reverse=True)
        children = group_children(records)
        if args.folder is not None:
            folder = os.path.realpath(os.path.expanduser(args.folder))
            records = [record for record in records if is_in_folder(record, folder)]
        if not args.json:
            records = [record for record in records if record.parent not in last_active]
        listed_records = records if args.limit is None else records[: args.limit]
        if args.children and not args.json:
            listed_records = [
                each
                for record in listed_records
                for each in (record, *descendants(record, children))
            ]
        rows = [
            _thread_json(
                store, record, last_active[record.name], len(children.get(record.name, ()))
            )
            for record in listed_records
        ]
    finally:
        store.close()
    listed = {row["name"] for row in rows}
    empty = "" if args.folder is None else f"no thread belongs to {args.folder!r}"
    print_rows(
        args, rows, lambda row: _thread_line(row, args.screen, row["parent"] in listed), empty
    )
    return 0


def group_children(records: Sequence[ThreadRecord]) -> dict[str, list[ThreadRecord]]:
    """The children of each thread, by its name, in the order of `records`."""
    children: dict[str, list[ThreadRecord]] = {}
    for record in records:
        if record.parent is not None:
            children.setdefault(record.parent, []).append(record)
    return children


def descendants(
    record: ThreadRecord, children: Mapping[str, Sequence[ThreadRecord]]
) -> Iterator[ThreadRecord]:
    """The children of a thread, each followed by its own."""
    for child in children.get(record.name, ()):
        yield child
        yield from descendants(child, children)


def list_deleted(args: argparse.Namespace) -> int:
    """List the threads that `weft undelete` can restore."""
    rows = [
        {"name": record.name, "deleted": _iso(record.deleted or 0.0)}
        for record in threads(existing_store(args), deleted=True)
    ]
    print_rows(
        args,
        rows,
        lambda row: f"{args.screen.name(row['name'])}  deleted {_local_time(row['deleted'])}",
        "there are no deleted threads",
    )
    return 0


def _thread_json(
    store: Store, record: ThreadRecord, last_active: float, children: int
) -> dict[str, Any]:
    """A thread as JSON. Only its first message is read, for the title."""
    return {
        "name": record.name,
        "branch": record.head,
        "branches": list(read_branches(store, record.name)),
        "commits": store.count(record.name),
        "created": _iso(record.created),
        "last": _iso(last_active),
        "first": shorten(read_title(store, record) or "", PREVIEW_WIDTH),
        "title": record.title,
        "parent": record.parent,
        "kind": record.kind,
        "folder": record.folder,
        "children": children,
    }


def is_in_folder(record: ThreadRecord, folder: str) -> bool:
    """Whether a thread was started in this folder or below it."""
    if record.folder is None:
        return False
    own = os.path.realpath(record.folder)
    return own == folder or own.startswith(folder.rstrip("/") + "/")


def _local_time(moment: str) -> str:
    """A time in ISO format as a list shows it: local, to the minute."""
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}"


def _thread_line(row: dict[str, Any], screen: Screen, is_child: bool) -> str:
    """`name  2 branches, 14 commits, 3 children  2026-01-31 12:00  first words`."""
    last = _local_time(row["last"])
    counts = f"{plural(len(row['branches']), 'branch')}, {plural(row['commits'], 'commit')}"
    if row["children"]:
        counts += ", 1 child" if row["children"] == 1 else f", {row['children']} children"
    if is_child:
        counts += f", {row['kind']}"
    counts += f"  {last}"
    name = ("  " if is_child else "") + screen.name(row["name"])
    title = screen.fit(row["first"], columns(name) + len(counts) + 4)
    return f"{screen.paint(name, 'name')}  {counts}  {title}".rstrip()


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


def log(thread: Thread, args: argparse.Namespace) -> None:
    if args.graph:
        log_graph(thread, args)
        return
    attempts = group_attempts(thread.attempts())
    reverted = RevertedCommits()
    if args.json:
        print_json(
            [
                commit_json(thread, info, attempts, reverted.check(info.id, info.reverts))
                for info in thread.log(args.limit)
            ]
        )
        return
    lines: list[str] = []
    for info in thread.iter_log(args.limit):
        is_reverted = reverted.check(info.id, info.reverts)
        lines.append(describe(thread, info, args.screen, is_reverted=is_reverted))
        if attempts:
            lines += [describe_attempt(each, args.screen) for each in attempts.get(info.id, ())]
        if len(lines) >= LOG_BATCH:
            print("\n".join(lines))
            lines.clear()
    if lines:
        print("\n".join(lines))
    if thread.head is None:
        print_empty(f"branch {thread.current!r} has no commits: `weft commit TEXT` adds one")


class GraphLine(Struct, frozen=True):
    """A line of the graph: its characters, and the commit on it, if any."""

    characters: str
    commit: Id | None = None


def log_graph(thread: Thread, args: argparse.Namespace) -> None:
    """Print every commit that a branch or tag reaches, with the graph."""
    refs = thread.store.refs(thread.name)
    branches = read_branches(thread.store, thread.name)
    steps = read_reachable(thread.store, thread.name, refs.values(), args.limit)
    order = newest_first({id: (s.commit.created, s.commit.parents) for id, s in steps.items()})
    names = _ref_names(refs, thread.current)
    lines = list(draw_graph(order))
    if args.limit is not None:
        lines = _first_commits(lines, args.limit)
    ids = [line.commit for line in lines if line.commit is not None]
    stored = thread.store.attempts(thread.name, ids)
    attempts = group_attempts(map(read_attempt, stored))
    infos = {id: thread.show(id.hex()) for id in ids}

    def read_link(id: Id) -> ChainLink | None:
        info = infos.get(id)
        return (
            None
            if info is None
            else ChainLink(next(iter(steps[id].commit.parents), None), info.reverts)
        )

    reverted = find_reverted(branches.values(), read_link)
    if args.json:
        print_json(
            [
                {
                    **commit_json(thread, infos[line.commit], attempts, line.commit in reverted),
                    "refs": names.get(line.commit, []),
                }
                for line in lines
                if line.commit is not None
            ]
        )
        return
    if not refs:
        print_empty("the thread has no commits: `weft commit TEXT` adds one")
    for line in lines:
        info = None if line.commit is None else infos[line.commit]
        print(_graph_line(line, thread, info, names, args.screen, line.commit in reverted))
        if info is None:
            continue
        for attempt in attempts.get(info.id, ()):
            lanes = line.characters.replace("*", "|" if info.parents else " ")
            print(lanes + describe_attempt(attempt, args.screen, len(lanes)))


def _graph_line(
    line: GraphLine,
    thread: Thread,
    info: CommitInfo | None,
    names: Mapping[Id, list[str]],
    screen: Screen,
    is_reverted: bool,
) -> str:
    """A line of the graph with its colours, and with the refs and the text of its commit."""
    characters = "".join(
        screen.lane(character, column // 2) if character != " " else character
        for column, character in enumerate(line.characters)
    )
    if info is None or line.commit is None:
        return characters.rstrip()
    refs = names.get(line.commit, [])
    label = screen.name(f"({', '.join(refs)}) ") if refs else ""
    used_columns = len(line.characters) + 1 + len(label)
    text = describe(thread, info, screen, used_columns, is_reverted=is_reverted)
    return f"{characters} {screen.paint(label.rstrip(), 'name')}{' ' if label else ''}{text}"


def _ref_names(refs: Mapping[str, Id], current: str) -> dict[Id, list[str]]:
    """The names of the branches and tags at each commit; the current branch has a star."""
    names: dict[Id, list[str]] = {}
    for name, target in refs.items():
        names.setdefault(target, []).append(f"*{name}" if name == current else name)
    return names


def _first_commits(lines: list[GraphLine], limit: int) -> list[GraphLine]:
    """The first lines of a graph, with at most `limit` commits."""
    first: list[GraphLine] = []
    commits = 0
    for line in lines:
        if line.commit is not None:
            commits += 1
        if commits > limit:
            break
        first.append(line)
    return first


def draw_graph(commits: Iterable[tuple[Id, Sequence[Id]]]) -> Iterator[GraphLine]:
    """The graph of these commits, line by line."""
    lanes: list[Id] = []  # the next commit of each lane
    for id, parents in commits:
        own_lanes = [number for number, next_commit in enumerate(lanes) if next_commit == id]
        if not own_lanes:
            lanes.append(id)
            own_lanes = [len(lanes) - 1]
        lane = own_lanes[0]
        for other in reversed(own_lanes[1:]):
            yield GraphLine(_join_line(len(lanes), lane, other))
            del lanes[other]
        yield GraphLine(_commit_line(len(lanes), lane), id)
        if not parents:
            closing = _close_line(len(lanes), lane)
            del lanes[lane]
            if closing:
                yield GraphLine(closing)
            continue
        lanes[lane] = parents[0]
        for other, parent in enumerate(parents[1:], start=lane + 1):
            yield GraphLine(_fork_line(len(lanes), other - 1))
            lanes.insert(other, parent)


def _commit_line(lanes: int, lane: int) -> str:
    return " ".join("*" if number == lane else "|" for number in range(lanes))


def _join_line(lanes: int, to: int, lane: int) -> str:
    """The line in which `lane` joins the lane `to`, below the lanes between them."""
    characters = list(" ".join("|" * lanes))
    characters[2 * lane] = " "
    characters[2 * lane - 1] = "/"
    for gap in range(2 * to + 1, 2 * lane - 1, 2):
        characters[gap] = "_"
    for right in range(lane + 1, lanes):  # lanes further right move one to the left
        characters[2 * right] = " "
        characters[2 * right - 1] = "/"
    return "".join(characters).rstrip()


def _fork_line(lanes: int, lane: int) -> str:
    """The line in which a lane opens to the right of `lane`, and lanes further right move right."""
    left = " ".join("|" * (lane + 1))
    return left + "\\" + " \\" * (lanes - lane - 1)


def _close_line(lanes: int, lane: int) -> str:
    """The line in which `lane` ends and lanes further right move left; empty if there are none."""
    lanes_right = lanes - lane - 1
    if not lanes_right:
        return ""
    left = "| " * lane
    return (left + " /" * lanes_right).rstrip()


def show(thread: Thread, args: argparse.Namespace) -> None:
    if args.sent:
        _show_sent(thread, args)
        return
    info = thread.show(args.id)
    attempts = group_attempts(thread.attempts(info))
    echo = thread.client_echo(info.id)  # the answer as the client repeats it, if it differs
    messages = info.messages or marked_messages(thread, info)
    if args.json:
        rows = [_message_json(message) for message in messages]
        echo_json = {} if echo is None else {"echo": _message_json(echo)}
        print_json({**commit_json(thread, info, attempts), "messages": rows, **echo_json})
        return
    paint = args.screen.paint
    print(f"commit {paint(info.id, 'id')}\nkind   {paint(info.kind, 'kind')}")
    print(f"date   {info.created:%Y-%m-%d %H:%M:%S}")
    if info.message:
        print(f"note   {args.screen.safe(info.message)}")
    for message in messages:
        name = paint(args.screen.name(speaker(message)), "role")
        thinking = _thinking_line(message, whole=args.reasoning)
        text = "\n".join(filter(None, [thinking, display_text(message)]))
        print(f"\n{name}: {args.screen.safe(text)}")
    if echo is not None:
        print(
            f"\n{paint('the client repeats it as', 'role')}: {args.screen.safe(display_text(echo))}"
        )
    for attempt in attempts.get(info.id, ()):
        print(f"\n{describe_attempt(attempt, args.screen, whole=True)}")


def _thinking_line(message: Message, *, whole: bool) -> str:
    """`[thinking: ...]`, whole or as one line; empty if the message has no thinking."""
    thinking = thinking_text(message)
    if not thinking:
        return ""
    return f"[thinking: {thinking if whole else shorten(thinking, THINKING_WIDTH)}]"


def _message_json(message: Message) -> dict[str, Any]:
    """A message as JSON, with its thinking, its tool calls and the ids of the calls that it
    answers."""
    calls = [
        {"id": block.id, "name": block.name, "arguments": block.arguments}
        for block in message.blocks
        if isinstance(block, ToolCall)
    ]
    results = [block.call_id for block in message.blocks if isinstance(block, ToolResult)]
    data: dict[str, Any] = {"role": message.role, "content": message.text}
    if thinking := thinking_text(message):
        data["thinking"] = thinking
    return data | ({"calls": calls} if calls else {}) | ({"results": results} if results else {})


def _show_sent(thread: Thread, args: argparse.Namespace) -> None:
    """Print the exact bytes that were sent; with `--json`, together with their receipt."""
    sent = thread.show(args.id, sent=True)
    if args.json:
        print_json({"receipt": sent.receipt.to_dict(), "body": _body_json(sent.body)})
    elif args.screen.width is not None:
        print(args.screen.safe(sent.body.decode()))  # a terminal also gets a newline
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(sent.body)


def _body_json(body: bytes) -> exact_json.Fragment | str:
    """The body as JSON, byte for byte; as a string if it is not JSON."""
    try:
        exact_json.loads(body)
    except exact_json.JSONDecodeError:
        return body.decode()
    return exact_json.Fragment(body)


def diff(thread: Thread, args: argparse.Namespace) -> None:
    change = _last_change(thread) if args.before is None else thread.diff(args.before, args.after)
    if args.json:
        print_json(_diff_json(change))
        return
    *lines, total = str(change).split("\n")
    for line in lines:
        print(args.screen.paint(args.screen.safe(line), DIFF_STYLES.get(line[:1], "dim")))
    print(args.screen.safe(total))


def _last_change(thread: Thread) -> Diff:
    """What the newest commit changed; the first commit is compared with an empty thread."""
    head = thread.head
    # The time 0.0 is before every commit, so it stands for the empty thread.
    return thread.diff(head.parents[0] if head is not None and head.parents else 0.0)


def _diff_json(change: Diff) -> dict[str, Any]:
    return {
        "tokens": change.tokens,
        "changes": [
            {
                "kind": delta.kind,
                "id": delta.id,
                "before": None if delta.before is None else display_text(delta.before.message),
                "after": None if delta.after is None else display_text(delta.after.message),
            }
            for delta in change.changes
        ],
    }


def compile_thread(thread: Thread, args: argparse.Namespace) -> None:
    compiled = thread.compile(args.at, last=args.last, reasoning=args.reasoning)
    if args.json or args.format is not None:
        print_json(FORMATS[args.format or "dicts"](compiled))
    elif len(compiled):
        print("\n\n".join(_row_text(row, args.screen, args.reasoning) for row in compiled.rows))
    elif thread.head is None:
        print_empty(f"branch {thread.current!r} has no messages: `weft commit TEXT` adds one")


def _row_text(row: Row, screen: Screen, reasoning: bool) -> str:
    """A message for people: the speaker, then the text."""
    speaker, colon, text = to_text([row], reasoning=reasoning).partition(":")
    return f"{screen.paint(screen.name(speaker), 'role')}{colon}{screen.safe(text)}"


def search(args: argparse.Namespace) -> int:
    """Search all threads, or one. Results name their thread if the store has several."""
    path = existing_store(args)
    args.words = " ".join(args.words)
    if args.thread is not None:
        args.thread = existing_thread(args, path)
    with open_existing(path) as store:
        index_with_progress(store)
    hits = search_store(
        path,
        args.words,
        args.offset + args.limit + 1,  # one more, to know whether there are more
        thread=args.thread,
        role=args.role,
        branch=args.branch,
        since=args.since,
        until=args.until,
        regex=args.regex,
        path=args.path,
    )
    shows_thread = args.thread is None and len(threads(path)) > 1
    _print_hits(args, hits, shows_thread=shows_thread)
    return 0


def recall(thread: Thread, args: argparse.Namespace) -> None:
    index_with_progress(thread.store)
    filters = {"since": args.since, "until": args.until, "path": args.path}
    if args.tokens is not None:
        page = thread.recall_page(args.words, tokens=args.tokens, offset=args.offset, **filters)
        if args.json:
            print_json({"body": page.body, "note": page.note, "next": page.next})
        elif page.text:
            print(args.screen.safe(page.text))
        else:
            print_error(f"weft: no message contains {args.words!r}")
        return
    # One more than is printed, to know whether there are more.
    hits = thread.recall(args.words, args.offset + args.limit + 1, **filters)
    _print_hits(args, hits, whole=True)


def _hit_json(hit: Hit) -> dict[str, Any]:
    return {
        "id": hit.id,
        "text": hit.text,
        "live": hit.live,
        "role": hit.role,
        "speaker": hit.speaker,
        "calls": hit.calls,
        "summary": hit.summary,
        "thread": hit.thread,
        "commit": hit.commit,
        "created": None if hit.created is None else hit.created.isoformat(),
        "kind": hit.kind,
    }


def _print_hits(
    args: argparse.Namespace, hits: list[Hit], *, whole: bool = False, shows_thread: bool = False
) -> None:
    """Print one line per hit, or with `whole` the whole text of each."""

    def line(hit: dict[str, Any]) -> str:
        id, state = hit["id"][:ID_LENGTH], "live" if hit["live"] else "gone"
        thread = f"{args.screen.name(hit['thread'])} " if shows_thread else ""
        used_columns = ID_LENGTH + len(state) + len(hit["speaker"]) + columns(thread) + 4
        text = "\n".join(filter(None, [hit["text"], hit["calls"]]))
        if not whole:
            text = excerpt_around(
                text,
                args.words.split(),
                max(MIN_COLUMNS, (args.screen.width or LINE_WIDTH) - used_columns),
            )
        text = args.screen.safe(text)
        name = args.screen.name(hit["speaker"])
        return f"{args.screen.paint(id, 'id')} {thread}{state} {name}: {text}"

    page = hits[args.offset : args.offset + args.limit]
    print_rows(args, [_hit_json(hit) for hit in page], line)
    if args.json:
        return
    if hits and not args.limit:
        print_error("weft: there are results, but -n 0 lists none")
    elif not page:
        more = " more" if hits else ""
        print_error(f"weft: no{more} message contains {args.words!r}")
    elif len(hits) > args.offset + args.limit:
        print_error(f"weft: there are more; --offset {args.offset + args.limit} shows them")


def stats(thread: Thread, args: argparse.Namespace) -> None:
    thread_stats, total_usage = thread.stats_with_usage()
    values, usage = thread_stats.to_dict(), total_usage.to_dict()
    if args.json:
        print_json({**values, "usage": usage})
        return
    priorities = [f"{number} {name}" for name, number in values["priorities"].items()]
    price = "$?" if usage["cost"] is None else f"${usage['cost']:.4f}"
    if usage["unpriced"]:
        price += f"  ({usage['unpriced']} of {usage['answers']} answers have no price)"
    if not usage["answers"]:
        price = ""
    reported = {"answers": usage["answers"], "input": usage["input"], "output": usage["output"]}
    lines = {**values, "priorities": ", ".join(priorities), **reported, "cost": price}
    for name, value in lines.items():
        print(args.screen.safe(f"{name:<11}{value}".rstrip()))


def _log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--limit", type=whole_number, metavar="N", help="list only the newest N commits"
    )
    parser.add_argument("--graph", action="store_true", help="draw all branches")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="print new messages, and answers while they stream: of all threads, or of the thread "
        "that you name",
    )
    parser.add_argument(
        "name", nargs="?", metavar="THREAD", help="the thread; the same as --thread"
    )
    parser.add_argument(
        "--url",
        help="with --follow: the URL of the gateway (default: the one that serves this store)",
    )


def _show_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=f"the commit or message: {REVISION}")
    parser.add_argument(
        "--sent",
        action="store_true",
        help="print the exact request that the model received for this answer",
    )
    parser.add_argument("--reasoning", action="store_true", help="also show the thinking, in full")


def _diff_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "before",
        nargs="?",
        help=f"the older commit: {REVISION}; without it, show what the last commit changed",
    )
    parser.add_argument("after", nargs="?", help="the newer commit (default: HEAD)")


def _compile_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "at", nargs="?", metavar="COMMIT", help=f"the commit: {REVISION} (default: HEAD)"
    )
    parser.add_argument(
        "--last", type=whole_number, metavar="N", help="print only the newest N messages"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help='print JSON in this vendor\'s format; dicts: a list of {"role", "content"} objects',
    )
    parser.add_argument("--reasoning", action="store_true", help="also print the thinking")


def _search_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="+",
        metavar="WORD",
        help="the words to find, or with --regex the expression",
    )
    parser.add_argument("--role", choices=ROLES, help="only messages of this role")
    parser.add_argument("--branch", help="only messages in this branch's history")
    parser.add_argument("--regex", action="store_true", help="WORD is a regular expression")
    _paging_options(parser)


def _recall_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        help="an id or HEAD~N, a checkpoint, or words of the original, as one argument",
    )
    parser.add_argument(
        "--tokens",
        type=whole_number,
        metavar="N",
        help="print one page of at most N tokens instead, as the agent's tool `recall` returns it; "
        "--offset is then the offset of the page",
    )
    _paging_options(parser)


def _paging_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="TIME", help="not before this time: 2026-01-31 or 2026-01-31T12:00"
    )
    parser.add_argument("--until", metavar="TIME", help="not after this time")
    parser.add_argument(
        "--path", help="only messages that mention this file; the end of its path is enough"
    )
    parser.add_argument(
        "-n",
        "--limit",
        type=whole_number,
        default=20,
        metavar="N",
        help="the maximum number of results (default: 20)",
    )
    parser.add_argument(
        "--offset", type=whole_number, default=0, metavar="N", help="skip the first N results"
    )


def _no_options(parser: argparse.ArgumentParser) -> None:
    """`stats` has no options of its own."""


def _threads_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--limit",
        type=whole_number,
        metavar="N",
        help="list only the N threads that were last active",
    )
    parser.add_argument(
        "--children",
        "--all",
        action="store_true",
        help="list subagents and side questions (requests that a client makes for itself) below "
        "their session",
    )
    parser.add_argument(
        "--folder",
        nargs="?",
        const=".",
        metavar="DIR",
        help="list only the threads that a client or command started in this folder or below it "
        "(without DIR: the current one)",
    )
    parser.add_argument(
        "--deleted", action="store_true", help="list deleted threads that can be restored"
    )


OPTIONS: dict[str, AddOptions] = {
    "log": _log_options,
    "show": _show_options,
    "diff": _diff_options,
    "compile": _compile_options,
    "search": _search_options,
    "recall": _recall_options,
    "stats": _no_options,
    "threads": _threads_options,
}

configure = add_command_options(OPTIONS, ignoring_thread=["threads"])
VERBS: dict[str, Verb] = {
    "log": log,
    "show": show,
    "diff": diff,
    "compile": compile_thread,
    "recall": recall,
    "stats": stats,
}
