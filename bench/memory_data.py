"""Conversations for `bench/memory.py`: recorded transcripts, and generated ones.

Recorded transcripts are Claude Code session files (`*.jsonl`, `*.jsonl.gz`) in a folder. Generated
conversations are made from a seed, so every run gives the same ones:

- `make_session`: a coding session with reads, searches, edits, test runs and changing requests
- `make_ruled_session`: parts of a session in which the user states twenty rules
- `make_plan`: a planning conversation in which facts are stated and later changed
"""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

import weft
from weft.history import Row, View, visible_rows
from weft.ids import object_id
from weft.model import Block, Message, Text, ToolCall, ToolResult, Usage

MIN_MESSAGES = 40
"""Transcripts with fewer messages have too few later calls to measure."""


class Transcript(Struct, frozen=True):
    """A conversation with a name."""

    name: str
    rows: list[Row]


class ModelSummary(Struct, frozen=True):
    """A summary that a model wrote, and the rows before it."""

    name: str
    text: str
    rows: list[Row]


def make_rows(messages: list[Message]) -> list[Row]:
    """Rows with ids by number."""
    return [Row(object_id("slot", b"%d" % n), message) for n, message in enumerate(messages)]


def read_transcripts(folder: Path) -> list[Transcript]:
    """The transcripts of a folder that are long enough, without recorded summaries."""
    transcripts: list[Transcript] = []
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        lines = [line for line in _lines(path) if not line.get("isCompactSummary")]
        rows = _decode(lines)
        if len(rows) >= MIN_MESSAGES:
            transcripts.append(Transcript(path.name.partition(".")[0], rows))
    return transcripts


def transcript_files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")])


def read_reports(path: Path) -> Iterator[tuple[str, list[Message], int]]:
    """The requests of a transcript with reported usage: model, messages, and input tokens."""
    raw = path.read_bytes()
    with weft.open() as thread:
        thread.import_bytes(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        view = View()
        for step in thread.store.walk(thread.name, bytes.fromhex(thread.head.id)):
            view = view.extend([step])
            usage = step.commit.usage and msgspec.json.decode(step.commit.usage, type=Usage)
            if usage and usage.input:
                *messages, answer = [row.message for row in visible_rows(view.rows)]
                model = answer.origin.model if answer.origin else ""
                yield model, messages, usage.input


def read_model_summaries(folder: Path) -> list[ModelSummary]:
    """The summaries that a client's model wrote inside the transcripts of a folder."""
    summaries: list[ModelSummary] = []
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        lines = list(_lines(path))
        for number, line in enumerate(lines):
            if line.get("isCompactSummary"):
                text = line["message"]["content"]
                body = text.partition("Summary:\n")[2] or text
                name = path.name.partition(".")[0]
                summaries.append(ModelSummary(name, body, _decode(lines[:number])))
    return summaries


def _lines(path: Path) -> Iterator[dict]:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    for line in data.splitlines():
        entry = json.loads(line)
        if entry.get("type") in {"user", "assistant"}:
            yield entry


def _decode(lines: list[dict]) -> list[Row]:
    messages = [
        {"role": line["message"]["role"], "content": line["message"]["content"]} for line in lines
    ]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1, "messages": messages}
    return make_rows(list(weft.decode(body, "anthropic").messages))


AREAS = ("billing", "search", "auth", "export", "queue", "report", "upload", "mail", "audit")
NOUNS = ("invoice", "cursor", "session", "ledger", "batch", "digest", "token", "quota", "payload")
VERBS = ("load", "merge", "parse", "render", "resolve", "retry", "split", "validate", "collect")
FAULTS = ("ValueError", "KeyError", "TimeoutError", "TypeError", "IntegrityError")
ASIDES = (
    "Thanks, that looks good!",
    "Great work so far, I appreciate it.",
    "How is it going?",
    "What is the status now?",
    "Ok, go on please.",
    "I never understood why this part of the code failed so often last year.",
    "My manager always asks me about the dashboard on Mondays, it must be the season.",
)


