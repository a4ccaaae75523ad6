"""Laws 1 to 4 of the wire, on generated and on recorded bodies."""

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import weft
from corpus import NO_ANSWER, is_untranslatable, recorded
from laws.wire_bodies import BODIES, MODEL, PROTOCOLS, arguments, names, words
from weft.codec import CODECS, SseParser, write_frame
from weft.model import (
    Close,
    End,
    Finish,
    Message,
    Open,
    Response,
    Start,
    Stop,
    Text,
    ToolCall,
    Usage,
    fold,
)

PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS if a != b]

thorough = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def name_of(body):
    """The model's name, for a protocol that does not have it in the body."""
    return body.get("model", MODEL["gemini"])


def over_the_wire(value):
    """A value as another process reads it."""
    return orjson.loads(orjson.dumps(value))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
@thorough
def test_law_1_the_same_protocol_round_trips(protocol, data):
    body = data.draw(BODIES[protocol])
    done = weft.translate(orjson.dumps(body), protocol, protocol, model=MODEL.get(protocol))
    assert orjson.loads(done.body) == body
    assert done.losses == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_law_1_recorded_bodies_round_trip(protocol):
    for exchange in recorded(protocol):
        body = exchange["request"]
        done = weft.translate(body, protocol, protocol, model=MODEL.get(protocol))
        assert done.body == body, exchange["id"]
        if exchange["status"] < 400 and "response" in exchange and exchange["id"] not in NO_ANSWER:
            answer = exchange["response"]
            assert weft.translate_response(answer, protocol, protocol).body == answer


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(data=st.data())
@thorough
def test_law_2_a_round_trip_with_the_sidecar_is_the_identity(source, target, data):
    body = data.draw(BODIES[source])
    sent = weft.translate(body, source, target, model=MODEL.get(source))
    sidecar = over_the_wire(sent.sidecar)
    returned = weft.translate(over_the_wire(sent.body), target, source, sidecar=sidecar)
    assert returned.body == body  # without a sidecar: test_named_losses


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_law_2_recorded_bodies_too(source, target):
    refused: list[weft.Refused] = []
    for exchange in recorded(source):
        body = exchange["request"]
        try:
            sent = weft.translate(body, source, target, model=MODEL.get(source))
        except weft.Refused as error:
            refused.append(error)
            continue
        returned = weft.translate(
            over_the_wire(sent.body),
            target,
            source,
            model=name_of(body),
            sidecar=over_the_wire(sent.sidecar),
        )
        assert returned.body == body, exchange["id"]
    assert [error for error in refused if not is_untranslatable(error.param, str(error))] == []
    assert {error.status for error in refused} <= {400}


@st.composite
def responses(draw):
    blocks = [Text(text) for text in draw(st.lists(words, max_size=2))]
    blocks += [
        ToolCall(f"call_{at}", name, orjson.dumps(args).decode())
        for at, (name, args) in enumerate(draw(st.lists(st.tuples(names, arguments), max_size=2)))
    ]
    kind = "tool" if any(isinstance(block, ToolCall) for block in blocks) else "end"
    return Response(
        Message("assistant", tuple(blocks)),
        id="id_1",
        model="m",
        stop=Stop(kind),
        usage=Usage(input=draw(st.integers(0, 99)), output=draw(st.integers(0, 99))),
    )


def stream_of(response, protocol):
    """The bytes of an answer's stream, with every text in two pieces."""
    encoder = CODECS[protocol].stream_encoder(0)
    events = [Start(response.id, response.model, Usage(input=response.usage.input))]
    for index, block in enumerate(response.message.blocks):
        events += [Open(index, block), Close(index)]
    events += [Finish(response.stop, response.usage), End()]
    return b"".join(write_frame(frame) for event in events for frame in encoder.send(event))


def read_stream(data, protocol, cuts=()):
    """The events of a stream whose bytes are split at these positions."""
    parser, decoder = SseParser(), CODECS[protocol].stream_decoder()
    frames, start = [], 0
    for end in (*sorted(cuts), len(data)):
        frames += parser.feed(data[start:end])
        start = end
    frames += parser.close()
    return [event for frame in frames for event in decoder.feed(frame)] + decoder.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
@thorough
def test_law_3_any_split_of_the_bytes_gives_the_same_events(protocol, data):
    stream = stream_of(data.draw(responses()), protocol)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    whole = read_stream(stream, protocol)
    assert any(isinstance(event, End) for event in whole)
    assert read_stream(stream, protocol, cuts) == whole


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_law_3_recorded_streams_split_at_every_byte(protocol):
    streams = {row["id"]: row.get("sse", "").encode() for row in recorded(protocol)}
    short = {id: stream for id, stream in streams.items() if 0 < len(stream) < 60_000}
    assert short
    for id, stream in short.items():
        whole = read_stream(stream, protocol)
        assert len(whole) > 1, id  # a decoder that reads nothing only reports the missing end
        assert read_stream(stream, protocol, range(len(stream))) == whole, id


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
@thorough
def test_law_4_the_fold_of_a_stream_is_the_decoded_body(protocol, data):
    response = data.draw(responses())
    body = over_the_wire(CODECS[protocol].encode_response(response, 0).body)
    whole = CODECS[protocol].decode_response(body)
    folded = fold(read_stream(stream_of(response, protocol), protocol))
    assert comparable_blocks(folded, protocol) == comparable_blocks(whole, protocol)
    assert (folded.stop.kind, folded.usage.input, folded.usage.output) == (
        whole.stop.kind,
        whole.usage.input,
        whole.usage.output,
    )


def comparable_blocks(response, protocol):
    """The blocks of an answer. Gemini streams consecutive texts as one."""
    blocks = [plain(block) for block in response.message.blocks]
    text_blocks = [block for block in blocks if block[0] == "text"]
    if protocol != "gemini" or not text_blocks:
        return blocks
    joined = ("text", "".join(text for _, text in text_blocks))
    return [joined, *(block for block in blocks if block[0] != "text")]


def plain(block):
    """A block without vendor members."""
    match block:
        case Text(text=text):
            return ("text", text)
        case ToolCall(id=call_id, name=name, arguments=text):
            return ("call", call_id, name, orjson.loads(text or "{}"))
        case _:
            return block
