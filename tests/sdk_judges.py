"""Reads an answer with the official SDK: the text that its caller gets, or a failure.

An SDK fails by raising, or with the failure event or state of its protocol. Anything else counts as
a success.
"""

from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types
from msgspec import Struct

QUESTION = "How many?"
FAILED_STATES = frozenset({"failed", "cancelled", "response.failed", "error"})
FAILED_FINISHES = frozenset(
    {
        "FinishReason.MALFORMED_FUNCTION_CALL",
        "FinishReason.MALFORMED_RESPONSE",
        "FinishReason.MISSING_THOUGHT_SIGNATURE",
        "FinishReason.UNEXPECTED_TOOL_CALL",
        "FinishReason.TOO_MANY_TOOL_CALLS",
    }
)
"""Finish reasons that Google's SDK reports as failures."""


class Judged(Struct, frozen=True):
    """`text` is the text that the caller got; None if it got a failure, with the reason `why`."""

    text: str | None
    why: str = ""
    status: int | None = None

    @property
    def failed(self) -> bool:
        return self.text is None


class Clients:
    """The official SDKs for one gateway, without retries."""

    def __init__(self, url: str, seconds: float = 20.0) -> None:
        self.anthropic = anthropic.Anthropic(
            base_url=url, api_key="k", max_retries=0, timeout=seconds
        )
        self.openai = openai.OpenAI(
            base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=seconds
        )
        options = types.HttpOptions(base_url=url, timeout=int(seconds * 1000))
        self.google = genai.Client(api_key="k", http_options=options)

    def ask(self, protocol: str, model: str, streams: bool, question: str = QUESTION) -> Judged:
        """What becomes of one question."""
        asks = {
            "anthropic": self._ask_anthropic,
            "openai-chat": self._ask_chat,
            "openai-responses": self._ask_responses,
            "gemini": self._ask_gemini,
        }
        try:
            return asks[protocol](model, streams, question)
        except Exception as error:  # each SDK has its own tree, and raises its HTTP library's too
            status = getattr(error, "status_code", None) or getattr(error, "code", None)
            why = f"{type(error).__name__}: {error}"
            return Judged(None, why, status if isinstance(status, int) else None)

    def close(self) -> None:
        self.anthropic.close()
        self.openai.close()
        self.google.close()

    def _ask_anthropic(self, model: str, streams: bool, question: str) -> Judged:
        arguments: Any = {
            "model": model,
            "max_tokens": 100,
            "messages": [{"role": "user", "content": question}],
        }
        if streams:
            with self.anthropic.messages.stream(**arguments) as stream:
                message = stream.get_final_message()
        else:
            message = self.anthropic.messages.create(**arguments)
        content = getattr(message, "content", None) or ()
        text = "".join(block.text for block in content if block.type == "text")
        return Judged(text, str(getattr(message, "stop_reason", None)))

    def _ask_chat(self, model: str, streams: bool, question: str) -> Judged:
        arguments: Any = {"model": model, "messages": [{"role": "user", "content": question}]}
        if not streams:
            completion = self.openai.chat.completions.create(**arguments)
            if isinstance(completion, str) or not completion.choices:
                return Judged(str(completion), "no choices")
            choice = completion.choices[0]
            return Judged(choice.message.content or "", str(choice.finish_reason))
        text, reason = "", None
        with self.openai.chat.completions.create(stream=True, **arguments) as chunks:
            for chunk in chunks:
                for choice in chunk.choices or ():
                    text += choice.delta.content or ""
                    reason = choice.finish_reason or reason
        return Judged(text, str(reason))

    def _ask_responses(self, model: str, streams: bool, question: str) -> Judged:
        arguments: Any = {"model": model, "input": [{"role": "user", "content": question}]}
        if not streams:
            response = self.openai.responses.create(**arguments)
            if isinstance(response, str) or response.output is None:
                return Judged(str(response), "no output")
            state = response.status or ("failed" if response.error else "")
            return Judged(None if state in FAILED_STATES else response.output_text, state)
        text, state = "", ""
        with self.openai.responses.create(stream=True, **arguments) as events:
            for event in events:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type in ("response.completed", "response.incomplete", *FAILED_STATES):
                    state = event.type
                    if state in FAILED_STATES:
                        break
        return Judged(None if state in FAILED_STATES else text, state)

    def _ask_gemini(self, model: str, streams: bool, question: str) -> Judged:
        if streams:
            answers: Any = self.google.models.generate_content_stream(
                model=model, contents=question
            )
        else:
            answers = [self.google.models.generate_content(model=model, contents=question)]
        text, reason = "", None
        for answer in answers:
            for candidate in answer.candidates or ():
                parts = (candidate.content and candidate.content.parts) or ()
                text += "".join(part.text or "" for part in parts)
                reason = candidate.finish_reason or reason
        return Judged(None if str(reason) in FAILED_FINISHES else text, str(reason))
