"""How far Weft and Floway agree, pair by pair, over Floway's own vectors.

A request agrees when both refuse it, or when both write the same body but for what is masked:
`stream` (Floway always streams), an invented `max_tokens`, the one-block form of a content, null
and absent. Events agree when the client's own decoder finds the same answer in both streams: the
words, the calls, the thoughts, why it stopped, what it cost. Where the two differ on purpose,
`docs/protocols` says why: a request's differences stand on the page of the wire that is written
(the upstream's), those of events on the client's, and each is named there by the very class that
is printed here. A class that its page does not list is marked, and the last line counts them.

    python bench/floway.py [--show PAIR] [--gap]
"""

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

import weft
from weft.codec import CODECS, Frame, SseParser, SystemPolicy, write_frame
from weft.codec.refusals import explanation
from weft.codec.stream import cut_off
from weft.errors import WeftError
from weft.model import Fold, Refusal, Text, Thinking, ToolCall, is_system

PROJECT = Path(__file__).resolve().parents[1]
PAGES = PROJECT / "docs" / "protocols"
FOLDER = PROJECT.parent / "shared" / "corpus" / "floway"
NAMES = {
    "anthropic-messages": "anthropic",
    "openai-chat-completions": "openai-chat",
    "openai-responses": "openai-responses",
    "gemini-generate-content": "gemini",
}
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
MASKED = {"stream", "stream_options", "store", "include"}
QUIET = {"status", "logprobs", "annotations"}

Json = dict[str, Any]


def vectors(folder: Path, kind: str) -> Iterator[tuple[str, str, Json]]:
    """Client, upstream and vector of every file of a kind."""
    for path in sorted(folder.glob(f"*.{kind}.jsonl.gz")):
        client, _, upstream = path.name.partition(f".{kind}")[0].partition("-via-")
        with gzip.open(path, "rt") as lines:
            for line in lines:
                yield NAMES[client], NAMES[upstream], json.loads(line)


def masked(value: Any, given: Json) -> Any:
    """A request without what says the same in another form."""
    body = {key: inner for key, inner in value.items() if key not in MASKED}
    limit = [body.pop(key) for key in LIMITS if key in body]
    if limit and any(name in given for name in LIMITS):
        body["max_tokens"] = limit[0]  # two names of one thing; an invented one is masked
    return plain(body)


def plain(value: Any) -> Any:
    """A value without nulls, with one-block contents as strings."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {
        key: plain(inner)
        for key, inner in value.items()
        if inner is not None and key not in QUIET and (key, inner) != ("type", "message")
    }
    for key in ("content", "output", "system", "parts"):
        match fields.get(key):
            case [{"text": str(text), **rest}] if set(rest) <= {"type"}:
                fields[key] = text
            case _:
                pass
    return fields


def translate(
    client: str, upstream: str, vector: Json, system: SystemPolicy = "inline"
) -> weft.Translation | None:
    """Our translation of a vector's request; `None` where it is refused."""
    try:
        return weft.translate(
            vector["input"],
            client,
            upstream,
            model=vector["options"].get("model") or ("m" if client == "gemini" else None),
            system=system,
            cache="auto" if client != upstream else "keep",
        )
    except WeftError:
        return None


def ask(client: str, upstream: str, vector: Json, system: SystemPolicy = "inline") -> Json | None:
    """Our body for a vector's request; `None` where it is refused."""
    done = translate(client, upstream, vector, system)
    return None if done is None else orjson.loads(orjson.dumps(done.body))


def compare_request(
    client: str, upstream: str, vector: Json, system: SystemPolicy = "inline"
) -> str:
    """Where the two bodies first differ; empty where they agree."""
    ours = ask(client, upstream, vector, system)
    theirs = vector.get("output")
    if ours is None or theirs is None:
        refused = [name for name, body in (("weft", ours), ("floway", theirs)) if body is None]
        return "" if len(refused) == 2 else f"only {refused[0]} refuses"
    return difference(masked(theirs, vector["input"]), masked(ours, vector["input"]))


