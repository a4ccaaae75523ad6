"""The wire laws on all recorded traffic, with the two directions of a round trip in two processes.

Run with `-s` to see the shares that each test prints.
"""

import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import orjson
import pytest

import weft
from corpus import NO_ANSWER, is_untranslatable, recorded
from laws.wire_bodies import MODEL, PROTOCOLS
from weft.codec import CODECS, SseParser, write_frame

PAIRS = [(a, b) for a in PROTOCOLS for b in PROTOCOLS if a != b]
ALL = [(a, b) for a in PROTOCOLS for b in PROTOCOLS]
LARGE = 12_000
"""For longer streams, only a sample of the split points is tried."""

FAILS = {
    "anthropic": lambda event, body: event == body["type"] == "error",
    "openai-chat": lambda _event, body: "message" in body["error"],
    "openai-responses": lambda event, body: (
        event == body["type"] and event in ("error", "response.failed")
    ),
    "gemini": lambda _event, body: body["error"]["code"] >= 500,
}
"""Whether the last frame of a stream is an error in the format of the client's protocol."""


def answers(protocol):
    return [
        exchange
        for exchange in recorded(protocol)
        if exchange["status"] < 400 and "response" in exchange and exchange["id"] not in NO_ANSWER
    ]


def streams(protocol):
    return [
        exchange
        for exchange in recorded(protocol)
        if exchange["status"] < 400 and exchange.get("sse")
    ]


def run_jobs(jobs):
    """The results of these jobs in a new process, by their ids."""
    command = [str(Path(sys.executable).parent / "weft"), "translate", "--jsonl"]
    arguments = b"\n".join(orjson.dumps(job) for job in jobs)
    done = subprocess.run(command, input=arguments, capture_output=True, check=True, timeout=300)
    assert done.stderr == b""
    return {result["id"]: result for result in map(orjson.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_recorded_body_round_trips(protocol):
    for exchange in recorded(protocol):
        body = exchange["request"]
        done = weft.translate(body, protocol, protocol, model=MODEL.get(protocol))
        assert (done.body, done.losses) == (body, []), exchange["id"]
    for exchange in answers(protocol):
        body = exchange["response"]
        assert weft.translate_response(body, protocol, protocol).body == body, exchange["id"]
    for exchange in streams(protocol):
        stream = weft.StreamTranslator(protocol, protocol)
        sent = stream.feed(exchange["sse"].encode()) + stream.close()
        assert frames_of(sent) == frames_of(exchange["sse"].encode()), exchange["id"]


def frames_of(data):
    parser = SseParser()
    return [
        (frame.event, frame.data if frame.data == "[DONE]" else orjson.loads(frame.data))
        for frame in parser.feed(data) + parser.close()
    ]


@cache
def translate_both_ways(source, target):
    """Translate every request of a protocol to another and back, with and without the sidecar, each
    direction in its own process."""
    bodies = {exchange["id"]: exchange["request"] for exchange in recorded(source)}
    options = {"options": {"model": MODEL[source]}} if source in MODEL else {}
    out = run_jobs(
        {"id": key, "source": source, "target": target, "body": body, **options}
        for key, body in bodies.items()
    )
    sent = {key: result for key, result in out.items() if "error" not in result}
    jobs = []
    for key, result in sent.items():
        name = bodies[key].get("model", MODEL.get(source))
        job = {"source": target, "target": source, "body": result["body"]}
        if target in MODEL:
            job["options"] = {"model": name}
        jobs.append({**job, "id": f"{key} with", "sidecar": result["sidecar"]})
        jobs.append({**job, "id": f"{key} without"})
    return bodies, out, run_jobs(jobs)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_round_trips_in_two_processes(source, target):
    bodies, out, round_trip = translate_both_ways(source, target)
    refused = {key: result["error"] for key, result in out.items() if "error" in result}
    assert {error["status"] for error in refused.values()} <= {400}
    unexpected = {
        key: error
        for key, error in refused.items()
        if not is_untranslatable(error["param"], error["message"])
    }
    assert unexpected == {}
    sent = [key for key in bodies if key not in refused]
    equal = [key for key in sent if round_trip[f"{key} with"].get("body") == bodies[key]]
    bare = [key for key in sent if round_trip[f"{key} without"].get("body") == bodies[key]]
    print(
        f"{source} -> {target}: {len(refused)}/{len(bodies)} refused,"
        f" {len(equal)}/{len(sent)} equal with the sidecar,"
        f" {len(bare)}/{len(sent)} without, the rest with losses"
    )
    assert [key for key in sent if key not in equal] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_any_split_of_a_recorded_stream_gives_the_same_events(protocol):
    for exchange in streams(protocol):
        data = exchange["sse"].encode()
        whole = events_of(data, protocol, ())
        dice = random.Random(exchange["id"])
        if len(data) <= LARGE:
            assert events_of(data, protocol, range(len(data))) == whole, exchange["id"]
        for _ in range(200 if len(data) <= LARGE else 4):
            cuts = sorted(dice.sample(range(len(data)), min(12, len(data))))
            assert events_of(data, protocol, cuts) == whole, exchange["id"]


def events_of(data, protocol, cuts):
    parser, decoder = SseParser(), CODECS[protocol].stream_decoder()
    frames, start = [], 0
    for end in (*cuts, len(data)):
        frames += parser.feed(data[start:end])
        start = end
    frames += parser.close()
    return [event for frame in frames for event in decoder.feed(frame)] + decoder.close()


@pytest.mark.parametrize(("source", "target"), ALL)
def test_a_truncated_stream_ends_in_the_clients_own_error(source, target):
    for exchange in streams(source):
        data = exchange["sse"].encode()
        last = first_end(data, source)
        dice = random.Random(exchange["id"])
        for cut in {0, 1, last, *(dice.randrange(last + 1) for _ in range(4))}:
            stream = weft.StreamTranslator(source, target)
            sent = stream.feed(data[:cut]) + stream.close()
            assert stream.failed, (exchange["id"], cut)
            event, texts = frames_of(sent)[-1]
            assert FAILS[target](event, texts), (exchange["id"], cut)


def first_end(data, protocol):
    """The start of the frame that completes a stream, or that reports its failure."""
    parser, decoder = SseParser(), CODECS[protocol].stream_decoder()
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        for frame in parser.feed(data[at:end]):
            decoder.feed(frame)
            if decoder.is_complete:
                return data.rfind(b"data:", 0, at)
        at = end
    return data.rstrip().rfind(b"data:")


def test_frames_round_trip():
    data = b"event: a\ndata: 1\ndata: 2\n\n"
    assert b"".join(write_frame(frame) for frame in SseParser().feed(data)) == data
