"""Clients of all four protocols that hold conversations, and an upstream with private state.

Every answer of the upstream has private state (thinking, signatures, encrypted thinking) with a
unique token. A token in the request of another conversation is a leak.
"""

import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from servers import REQUEST_PATHS, UPSTREAM_NAMES, Scripted, Upstream, post, scripted_upstream

ANSWER = "Hello! How can I help?"
RESULT = "the words in the file"
MODEL = "gpt-5"  # with sealed reasoning from an upstream that speaks Responses
USAGE = {"input_tokens": 12, "output_tokens": 6}
TOOL = {"name": "look", "description": "read a file", "input_schema": {"type": "object"}}
ARGUMENTS = {"path": "a"}

Body = dict[str, Any]


class ThinkingUpstream:
    """Answers every request with the same words, and with private state of its own.

    `label` names the conversation that a request belongs to. It is the driver's knowledge: the
    requests of two conversations may be equal.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.url = upstream.url
        self.label: Callable[[Body], object] = lambda _: None
        self.owners: dict[str, object] = {}
        self.requests: list[tuple[object, bytes]] = []
        self._lock = threading.Lock()
        upstream.rule = self._answer

    def _answer(self, body: bytes) -> Scripted:
        request = orjson.loads(body)
        token = secrets.token_hex(8)  # also valid base64, as signatures are
        label = self.label(request)
        with self._lock:
            self.owners[token] = label
            self.requests.append((label, body))
        calls = bool(request.get("tools")) and not _ends_with_result(request)
        answer = _ANSWERS[_protocol_of(request)](token, calls)
        return Scripted(orjson.dumps(answer), kind="application/json")

    def tokens_in(self, data: bytes) -> dict[str, object]:
        """The tokens in these bytes, with the conversations that they belong to."""
        text = data.decode(errors="replace")
        with self._lock:
            owners = dict(self.owners)
        return {token: owner for token, owner in owners.items() if token in text}

    def leaks(self) -> list[tuple[object, object]]:
        """(receiver, owner) of each token that went into another conversation's request.

        Token by token over all requests would be quadratic: the requests are searched for what
        looks like a token.
        """
        pairs: list[tuple[object, object]] = []
        for label, body in self.requests:
            for token in _hexadecimals(body):
                owner = self.owners.get(token, label)
                if owner != label:
                    pairs.append((label, owner))
        return pairs

    def forget(self) -> None:
        """Forget all requests."""
        with self._lock:
            self.owners.clear()
            self.requests.clear()


@contextmanager
def thinking_upstream() -> Iterator[ThinkingUpstream]:
    with scripted_upstream() as upstream:
        yield ThinkingUpstream(upstream)


class Conversation:
    """One client in one conversation: it keeps its own history and sends all of it every turn.

    `echo` says what it hands back of an answer: only the `text` (and calls), the `whole` answer, or
    `previous`: nothing but the answer's id (Responses). `mixed` does so every second time.
    """

    def __init__(
        self,
        gateway_url: str,
        client: str,
        upstream: str,
        *,
        system: str | None = None,
        headers: dict[str, str] | None = None,
        params: Body | None = None,
        tools: bool = False,
        echo: str = "text",
    ) -> None:
        assert client != upstream, "private state is restored in translated requests only"
        self.client = client
        self.system = system
        self.tools = tools
        self.echo = echo
        self.headers = headers or {}
        self.params = params or {}
        self.threads: list[str] = []
        self.transcript: list[str] = []
        self.replies: list[bytes] = []
        self._model = f"{UPSTREAM_NAMES[upstream]}/{MODEL}"
        self._url = gateway_url + REQUEST_PATHS[client].format(model=self._model)
        self._items: list[Any] = []
        self._previous: str | None = None
        self._new = 0
        self._call: Any = None

    @property
    def awaits_result(self) -> bool:
        """Whether the last answer was a tool call: the next turn is its result."""
        return self._call is not None

    def turn(self, text: str, **params: Any) -> dict[str, str]:
        """Say the text, or hand in the result that is due; the reply's headers."""
        if self._call is not None:
            self._items.append(_RESULTS[self.client](self._call))
            self.transcript.append(RESULT)
        else:
            self._items.append(_USERS[self.client](text))
            self.transcript.append(text)
        status, headers, data = post(self._url, self._body(params), self.headers)
        assert status == 200, data
        self.threads.append(headers["x-weft-thread"])
        self.replies.append(data)
        answer = orjson.loads(data)
        item, self._call = _ECHOES[self.client](answer, self.echo == "whole")
        self._items += item
        self._previous, self._new = answer.get("id"), len(self._items)
        self.transcript.append("" if self._call else ANSWER)
        return headers

    def _body(self, params: Body) -> Body:
        items = self._items
        body: Body = {"model": self._model, **self.params, **params}
        by_id = self.echo == "previous" or (self.echo == "mixed" and len(self.threads) % 2 == 0)
        if by_id and self._previous is not None:
            items = items[self._new :]
            body["previous_response_id"] = self._previous
        return _BODIES[self.client](body, self.system, items, self.tools)


