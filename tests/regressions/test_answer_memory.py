"""A large answer takes a small multiple of its size in memory while it is recorded.

The peak is that of a real `weft serve`, above what it has before the answer arrives.
"""

import re
import sys
import threading
from pathlib import Path
from urllib.request import Request, urlopen

import orjson
import pytest

from servers import (
    REQUEST_PATHS,
    SECONDS,
    UPSTREAM_NAMES,
    Scripted,
    scripted_upstream,
    weft_serve,
)
from weft.codec import CODECS, AnswerWriter, unfold
from weft.errors import WrongValue
from weft.history import Append, Draft, count_terms, encode_series, match_key
from weft.model import (
    Delta,
    Message,
    Response,
    Stop,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads the peak from /proc"
)

SIZE = 16_000_000
CHUNK = 1 << 16
DELTA = 1000


def answer_of(text: str) -> Response:
    message = Message("assistant", (Text(text),))
    return Response(message, id="one", model="m", stop=Stop("end"), usage=Usage(input=1, output=1))


def as_body(protocol: str, text: str) -> bytes:
    return orjson.dumps(AnswerWriter(CODECS[protocol]).write_body(answer_of(text)).body)


def as_stream(protocol: str, text: str) -> bytes:
    writer, pieces = AnswerWriter(CODECS[protocol]), []
    for event in unfold(answer_of(text)):
        if isinstance(event, Delta):
            starts = range(0, len(text), DELTA)
            events = [Delta(event.index, event.kind, text[n : n + DELTA]) for n in starts]
        else:
            events = [event]
        piece = writer.write(events)
        pieces += [piece.now, piece.last]
    return b"".join(pieces)


def peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def ask(url: str, protocol: str, upstream: str, *, stream: bool) -> str | None:
    """Read a whole answer and forget it; returns where it was recorded."""
    model, path = f"{UPSTREAM_NAMES[upstream]}/m", REQUEST_PATHS[protocol]
    body: dict[str, object] = {"model": model, "max_tokens": 9, "stream": stream}
    match protocol:
        case "gemini":
            path = path.format(model=model)
            if stream:
                path = path.replace(":generateContent", ":streamGenerateContent") + "?alt=sse"
            body = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
        case "openai-responses":
            body = {"model": model, "input": "hello", "stream": stream}
        case _:
            body["messages"] = [{"role": "user", "content": "hello"}]
    headers = {"content-type": "application/json"}
    with urlopen(Request(url + path, orjson.dumps(body), headers), timeout=SECONDS) as reply:
        while reply.read(CHUNK):
            pass
        return reply.headers.get("x-weft-recorded")


def growth(folder: Path, protocol: str, upstream: str, answer: bytes, *, count: int = 1) -> int:
    """By how many bytes the peak of the gateway grows while it gives this answer `count` times."""
    stream = not answer.startswith(b"{")
    chunks = [answer[n : n + CHUNK] for n in range(0, len(answer), CHUNK)]
    form = as_stream if stream else as_body
    small = Scripted(form(upstream, "a small answer"))
    with scripted_upstream() as running:
        flags = ["--upstream", f"{UPSTREAM_NAMES[upstream]}={upstream}:{running.url}"]
        (folder / "weft.toml").write_text("[limits]\nanswer_bytes = 134_217_728\n")
        with weft_serve(folder, "--config", "weft.toml", *flags) as gateway:
            pid = gateway.process.pid
            running.then(small)
            ask(gateway.url, protocol, upstream, stream=stream)
            before = peak_bytes(pid)
            running.then(Scripted(*chunks))
            asks = [
                threading.Thread(
                    target=ask, args=(gateway.url, protocol, upstream), kwargs={"stream": stream}
                )
                for _ in range(count)
            ]
            for each in asks:
                each.start()
            for each in asks:
                each.join()
            # The text index is made after the answer, and counts too.
            with urlopen(f"{gateway.url}/api/threads") as reply:
                thread = orjson.loads(reply.read())["threads"][0]["name"]
            with urlopen(f"{gateway.url}/api/search?thread={thread}&q=hello") as reply:
                assert reply.status == 200
            return peak_bytes(pid) - before


WORDS = ("word " * (SIZE // 5))[:SIZE]


@pytest.mark.parametrize(
    ("protocol", "upstream", "form"),
    [
        ("anthropic", "anthropic", as_body),
        ("openai-chat", "openai-chat", as_stream),
        ("openai-responses", "openai-responses", as_body),
        ("gemini", "openai-chat", as_body),
        ("openai-chat", "gemini", as_stream),
    ],
)
def test_a_large_answer_takes_a_small_multiple_of_its_size(tmp_path, protocol, upstream, form):
    answer = form(upstream, WORDS)
    assert growth(tmp_path, protocol, upstream, answer) < 9 * len(answer)


def test_several_large_answers_at_once_take_their_own_multiples(tmp_path):
    answer = as_body("anthropic", WORDS)
    grown = growth(tmp_path, "openai-chat", "anthropic", answer, count=3)
    assert grown < 3 * 6 * len(answer)


TEXTS = [
    "getUserById, don't stop-here the user's",
    "\u6f22\u5b57\u3002\u4e2d\u6587\uff0c\u3046",  # punctuation without spaces
    "e\u0301te\u0301 <\u0338 =\u0338",  # characters that are composed
    "\u1112\u1161\u11ab\u200b\u1100\u1161",  # Hangul, in parts
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_terms_of_a_large_text_are_those_of_its_parts(text):
    times = 200_000 // len(text)
    small = count_terms(text)
    for separator in "\n", "; ", "\u3002":
        large = count_terms(separator.join([text] * times))
        assert large == {term: count * times for term, count in small.items()}


@pytest.mark.parametrize("text", [*TEXTS, "a\u2003b \x1c\x85 c\n", "\ud800 half", " \n"])
def test_the_match_key_of_a_large_answer_ignores_whitespace(text):
    large = text * (200_000 // len(text))
    spaced, compact = (Message("assistant", (Text(t),)) for t in (large, "".join(large.split())))
    assert match_key(spaced) == match_key(compact)


LARGE = "x" * 100_000


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ((Text(LARGE + "\ud800"),), "blocks[0].text is not text"),
        ((Text(LARGE, ext={"a": {"b": float("nan")}}),), "nan is not a JSON number"),
        ((Text(LARGE, ext={"a": {"b": b"x"}}),), "JSON cannot represent bytes"),
        ((Text(LARGE), Text(5)), "got `int`"),
        ((ToolCall("id", "name", LARGE), Text(LARGE), Thinking(b"x")), "blocks[2].text"),
    ],
)
def test_a_wrong_value_beside_a_large_text_is_refused(blocks, reason):
    draft = Draft("append", Append(), (Message("assistant", blocks),))
    with pytest.raises(WrongValue, match=re.escape(reason)):
        encode_series([draft], None, scope="", chain=None, created=0.0)
