"""Simulated clients in long sessions, and a model that needs its private state back.

`ThinkingModel` is an upstream of all four protocols. Each of its answers has a marker in its text
and private state that only the protocol's own field carries (a signature, `reasoning_content`,
`thoughtSignature`, encrypted thinking). Whenever a request echoes an answer, its private state
must be in the request too; `missing` lists the requests without it.

`Session` simulates a client over many turns: tool calls, edits, rewinds, retries, stops, subagents,
questions for a title, compactions. Real clients change answers when they send them back, and so
does it, in the ways that its `Habits` list. It knows what its thread must look like at the end.
"""

import random
import re
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Literal

import orjson
from msgspec import Struct, structs

import weft
from servers import SECONDS, UPSTREAM_NAMES, post

Json = dict[str, Any]
MARKER = re.compile(r"\[a(\d+)\]")
NONCE = re.compile(rb"nonce-[0-9a-f]{12}")

SUMMARY_QUESTION = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n"
    "Your task is to create a detailed summary of the conversation so far."
)
SUMMARY_OPENING = (
    "This session is being continued from a previous conversation that ran out of context. "
    "The summary below covers the earlier portion of the conversation.\n\n"
)
TITLE_QUESTION = (  # of Open WebUI, which has it in every protocol
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n"
    "### Guidelines:\n- The title should clearly represent the main theme or subject of the "
    "conversation.\n"
)


class Answer(Struct, frozen=True):
    """What the model answers: texts, calls as (name, arguments), or a failure.

    A stream that `pauses` stops before its end, until the model's event `resume` is set.
    """

    texts: tuple[str, ...] = ()
    calls: tuple[tuple[str, Json], ...] = ()
    status: int = 200
    is_cut: bool = False
    pauses: bool = False


class Call(Struct, frozen=True):
    id: str
    name: str
    arguments: Json


class Turn(Struct, frozen=True):
    """A message as the model or the user wrote it, and as the client echoes it."""

    role: Literal["user", "assistant", "result"]
    text: str = ""
    texts: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    call: str = ""
    is_error: bool = False
    private: str = ""
    items: tuple[Json, ...] = ()


class ThinkingModel:
    """The answers to give, by session, and the private state that did not come back.

    In the sessions of `numbered` the calls are numbered, as some servers do.
    """

    def __init__(self) -> None:
        self.script: dict[str, list[Answer]] = {}
        self.private: dict[int, str] = {}
        self.ids: dict[str, int] = {}
        self.missing: list[str] = []
        self.bodies: dict[str, list[bytes]] = {}
        self.numbered: set[str] = set()
        self.is_paused = threading.Event()
        self.resume = threading.Event()
        self.url = ""
        self._numbers = count(1)
        self._lock = threading.Lock()

    def next_answer(self, path: str, raw: bytes) -> tuple[Answer, int]:
        nonce = read_nonce(raw)
        with self._lock:
            self.bodies.setdefault(nonce, []).append(raw)
            self._check_private_state(nonce, path, raw)
            queue = self.script.get(nonce)
            answer = queue.pop(0) if queue else Answer(("nothing was scripted",))
            number = next(self._numbers)
            self.private[number] = f"{number:08d}{uuid.uuid4().hex}"
            return answer, number

    def _check_private_state(self, nonce: str, path: str, raw: bytes) -> None:
        echoed = {int(number) for number in MARKER.findall(raw.decode())}
        echoed |= {number for id, number in self.ids.items() if id.encode() in raw}
        for number in sorted(echoed):
            if self.private[number].encode() not in raw:
                self.missing.append(f"{nonce} {path}: answer {number}")
        if b"no result was recorded" in raw:
            self.missing.append(f"{nonce} {path}: the result of a call")


def read_nonce(raw: bytes) -> str:
    match = NONCE.search(raw)
    return match[0].decode() if match else ""


def sse(data: Json, event: str | None = None) -> bytes:
    return (
        (f"event: {event}\n" if event else "").encode() + b"data: " + orjson.dumps(data) + b"\n\n"
    )


def write_answer(
    model: ThinkingModel, path: str, answer: Answer, number: int, is_numbered: bool = False
) -> tuple[Json, list[bytes]]:
    """The answer as a body and as the pieces of a stream, in the protocol of the path."""
    private = model.private[number]
    texts = [f"{text} [a{number}]" if text.strip() else text for text in answer.texts]
    calls = [
        Call(
            f"call_{number:05d}_{index}"
            if is_numbered
            else f"{_CALL_PREFIX[_protocol(path)]}{uuid.uuid4().hex[:24]}",
            name,
            arguments,
        )
        for index, (name, arguments) in enumerate(answer.calls)
    ]
    model.ids.update({call.id: number for call in calls})
    return _WRITERS[_protocol(path)](texts, calls, private)


