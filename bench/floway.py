"""Compare Weft's translations with Floway's, on Floway's test vectors.

- Two requests agree if both programs refuse the request, or if both write the same body. Some
  differences are ignored (`masked`): `stream` (Floway always streams), an added `max_tokens`, a
  string instead of a single text block, and null instead of an absent member.
- Two streams agree if the client's decoder reads the same answer from both: text, calls, thinking,
  stop reason and usage.

`docs/protocols` explains the intended differences, by the class that is printed here. Differences
of requests are on the page of the upstream's protocol, and differences of streams on the page of
the client's protocol. Classes that are missing there are marked; the last line counts them.

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
from weft.codec.errors import refusal_explanation
from weft.codec.stream import cut_off_error
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


def masked(value: Any, source: Json) -> Any:
    """A request without the members that are not compared."""
    body = {key: inner for key, inner in value.items() if key not in MASKED}
    limit = [body.pop(key) for key in LIMITS if key in body]
    if limit and any(name in source for name in LIMITS):
        body["max_tokens"] = limit[0]  # one name for all protocols; an added limit is ignored
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
    """Weft's translation of a vector's request; `None` if it is refused."""
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
    """Weft's body for a vector's request; `None` if it is refused."""
    done = translate(client, upstream, vector, system)
    return None if done is None else orjson.loads(orjson.dumps(done.body))


def compare_request(
    client: str, upstream: str, vector: Json, system: SystemPolicy = "inline"
) -> str:
    """The class of the first difference between the two bodies; empty if they agree."""
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
            if inner := difference(theirs[key], ours[key], step):
                return inner
        return ""
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return f"{path}: different length"
        inner = (difference(a, b, f"{path}[]") for a, b in zip(theirs, ours, strict=True))
        return next(filter(None, inner), "")
    return "" if theirs == ours else f"{path}: different value"


def frame(event: Any) -> Frame:
    if isinstance(event, str):
        return Frame(event)
    return Frame(json.dumps(event), event.get("type"))


def answer(protocol: str, events: list[Any]) -> Any:
    """The answer that a client reads from a stream.

    The explanation of a refusal counts as text, whether it is in the answer or beside the stop
    reason.
    """
    decoder, fold = CODECS[protocol].stream_decoder(), Fold()
    decoded = [event for sent in events for event in decoder.feed(frame(sent))]
    error_text = ""
    try:
        for event in [*decoded, *decoder.close()]:
            fold.send(event)
    except WeftError as error:
        error_text = str(error)
    response = fold.response()
    blocks = response.message.blocks
    usage, stop = response.usage, response.stop
    texts = [*(b.text for b in blocks if isinstance(b, Text | Refusal)), refusal_explanation(stop)]
    return {
        "text": "".join(texts),
        "calls": sorted((b.name, arguments(b)) for b in blocks if isinstance(b, ToolCall)),
        "thinking": "".join(b.text for b in blocks if isinstance(b, Thinking)),
        "stop reason": stop.kind if stop is not None else None,
        "usage": (usage.input or 0, usage.output or 0) if usage is not None else (0, 0),
        "error": fold.error.message if fold.error is not None else error_text,
    }


def arguments(call: ToolCall) -> str:
    """A call's arguments as canonical JSON."""
    try:
        return json.dumps(json.loads(call.arguments or "{}"), sort_keys=True)
    except ValueError:
        return call.arguments


def sidecar(options: Json) -> Json:
    """The sidecar of the request's translation: it says how the tools were renamed."""
    custom = {name: {"name": name, "custom": True} for name in options.get("custom_tool_names", ())}
    return {"weft": 1, "calls": {**custom, **options.get("namespace_tools", {})}}


def relay(client: str, upstream: str, vector: Json) -> list[Any]:
    """The events that Weft sends to the client."""
    stream = weft.StreamTranslator(upstream, client, sidecar(vector["options"]))
    parser = SseParser()
    received = b"".join(write_frame(frame(event)) for event in vector["input"])
    frames = parser.feed(stream.feed(received) + stream.close())
    return [sent.data if sent.data == "[DONE]" else json.loads(sent.data) for sent in frames]


def compare_events(client: str, upstream: str, vector: Json) -> str:
    """The class of the first difference between the two answers; empty if they agree."""
    weft_answer = answer(client, relay(client, upstream, vector))
    floway_answer = answer(client, vector["output"])
    if vector.get("error"):
        return "" if weft_answer["error"] else "only floway fails"
    if bool(weft_answer["error"]) != bool(floway_answer["error"]):
        if weft_answer["error"]:
            return "only weft fails"
        has_no_stop = CUT_OFF in floway_answer["error"]
        return f"only floway {'has no stop reason' if has_no_stop else 'fails'}"
    compared = CONTENT if weft_answer["error"] else CONTENT + METADATA
    different = (key for key in compared if weft_answer[key] != floway_answer[key])
    return next((f"{key} {'differ' if key == 'calls' else 'differs'}" for key in different), "")