def difference(theirs: Any, ours: Any, path: str = "") -> str:
    """The path of the first difference, numbers masked."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            step = f"{path}.{key}" if path else key
            if key not in ours:
                return f"{step}: only floway has it"
            if key not in theirs:
                return f"{step}: only weft has it"
            if found := difference(theirs[key], ours[key], step):
                return found
        return ""
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return f"{path}: another number of them"
        found = (difference(a, b, f"{path}[]") for a, b in zip(theirs, ours, strict=True))
        return next(filter(None, found), "")
    return "" if theirs == ours else f"{path}: another value"


def frame(event: Any) -> Frame:
    if isinstance(event, str):
        return Frame(event)
    return Frame(json.dumps(event), event.get("type"))


def answer(protocol: str, events: list[Any]) -> Any:
    """What a client makes of a stream: its words, calls and thoughts, why it stopped, its cost.

    The words that explain a refusal count, whether they stand in the answer or beside the stop.
    """
    decoder, fold = CODECS[protocol].stream_decoder(), Fold()
    told = [event for given in events for event in decoder.feed(frame(given))]
    fails = ""
    try:
        for event in [*told, *decoder.close()]:
            fold.send(event)
    except WeftError as error:
        fails = str(error)
    response = fold.response()
    blocks = response.message.blocks
    usage, stop = response.usage, response.stop
    words = [*(b.text for b in blocks if isinstance(b, Text | Refusal)), explanation(stop)]
    return {
        "words": "".join(words),
        "calls": sorted((b.name, arguments(b)) for b in blocks if isinstance(b, ToolCall)),
        "thinking": "".join(b.text for b in blocks if isinstance(b, Thinking)),
        "stop": stop.kind if stop is not None else None,
        "usage": (usage.input or 0, usage.output or 0) if usage is not None else (0, 0),
        "fails": fold.error.message if fold.error is not None else fails,
    }


def arguments(call: ToolCall) -> str:
    """A call's arguments, without how they are written."""
    try:
        return json.dumps(json.loads(call.arguments or "{}"), sort_keys=True)
    except ValueError:
        return call.arguments


def sidecar(options: Json) -> Json:
    """What the request's translation would have left behind: how its tools were renamed."""
    custom = {name: {"name": name, "custom": True} for name in options.get("custom_tool_names", ())}
    return {"weft": 1, "calls": {**custom, **options.get("namespace_tools", {})}}


def relay(client: str, upstream: str, vector: Json) -> list[Any]:
    """The events that our client reads."""
    stream = weft.StreamTranslator(upstream, client, sidecar(vector["options"]))
    parser = SseParser()
    given = b"".join(write_frame(frame(event)) for event in vector["input"])
    frames = parser.feed(stream.feed(given) + stream.close())
    return [sent.data if sent.data == "[DONE]" else json.loads(sent.data) for sent in frames]


def compare_events(client: str, upstream: str, vector: Json) -> str:
    """Which part of the answer differs; empty where the client sees the same."""
    mine, yours = answer(client, relay(client, upstream, vector)), answer(client, vector["output"])
    if vector.get("error"):
        return "" if mine["fails"] else "only floway fails"
    if bool(mine["fails"]) != bool(yours["fails"]):
        if mine["fails"]:
            return "only weft fails"
        return f"only floway {'gives no stop' if CUT_OFF in yours['fails'] else 'fails'}"
    seen = TOLD if mine["fails"] else VERBS
    parts = (key for key in seen if mine[key] != yours[key])
    return next((f"the {key} {VERBS[key]}" for key in parts), "")


CUT_OFF = cut_off("").message
TOLD = ("words", "calls", "thinking")
"""What a client keeps of an answer that fails."""
VERBS = {
    "words": "differ",
    "calls": "differ",
    "thinking": "differs",
    "stop": "differs",
    "usage": "differs",
}


COMPARE = {"request": compare_request, "events": compare_events}
TABLES = {"request": "Where Floway's vectors differ", "events": "Streams and Floway's events"}
"""The heading of the table that lists the differences of a kind."""


class Finding(NamedTuple):
    """What came of one vector; `difference` is empty where the two agree."""

    kind: str
    client: str
    upstream: str
    id: str
    difference: str

    @property
    def page(self) -> str:
        """The protocol whose page has to say why the two differ."""
        return self.upstream if self.kind == "request" else self.client


def folders(gap: bool) -> list[Path]:
    return [FOLDER, FOLDER / "gap"] if gap else [FOLDER]


def findings(gap: bool) -> list[Finding]:
    """What came of every vector of the main set, and of the gap set too when asked."""
    return [
        Finding(kind, client, upstream, vector["id"], compare(client, upstream, vector))
        for kind, compare in COMPARE.items()
        for folder in folders(gap)
        for client, upstream, vector in vectors(folder, kind)
    ]


