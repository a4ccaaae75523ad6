"""Law 2b: an answer of B that a client of A echoes, translated back with the answer's sidecar, is
what B's own client would have sent. Every difference is reported as a loss.

It is tested on recorded answers and streams between all protocols, on generated answers, and on a
conversation of several turns.
"""

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import weft
from corpus import NO_ANSWER, recorded
from laws.echo_clients import answer_of, next_request, plain
from laws.wire_bodies import arguments, names, words
from weft.codec import CODECS, merge_answers
from weft.model import (
    Loss,
    Message,
    Origin,
    Redacted,
    Response,
    Stop,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

PROTOCOLS = tuple(CODECS)
PAIRS = [(maker, client) for maker in PROTOCOLS for client in PROTOCOLS if maker != client]
TURNS = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
EXPLAINS = {
    "block_unsupported",
    "empty_text_dropped",
    "member_dropped",
    "stop_reason_changed",
    "thinking_of_another_model",
    "vendor_block_dropped",
    "vendor_event_dropped",
}
"""Losses after which the vendor may get a different answer back."""

Body = dict[str, Any]


def over_the_wire(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


def shown(exchange: Body, maker: str, client: str) -> tuple[Body, Body, Body, list[Loss]]:
    """The vendor's answer, the client's version of it, the sidecar, and the losses."""
    if "response" in exchange:
        done = weft.translate_response(exchange["response"], maker, client)
        answer = exchange["response"]
        return answer, over_the_wire(done.body), over_the_wire(done.sidecar), done.losses
    sse = exchange["sse"].encode()
    stream = weft.StreamTranslator(maker, client)
    events = answer_of(stream.feed(sse) + stream.close(), client)
    return answer_of(sse, maker), events, over_the_wire(stream.answer_sidecar), stream.losses


def asked_again(
    maker: str, client: str, expected: Body, shown_answer: Body, sidecar: Body, *, whole: bool
) -> tuple[list[Body], list[Body], list[Loss]]:
    """The vendor's next request through the client, the one of its own client, and the losses."""
    request = next_request(client, shown_answer, whole=whole)
    done = weft.translate(request, client, maker, model="m", sidecar=sidecar)
    own = weft.translate(next_request(maker, expected), maker, maker, model="m")
    key = TURNS[maker]
    return plain(done.body[key]), plain(own.body[key]), done.losses


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "thrifty"])
@pytest.mark.parametrize(("maker", "client"), PAIRS)
def test_law_2b_recorded_answers_are_restored_for_their_vendor(
    maker: str, client: str, whole: bool
) -> None:
    unexplained = {}
    for exchange in recorded(maker):
        if exchange["status"] >= 400 or exchange["id"] in NO_ANSWER:
            continue
        if "response" not in exchange and "sse" not in exchange:
            continue
        answer, client_answer, sidecar, lost = shown(exchange, maker, client)
        got, wanted, losses = asked_again(
            maker, client, answer, client_answer, sidecar, whole=whole
        )
        codes = {loss.code for loss in (*lost, *losses)}
        if got != wanted and not codes & EXPLAINS:
            unexplained[exchange["id"]] = codes
    assert unexplained == {}


@st.composite
def answers(draw: st.DrawFn, maker: str) -> Response:
    """An answer with everything that its vendor can put into one."""
    blocks: list[Any] = []
    origin = Origin(maker)
    if maker != "openai-chat":
        blocks += [Thinking(text, f"sig{at}") for at, text in enumerate(draw(few_words))]
    elif draw(st.booleans()):
        blocks.append(Thinking(draw(words), ext={maker: {"item": "reasoning_content"}}))
    if maker == "anthropic" and draw(st.booleans()):
        blocks.append(Redacted("sealed"))
    blocks += [Text(text) for text in draw(few_words)[:1]]
    for at, (name, fields) in enumerate(draw(st.lists(st.tuples(names, arguments), max_size=2))):
        ext = {maker: {"thoughtSignature": f"call{at}"}} if maker == "gemini" else None
        blocks.append(ToolCall(f"call_{at}", name, orjson.dumps(fields).decode(), ext=ext))
    if not any(isinstance(block, Text | ToolCall) for block in blocks):
        blocks.append(Text("yes"))  # a thrifty client has something to hand back
    kind = "tool" if any(isinstance(block, ToolCall) for block in blocks) else "end"
    message = Message("assistant", tuple(blocks), origin=origin)
    return Response(message, "id_1", "m", Stop(kind), Usage(input=3, output=4))


few_words = st.lists(words, max_size=2)


@pytest.mark.parametrize(("maker", "client"), PAIRS)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_law_2b_generated_answers(maker: str, client: str, data: st.DataObject) -> None:
    response = data.draw(answers(maker))
    content = over_the_wire(CODECS[maker].encode_response(response, 0).body)
    done = weft.translate_response(content, maker, client)
    client_answer, sidecar = over_the_wire(done.body), over_the_wire(done.sidecar)
    for whole in (True, False):
        got, wanted, losses = asked_again(
            maker, client, content, client_answer, sidecar, whole=whole
        )
        codes = {loss.code for loss in (*done.losses, *losses)}
        assert got == wanted or codes & EXPLAINS


@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "gemini"])
def test_law_2b_answers_of_a_whole_conversation(client: str) -> None:
    """Two answers have equal visible content and different private state: each gets its own
    back."""
    reported = [
        {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [
                {"type": "thinking", "thinking": "", "signature": f"sig{number}"},
                {"type": "text", "text": "yes"},
            ],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        for number in range(2)
    ]
    done = [weft.translate_response(answer, "anthropic", client) for answer in reported]
    sidecar = over_the_wire(merge_answers(*(answer.sidecar for answer in done)))
    key = TURNS[client]
    first, second = (next_request(client, answer.body, whole=False) for answer in done)
    request = {**first, key: [*first[key], *second[key][1:]]}
    back = weft.translate(request, client, "anthropic", model="m", sidecar=sidecar).body
    signed = [m["content"] for m in back["messages"] if m["role"] == "assistant"]
    assert signed == [answer["content"] for answer in reported]


def test_an_edited_answer_is_not_overwritten() -> None:
    call = {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "SIG"}
    content = {"role": "model", "parts": [call]}
    answer = {"candidates": [{"content": content, "finishReason": "STOP"}], "responseId": "g"}
    done = weft.translate_response(answer, "gemini", "anthropic")
    request = next_request("anthropic", over_the_wire(done.body))
    request["messages"][1]["content"][0]["input"] = {"a": 2}
    back = weft.translate(
        request, "anthropic", "gemini", model="gemini-3-pro", sidecar=over_the_wire(done.sidecar)
    ).body
    (part,) = back["contents"][1]["parts"]
    assert part["functionCall"]["args"] == {"a": 2}
    assert part["thoughtSignature"] == "skip_thought_signature_validator"