class Coder:
    """Generates a coding session: requests, and the calls that answer them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.messages: list[Message] = [Message("system", (Text("You are a coding agent."),))]
        self.calls = 0
        self.files: dict[str, list[str]] = {}
        for area in self.random.sample(AREAS, 6):
            for noun in self.random.sample(NOUNS, 4):
                path = f"src/{area}/{noun}_{self.random.choice(VERBS)}.py"
                verbs = self.random.sample(VERBS, 5)
                self.files[path] = [f"{verb}_{area}_{noun}" for verb in verbs]
        self.recent = self.random.sample(sorted(self.files), 3)

    def say(self, role: str, *blocks: Block) -> None:
        self.messages.append(Message(role, blocks))

    def call(self, text: str, name: str, arguments: dict, result: str) -> None:
        self.calls += 1
        id = f"toolu_{self.calls:04d}"
        words = (Text(text),) if text else ()
        self.say("assistant", *words, ToolCall(id, name, json.dumps(arguments)))
        self.say("tool", ToolResult(id, (Text(result),)))

    def task(self) -> None:
        """One request of the user, and the work on it."""
        path = self.choose_file()
        function = self.random.choice(self.files[path])
        ticket = f"{path.split('/')[1].upper()}-{self.random.randint(1000, 9999)}"
        fault = self.random.choice(FAULTS)
        limit = self.random.randint(200, 9000)
        self.say(
            "user",
            Text(f"{ticket}: `{function}` in {path} raises {fault} above {limit} rows. Fix it."),
        )
        test = f"tests/{path.split('/')[1]}/test_{path.split('/')[-1]}"
        self.call(
            f"I look at {path} first.", "Read", {"file_path": path}, self.source(path, function)
        )
        self.call("", "Grep", {"pattern": function, "path": "src"}, self.grep(function, path))
        self.call(
            f"{function} does not check the limit. I run its tests.",
            "Bash",
            {"command": f"pytest {test} -q -k {function}"},
            self.test_output(test, function, fault, failed=True),
        )
        for attempt in range(self.random.randint(1, 3)):
            self.call(
                f"The cause is the missing check for {limit} rows." if attempt == 0 else "",
                "Edit",
                {
                    "file_path": path,
                    "old_string": f"    return rows[:{attempt}]",
                    "new_string": f"    if len(rows) > {limit}:\n        {function}_page(rows)",
                },
                f"The file {path} has been updated.",
            )
            failed = attempt == 0 and self.random.random() < 0.5
            self.call(
                "",
                "Bash",
                {"command": f"pytest {test} -q"},
                self.test_output(test, function, fault, failed=failed),
            )
        message = f"{ticket}: limit {function}"
        digest = f"{self.random.getrandbits(40):010x}"
        self.call(
            "The tests pass, I commit.",
            "Bash",
            {"command": f'git commit -am "{message}"'},
            f"[main {digest}] {message}\n 1 file changed, 4 insertions(+)",
        )
        self.say(
            "assistant", Text(f"{ticket} is fixed: `{function}` pages above {limit} ({digest}).")
        )
        if self.random.random() < 0.3:
            self.say("user", Text(self.random.choice(ASIDES)))
            self.say("assistant", Text("You are welcome! Everything is fine so far."))

    def choose_file(self) -> str:
        """A file of the last tasks in most cases, because work is local."""
        if self.random.random() < 0.65:
            path = self.random.choice(self.recent)
        else:
            path = self.random.choice(sorted(self.files))
        self.recent = [path, *[other for other in self.recent if other != path]][:4]
        return path

    def source(self, path: str, function: str) -> str:
        lines = ["from src.common import rows_of", ""]
        for name in self.files[path]:
            lines += [f"def {name}(rows, offset={self.random.randint(0, 99)}):"]
            lines += [f"    value_{n} = rows_of(rows)[{n}]" for n in range(6)]
            lines += ["    return rows[:0]" if name == function else "    return rows", ""]
        return "\n".join(f"{n:5d}→{line}" for n, line in enumerate(lines, 1))

    def grep(self, function: str, path: str) -> str:
        others = self.random.sample(sorted(self.files), 3)
        hits = [f"{path}:12:def {function}(rows, offset=0):"]
        hits += [
            f"{other}:{self.random.randint(10, 200)}:    rows = {function}(rows)"
            for other in others
        ]
        return "\n".join(hits)

    def test_output(self, test: str, function: str, fault: str, *, failed: bool) -> str:
        noise = [
            f"DEBUG pool.worker: connection {n} ready in 0.{self.random.randint(100, 999)}s"
            for n in range(self.random.randint(4, 14))
        ]
        passed = self.random.randint(5, 60)
        if not failed:
            return "\n".join([*noise, f"{passed} passed in {self.random.random():.2f}s"])
        name = f"{test}::test_{function}"
        fault_line = f"E   {fault}: {function} got {self.random.randint(200, 9000)} rows"
        return "\n".join(
            [
                *noise,
                fault_line,
                f"FAILED {name} - {fault}",
                f"1 failed, {passed} passed in {self.random.random():.2f}s",
            ]
        )


def make_session(seed: int, tasks: int = 24) -> Transcript:
    """A coding session of about 15 messages a task."""
    coder = Coder(seed)
    for _ in range(tasks):
        coder.task()
    return Transcript(f"generated-{seed}", make_rows(coder.messages))


RULES = (
    "Never push to the main branch.",
    "Always run the linter before you commit.",
    "Do not change the public signature of round_amount().",
    "Use Decimal, never float, for money.",
    "We only support Python 3.11 and newer.",
    "Answer me in British English.",
    "Commit messages must start with the ticket number.",
    "Don't add new dependencies without asking me.",
    "Keep every function below fifty lines.",
    "Please leave the files under vendor/ alone.",
    "From now on, write a test before each fix.",
    "The database password must not appear in any log.",
    "Prefer small commits to large ones.",
    "Ask before you delete anything.",
    "No force pushes, ever.",
    "All timestamps have to be in UTC.",
    "You may edit the docs, but not the licence file.",
    "Make sure that CI stays under ten minutes.",
    "I want type hints on every new function.",
    "Stop after each task and wait for my review.",
)
"""Twenty rules, some without any of the usual marker words."""


def make_ruled_session(seed: int, parts: int = 5) -> list[list[Message]]:
    """A coding session in parts; each part states some of the rules, alone or inside a request."""
    coder = Coder(seed)
    rules = list(RULES)
    coder.random.shuffle(rules)
    done = 0
    sections: list[list[Message]] = []
    for part in range(parts):
        for index, rule in enumerate(rules[part * 4 : part * 4 + 4]):
            if index % 2:
                coder.say("user", Text(rule))
                coder.say("assistant", Text("Understood."))
            start = len(coder.messages)
            coder.task()
            if index % 2 == 0:
                request = coder.messages[start]
                coder.messages[start] = Message("user", (Text(f"{request.text} {rule}"),))
            coder.task()
        sections.append(coder.messages[done:])
        done = len(coder.messages)
    return sections


class Fact(Struct, frozen=True):
    """A fact of a planning conversation: its values, the last of which holds."""

    values: tuple[str, ...]


class Plan(Struct, frozen=True):
    """A planning conversation and its facts."""

    rows: list[Row]
    facts: list[Fact]


SUBJECTS: dict[str, tuple[str, ...]] = {
    "budget": ("40,000 euros", "55,000 euros", "47,500 euros", "61,200 euros"),
    "venue": ("Hotel Adler", "the Riverside Hall", "Villa Marten", "the old Depot"),
    "launch date": ("14 March", "21 March", "2 April", "9 April"),
    "number of guests": ("120 people", "150 people", "95 people", "180 people"),
    "caterer": ("Molina", "Green Table", "Kessler & Sons", "Five Spoons"),
    "keynote speaker": ("Dr. Ito", "Amina Diallo", "Peter Novak", "Lena Vogt"),
    "start time": ("9:30", "10:15", "8:45", "11:00"),
    "hotel contingent": ("60 rooms", "45 rooms", "72 rooms", "38 rooms"),
    "photographer": ("Studio Nord", "Carla Mendes", "Oskar Lind", "Blitzwerk"),
    "contact at the city": ("Mr. Hahn", "Ms. Okafor", "Mr. Duarte", "Ms. Petrova"),
    "sponsor": ("Nordbank", "Helio Energy", "Tramline", "Arcadia Foods"),
    "bus company": ("Kranz Reisen", "CityLine", "Weber Tours", "Transalp"),
    "deposit": ("5,000 euros", "7,500 euros", "6,200 euros", "8,800 euros"),
    "deadline for the programme": ("1 February", "8 February", "15 February", "20 January"),
}
STATE = ("The {s} is {v}.", "For the {s} we take {v}.", "We settled the {s}: {v}.", "{s}: {v}.")
CHANGE = (
    "The {s} is now {v}.",
    "Actually, the {s} has changed: it is {v}.",
    "Correction: {v} for the {s}, not {o}.",
    "Please change the {s} to {v}.",
    "We had to move away from {o}; the {s} will be {v} instead.",
    "No wait, make the {s} {v}.",
)
CHAT = (
    "Let us think about what the guests will remember most when they go home in the evening.",
    "I would like the room to feel warm and open, and not like a trade fair at all.",
    "Somebody should look at how the other teams handled their queues at the entrance last year.",
    "It may be worth to compare a few ways to arrange the tables before anybody decides anything.",
    "My colleague thinks that the music was too loud the last time, and I tend to agree with her.",
    "Could you draft a friendly paragraph that explains why people should come early this time?",
)
ANECDOTES = (
    "Last year {n} people came and the queue reached the street by {h}:{m:02d}.",
    "A friend paid {n},000 euros for a room half that size in Lisbon and was not happy with it.",
    "Their team of {n} people took until {h} November to answer a single letter about it.",
    "I read that {n} percent of all guests leave before the last talk, whatever is served.",
)
REPLIES = (
    "That is a good thought. A warm room comes from light, from distance between the tables and "
    "from people who greet each guest by name, so I would plan for two hosts at the door.",
    "I see. Most teams put signs at eye level and opened a second lane as soon as the first one "
    "reached the stairs, and that seems to have worked well enough for everybody involved.",
    "Of course. Here is a first draft: come early, find a seat that you like, and meet the people "
    "who made this possible before the programme begins and the room becomes lively.",
    "There are three usual arrangements: rows, islands and a horseshoe. Islands invite people to "
    "talk, rows let more people see, and a horseshoe is a compromise between the two of them.",
)


def make_plan(seed: int, turns: int = 90) -> Plan:
    """A conversation of two people: fourteen facts, most of them changed once or twice."""
    chance = random.Random(seed)
    events: list[tuple[float, str]] = []
    facts: list[Fact] = []
    for subject, pool in SUBJECTS.items():
        values = chance.sample(pool, chance.choice((2, 2, 3)))
        times = sorted(chance.uniform(0.02, 0.95) for _ in values)
        facts.append(Fact(tuple(values)))
        for number, (time, value) in enumerate(zip(times, values, strict=True)):
            form = chance.choice(STATE if number == 0 else CHANGE)
            old = values[number - 1] if number else ""
            line = form.format(s=subject, v=value, o=old)
            events.append((time, line[0].upper() + line[1:]))
    events.sort()
    messages = [Message("system", (Text("You help to plan an event."),))]
    for turn in range(turns):
        lines = [line for time, line in events if int(time * turns) == turn]
        chatter = " ".join(chance.sample(CHAT, 2))
        if chance.random() < 0.5:
            numbers = {"n": chance.randint(13, 90), "h": chance.randint(8, 22)}
            chatter += " " + chance.choice(ANECDOTES).format(**numbers, m=chance.randint(0, 59))
        messages.append(Message("user", (Text(" ".join([*lines, chatter])),)))
        note = "Noted. " if lines else ""
        messages.append(Message("assistant", (Text(note + chance.choice(REPLIES)),)))
    return Plan(make_rows(messages), facts)


def make_model_summary(seed: int, tasks: int = 12) -> ModelSummary:
    """A session, and a summary of it in the style of a model: true, in other words.

    It shortens paths, elides code, writes `name/arity`, alternatives with a slash, rules and next
    steps, as real summaries do.
    """
    transcript = make_session(seed, tasks)
    chance = random.Random(seed)
    lines = ["## Primary request", "The user reports faults by ticket and wants each one fixed."]
    for row in transcript.rows:
        text = row.message.text
        if row.message.role != "user" or "`" not in text:
            continue
        ticket, _, rest = text.partition(": ")
        function = rest.split("`")[1]
        path = rest.split(" in ")[1].split(" ")[0]
        limit = rest.split("above ")[1].split(" ")[0]
        name = path.rsplit("/", 1)[-1]
        lines.append(
            chance.choice(
                (
                    f"- {ticket}: `{function}/1` in `{name}` failed above {limit} rows; fixed.",
                    f"- **{ticket}**: edited `{path}`: `if len(rows) > {limit}: ...`",
                    f"- {function}() now pages its rows (ticket {ticket}, {path}).",
                    f"- Constraint: do not change what `{function}(...)` returns for few rows.",
                    f"- `{name}`/`test_{name}`: both read and run with `pytest -q`.",
                )
            )
        )
    lines += ["## Next step", "Wait for the next ticket; run the tests again before a commit."]
    return ModelSummary(f"generated-{seed}", "\n".join(lines), transcript.rows)
