"""Count the functions and modules of Weft that each walkthrough of docs/architecture.md runs.

1. A request of four messages is translated from Chat Completions to Anthropic Messages.
2. A message is appended to a thread, and the thread is compiled.
3. A thread of twelve turns is compacted to a budget of tokens.
4. The third turn of a conversation goes through the gateway: an Anthropic client that names its
   session, and an upstream that speaks Chat Completions.

Everything runs in this process, so that a profiler sees it, and once before it is counted, so that
imports and caches do not count. `--list` prints the functions in the order of their first call.

    python bench/hops.py [--list 1]
"""

import argparse
import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import orjson

import weft
from weft.gateway import Flags, build, open_state, read_settings

SOURCE = str(Path(weft.__file__).parent)
ANSWER = orjson.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello."},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
)


class Upstream(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


async def post(app: Any, messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = orjson.dumps({"model": "up/m", "max_tokens": 9, "messages": messages})
    received, sent = [{"type": "http.request", "body": body}], list[dict[str, Any]]()

    async def receive() -> Any:
        return received.pop() if received else await asyncio.sleep(60)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"x-session-id", b"one")]
    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "query_string": b""}
    await app({**scope, "headers": headers}, receive, send)
    return orjson.loads(b"".join(message.get("body", b"") for message in sent))


class Recorded:
    """The calls of Weft's functions while `on`, by file and qualified name, in order."""

    def __init__(self) -> None:
        self.calls = Counter[tuple[str, str]]()
        self.on = False

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        inner = code.co_name.startswith("<")  # comprehensions, generators and lambdas
        if event == "call" and self.on and not inner and code.co_filename.startswith(SOURCE):
            self.calls[code.co_filename, code.co_qualname] += 1

    @contextmanager
    def recording(self) -> Iterator[None]:
        threading.setprofile(self.profile)  # for threads that are started inside
        sys.setprofile(self.profile)
        self.on = True
        try:
            yield
        finally:
            self.on = False
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]


def translate_body(recorded: Recorded, as_bytes: bool) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    body: Any = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}
    body = orjson.dumps(body) if as_bytes else body
    weft.translate(body, "openai-chat", "anthropic")
    with recorded.recording():
        weft.translate(body, "openai-chat", "anthropic")


def append_and_compile(recorded: Recorded, folder: str) -> None:
    with weft.open(f"{folder}/append.db") as thread:
        for counted in (False, True):
            with recorded.recording() if counted else nullcontext():
                thread.user("Hello")
                thread.compile()


def compact_thread(recorded: Recorded, folder: str) -> None:
    for counted in (False, True):
        with weft.open(f"{folder}/compact{counted}.db") as thread:
            for number in range(12):
                thread.user(f"question {number}: where is the parser? " * 20)
                thread.assistant(f"answer {number}: in src/parser.py. " * 20)
            with recorded.recording() if counted else nullcontext():
                thread.compact(budget=1500)


async def exchange(recorded: Recorded, folder: str, url: str) -> None:
    threading.setprofile(recorded.profile)  # for the threads that the recorder starts
    flags = Flags(store=f"{folder}/threads.db", upstreams=[f"up=openai-chat:{url}"])
    async with open_state(read_settings(flags, {"UP_API_KEY": "k"})) as state:
        app, messages = build(state), [{"role": "user", "content": "Hello"}]
        for _ in range(2):
            answer = await post(app, messages)
            messages.append({"role": "assistant", "content": answer["content"]})
            messages.append({"role": "user", "content": "And then?"})
        with recorded.recording():
            await post(app, messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", type=int, help="print the functions of this walk")
    args = parser.parse_args()
    names = ("translate, bytes", "translate, dict", "append and compile", "compact", "exchange")
    walks = (1, 1, 2, 3, 4)
    with TemporaryDirectory() as folder, upstream() as url:
        for walk, name in zip(walks, names, strict=True):
            recorded = Recorded()
            if walk == 1:
                translate_body(recorded, name.endswith("bytes"))
            elif walk == 2:
                append_and_compile(recorded, folder)
            elif walk == 3:
                compact_thread(recorded, folder)
            else:
                asyncio.run(exchange(recorded, folder, url))
            calls = recorded.calls
            modules = {module for module, _ in calls}
            print(
                f"{walk}. {name}: {len(calls)} functions in {len(modules)} modules, "
                f"{calls.total()} calls"
            )
            for module, function in calls if walk == args.list else ():
                print(f"   {module.removeprefix(SOURCE)[1:]} {function}")


if __name__ == "__main__":
    main()