def _protocol(path: str) -> str:
    if "/messages" in path:
        return "anthropic"
    if "/chat/completions" in path:
        return "openai-chat"
    return "openai-responses" if "/responses" in path else "gemini"


_CALL_PREFIX = {
    "anthropic": "toolu_",
    "openai-chat": "call_",
    "openai-responses": "call_",
    "gemini": "fcall-",
}


def _anthropic(texts: list[str], calls: list[Call], private: str) -> tuple[Json, list[bytes]]:
    content: list[Json] = [{"type": "thinking", "thinking": "I think.", "signature": private}]
    content += [{"type": "text", "text": text} for text in texts]
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in calls
    ]
    body: Json = {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    start = {**body, "content": [], "stop_reason": None}
    pieces = [sse({"type": "message_start", "message": start}, "message_start")]
    for index, block in enumerate(content):
        empty = dict(block)
        deltas: list[Json]
        if block["type"] == "text":
            empty["text"] = ""
            half = len(block["text"]) // 2
            parts = [block["text"][:half], block["text"][half:]]
            deltas = [{"type": "text_delta", "text": part} for part in parts]
        elif block["type"] == "thinking":
            empty |= {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            empty["input"] = {}
            deltas = [
                {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
            ]
        begin = {"type": "content_block_start", "index": index, "content_block": empty}
        pieces.append(sse(begin, "content_block_start"))
        for delta in deltas:
            event = {"type": "content_block_delta", "index": index, "delta": delta}
            pieces.append(sse(event, "content_block_delta"))
        pieces.append(sse({"type": "content_block_stop", "index": index}, "content_block_stop"))
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    event = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}
    return body, [
        *pieces,
        sse(event, "message_delta"),
        sse({"type": "message_stop"}, "message_stop"),
    ]


def _chat(texts: list[str], calls: list[Call], private: str) -> tuple[Json, list[bytes]]:
    message: Json = {
        "role": "assistant",
        "content": "".join(texts) or None,
        "reasoning_content": private,
    }
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
            }
            for call in calls
        ]
    reason = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    head: Json = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": 1, "model": "m"}
    body = {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": usage,
    }

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return sse({**head, "object": "chat.completion.chunk", "choices": [choice]})

    text = message["content"] or ""
    pieces = [chunk({"role": "assistant", "reasoning_content": private})]
    pieces += [
        chunk({"content": part})
        for part in (text[: len(text) // 2], text[len(text) // 2 :])
        if part
    ]
    pieces += [
        chunk({"tool_calls": [{**call, "index": index}]})
        for index, call in enumerate(message.get("tool_calls", ()))
    ]
    return body, [*pieces, chunk({}, reason), b"data: [DONE]\n\n"]


def _responses(texts: list[str], calls: list[Call], private: str) -> tuple[Json, list[bytes]]:
    output: list[Json] = [
        {
            "type": "reasoning",
            "id": f"rs_{uuid.uuid4().hex}",
            "summary": [],
            "encrypted_content": private,
        }
    ]
    if texts:
        output.append(
            {
                "type": "message",
                "id": f"msg_{uuid.uuid4().hex}",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": text, "annotations": []} for text in texts
                ],
            }
        )
    output += [_responses_call(call) for call in calls]
    body: Json = {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": output,
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    }
    started = {**body, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(output):
        empty_item = {**item, "content": []} if item["type"] == "message" else dict(item)
        events.append(
            {"type": "response.output_item.added", "output_index": index, "item": empty_item}
        )
        for part_index, part in enumerate(item.get("content", ())):
            location = {"item_id": item["id"], "output_index": index, "content_index": part_index}
            empty = {**part, "text": ""}
            half = len(part["text"]) // 2
            events.append({"type": "response.content_part.added", **location, "part": empty})
            events += [
                {"type": "response.output_text.delta", **location, "delta": text}
                for text in (part["text"][:half], part["text"][half:])
                if text
            ]
            events.append({"type": "response.output_text.done", **location, "text": part["text"]})
            events.append({"type": "response.content_part.done", **location, "part": part})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": body})
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return body, [sse(event, event["type"]) for event in numbered]


def _responses_call(call: Call) -> Json:
    """A call as an item; Codex declares `apply_patch` as a custom tool, whose input is text."""
    item: Json = {"call_id": call.id, "name": call.name, "status": "completed"}
    if call.name == "apply_patch":
        id = f"ctc_{uuid.uuid4().hex}"
        return {"type": "custom_tool_call", "id": id, **item, "input": call.arguments["input"]}
    arguments = orjson.dumps(call.arguments).decode()
    return {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", **item, "arguments": arguments}


def _gemini(texts: list[str], calls: list[Call], private: str) -> tuple[Json, list[bytes]]:
    parts: list[Json] = [{"text": text} for text in texts]
    parts += [
        {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
        for call in calls
    ]
    first_call = len(texts) if calls else len(parts) - 1
    parts[first_call]["thoughtSignature"] = private
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    head: Json = {"modelVersion": "m", "responseId": uuid.uuid4().hex, "usageMetadata": usage}

    def chunk(parts: list[Json], finish: str | None) -> Json:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
        if finish is not None:
            candidate["finishReason"] = finish
        return {**head, "candidates": [candidate]}

    pieces = [sse(chunk([part], None)) for part in parts]
    return chunk(parts, "STOP"), [*pieces, sse(chunk([{"text": ""}], "STOP"))]


_WRITERS = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}


@contextmanager
def thinking_model() -> Iterator[ThinkingModel]:
    """The model on a free port."""
    model = ThinkingModel()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            answer, number = model.next_answer(self.path, raw)
            if answer.status != 200:
                error = {"message": "try again", "type": "api_error", "code": answer.status}
                self._send(answer.status, orjson.dumps({"type": "error", "error": error}))
                return
            is_numbered = read_nonce(raw) in model.numbered
            body, pieces = write_answer(model, self.path, answer, number, is_numbered)
            is_stream = orjson.loads(raw).get("stream") or "streamGenerate" in self.path
            if not is_stream:
                self._send(200, orjson.dumps(body))
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in pieces[: -3 if answer.is_cut or answer.pauses else None]:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if answer.pauses:
                model.is_paused.set()
                model.resume.wait(SECONDS)
                for piece in pieces[-3:]:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if answer.is_cut:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self.wfile.write(b"0\r\n\r\n")

        def _send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exception(), ConnectionError):  # the gateway may have left
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()


class Habits(Struct, frozen=True):
    """How a client changes its conversation when it sends it again.

    `keeps_private` is whether it sends thinking, signatures and item ids back. `session_header` is
    the header that names the session, empty for clients that send none, and `agent_header` the one
    that names a subagent. `parent_header` names the session of the parent, in every request.
    """

    protocol: str
    session_header: str = ""
    agent_header: str = ""
    parent_header: str = ""
    keeps_private: bool = False
    rewrites_arguments: bool = True
    drops_blank_text: bool = True
    merges_text: bool = False
    splits_text: bool = False
    strips_text: bool = False
    switches_form: bool = True
    adds_reminders: bool = False
    changes_system: bool = True
    sends_call_ids: bool = True


CLAUDE = Habits(
    "anthropic",
    session_header="x-claude-code-session-id",
    agent_header="x-claude-code-agent-id",
    keeps_private=True,
    adds_reminders=True,
)
CODEX = Habits(
    "openai-responses",
    session_header="thread-id",
    agent_header="thread-id",
    parent_header="session-id",
    keeps_private=True,
)
CLIENTS = {
    "claude code": CLAUDE,
    "codex": CODEX,
    "a claude client that drops thinking": Habits(
        "anthropic", session_header="x-claude-code-session-id", strips_text=True
    ),
    "a chat client that merges text": Habits(
        "openai-chat", session_header="x-session-id", merges_text=True
    ),
    "a responses client that splits text": Habits(
        "openai-responses", session_header="x-session-id", splits_text=True
    ),
    "gemini cli": Habits("gemini", changes_system=False, rewrites_arguments=False),
    "a gemini client without call ids": Habits(
        "gemini", session_header="x-session-id", sends_call_ids=False
    ),
    "a messages client without a session name": Habits("anthropic", changes_system=False),
    "a chat client without a session name": Habits(
        "openai-chat", changes_system=False, strips_text=True
    ),
}


def rewrite(arguments: Json, habits: Habits) -> Json:
    """The arguments as a client echoes them: defaults added, numbers read, blanks trimmed."""
    if not habits.rewrites_arguments:
        return arguments
    echoed: Json = {"replace_all": False} if "old_string" in arguments else {}
    for name, value in arguments.items():
        if isinstance(value, str):
            value = re.sub(r"[ \t]+$", "", value, flags=re.MULTILINE)
            value = value.removeprefix("cd /work && ")
            value = int(value) if value.isdigit() else value
        echoed[name] = value
    return echoed


class Session:
    """One client at work on one conversation, through a gateway."""

    def __init__(self, gateway: str, model: ThinkingModel, target: str, habits: Habits, seed: int):
        self.gateway, self.model, self.target, self.habits = gateway, model, target, habits
        self.random = random.Random(seed)
        self.id = str(uuid.uuid4())
        self.nonce = f"nonce-{uuid.uuid4().hex[:12]}"
        self.turns: list[Turn] = []
        self.threads: list[str] = []
        self.children: dict[str, list[str]] = {}
        self.branches = {"main"}
        self.compactions = 0
        self.headers: dict[str, str] = {}
        self._requests = 0

    @property
    def unsupported_events(self) -> set[str]:
        """The events that this client does not have, or that no gateway could recognise."""
        events = set() if self.habits.agent_header else {"subagent"}
        return events if self.habits.session_header else {*events, "compact"}

    # Exchanges

    def ask(
        self,
        *answers: Answer,
        agent: str = "",
        turns: list[Turn] | None = None,
        retry: int = 0,
        stream: bool | None = None,
        has_tools: bool = True,
    ) -> tuple[int, Turn | None]:
        """Send the conversation and read the answer."""
        self._requests += 1
        turns = self.turns if turns is None else turns
        self.model.script[self.nonce] = list(answers)
        stream = self.random.random() < 0.5 if stream is None else stream
        path, body = self._write(turns, agent, stream, has_tools)
        headers = self._headers(agent, retry)
        status, reply_headers, data = post(self.gateway + path, body, headers)
        thread = reply_headers.get("x-weft-thread", "")
        if agent:
            self.children.setdefault(agent, []).append(thread)
        else:
            self.threads.append(thread)
        if status != 200:
            return status, None
        try:
            return status, _read_answer(self.habits.protocol, data, stream)
        except ValueError:
            return status, None

    def next_request(self) -> tuple[str, Json, dict[str, str]]:
        """The path, body and headers of a request for a stream that answers the last turn."""
        self._requests += 1
        return *self._write(self.turns, "", True, True), self._headers("", 0)

    def _headers(self, agent: str, retry: int) -> dict[str, str]:
        headers = dict(self.headers)
        if retry:
            headers["x-stainless-retry-count"] = str(retry)
        if self.habits.session_header:
            headers[self.habits.session_header] = self.id
        if self.habits.parent_header:
            headers[self.habits.parent_header] = self.id
        if agent and self.habits.agent_header:
            headers[self.habits.agent_header] = agent
        return headers

    def _system(self, agent: str) -> list[str]:
        number = self._requests if self.habits.changes_system else 0
        billing = [f"x-anthropic-billing-header: cc_version=2.1.{number};"] if number else []
        return [*billing, f"You are an agent {agent}. {self.nonce}"]

    def _write(
        self, turns: list[Turn], agent: str, stream: bool, has_tools: bool
    ) -> tuple[str, Json]:
        write = {
            "anthropic": self._write_anthropic,
            "openai-chat": self._write_chat,
            "openai-responses": self._write_responses,
            "gemini": self._write_gemini,
        }[self.habits.protocol]
        return write(turns, self._system(agent), stream, TOOLS if has_tools else [])

    def _texts(self, turn: Turn) -> list[str]:
        texts = [text for text in turn.texts if text.strip() or not self.habits.drops_blank_text]
        if self.habits.strips_text:
            texts = [text.strip() for text in texts]
        if self.habits.merges_text and texts:
            texts = ["".join(texts)]
        if self.habits.splits_text:
            texts = [part for text in texts for part in re.split(r"(?<=\. )", text) if part]
        return texts

    def _calls(self, turn: Turn) -> list[Call]:
        return [structs.replace(c, arguments=rewrite(c.arguments, self.habits)) for c in turn.calls]

    def _write_anthropic(
        self, turns: list[Turn], system: list[str], stream: bool, tools: list[Json]
    ):
        messages: list[Json] = []
        for number, turn in enumerate(turns):
            if turn.role == "user":
                listed = self.habits.switches_form and (self._requests + number) % 2
                reminder = [
                    {"type": "text", "text": f"<system-reminder>{number}</system-reminder>"}
                ]
                blocks = [
                    *(reminder if self.habits.adds_reminders and tools else []),
                    {"type": "text", "text": turn.text},
                ]
                content: Any = blocks if listed or len(blocks) > 1 else turn.text
                messages.append({"role": "user", "content": content})
            elif turn.role == "result":
                block = {"type": "tool_result", "tool_use_id": turn.call, "content": turn.text}
                if turn.is_error or (self._requests + number) % 3 == 0:
                    block["is_error"] = turn.is_error
                if (
                    messages[-1]["role"] == "user"
                    and messages[-1]["content"][0].get("type") == "tool_result"
                ):
                    messages[-1]["content"].append(block)
                else:
                    messages.append({"role": "user", "content": [block]})
            else:
                blocks = [item for item in turn.items if self.habits.keeps_private]
                blocks += [{"type": "text", "text": text} for text in self._texts(turn)]
                blocks += [
                    {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
                    for call in self._calls(turn)
                ]
                messages.append(
                    {"role": "assistant", "content": blocks or [{"type": "text", "text": "."}]}
                )
        last = messages[-1]
        if isinstance(last["content"], list):
            last["content"][-1] = {**last["content"][-1], "cache_control": {"type": "ephemeral"}}
        body: Json = {
            "model": f"{self.target}/m",
            "max_tokens": 900,
            "system": [{"type": "text", "text": text} for text in system],
            "messages": messages,
            "stream": stream,
        }
        if tools:
            body["tools"] = [
                {"name": t["name"], "description": t["description"], "input_schema": t["schema"]}
                for t in tools
            ]
        return "/v1/messages", body

    def _write_chat(self, turns: list[Turn], system: list[str], stream: bool, tools: list[Json]):
        messages: list[Json] = [{"role": "system", "content": "\n".join(system)}]
        for number, turn in enumerate(turns):
            if turn.role == "user":
                listed = self.habits.switches_form and (self._requests + number) % 2
                text = [{"type": "text", "text": turn.text}] if listed else turn.text
                messages.append({"role": "user", "content": text})
            elif turn.role == "result":
                messages.append({"role": "tool", "tool_call_id": turn.call, "content": turn.text})
            else:
                message: Json = {"role": "assistant", "content": "".join(self._texts(turn)) or None}
                calls = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {
                            "name": call.name,
                            "arguments": orjson.dumps(call.arguments).decode(),
                        },
                    }
                    for call in self._calls(turn)
                ]
                if calls:
                    message["tool_calls"] = calls
                messages.append(message)
        body: Json = {"model": f"{self.target}/m", "messages": messages, "stream": stream}
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": t["name"],
                        "description": t["description"],
                        "parameters": t["schema"],
                    },
                }
                for t in tools
            ]
        return "/v1/chat/completions", body

    def _write_responses(
        self, turns: list[Turn], system: list[str], stream: bool, tools: list[Json]
    ):
        items: list[Json] = []
        for turn in turns:
            if turn.role == "user":
                content = [{"type": "input_text", "text": turn.text}]
                items.append({"type": "message", "role": "user", "content": content})
            elif turn.role == "result":
                items.append(
                    {"type": "function_call_output", "call_id": turn.call, "output": turn.text}
                )
            else:
                items += [item for item in turn.items if self.habits.keeps_private]
                texts = self._texts(turn)
                if texts:
                    content = [
                        {"type": "output_text", "text": text, "annotations": []} for text in texts
                    ]
                    items.append({"type": "message", "role": "assistant", "content": content})
                items += [
                    {
                        "type": "function_call",
                        "call_id": call.id,
                        "name": call.name,
                        "arguments": orjson.dumps(call.arguments).decode(),
                    }
                    for call in self._calls(turn)
                ]
        body: Json = {
            "model": f"{self.target}/m",
            "instructions": "\n".join(system),
            "input": items,
            "stream": stream,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": t["name"],
                    "description": t["description"],
                    "parameters": t["schema"],
                }
                for t in tools
            ]
        return "/v1/responses", body

    def _write_gemini(self, turns: list[Turn], system: list[str], stream: bool, tools: list[Json]):
        contents: list[Json] = []
        names = {call.id: call.name for turn in turns for call in turn.calls}
        for turn in turns:
            if turn.role == "user":
                contents.append({"role": "user", "parts": [{"text": turn.text}]})
            elif turn.role == "result":
                part = {
                    "functionResponse": {
                        "id": turn.call,
                        "name": names[turn.call],
                        "response": {"output": turn.text},
                    }
                }
                if (
                    contents[-1]["role"] == "user"
                    and "functionResponse" in contents[-1]["parts"][0]
                ):
                    contents[-1]["parts"].append(part)
                else:
                    contents.append({"role": "user", "parts": [part]})
            else:
                parts: list[Json] = [{"text": text} for text in self._texts(turn)]
                parts += [
                    {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
                    for call in self._calls(turn)
                ]
                contents.append({"role": "model", "parts": parts})
        if not self.habits.sends_call_ids:
            for part in [part for content in contents for part in content["parts"]]:
                part.get("functionCall", part.get("functionResponse", {})).pop("id", None)
        body: Json = {
            "systemInstruction": {"parts": [{"text": text} for text in system]},
            "contents": contents,
        }
        if tools:
            body["tools"] = [
                {
                    "functionDeclarations": [
                        {
                            "name": t["name"],
                            "description": t["description"],
                            "parametersJsonSchema": t["schema"],
                        }
                        for t in tools
                    ]
                }
            ]
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/{self.target}/m:{verb}", body

    # What users do

    def say(self, text: str, *, rounds: int = 0) -> None:
        """Ask something; the model calls tools for so many rounds and then answers."""
        self.turns.append(Turn("user", text))
        for _ in range(rounds):
            self._append_answer(self.ask(self._tool_answer()))
            for call in self.turns[-1].calls:
                failed = self.random.random() < 0.2
                result = f"result {self.random.getrandbits(40):x}"
                self.turns.append(Turn("result", result, call=call.id, is_error=failed))
        self._append_answer(self.ask(self._text_answer()))

    def _append_answer(self, answer: tuple[int, Turn | None]) -> None:
        status, turn = answer
        assert status == 200, status
        assert turn is not None
        self.turns.append(turn)

    def _tool_answer(self) -> Answer:
        number = self.random.getrandbits(24)
        calls: list[tuple[str, Json]] = [
            (
                "Edit",
                {
                    "file_path": f"/project/m{number}.py",
                    "old_string": "a",
                    "new_string": f"b{number}  ",
                },
            ),
            ("Bash", {"command": f"cd /work && ls {number}", "description": "List"}),
            ("Read", {"file_path": f"/project/m{number}.py", "limit": "2", "offset": "1"}),
        ]
        chosen = self.random.sample(calls, self.random.choice([1, 1, 1, 2, 3]))
        opening = self.random.choice(
            [
                (),
                ("\n\n",),
                (f"I look at {number}. Then I go on. ",),
                (f"One {number}. ", f"Two {number}. "),
            ]
        )
        return Answer(opening, tuple(chosen))

    def _text_answer(self) -> Answer:
        number = self.random.getrandbits(24)
        return self.random.choice(
            [
                Answer((f"Done {number}. All is well. ",)),
                Answer((f"First {number}. ", f"Second {number}. ")),
            ]
        )

    def rewind(self) -> None:
        """Go back to an earlier message of the person, and ask something else there."""
        user_turns = [
            n
            for n, turn in enumerate(self.turns)
            if turn.role == "user" and n > self._first_answer()
        ]
        if not user_turns:
            return
        self.turns = self.turns[: self.random.choice(user_turns[-6:])]
        turn = self._count_user_turns() + 1
        self._expect_branch(lambda n: f"before-edit-of-turn-{turn}" + (f"-{n}" if n > 1 else ""))
        self.say(f"Otherwise {self.random.getrandbits(32):x}", rounds=self.random.choice([0, 1]))

    def _count_user_turns(self) -> int:
        """How many messages of the person the conversation has."""
        return sum(turn.role == "user" for turn in self.turns)

    def _expect_branch(self, name: Callable[[int], str]) -> None:
        """Expect a branch for the abandoned messages: the first of these names that is free."""
        self.branches.add(next(n for n in map(name, count(1)) if n not in self.branches))

    def _first_answer(self) -> int:
        """The index of the first answer: a rewind must keep it."""
        return next(
            (n for n, turn in enumerate(self.turns) if turn.role == "assistant"), len(self.turns)
        )

    def regenerate(self) -> None:
        """Drop the last answer and ask for another."""
        self.turns.pop()
        turn = self._count_user_turns()
        self._expect_branch(lambda n: f"answer-{n}-of-turn-{turn}")
        self._append_answer(self.ask(self._text_answer()))

    def fail(self) -> None:
        """Fail twice, then go on with the same question."""
        self.turns.append(Turn("user", f"Will this work? {self.random.getrandbits(32):x}"))
        for retry, status in enumerate((529, 500)):
            answers = [Answer(status=status)] * 9
            assert self.ask(*answers, retry=retry)[0] >= 400
        self._append_answer(self.ask(self._text_answer(), retry=2))

    def stop(self) -> None:
        """The answer is cut; the person asks something else and leaves the cut answer out."""
        self.turns.append(Turn("user", f"Start {self.random.getrandbits(32):x}"))
        cut = Answer(
            (f"A long story {self.random.getrandbits(32):x} that never ends. ",), is_cut=True
        )
        self.ask(*[cut] * 9, stream=True)
        self.say(f"No, do this {self.random.getrandbits(32):x}")

    def subagent(self) -> None:
        """A subagent works beside the session, in a conversation of its own."""
        agent = f"agent-{self.random.getrandbits(32):x}-{self.id[:8]}"
        turns = [Turn("user", f"Search for {agent}")]
        for _ in range(2):
            answer = self.ask(self._tool_answer(), agent=agent, turns=turns)[1]
            assert answer is not None
            turns.append(answer)
            turns += [Turn("result", f"found {call.id}", call=call.id) for call in answer.calls]
        assert self.ask(self._text_answer(), agent=agent, turns=turns)[0] == 200

    def title(self, text: str) -> None:
        """Ask for a title beside the conversation."""
        turns = [Turn("user", f"{TITLE_QUESTION}{self.turns[0].text}")]
        self.ask(Answer((text,)), agent="", turns=turns, stream=False, has_tools=False)
        self.children.setdefault("title", []).append(self.threads.pop())

    def compact(self) -> None:
        """Ask for a summary as Claude Code does, and go on with it alone."""
        question = [*self.turns, Turn("user", SUMMARY_QUESTION)]
        summary = (
            f"The user asked about {self.random.getrandbits(48):x}. Everything is done so far."
        )
        assert self.ask(Answer((f"<summary>{summary}</summary>",)), turns=question)[0] == 200
        self.children.setdefault("compaction", []).append(self.threads.pop())
        self.turns = [Turn("user", f"{SUMMARY_OPENING}{summary}")]
        self.compactions += 1
        self.branches.add(f"compaction-{self.compactions}")
        self.say(f"Go on {self.random.getrandbits(32):x}", rounds=1)

    def texts(self) -> list[str]:
        """The visible texts of the conversation, as the user and the model wrote them."""
        return [
            turn.text if turn.role != "assistant" else "".join(turn.texts) for turn in self.turns
        ]


def without_white_space(texts: Iterable[str]) -> str:
    """All texts as one, without whitespace and reminders, because clients group texts freely."""
    text = re.sub(r"<system-reminder>.*?</system-reminder>", "", "\n".join(texts))
    return "".join(text.split())


def branch_text(store: Path | str, thread: str) -> str:
    """The visible text of the current branch, without whitespace."""
    with weft.open(store, thread=thread) as handle:
        messages = handle.compile().messages
    return without_white_space(m.text for m in messages if m.role not in ("system", "developer"))


def branches(store: Path | str, thread: str) -> list[str]:
    """The names of a thread's branches, the current one first."""
    with weft.open(store, thread=thread) as handle:
        return sorted(handle.branches(), key=lambda name: name != handle.current)


def missing(model: ThinkingModel, session: Session) -> list[str]:
    """The private state and the results that the model did not get back in a session.

    A client of the model's own protocol may leave it out.
    """
    if UPSTREAM_NAMES[session.habits.protocol] == session.target:
        return []
    return [miss for miss in model.missing if session.nonce in miss]


SCHEMA: Json = {"type": "object", "properties": {"file_path": {"type": "string"}}}
TOOLS: list[Json] = [
    {"name": name, "description": f"{name} something", "schema": SCHEMA}
    for name in ("Edit", "Bash", "Read")
]


def _read_answer(protocol: str, data: bytes, is_stream: bool) -> Turn:
    """The answer as the client reads it; raises `ValueError` if it is incomplete."""
    body = _join_stream(protocol, data) if is_stream else orjson.loads(data)
    return _READERS[protocol](body)


def _join_stream(protocol: str, data: bytes) -> Json:
    """The body of a stream, put together as the SDK of that protocol does."""
    events = [
        orjson.loads(line[5:])
        for line in data.split(b"\n")
        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]"
    ]
    return _JOINERS[protocol](events)