def _anthropic_body(body: Body, system: str | None, items: list[Any], tools: bool) -> Body:
    body = {"max_tokens": 512, **body, "messages": items}
    if system is not None:
        body["system"] = system
    return body | ({"tools": [TOOL]} if tools else {})


def _chat_body(body: Body, system: str | None, items: list[Any], tools: bool) -> Body:
    lead = [] if system is None else [{"role": "system", "content": system}]
    function = {"name": "look", "description": "read a file", "parameters": {"type": "object"}}
    more = {"tools": [{"type": "function", "function": function}]} if tools else {}
    return body | {"messages": lead + items} | more


def _responses_body(body: Body, system: str | None, items: list[Any], tools: bool) -> Body:
    if system is not None:
        body["instructions"] = system
    if "max_tokens" in body:
        body["max_output_tokens"] = body.pop("max_tokens")
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
    return body | {"input": items} | ({"tools": [tool]} if tools else {})


def _gemini_body(body: Body, system: str | None, items: list[Any], tools: bool) -> Body:
    del body["model"]
    if system is not None:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if "max_tokens" in body:
        body["generationConfig"] = {"maxOutputTokens": body.pop("max_tokens")}
    declared = {"functionDeclarations": [{"name": "look", "description": "read a file"}]}
    return body | {"contents": items} | ({"tools": [declared]} if tools else {})


_BODIES = {
    "anthropic": _anthropic_body,
    "openai-chat": _chat_body,
    "openai-responses": _responses_body,
    "gemini": _gemini_body,
}

_USERS: dict[str, Callable[[str], Body]] = {
    "anthropic": lambda text: {"role": "user", "content": text},
    "openai-chat": lambda text: {"role": "user", "content": text},
    "openai-responses": lambda text: {"role": "user", "content": text},
    "gemini": lambda text: {"role": "user", "parts": [{"text": text}]},
}


def _anthropic_result(call: Body) -> Body:
    block = {"type": "tool_result", "tool_use_id": call["id"], "content": RESULT}
    return {"role": "user", "content": [block]}


def _gemini_result(call: Body) -> Body:
    answer: Body = {"name": "look", "response": {"output": RESULT}}
    answer |= {"id": call["id"]} if "id" in call else {}
    return {"role": "user", "parts": [{"functionResponse": answer}]}


_RESULTS: dict[str, Callable[[Body], Body]] = {
    "anthropic": _anthropic_result,
    "openai-chat": lambda call: {"role": "tool", "tool_call_id": call["id"], "content": RESULT},
    "openai-responses": lambda call: {
        "type": "function_call_output",
        "call_id": call["call_id"],
        "output": RESULT,
    },
    "gemini": _gemini_result,
}


def _anthropic_echo(answer: Body, whole: bool) -> tuple[list[Any], Any]:
    blocks = [b for b in answer["content"] if whole or b["type"] in ("text", "tool_use")]
    call = next((block for block in blocks if block["type"] == "tool_use"), None)
    return [{"role": "assistant", "content": blocks}], call


def _chat_echo(answer: Body, whole: bool) -> tuple[list[Any], Any]:
    message = answer["choices"][0]["message"]
    calls = message.get("tool_calls")
    if not whole:
        message = {"role": "assistant", "content": message.get("content")}
        message |= {"tool_calls": calls} if calls else {}
    return [message], calls[0] if calls else None


