"""Count the functions and modules of Weft that one small exchange passes.

The exchange is the third turn of a conversation: an Anthropic client that names its session, and an
upstream that speaks Chat Completions. Everything runs in this process, so that a profiler sees it.

    python bench/exchange_hops.py
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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


async def count(folder: str, url: str) -> Counter[tuple[str, str]]:
    calls, is_counting = Counter[tuple[str, str]](), threading.Event()

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        inner = code.co_name.startswith("<")  # comprehensions, generators and lambdas
        if event != "call" or inner or not is_counting.is_set():
            return
        if code.co_filename.startswith(SOURCE):
            calls[code.co_filename, code.co_qualname] += 1

    threading.setprofile(profile)  # for the threads that the recorder starts
    flags = Flags(store=f"{folder}/threads.db", upstreams=[f"up=openai-chat:{url}"])
    async with open_state(read_settings(flags, {"UP_API_KEY": "k"})) as state:
        app, messages = build(state), [{"role": "user", "content": "Hello"}]
        for _ in range(2):
            answer = await post(app, messages)
            messages.append({"role": "assistant", "content": answer["content"]})
            messages.append({"role": "user", "content": "And then?"})
        is_counting.set()
        sys.setprofile(profile)
        await post(app, messages)
        sys.setprofile(None)
    return calls


def main() -> None:
    with TemporaryDirectory() as folder, upstream() as url:
        calls = asyncio.run(count(folder, url))
    modules = {module for module, _ in calls}
    print(f"{len(calls)} functions in {len(modules)} modules, {calls.total()} calls")


if __name__ == "__main__":
    main()