def _join_responses(events: list[Json]) -> Json:
    completed = [event["response"] for event in events if event["type"] == "response.completed"]
    if not completed:
        raise ValueError("not completed")
    return completed[0]


def _join_gemini(events: list[Json]) -> Json:
    candidates = [c for event in events for c in event.get("candidates", ())]
    if not any(candidate.get("finishReason") for candidate in candidates):
        raise ValueError("not finished")
    parts = [p for c in candidates for p in c.get("content", {}).get("parts", ())]
    visible_parts = [part for part in parts if part.get("text") != "" or "thoughtSignature" in part]
    return {"candidates": [{"content": {"parts": visible_parts}}]}


def _join_chat(events: list[Json]) -> Json:
    text, finish = "", None
    calls: dict[int, Json] = {}
    for event in events:
        if "error" in event:
            raise ValueError("failed")
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            finish = choice.get("finish_reason") or finish
            for call in choice["delta"].get("tool_calls") or ():
                known = calls.setdefault(
                    call["index"], {"id": "", "function": {"name": "", "arguments": ""}}
                )
                known["id"] += call.get("id") or ""
                known["function"]["name"] += call["function"].get("name") or ""
                known["function"]["arguments"] += call["function"].get("arguments") or ""
    if finish is None:
        raise ValueError("not finished")
    return {"choices": [{"message": {"content": text, "tool_calls": list(calls.values())}}]}