def _responses_echo(answer: Body, whole: bool) -> tuple[list[Any], Any]:
    items: list[Any] = []
    for item in answer["output"]:
        if whole:
            items.append(item)
        elif item["type"] == "message":
            text = "".join(part["text"] for part in item["content"])
            items.append({"role": "assistant", "content": text})
        elif item["type"] == "function_call":
            members = ("type", "call_id", "name", "arguments")
            items.append({name: item[name] for name in members})
    call = next((item for item in items if item.get("type") == "function_call"), None)
    return items, call


def _gemini_echo(answer: Body, whole: bool) -> tuple[list[Any], Any]:
    parts = answer["candidates"][0]["content"]["parts"]
    if not whole:
        parts = [
            {name: value for name, value in part.items() if name != "thoughtSignature"}
            for part in parts
            if not part.get("thought")
        ]
    call = next((part["functionCall"] for part in parts if "functionCall" in part), None)
    return [{"role": "model", "parts": parts}], call


_ECHOES = {
    "anthropic": _anthropic_echo,
    "openai-chat": _chat_echo,
    "openai-responses": _responses_echo,
    "gemini": _gemini_echo,
}


def _protocol_of(request: Body) -> str:
    if "contents" in request:
        return "gemini"
    if "input" in request:
        return "openai-responses"
    # Messages requires `max_tokens`; towards Chat this model's limit has another name.
    return "anthropic" if "max_tokens" in request else "openai-chat"


def _ends_with_result(request: Body) -> bool:
    last = (request.get("contents") or request.get("input") or request["messages"])[-1]
    kinds = ("functionResponse", "function_call_output", "tool_result", '"tool"')
    return any(kind.encode() in orjson.dumps(last) for kind in kinds)


def _anthropic_answer(token: str, calls: bool) -> Body:
    use = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(10)}", "name": "look"}
    return {
        "id": f"msg_{secrets.token_hex(10)}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [
            {"type": "thinking", "thinking": f"I think {token}.", "signature": token},
            {"type": "redacted_thinking", "data": token},
            use | {"input": ARGUMENTS} if calls else {"type": "text", "text": ANSWER},
        ],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
    }


def _chat_answer(token: str, calls: bool) -> Body:
    function = {"name": "look", "arguments": orjson.dumps(ARGUMENTS).decode()}
    call = {"id": f"call_{secrets.token_hex(10)}", "type": "function", "function": function}
    message: Body = {"role": "assistant", "content": None if calls else ANSWER}
    message["reasoning_content"] = f"I think {token}."
    message |= {"tool_calls": [call]} if calls else {}
    finish = "tool_calls" if calls else "stop"
    return {
        "id": f"chatcmpl-{secrets.token_hex(10)}",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18},
    }


def _responses_answer(token: str, calls: bool) -> Body:
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    texts: Body = {
        "type": "message",
        "id": f"msg_{secrets.token_hex(10)}",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    if calls:
        texts = {
            "type": "function_call",
            "id": f"fc_{secrets.token_hex(10)}",
            "call_id": f"call_{secrets.token_hex(10)}",
            "name": "look",
            "arguments": orjson.dumps(ARGUMENTS).decode(),
            "status": "completed",
        }
    reasoning = {
        "type": "reasoning",
        "id": f"rs_{token}",
        "summary": [{"type": "summary_text", "text": f"I think {token}."}],
        "encrypted_content": token,
    }
    return {
        "id": f"resp_{secrets.token_hex(10)}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": MODEL,
        "output": [reasoning, texts],
        "usage": {**USAGE, "total_tokens": 18},
    }


def _gemini_answer(token: str, calls: bool) -> Body:
    texts: Body = (
        {"functionCall": {"name": "look", "args": ARGUMENTS}} if calls else {"text": ANSWER}
    )
    parts = [{"text": f"I think {token}.", "thought": True}, texts | {"thoughtSignature": token}]
    return {
        "candidates": [
            {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": parts}}
        ],
        "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 6},
        "modelVersion": MODEL,
        "responseId": secrets.token_hex(10),
    }


_ANSWERS = {
    "anthropic": _anthropic_answer,
    "openai-chat": _chat_answer,
    "openai-responses": _responses_answer,
    "gemini": _gemini_answer,
}


def _hexadecimals(body: bytes) -> Iterator[str]:
    """Every run of 16 hexadecimal digits in the body."""
    for run in re.findall(rb"[0-9a-f]{16,}", body):
        yield from (run[at : at + 16].decode() for at in range(len(run) - 15))