def documented(protocol: str, kind: str) -> set[str]:
    """The classes in the first column of a page's table, each between backticks."""
    page = (PAGES / f"{protocol}.md").read_text()
    section = page.partition(f"## {TABLES[kind]}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def undocumented(found: list[Finding]) -> list[Finding]:
    """The differences whose class their page does not list."""
    pages = {(name, kind): documented(name, kind) for name in CODECS for kind in TABLES}
    return [
        row for row in found if row.difference and row.difference not in pages[row.page, row.kind]
    ]


def pinned() -> set[str]:
    """The ids of the vectors that pin the rules of system text."""
    path = FOLDER / "PR120.json"
    return {row["id"] for row in json.loads(path.read_text())} if path.exists() else set()


def report(kind: str, found: list[Finding], missing: set[Finding]) -> Iterator[str]:
    """The lines about one kind: the share of each pair, then each class with its number."""
    pairs = Counter((row.client, row.upstream) for row in found)
    agreed = Counter((row.client, row.upstream) for row in found if not row.difference)
    for (client, upstream), count in pairs.items():
        same = agreed[client, upstream]
        yield f"{kind:8} {client:17} via {upstream:17} {same:4}/{count:<4} {same / count:6.1%}"
    classes = Counter(row._replace(id="") for row in found if row.difference)
    unlisted = {row._replace(id="") for row in missing}
    for row, number in classes.most_common():
        mark = " (not in the docs)" if row in unlisted else ""
        yield f"  {number:3} {row.client} via {row.upstream}: {row.difference}{mark}"


def by_default(pins: set[str]) -> Iterator[str]:
    """The vectors that pin the system rules, under the default policy: how many agree, and which do
    not, with our reason."""
    rows = [row for row in vectors(FOLDER, "request") if row[2]["id"] in pins]
    lines: list[str] = []
    for client, upstream, vector in rows:
        difference = compare_request(client, upstream, vector, "auto")
        done = translate(client, upstream, vector, "auto")
        if difference:
            losses = [] if done is None else done.losses
            why = {str(loss) for loss in losses if loss.code.startswith("system_demoted")}
            lines.append(f"  {vector['id']} {difference} ({'; '.join(sorted(why))})")
    yield f"the same under the default policy: {len(rows) - len(lines)} of {len(rows)} agree"
    yield from lines


def demoted() -> str:
    """How many requests with later system messages have none once they are demoted on the way to
    their own protocol, each reported."""
    held = total = 0
    for client, _, vector in vectors(FOLDER, "request"):
        kept = translate(client, client, vector)
        if kept is None or not later_system(client, kept.body):
            continue
        total += 1
        done = translate(client, client, vector, "demote")
        assert done is not None
        held += not later_system(client, done.body) and len(done.losses) > 0
    return f"demotion towards the own protocol: {held} of {total} requests hold"


def later_system(protocol: str, body: Json) -> bool:
    """Whether a system message stands behind another's."""
    messages = weft.decode(body, protocol, "m").messages
    spoken = [is_system(message) for message in messages]
    return True in spoken and any(spoken[spoken.index(False) :] if False in spoken else ())


def asked_for(show: str | None, row: Finding, pins: set[str]) -> bool:
    """Whether the caller wants to see a finding's id."""
    if show == "pinned":
        return row.id in pins
    return show in (f"{row.client}:{row.upstream}", row.id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--show", metavar="PAIR", help="print disagreements: CLIENT:UPSTREAM, an id, or `pinned`"
    )
    parser.add_argument("--gap", action="store_true", help="the vectors of the gaps, too")
    args = parser.parse_args()
    if not FOLDER.exists():
        print("the vectors are not beside the project: nothing is compared")
        return
    found, pins = findings(args.gap), pinned()
    missing = set(undocumented(found))
    for kind in COMPARE:
        rows = [row for row in found if row.kind == kind]
        for row in rows:
            if row.difference and asked_for(args.show, row, pins):
                print(f"  {row.id} {kind}: {row.difference}")
        print(*report(kind, rows, missing), sep="\n")
    held = Counter(not row.difference for row in found if row.id in pins)
    print(f"vectors that pin the system rules: {held[True]} agree, {held[False]} do not")
    print(*by_default(pins), sep="\n")
    print(demoted())
    print(f"classes that are not in the docs: {len({row._replace(id='') for row in missing})}")


if __name__ == "__main__":
    main()
