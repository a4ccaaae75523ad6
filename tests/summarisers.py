"""Upstreams that write summaries over a real socket, and threads for them.

`says(text)` is a streamed answer of Chat Completions, and `refuses(...)` an error in OpenAI's
format. A `Writer` asks a model on such a socket and records the requests.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from servers import Scripted, Upstream, scripted_upstream
from weft.agent import Agent
from weft.catalog import Catalog, CatalogRow, load_catalog
from weft.client import ModelClient, RetryPolicy, make_provider
from weft.model import Message, ToolCall
from weft.thread import Thread

ONCE = RetryPolicy(attempts=1, statuses=frozenset())


def says(text: str, stop: str = "stop") -> Scripted:
    frames = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]},
    ]
    return Scripted(_frames(frames))


def refuses(status: int, message: str, code: str | None = None) -> Scripted:
    body = {"error": {"message": message, "type": "invalid_request_error", "code": code}}
    return Scripted(orjson.dumps(body), status=status, kind="application/json")


def tool_calls(calls: list[tuple[str, str, Any]]) -> Scripted:
    """A streamed answer that calls tools; arguments that are text are sent as they are."""
    delta = {
        "role": "assistant",
        "tool_calls": [
            {
                "index": number,
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": _json(value)},
            }
            for number, (id, name, value) in enumerate(calls)
        ],
    }
    frames = [
        {"choices": [{"index": 0, "delta": delta}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    return Scripted(_frames(frames))


def _json(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _frames(frames: list[dict[str, Any]]) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    data = b"".join(b"data: " + orjson.dumps({**head, **frame}) + b"\n\n" for frame in frames)
    return data + b"data: [DONE]\n\n"


TOO_LONG = refuses(400, "this model's maximum context length is small", "context_length_exceeded")
DOWN = refuses(500, "the server is on fire")
CUT = Scripted(b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"half a', cut=True)


def bodies(upstream: Upstream) -> list[dict[str, Any]]:
    return [orjson.loads(request["body"]) for request in upstream.requests]


def role_texts(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The role and the text of every message in a Chat Completions body."""
    return [(message["role"], _text(message["content"])) for message in body["messages"]]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content)


def catalogue(**fields: Any) -> Catalog:
    """The shipped catalogue with a model `m` of its own."""
    row = CatalogRow(match="m", upstream="*", fields={"output": 2000, **fields})
    return Catalog((*load_catalog().rows, row))


def asker(url: str, name: str = "m", protocol: str = "openai-chat", **fields: Any) -> ModelClient:
    provider = make_provider("u", protocol, url)
    return ModelClient(provider, name, catalogue(**fields), policy=ONCE)


@contextmanager
def writer(*script: Scripted, **fields: Any) -> Iterator[tuple[Upstream, ModelClient]]:
    """An upstream that follows a script, and an asker for its model."""
    with scripted_upstream() as upstream:
        upstream.then(*script)
        yield upstream, asker(upstream.url, **fields)


def talk(thread: Thread, turns: int, first: int = 0) -> None:
    """Exchanges about modules: each has a different path, number and error."""
    for n in range(first, first + turns):
        thread.user(f"Step {n}: what does src/module_{n}.py do, and why does it fail?")
        thread.assistant(
            f"src/module_{n}.py reads `config_{n}` and raises ConfigError {4000 + n} when it is "
            f"empty, because nobody checks it. I would fix that in `load_{n}` first."
        )


def tool_round(thread: Thread, number: int, size: int = 1) -> None:
    """One call and its result."""
    call = ToolCall(f"call{number}", "read", f'{{"path": "src/file_{number}.py"}}')
    thread.commit_message(Message("assistant", (call,)))
    thread.tool_result(f"call{number}", f"line {number} of the file says value_{number}. " * size)


def state_of(thread: Thread) -> tuple[Any, ...]:
    """Everything that a failure must not change: rows with ids and priorities, head, log, refs."""
    compiled = thread.compile()
    return (
        compiled.rows,
        thread.head,
        [info.id for info in thread.log()],
        thread.store.refs(thread.name),
    )


def watch(agent: Agent, text: str) -> list[Any]:
    """All events of one run."""

    async def collect() -> list[Any]:
        return [event async for event in agent.run(text)]

    return asyncio.run(collect())
