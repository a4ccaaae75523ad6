"""`weft log --follow`: new messages of a thread, or of all threads, as they arrive.

Finished messages are read from the store. If a server uses the store, answers are also shown while
they stream: they are read from the server's `GET /api/events`. (`weft serve` writes its URL to a
file beside the store.) Without a server, new commits are read from the store twice a second, with
one query for all threads.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from queue import Empty, SimpleQueue
from urllib.parse import quote, urlsplit

from weft import exact_json
from weft.errors import ConfigError
from weft.history import split_typed
from weft.model import JsonObject, Message, ToolCall, ToolResult, describe_call, is_system, texts
from weft.store import SERVER_SUFFIX, Store, companion_path, open_store, read_server
from weft.thread import CommitInfo, Thread, open as open_thread

from .common import existing_store, existing_thread
from .console import print_error
from .describe import commit_json, group_attempts, summarise
from .terminal import Screen, plural, read_screen, shorten

POLL_SECONDS = 0.5
SERVED_POLL_SECONDS = 5.0
"""How often the store is read although a server sends events, in case an event is lost."""
RETRY_SECONDS = 1.0
CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
"""If the server sends nothing for this long, the connection is closed and opened again.

A working server sends something every 15 seconds."""
INITIAL_COMMITS = 10
"""How many of the newest commits are shown at the start, if a thread is named."""
NAME_WIDTH = 24
RESULT_LINES = 3
LINE_WIDTH = 160
FINAL_STATES = ("done", "failed")

Event = JsonObject
"""An event of `GET /api/events`."""


def follow_log(args: argparse.Namespace) -> int:
    """Print what is new until interrupted."""
    path = existing_store(args)
    thread = None if args.thread is None else existing_thread(args, path)
    store = open_store(path)
    try:
        printer = LogPrinter(store, thread, args)
        url = find_server(args, path)
        printer.show_last(INITIAL_COMMITS if args.limit is None else args.limit)
        if url is None:
            print_error(
                "weft: no server uses this store, so only finished messages are shown; "
                "start `weft serve` to see answers while they stream"
            )
            return poll(printer)
        return listen(printer, url, thread)
    finally:
        store.close()


def find_server(args: argparse.Namespace, path: str) -> str | None:
    """The URL of a running server: that of `--url`, or the server of this store.

    `None` if the store has no running server. Raises `ConfigError` if none runs at `--url`.
    """
    url = args.url or read_server(companion_path(path, SERVER_SUFFIX, os.environ))
    if url is None:
        return None
    try:
        with get(url, "/healthz", CONNECT_SECONDS) as response:
            is_weft = b'"weft"' in response.read(1000)  # another program may use the port
    except (OSError, HTTPException, ValueError):
        is_weft = False
    if not is_weft and args.url is not None:
        raise ConfigError(f"no gateway answers at {args.url!r}: start one with `weft serve`")
    return url.rstrip("/") if is_weft else None


def poll(printer: "LogPrinter") -> int:
    """Print new commits of the store, until interrupted."""
    while True:
        printer.show_new()
        time.sleep(POLL_SECONDS)


def listen(printer: "LogPrinter", url: str, thread: str | None) -> int:
    """Print the server's events. While the connection is lost, read the store more often."""
    events: SimpleQueue[Event] = SimpleQueue()
    reader = threading.Thread(target=read_events, args=(url, thread, events), daemon=True)
    reader.start()
    is_announced, poll_seconds = False, SERVED_POLL_SECONDS
    while True:
        try:
            event = events.get(timeout=poll_seconds)
        except Empty:
            printer.show_new()
            continue
        match event["type"]:
            case "lost":
                poll_seconds = POLL_SECONDS
                printer.report_lost(event["error"])
            case "ready":
                if not is_announced:
                    print_error(f"weft: following {url}; press Ctrl-C to stop")
                is_announced, poll_seconds = True, SERVED_POLL_SECONDS
                printer.show_new()
            case "refused":
                raise ConfigError(event["error"])
            case _:
                printer.show_event(event)


def read_events(url: str, thread: str | None, events: "SimpleQueue[Event]") -> None:
    """Read the server's events, and connect again whenever the connection is lost.

    Two events are added to those of the server: `lost` (the connection was lost) and `refused` (the
    status was 4xx, so nothing is tried again).
    """
    query = "" if thread is None else f"?thread={quote(thread)}"
    while True:
        try:
            response = get(url, f"/api/events{query}", READ_SECONDS)
            if 400 <= response.status < 500:
                events.put({"type": "refused", "error": read_refusal(response)})
                return
            for event in decode_events(response):
                events.put(event)
            error = "it closed the connection"
        except (OSError, HTTPException) as failure:
            error = str(failure) or type(failure).__name__
        events.put({"type": "lost", "error": error})
        time.sleep(RETRY_SECONDS)


