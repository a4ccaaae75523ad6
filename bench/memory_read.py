"""Writes compacted contexts, to be read by a person as the model that has to continue.

    python bench/memory_read.py FOLDER [--corpus FOLDER]

The conversations are `bench/conversations/*.txt` (coding, planning with changed facts, support,
research, and nine in other domains and languages) and, with a corpus, a recorded coding session.
Each is compacted to 5 and 10 % of its tokens, once at its end and five times while it grows,
without a model. `docs/compaction-quality.md` says how to score the contexts.
`bench/conversations/needed.toml` lists what a model must know to continue; the share of these items
that each context has is printed.

In a conversation, `{{log 30}}` stands for thirty lines of the kind that tools print.
"""

import argparse
import itertools
import json
import os
import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import memory_data as data
import msgspec
from memory_measures import count

import weft
from weft.model import Message, Text, ToolCall, ToolResult, texts

CONVERSATIONS = Path(__file__).parent / "conversations"
SHARES = (0.05, 0.1)
TIMES = (1, 5)
LEAST_TOKENS = 100_000
"""Shorter recorded sessions are left out: 5 % of them are less than one tool result."""

_TURN = re.compile(r"^(system|user|assistant|result|call \w+): ", re.MULTILINE)
_FILLER = re.compile(r"\{\{(\w+) (\d+)\}\}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus", default=os.environ.get("WEFT_CORPUS"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    needed = read_needed()
    retained: Counter[tuple[float, int, str]] = Counter()
    listed: Counter[tuple[float, int, str]] = Counter()
    for number, (name, messages) in enumerate(read_conversations(options.corpus)):
        for position, (share, times) in enumerate(itertools.product(SHARES, TIMES)):
            context = write_context(compact_in_course(messages, share, times))
            file = f"{4 * number + position + 1:02d}-{name}-{round(share * 100)}-{times}x.txt"
            (options.folder / file).write_text(context)
            items = needed.get(name, [])
            lost = [item for item in items if not item.findable(context)]
            for item in items:
                listed[share, times, item.kind] += 1
                retained[share, times, item.kind] += item not in lost
            print(file, f"{len(items) - len(lost)} of {len(items)}" if items else "")
            for item in lost:
                print("   ", item.describe_loss(context))
    for share, times in itertools.product(SHARES, TIMES):
        parts = [
            f"{kind} {retained[share, times, kind]}/{listed[share, times, kind]}" for kind in KINDS
        ]
        total = sum(retained[share, times, kind] for kind in KINDS)
        total_listed = sum(listed[share, times, kind] for kind in KINDS)
        print(f"{share:.0%} {times}x: {total / total_listed:.1%} ({', '.join(parts)})")


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that a model must know to continue a conversation."""

    kind: str
    patterns: list[str]
    old: str | None = None

    def findable(self, context: str) -> bool:
        """Whether one line of the context has all patterns."""
        return any(
            all(re.search(pattern, line, re.IGNORECASE) for pattern in self.patterns)
            for line in context.splitlines()
        )

    def describe_loss(self, context: str) -> str:
        stale = self.old is not None and re.search(self.old, context) is not None
        return f"{self.kind}: {self.patterns}{', only the old value' if stale else ''}"


KINDS = ("goal", "task", "rule", "question", "error", "fact")


def read_needed() -> dict[str, list[Item]]:
    """By conversation, what a model must know to continue it."""
    with (CONVERSATIONS / "needed.toml").open("rb") as file:
        return msgspec.convert(tomllib.load(file), dict[str, list[Item]])


def read_conversations(corpus: str | None) -> Iterator[tuple[str, list[Message]]]:
    """The written conversations, and the first long recorded session of a corpus."""
    for path in sorted(CONVERSATIONS.glob("*.txt")):
        yield path.stem, read_conversation(path.read_text(), random.Random(path.stem))
    folder = None if corpus is None else Path(corpus)
    if folder is None:
        return
    folder = folder / "transcripts" if (folder / "transcripts").is_dir() else folder
    for transcript in data.read_transcripts(folder):
        messages = [row.message for row in transcript.rows]
        if sum(map(count, messages)) >= LEAST_TOKENS:
            yield transcript.name, messages
            return


def read_conversation(text: str, chance: random.Random) -> list[Message]:
    """The messages of a conversation."""
    messages: list[Message] = []
    _, *parts = _TURN.split(text)
    for speaker, body in zip(parts[::2], parts[1::2], strict=True):
        content = _FILLER.sub(lambda m: "\n".join(fill(m[1], int(m[2]), chance)), body.strip())
        if speaker == "result":
            id = f"call_{len(messages) - 1}"
            messages.append(Message("tool", (ToolResult(id, (Text(content),)),)))
        elif speaker.startswith("call "):
            id = f"call_{len(messages)}"
            call = ToolCall(id, speaker.removeprefix("call "), json.dumps(json.loads(content)))
            messages.append(Message("assistant", (call,)))
        else:
            messages.append(Message(speaker, (Text(content),)))
    return messages


def compact_in_course(messages: list[Message], share: float, times: int) -> list[Message]:
    """The context after `times` compactions of a conversation, the last one at its end."""
    with weft.open() as thread:
        tokens = start = 0
        for number in range(1, times + 1):
            end = len(messages) * number // times
            for message in messages[start:end]:
                thread.commit_message(message)
                tokens += count(message)
            start = end
            thread.compact(budget=max(int(tokens * share), 250))
        return list(thread.compile().messages)


def write_context(messages: list[Message]) -> str:
    """The messages as plain text."""
    parts: list[str] = []
    for message in messages:
        for block in message.blocks:
            match block:
                case Text(text=text):
                    parts.append(f"=== {message.role}\n{text}")
                case ToolCall(name=name, arguments=arguments):
                    parts.append(f"=== {message.role} calls {name}\n{arguments}")
                case ToolResult(content=content):
                    parts.append("=== result\n" + "\n".join(texts(content)))
                case _:
                    pass
    return "\n\n".join(parts) + "\n"


WORDS = (  # noqa: SIM905
    "survey report section method pump building annual measured owner tenant boiler pipe radiator "
    "insulation meter season winter capacity planning contract district window supplier result "
    "figure annex period average interview installer storage circuit temperature"
).split(" ")
STREETS = ("Rua das Flores", "Avenida do Mar", "Rua do Sol", "Largo da Torre")


def fill(kind: str, lines: int, chance: random.Random) -> Iterator[str]:
    """Log lines that nobody needs."""
    for _ in range(lines):
        number, clock = chance.randint(10, 99), f"{chance.randint(6, 22):02d}:{number_of(chance)}"
        words = [chance.choice(WORDS) for _ in range(chance.randint(8, 20))]
        match kind:
            case "log":
                yield f"{clock}:{number} INFO worker-{number}: step {words[0]} took {number} ms"
            case "code":
                yield f"    {words[0]}_{words[1]} = self.{words[2]}({words[3]}, {number})"
            case "prose":
                yield f"{words[0].capitalize()} {' '.join(words[1:])}."
            case "pages":
                site = f"https://{words[0]}-{words[1]}.example/{words[2]}{number}"
                title = " ".join(words[3:8]).capitalize()
                yield f'{site} - "{title}", 20{number % 20 + 8:02d}'
            case "records":
                yield json.dumps(
                    {"id": chance.randint(10000, 99999), "kind": words[0], "at": clock}
                )
            case "slots":
                yield f"2026-03-{number % 28 + 1:02d} {clock}-{clock} team C{number % 9}"
            case "flights":
                yield f"XX{number} {clock} {number * 7} EUR no bag"
            case _:
                street = chance.choice(STREETS)
                yield f"{words[0].capitalize()} {street} | {number} | {number * 2} EUR | no"


def number_of(chance: random.Random) -> str:
    return f"{chance.randrange(60):02d}"


if __name__ == "__main__":
    main()
