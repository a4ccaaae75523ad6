"""The official SDKs read every stream that Weft writes for their clients.

The bytes enter at the SDK's transport, as if a server had sent them. The SDK's own accumulator
builds the answer, with strict validation if it has one.
"""

import json
from functools import cache

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types as gemini_types

import weft
from corpus import recorded
from laws.wire_bodies import PROTOCOLS
from weft.codec import CODECS, write_frame
from weft.model import (
    Close,
    Delta,
    End,
    Finish,
    Open,
    Refusal,
    Start,
    Stop,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS]
TRANSLATED = [(a, b) for a, b in PAIRS if a != b]
HI = [{"role": "user", "content": "hi"}]


class Replay(httpx2.BaseTransport):
    """Answers every request with the same bytes."""

    content = b""

    def handle_request(self, request):
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=self.content, request=request)


@cache
def client(protocol):
    """The SDK of a protocol, and the transport it reads from."""
    replay = Replay()
    http = httpx2.Client(transport=replay)
    if protocol == "anthropic":
        return replay, anthropic.Anthropic(api_key="none", http_client=http, max_retries=0)
    if protocol == "gemini":
        options = gemini_types.HttpOptions(httpx_client=http)
        return replay, genai.Client(api_key="none", http_options=options)
    return replay, openai.OpenAI(api_key="none", http_client=http, max_retries=0)


def read_anthropic(sdk):
    with sdk.messages.stream(model="m", max_tokens=9, messages=HI) as stream:
        message = stream.get_final_message()
    texts = [block.text for block in message.content if block.type == "text"]
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    return "".join(texts), calls


def read_chat(sdk):
    with sdk.chat.completions.stream(model="m", messages=HI) as stream:
        message = stream.get_final_completion().choices[0].message
    calls = [(c.function.name, _object(c.function.arguments)) for c in message.tool_calls or ()]
    return (message.content or "") + (message.refusal or ""), calls


def read_responses(sdk):
    with sdk.responses.stream(model="m", input="hi") as stream:
        response = stream.get_final_response()
    texts = [
        part.text if part.type == "output_text" else part.refusal
        for item in response.output
        if item.type == "message"
        for part in item.content
    ]
    calls = [
        (item.name, _object(item.arguments))
        for item in response.output
        if item.type == "function_call"
    ]
    return "".join(texts), calls


def read_gemini(sdk):
    texts, calls = [], []
    for chunk in sdk.models.generate_content_stream(model="m", contents="hi"):
        for part in (chunk.candidates or [None])[0].content.parts or () if _said(chunk) else ():
            if part.function_call is not None:
                calls.append((part.function_call.name, part.function_call.args or {}))
            elif part.text is not None and not part.thought:
                texts.append(part.text)
    return "".join(texts), calls


def _said(chunk):
    return bool(chunk.candidates) and chunk.candidates[0].content is not None


READERS = {
    "anthropic": read_anthropic,
    "openai-chat": read_chat,
    "openai-responses": read_responses,
    "gemini": read_gemini,
}


def _object(arguments):
    return json.loads(arguments or "{}")


def read(protocol, stream):
    """The text and the calls that the protocol's SDK finds in a stream."""
    replay, sdk = client(protocol)
    replay.content = stream
    return READERS[protocol](sdk)


def meant(response):
    """The text and the calls of a response."""
    blocks = response.message.blocks
    texts = [block.text for block in blocks if isinstance(block, Text | Refusal)]
    calls = [
        (block.name, _object(block.arguments)) for block in blocks if isinstance(block, ToolCall)
    ]
    return "".join(texts), calls


@pytest.mark.parametrize(("source", "target"), TRANSLATED)
def test_recorded_streams_are_read_by_the_clients_own_sdk(source, target):
    judged = 0
    for exchange in recorded(source):
        if "sse" not in exchange or exchange["status"] >= 400:
            continue
        stream = weft.StreamTranslator(source, target)
        sent = stream.feed(exchange["sse"].encode()) + stream.close()
        if not stream.failed:
            text, calls = read(target, sent)
            bare = [(name.rpartition("__")[2], value) for name, value in calls]
            assert (text, bare) == meant(stream.response), exchange["id"]
            judged += 1
    assert judged


CALL = ToolCall("call_1", "look", "")
OTHER = ToolCall("call_2", "find", "")
STREAMS = {
    "words": [Open(0, Text("")), Delta(0, "text", "he"), Delta(0, "text", "llo"), Close(0)],
    "nothing": [],
    "thinking, words, a call, words": [
        Open(0, Thinking("")),
        Delta(0, "thinking", "hm"),
        Close(0),
        Open(1, Text("")),
        Delta(1, "text", "let me look"),
        Close(1),
        Open(2, CALL),
        Delta(2, "arguments", '{"at": "home"}'),
        Close(2),
        Open(3, Text("")),
        Delta(3, "text", " done"),
        Close(3),
    ],
    "calls that interleave": [
        Open(0, CALL),
        Open(1, OTHER),
        Delta(0, "arguments", '{"a"'),
        Delta(1, "arguments", '{"b": '),
        Delta(0, "arguments", ": 1}"),
        Delta(1, "arguments", "2}"),
        Close(0),
        Close(1),
    ],
    "a call without arguments": [Open(0, CALL), Close(0)],
    "a refusal": [Open(0, Refusal("")), Delta(0, "text", "I will not."), Close(0)],
}
WORDS = {
    "words": ("hello", []),
    "nothing": ("", []),
    "thinking, words, a call, words": ("let me look done", [("look", {"at": "home"})]),
    "calls that interleave": ("", [("look", {"a": 1}), ("find", {"b": 2})]),
    "a call without arguments": ("", [("look", {})]),
    "a refusal": ("I will not.", []),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_written_by_weft_is_read_by_the_sdk(name, protocol):
    encoder = CODECS[protocol].stream_encoder(0)
    stop = Stop("tool" if "call" in name else "end")
    events = [
        Start("id_1", "m", Usage(input=3)),
        *STREAMS[name],
        Finish(stop, Usage(input=3, output=5)),
        End(),
    ]
    stream = b"".join(write_frame(frame) for event in events for frame in encoder.send(event))
    assert read(protocol, stream) == WORDS[name]


ERRORS = {
    "anthropic": anthropic.APIError,
    "openai-chat": openai.APIError,
    "openai-responses": (openai.APIError, RuntimeError),
    "gemini": genai.errors.APIError,
}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_truncated_stream_is_not_a_success_for_the_sdk(source, target):
    encoder = CODECS[source].stream_encoder(0)
    events = [Start("id_1", "m"), Open(0, Text("")), Delta(0, "text", "hel")]
    half = b"".join(write_frame(frame) for event in events for frame in encoder.send(event))
    stream = weft.StreamTranslator(source, target)
    sent = stream.feed(half) + stream.close()
    with pytest.raises(ERRORS[target]):
        read(target, sent)
