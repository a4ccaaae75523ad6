"""Measures translation, as a multiple of the baseline (`floor`): reading and writing the same JSON.

    python bench/wire.py            the figures
    python bench/wire.py --peer     compared with LiteLLM's transformation, in its own environment

The first table is the real workload: a Claude Code request of 400 messages (`claude_code.py`), to
and from every protocol, back with its sidecar, and from the decoded request, as in the gateway. The
second is a plain conversation: only text, calls and results.

Baseline and translation alternate inside one run, and the smallest CPU time of many rounds counts:
on a shared machine only the best case is repeatable.
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
from claude_code import claude_code_body

import weft
from weft.codec import CODECS, Target, verbatim, write_request

ROUNDS = 60
PEER_ROUNDS = 3
HERE = Path(__file__).parent
PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")
BARS = {"openai-chat": 5, "openai-responses": 6, "gemini": 6}
"""At most this many times the floor, for Claude Code requests to and from Anthropic."""

PLAIN_BAR = 2.5
RESTORE_BAR = 10


def conversation(messages: int = 400) -> dict[str, Any]:
    """A tool conversation of Anthropic's, about 500 bytes a message."""
    sent: list[dict[str, Any]] = []
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
        sent += [
            {"role": "user", "content": f"look at file {turn} and tell me what it does " * 10},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "I will read it now. " * 10}, call],
            },
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "The file defines a function. " * 12},
        ]
    return {"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": sent}


def best(*tasks: Callable[[], Any], rounds: int = ROUNDS) -> list[float]:
    """The smallest CPU time of each task in seconds; the tasks alternate."""
    times = [float("inf")] * len(tasks)
    for _ in range(rounds):
        for number, task in enumerate(tasks):
            start = time.process_time()
            task()
            times[number] = min(times[number], time.process_time() - start)
    return times


def on_each_wire(body: dict[str, Any]) -> dict[str, bytes]:
    """The same conversation in each protocol."""
    first = orjson.dumps(body)
    return {
        name: first if name == "anthropic" else weft.translate(first, "anthropic", name).body
        for name in PROTOCOLS
    }


def compare(body: bytes, task: Callable[[], Any], label: str, bar: float | None) -> None:
    """Print the time of a task and the baseline for this body."""
    floor, ours = best(lambda: orjson.dumps(orjson.loads(body)), task)
    limit = "" if bar is None else f" (at most {bar:g}x)"
    print(f"  {label:<36}{ours * 1e3:7.2f} ms  {ours / floor:5.1f}x floor{limit}")


def measure_claude_code() -> None:
    body = claude_code_body()
    wires, model = on_each_wire(body), body["model"]
    print(
        f"a Claude Code request: {len(body['messages'])} messages, "
        f"{len(wires['anthropic']):,} bytes, bytes to bytes"
    )
    pairs = [("anthropic", name) for name in BARS] + [(name, "anthropic") for name in BARS]
    pairs += [(a, b) for a in PROTOCOLS for b in PROTOCOLS if (a, b) not in pairs]
    for source, target in pairs:
        bars = [BARS[name] for name in (source, target) if name in BARS]
        compare(
            wires[source],
            lambda source=source, target=target: weft.translate(
                wires[source], source, target, model=model
            ),
            f"{source} -> {target}",
            max(bars) if "anthropic" in (source, target) and bars else None,
        )
    catalog = weft.load_catalog()
    for source, target in pairs[: 2 * len(BARS)]:

        def write(source: str = source, target: str = target) -> bytes:
            request = CODECS[source].decode_request(orjson.loads(wires[source]), model)
            goal = Target(catalog.find(model), embed=verbatim)
            return orjson.dumps(write_request(request, CODECS[target], goal).body)

        compare(wires[source], write, f"{source} -> {target}, decoded", None)
    for name in BARS:
        sent = weft.translate(wires["anthropic"], "anthropic", name)
        sidecar = sent.sidecar

        def restore(name: str = name, data: bytes = sent.body, sidecar: Any = sidecar) -> bytes:
            return weft.translate(data, name, "anthropic", model=model, sidecar=sidecar).body

        assert orjson.loads(restore()) == body
        label = f"{name} -> anthropic, sidecar"
        compare(wires["anthropic"], restore, label, RESTORE_BAR)


def measure_plain() -> None:
    wires = on_each_wire(conversation())
    print(f"a plain conversation: 400 messages, {len(wires['anthropic']):,} bytes")
    for source, body in wires.items():
        for target in wires:
            compare(
                body,
                lambda body=body, source=source, target=target: weft.translate(
                    body, source, target, model="claude-sonnet-4-5"
                ),
                f"{source} -> {target}",
                PLAIN_BAR if {source, target} == {"anthropic", "openai-chat"} else None,
            )


def measure_growth() -> None:
    for kind, make in (("plain", conversation), ("Claude Code", claude_code_body)):
        short, long = (orjson.dumps(make(count)) for count in (200, 2000))
        small, large = best(
            lambda short=short: weft.translate(short, "anthropic", "openai-chat"),
            lambda long=long: weft.translate(long, "anthropic", "openai-chat"),
            rounds=20,
        )
        print(f"ten times the messages, {kind}: {large / small:.1f}x the time (at most 11)")


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
        base, duration = best(floor, lambda target=target: ours(target), rounds=30)
        print(
            f"a text delta, anthropic -> {target}: {duration / count * 1e6:.1f} us, "
            f"{duration / base:.1f}x loads+dumps of the frame (at most 15 to Chat)"
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
    wires = on_each_wire(conversation())
    for source, target in (("openai-chat", "anthropic"), ("anthropic", "openai-chat")):
        ours = alone = end_to_end = float("inf")
        for _ in range(PEER_ROUNDS):  # in turns, so that a busy neighbour slows both
            ours = min(ours, *best(lambda s=source, t=target: weft.translate(wires[s], s, t)))
            done = subprocess.run(
                [str(python), str(HERE / "peer_litellm.py"), source],
                input=wires[source],
                capture_output=True,
                check=True,
            )
            seconds = list(map(float, done.stdout.split()))
            alone, end_to_end = min(alone, seconds[0]), min(end_to_end, seconds[1])
        print(
            f"{source} -> {target}: Weft {ours * 1e3:.2f} ms from bytes to bytes; LiteLLM "
            f"{alone * 1e3:.2f} ms in its transformation alone, {alone / ours:.1f}x our time "
            f"(at least 3), and {end_to_end * 1e3:.2f} ms until its bytes leave, "
            f"{end_to_end / ours:.1f}x our time"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="store_true")
    args = parser.parse_args()
    gc.freeze()
    measure_claude_code()
    measure_plain()
    measure_growth()
    measure_deltas()
    if args.peer:
        measure_peer()


if __name__ == "__main__":
    main()