def _join_anthropic(events: list[Json]) -> Json:
    blocks: dict[int, Json] = {}
    inputs: dict[int, str] = {}
    for event in events:
        if event["type"] == "error":
            raise ValueError("failed")
        if event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
            else:
                name = delta["type"].removesuffix("_delta")
                block[name] = block.get(name, "") + delta[name]
    if not any(event["type"] == "message_stop" for event in events):
        raise ValueError("not finished")
    for index, text in inputs.items():
        blocks[index]["input"] = orjson.loads(text or "{}")
    return {"content": [blocks[index] for index in sorted(blocks)]}


_JOINERS = {
    "anthropic": _join_anthropic,
    "openai-chat": _join_chat,
    "openai-responses": _join_responses,
    "gemini": _join_gemini,
}


def _read_anthropic(body: Json) -> Turn:
    blocks = body["content"]
    return Turn(
        "assistant",
        texts=tuple(b["text"] for b in blocks if b["type"] == "text"),
        calls=tuple(
            Call(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"
        ),
        items=tuple(b for b in blocks if b["type"] in ("thinking", "redacted_thinking")),
    )


def _read_chat(body: Json) -> Turn:
    message = body["choices"][0]["message"]
    calls = message.get("tool_calls") or ()
    return Turn(
        "assistant",
        texts=(message["content"],) if message.get("content") else (),
        calls=tuple(
            Call(c["id"], c["function"]["name"], orjson.loads(c["function"]["arguments"]))
            for c in calls
        ),
    )


def _read_responses(body: Json) -> Turn:
    output = body["output"]
    return Turn(
        "assistant",
        texts=tuple(
            part["text"] for item in output if item["type"] == "message" for part in item["content"]
        ),
        calls=tuple(
            Call(item["call_id"], item["name"], orjson.loads(item["arguments"]))
            for item in output
            if item["type"] == "function_call"
        ),
        items=tuple(item for item in output if item["type"] == "reasoning"),
    )


def _read_gemini(body: Json) -> Turn:
    parts = body["candidates"][0]["content"]["parts"]
    return Turn(
        "assistant",
        texts=tuple(p["text"] for p in parts if p.get("text") and not p.get("thought")),
        calls=tuple(
            Call(
                p["functionCall"].get("id", ""),
                p["functionCall"]["name"],
                p["functionCall"]["args"],
            )
            for p in parts
            if "functionCall" in p
        ),
    )


_READERS = {
    "anthropic": _read_anthropic,
    "openai-chat": _read_chat,
    "openai-responses": _read_responses,
    "gemini": _read_gemini,
}
