"""LiteLLM's own transformation of a body on standard input; prints the best of many rounds.

Run by `bench/wire.py --peer` in an environment that has LiteLLM; never a dependency of Weft's.
"""

import copy
import os
import sys
import time

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import orjson

ROUNDS = 30


def chat_to_anthropic():
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig

    config = AnthropicConfig()
    return lambda data: config.transform_request(
        model=data["model"],
        messages=data["messages"],
        optional_params={"max_tokens": 1000},
        litellm_params={},
        headers={},
    )


def anthropic_to_chat():
    from litellm.llms.anthropic.pass_through.adapters.transformation import (
        LiteLLMAnthropicMessagesAdapter,
    )

    adapter = LiteLLMAnthropicMessagesAdapter()
    return adapter.translate_anthropic_to_openai


def main() -> None:
    body = sys.stdin.buffer.read()
    make = {"openai-chat": chat_to_anthropic, "anthropic": anthropic_to_chat}[sys.argv[1]]
    transform = make()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        done = transform(copy.copy(orjson.loads(body)))
        orjson.dumps(done, default=plain, option=orjson.OPT_NON_STR_KEYS)
        best = min(best, time.perf_counter() - start)
    print(best)


def plain(value):
    """LiteLLM's own values as JSON."""
    if isinstance(value, tuple):
        return list(value)
    return value.model_dump() if hasattr(value, "model_dump") else str(value)


if __name__ == "__main__":
    main()
