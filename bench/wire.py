"""What translation costs, beside the floor of reading and writing the same JSON.

    python bench/wire.py            the figures
    python bench/wire.py --peer     beside LiteLLM's transformation, in an environment of its own

Ratios are taken inside one run, floor and translation in turns, and the smallest of many rounds
is kept: on a shared machine only the best case repeats.
"""

import argparse
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

import weft

ROUNDS = 60
PEER_ROUNDS = 3
HERE = Path(__file__).parent


def conversation(messages: int = 400) -> dict[str, Any]:
    """A tool conversation of Anthropic's, about 500 bytes a message."""
    said: list[dict[str, Any]] = []
    for turn in range(messages // 4):
        call = {
            "type": "tool_use",
            "id": f"toolu_{turn:04d}",
            "name": "read_file",
            "input": {"path": f"/src/module_{turn}.py", "limit": 200},
        }
        result = {
            "type": "tool_result",
            "tool_use_id": f"toolu_{turn:04d}",
            "content": "def f(x):\n    return x\n" * 30,
        }
        said += [
            {"role": "user", "content": f"look at file {turn} and tell me what it does " * 10},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "I will read it now. " * 10}, call],
            },
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "The file defines a function. " * 12},
        ]
    return {"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": said}


def best(*tasks: Callable[[], Any], rounds: int = ROUNDS) -> list[float]:
    """The smallest time of each task in seconds, taken in turns."""
    times = [float("inf")] * len(tasks)
    for _ in range(rounds):
        for number, task in enumerate(tasks):
            start = time.perf_counter()
            task()
            times[number] = min(times[number], time.perf_counter() - start)
    return times


def bodies() -> dict[str, bytes]:
    """The same conversation on each wire."""
    first = orjson.dumps(conversation())
    return {"anthropic": first} | {
        name: weft.translate(first, "anthropic", name).body
        for name in ("openai-chat", "openai-responses", "gemini")
    }


def measure_requests() -> None:
    wires = bodies()
    print(f"a 400-message conversation, {len(wires['anthropic']):,} bytes, bytes to bytes")
    for source, body in wires.items():
        for target in wires:
            floor, ours = best(
                lambda body=body: orjson.dumps(orjson.loads(body)),
                lambda body=body, source=source, target=target: weft.translate(
                    body, source, target, model="claude-sonnet-4-5"
                ),
            )
            print(f"  {source:>17} -> {target:<17}{ours * 1e3:7.2f} ms  {ours / floor:5.1f}x floor")


def with_image(body: bytes) -> bytes:
    """The conversation, no longer calm: its last message, read last, shows a picture."""
    data = orjson.loads(body)
    source = {"type": "url", "url": "https://example.com/a.png"}
    url = {"url": "https://example.com/a.png"}
    shown = (
        {"type": "image_url", "image_url": url}
        if any(message["role"] == "tool" for message in data["messages"])
        else {"type": "image", "source": source}
    )
    data["messages"].append({"role": "user", "content": [{"type": "text", "text": "so"}, shown]})
    return orjson.dumps(data)


def measure_tables() -> None:
    """What the codecs' tables take, where a conversation cannot be carried over whole."""
    wires = bodies()
    for source, target in (("anthropic", "openai-chat"), ("openai-chat", "anthropic")):
        body = with_image(wires[source])
        floor, ours = best(
            lambda body=body: orjson.dumps(orjson.loads(body)),
            lambda body=body, source=source, target=target: weft.translate(body, source, target),
        )
        print(
            f"the same with a picture at its end, {source} -> {target}: {ours * 1e3:.2f} ms, "
            f"{ours / floor:.1f}x floor"
        )


def measure_growth() -> None:
    short, long = (orjson.dumps(conversation(n)) for n in (200, 2000))
    for what, fewer, more in (
        ("", short, long),
        (" with a picture", with_image(short), with_image(long)),
    ):
        small, large = best(
            lambda fewer=fewer: weft.translate(fewer, "anthropic", "openai-chat"),
            lambda more=more: weft.translate(more, "anthropic", "openai-chat"),
            rounds=20,
        )
        print(f"ten times the messages{what}: {large / small:.1f}x the time (at most 11)")


def measure_deltas() -> None:
    data = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "Hello there"},
    }
    frame = orjson.dumps(data)
    wire = b"event: content_block_delta\ndata: " + frame + b"\n\n"
    started = (
        b'data: {"type":"message_start","message":{"id":"m","content":[],"usage":{}}}\n\n'
        b'data: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"text","text":""}}\n\n'
    )
    count = 500

    def floor() -> None:
        for _ in range(count):
            orjson.dumps(orjson.loads(frame))

    def ours(target: str) -> None:
        stream = weft.StreamTranslator("anthropic", target)
        stream.feed(started)
        for _ in range(count):
            stream.feed(wire)

    for target in ("openai-chat", "openai-responses", "gemini", "anthropic"):
        base, took = best(floor, lambda target=target: ours(target), rounds=30)
        print(
            f"a text delta, anthropic -> {target}: {took / count * 1e6:.1f} us, "
            f"{took / base:.1f}x loads+dumps of the frame (at most 15 to Chat)"
        )


def measure_peer() -> None:
    """LiteLLM's own transformation of the same bytes, in its own environment."""
    home = Path(os.environ.get("WEFT_PEER", HERE.parent / ".venv-peer"))
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "litellm", "mcp", "orjson"], check=True
        )
    wires = bodies()
    for source, target in (("openai-chat", "anthropic"), ("anthropic", "openai-chat")):
        ours = alone = road = float("inf")
        for _ in range(PEER_ROUNDS):  # in turns, so that a busy neighbour slows both
            ours = min(ours, *best(lambda s=source, t=target: weft.translate(wires[s], s, t)))
            done = subprocess.run(
                [str(python), str(HERE / "peer_litellm.py"), source],
                input=wires[source],
                capture_output=True,
                check=True,
            )
            took = list(map(float, done.stdout.split()))
            alone, road = min(alone, took[0]), min(road, took[1])
        print(
            f"{source} -> {target}: Weft {ours * 1e3:.2f} ms from bytes to bytes; LiteLLM "
            f"{alone * 1e3:.2f} ms in its transformation alone, {alone / ours:.1f}x our time "
            f"(at least 3), and {road * 1e3:.2f} ms until its bytes leave, "
            f"{road / ours:.1f}x our time"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="store_true")
    args = parser.parse_args()
    gc.freeze()
    measure_requests()
    measure_tables()
    measure_growth()
    measure_deltas()
    if args.peer:
        measure_peer()


if __name__ == "__main__":
    main()