def get(url: str, path: str, timeout: float) -> HTTPResponse:
    """Send a GET request, with the key in WEFT_API_KEY if there is one."""
    address = urlsplit(url)
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = kind(address.netloc, timeout=timeout)
    key = os.environ.get("WEFT_API_KEY")
    connection.request(
        "GET", address.path.rstrip("/") + path, headers={"x-api-key": key} if key else {}
    )
    return connection.getresponse()


def read_refusal(response: HTTPResponse) -> str:
    """Why the server refused a request, as a sentence for the user."""
    body = response.read(10_000)
    if response.status == 401:
        return "the server wants a key: set WEFT_API_KEY to one of its keys"
    try:
        return str(exact_json.loads(body)["error"]["message"])
    except (exact_json.JSONDecodeError, KeyError, TypeError):
        return f"the server answered with status {response.status}"


def decode_events(response: HTTPResponse) -> Iterator[Event]:
    """The events of a stream: https://html.spec.whatwg.org/multipage/server-sent-events.html"""
    while line := response.readline():
        if line.startswith(b"data: "):
            yield exact_json.loads(line[len(b"data: ") :])


class LogPrinter:
    """Prints commits and running answers, of one thread or of all.

    An exchange is one request to the server and its answer.
    """

    def __init__(self, store: Store, thread: str | None, args: argparse.Namespace) -> None:
        self._store = store
        self._thread = thread
        self._as_json = args.json
        self._screen: Screen = read_screen(sys.stdout, os.environ)
        self._last_arrival = store.last_arrival()
        self._threads: dict[str, Thread] = {}
        self._current_block: tuple[str, int] | None = None
        """The exchange and the block whose text is on the current line."""
        self._running: dict[str, Event] = {}
        """The last `exchange` event of each exchange that has not ended, by its id."""
        self._arguments: dict[tuple[str, int], str] = {}
        """The arguments so far of each call that is not complete, by exchange and block."""
        self._uncommitted: dict[str, int] = {}
        """By thread, how many answers were shown while they streamed and are not committed yet.

        It is negative between the commit of an answer and the event about its end."""
        self._shown_exchanges: set[str] = set()
        """Exchanges whose answers were shown, at least in part."""
        self._is_server_lost = False

    def show_last(self, count: int) -> None:
        """Show the newest commits of a named thread."""
        if self._thread is not None and count:
            handle = self._open_thread(self._thread)
            for info in reversed(handle.log(count)):
                self._show_commit(handle, info)

    def show_new(self) -> None:
        """Show the commits since the last call."""
        while arrivals := self._store.arrivals(self._last_arrival):
            for arrival in arrivals:
                self._last_arrival = arrival.number
                if self._thread in (None, arrival.thread):
                    handle = self._open_thread(arrival.thread)
                    self._show_commit(handle, handle.show(arrival.commit.hex()))

    def report_lost(self, error: str) -> None:
        """Report once that the server is gone; from now on only the store is read."""
        if not self._is_server_lost:
            self._end_line()
            print_error(f"weft: the server is gone ({error}): only finished messages are shown")
        self._is_server_lost = True
        self._running.clear()
        self.show_new()

    def show_event(self, event: Event) -> None:
        """Show an event of the server."""
        self._is_server_lost = False
        match event["type"]:
            case "exchange":
                self._show_exchange(event)
            case "block":
                self._show_block(event)
            case "retry" if self._as_json:
                self._print_json(event)
            case "retry":
                self._show_retry(event)
            case "reload":  # events were dropped; the current state follows
                self._running.clear()
            case _:  # "changed", and types that a newer server may send
                self.show_new()

    def _show_exchange(self, event: Event) -> None:
        """Show that an exchange waits, thinks or has ended."""
        id, thread, state = event["exchange"], event["thread"], event["state"]
        is_over = state in FINAL_STATES
        if not is_over:
            self.show_new()  # shows the request, which is stored by now
            self._running[id] = event
        elif (
            self._running.pop(id, None) is not None
            and id in self._shown_exchanges
            and state == "done"
        ):
            # Its text is on the screen. Its commit comes later, and must not be shown again.
            self._uncommitted[thread] = self._uncommitted.get(thread, 0) + 1
        if self._as_json:
            self._print_json(event)
        elif state == "waiting" and "retry" in event:
            self._show_retry(event)
        elif state == "waiting":
            self._write_line(thread, f"waiting for {event['model']} …", "dim")
        elif state == "thinking":
            self._write_line(thread, "thinking …", "dim")
        elif state == "failed":
            self._write_line(thread, f"failed: {event['error']}", "failed")
        if is_over:
            self._end_line()
            self.show_new()

    def _show_retry(self, event: Event) -> None:
        """Show that a request is sent again, and why."""
        from weft.agent import display_system_message  # slow to import, and rarely needed

        notice = display_system_message(
            {**event["retry"], "type": "system", "subtype": "api_retry"}
        )
        self._write_line(event["thread"], "sent again" if notice is None else notice.text, "failed")

    def _show_block(self, event: Event) -> None:
        """Show a piece of an answer: text at once, a call when its arguments are complete."""
        if self._as_json:
            self._print_json(event)
            return
        key = (event["exchange"], event["index"])
        self._shown_exchanges.add(event["exchange"])
        if event["kind"] == "text" and event["text"]:
            if self._current_block != key:
                self._end_line()
                self._write(self._label(event["thread"], "assistant"))
                self._current_block = key
            self._write(self._screen.safe(event["text"]))
        elif event["kind"] == "call":
            self._arguments[key] = self._arguments.get(key, "") + event["text"]
            if event.get("closed"):
                call = ToolCall(event["call"], event["name"], self._arguments.pop(key))
                self._write_line(event["thread"], shorten(describe_call(call), LINE_WIDTH), "kind")

    def _show_commit(self, handle: Thread, info: CommitInfo) -> None:
        """Show the messages of a commit, or what else it did."""
        if self._as_json:
            messages = [_message_json(message) for message in info.messages]
            commit = commit_json(handle, info, group_attempts(handle.attempts(info.id)))
            self._print_json(
                {"type": "commit", "thread": handle.name, **commit, "messages": messages}
            )
            return
        if info.kind != "append":
            subject, text = summarise(handle, info)
            self._write_line(handle.name, f"{subject}: {shorten(text, LINE_WIDTH)}", "kind")
            return
        for message in info.messages:
            self._show_message(handle.name, message)

    def _show_message(self, thread: str, message: Message) -> None:
        """Show the text, the calls and the results of a message, unless it was streamed."""
        if message.role == "assistant" and self._consume_streamed(thread):
            return
        text = _text_without_results(message)
        if is_system(message):
            self._write_line(thread, f"system: {plural(len(text), 'character')}", "dim")
            return
        if message.role == "user":
            text = split_typed(text)[0]
        if text.strip():
            self._end_line()
            self._write(self._label(thread, message.role) + self._screen.safe(text.strip()) + "\n")
        for block in message.blocks:
            if isinstance(block, ToolCall):
                self._write_line(thread, shorten(describe_call(block), LINE_WIDTH), "kind")
            elif isinstance(block, ToolResult):
                self._write_line(thread, _result_line(block), "dim")

    def _consume_streamed(self, thread: str) -> bool:
        """Whether the answer that was just committed is on the screen already.

        If so, it no longer counts as uncommitted.
        """
        is_running = any(
            id in self._shown_exchanges and event["thread"] == thread
            for id, event in self._running.items()
        )
        if self._uncommitted.get(thread, 0) <= 0 and not is_running:
            return False
        self._uncommitted[thread] = self._uncommitted.get(thread, 0) - 1
        return True

    def _open_thread(self, name: str) -> Thread:
        if name not in self._threads:
            self._threads[name] = open_thread(self._store, name)
        return self._threads[name]

    def _label(self, thread: str, role: str) -> str:
        return f"{self._prefix(thread)}{self._screen.paint(f'{role}:', 'role')} "

    def _prefix(self, thread: str) -> str:
        """The name of a thread, if several are followed."""
        if self._thread is not None:
            return ""
        name = self._screen.name(shorten(thread, NAME_WIDTH))
        return f"{self._screen.paint(name, 'name')} "

    def _write_line(self, thread: str, text: str, style: str) -> None:
        self._end_line()
        safe = self._screen.safe(" ".join(text.split()))
        self._write(f"{self._prefix(thread)}{self._screen.paint(safe, style)}\n")

    def _end_line(self) -> None:
        """End the line of a streamed text."""
        if self._current_block is not None:
            self._current_block = None
            self._write("\n")

    def _print_json(self, value: JsonObject) -> None:
        self._write(exact_json.dumps(value, default=str).decode() + "\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _text_without_results(message: Message) -> str:
    return "\n".join(texts(block for block in message.blocks if not isinstance(block, ToolResult)))


def _result_line(result: ToolResult) -> str:
    """The first lines of a result."""
    lines = "\n".join(texts(result.content)).strip().splitlines()
    first_lines = " ⏎ ".join(lines[:RESULT_LINES])
    more = f" (+{plural(len(lines) - RESULT_LINES, 'line')})" if len(lines) > RESULT_LINES else ""
    return f"{'error' if result.is_error else 'result'}: {shorten(first_lines, LINE_WIDTH)}{more}"


def _message_json(message: Message) -> JsonObject:
    calls = [block for block in message.blocks if isinstance(block, ToolCall)]
    return {
        "role": message.role,
        "text": message.text,
        "calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls],
    }