CUT_OFF = cut_off_error("").message
CONTENT = ("text", "calls", "thinking")
METADATA = ("stop reason", "usage")
"""Not compared if both streams fail."""


COMPARE = {"request": compare_request, "events": compare_events}
TABLES = {
    "request": "Differences from Floway: requests",
    "events": "Differences from Floway: streams",
}
"""The heading of the table that lists the differences of a kind."""


class Finding(NamedTuple):
    """The comparison of one vector; `difference` is empty if the two agree."""

    kind: str
    client: str
    upstream: str
    id: str
    difference: str

    @property
    def page(self) -> str:
        """The protocol whose page must explain the difference."""
        return self.upstream if self.kind == "request" else self.client


def folders(gap: bool) -> list[Path]:
    return [FOLDER, FOLDER / "gap"] if gap else [FOLDER]


def findings(gap: bool) -> list[Finding]:
    """The comparisons of the main set, and with `gap` of the gap set too."""
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


def undocumented(all_findings: list[Finding]) -> list[Finding]:
    """The differences whose class their page does not list."""
    pages = {(name, kind): documented(name, kind) for name in CODECS for kind in TABLES}
    return [
        row
        for row in all_findings
        if row.difference and row.difference not in pages[row.page, row.kind]
    ]


def pinned() -> set[str]:
    """The ids of the vectors that test the rules for system text."""
    path = FOLDER / "PR120.json"
    return {row["id"] for row in json.loads(path.read_text())} if path.exists() else set()


def report(kind: str, kind_findings: list[Finding], missing: set[Finding]) -> Iterator[str]:
    """The lines about one kind: the agreement of each pair, then the count of each class."""
    pairs = Counter((row.client, row.upstream) for row in kind_findings)
    agreed = Counter((row.client, row.upstream) for row in kind_findings if not row.difference)
    for (client, upstream), count in pairs.items():
        same = agreed[client, upstream]
        yield f"{kind:8} {client:17} via {upstream:17} {same:4}/{count:<4} {same / count:6.1%}"
    classes = Counter(row._replace(id="") for row in kind_findings if row.difference)
    unlisted = {row._replace(id="") for row in missing}
    for row, number in classes.most_common():
        mark = " (not in the docs)" if row in unlisted else ""
        yield f"  {number:3} {row.client} via {row.upstream}: {row.difference}{mark}"


def by_default(pins: set[str]) -> Iterator[str]:
    """Under the default policy: how many of the vectors for system text agree, and which do not."""
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
    """In how many requests `system="demote"` demotes and reports every later system message.

    The requests are translated to their own protocol.
    """
    reported = total = 0
    for client, _, vector in vectors(FOLDER, "request"):
        unchanged = translate(client, client, vector)
        if unchanged is None or not later_system(client, unchanged.body):
            continue
        total += 1
        done = translate(client, client, vector, "demote")
        assert done is not None
        reported += not later_system(client, done.body) and len(done.losses) > 0
    return f"demoted and reported in the same protocol: {reported} of {total} requests"


def later_system(protocol: str, body: Json) -> bool:
    """Whether a system message follows a message with another role."""
    messages = weft.decode(body, protocol, "m").messages
    system = [is_system(message) for message in messages]
    return any(system[system.index(False) :] if False in system else ())


def asked_for(show: str | None, row: Finding, pins: set[str]) -> bool:
    """Whether `--show` selects a finding."""
    if show == "pinned":
        return row.id in pins
    return show in (f"{row.client}:{row.upstream}", row.id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--show", metavar="PAIR", help="print disagreements: CLIENT:UPSTREAM, an id, or `pinned`"
    )
    parser.add_argument("--gap", action="store_true", help="compare the gap set too")
    args = parser.parse_args()
    if not FOLDER.exists():
        print(f"nothing to compare: {FOLDER} does not exist")
        return
    all_findings, pins = findings(args.gap), pinned()
    missing = set(undocumented(all_findings))
    for kind in COMPARE:
        rows = [row for row in all_findings if row.kind == kind]
        for row in rows:
            if row.difference and asked_for(args.show, row, pins):
                print(f"  {row.id} {kind}: {row.difference}")
        print(*report(kind, rows, missing), sep="\n")
    agreement = Counter(not row.difference for row in all_findings if row.id in pins)
    print(f"vectors for system text: {agreement[True]} agree, {agreement[False]} do not")
    print(*by_default(pins), sep="\n")
    print(demoted())
    print(f"classes that are not in the docs: {len({row._replace(id='') for row in missing})}")


if __name__ == "__main__":
    main()
