"""Measures LiteLLM on a body from standard input, in seconds; the best of many rounds.

`bench/wire.py --peer` runs it in an environment with LiteLLM, which is not a dependency of Weft. It
prints two figures: LiteLLM's transformation alone, one function from dict to dict with `orjson` on
both ends as in Weft; and the whole way of a request, from the client's bytes to the bytes for the
HTTP transport.
"""

import os
import sys
import time

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import httpx
import litellm
import orjson

ROUNDS = 30


def transform_chat():
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig

    config = AnthropicConfig()
    return lambda data: config.transform_request(
        model=data["model"],
        messages=data["messages"],
        optional_params={"max_tokens": 1000},
        litellm_params={},
        headers={},
    )


def transform_messages():
    from litellm.llms.anthropic.pass_through.adapters.transformation import (
        LiteLLMAnthropicMessagesAdapter,
    )

    return LiteLLMAnthropicMessagesAdapter().translate_anthropic_to_openai


class Wire(httpx.BaseTransport):
    """A transport that records when the bytes of a request are ready, and sends nothing."""

    ready = 0.0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.ready = time.process_time()
        raise httpx.ConnectError("sent nowhere", request=request)


def send_chat(wire: Wire):
    from litellm.llms.custom_httpx.http_handler import HTTPHandler

    client = HTTPHandler()
    client.client = httpx.Client(transport=wire)

    def send(data):
        data["model"] = f"anthropic/{data['model']}"
        data["max_tokens"] = 1000
        litellm.completion(**data, api_key="none", client=client, max_retries=0)

    return send


def send_messages(wire: Wire):
    from litellm.llms.anthropic.pass_through.messages.handler import anthropic_messages_handler

    litellm.use_chat_completions_url_for_anthropic_messages = True
    litellm.client_session = httpx.Client(transport=wire)

    def send(data):
        data["model"] = "openai/gpt-4o"
        anthropic_messages_handler(**data, api_key="none", max_retries=0)

    return send


def time_transformation(transform, body: bytes) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        done = transform(orjson.loads(body))
        orjson.dumps(done, default=plain, option=orjson.OPT_NON_STR_KEYS)
        best = min(best, time.process_time() - start)
    return best


def time_road(send, wire: Wire, body: bytes) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        wire.ready = 0.0
        start = time.process_time()
        try:
            send(orjson.loads(body))
        except Exception as error:  # whatever LiteLLM makes of a wire that leads nowhere
            if not wire.ready:
                raise SystemExit(f"LiteLLM sent nothing: {error!r}") from error
        best = min(best, wire.ready - start)
    return best


def plain(value):
    """LiteLLM's own values as JSON."""
    if isinstance(value, tuple):
        return list(value)
    return value.model_dump() if hasattr(value, "model_dump") else str(value)


WORK = {
    "openai-chat": (transform_chat, send_chat),
    "anthropic": (transform_messages, send_messages),
}


def main() -> None:
    litellm.suppress_debug_info = True
    body = sys.stdin.buffer.read()
    transform, send = WORK[sys.argv[1]]
    wire = Wire()
    print(time_transformation(transform(), body), time_road(send(wire), wire, body))


if __name__ == "__main__":
    main()
