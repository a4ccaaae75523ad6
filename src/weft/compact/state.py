"""The state of the task, derived from the conversation itself without a model.

An agent that goes on from a summary needs more than names. The state block says, in the words of
the conversation:

    Goal                what the user asked for first
    Rules               what the user requires and forbids, verbatim
    Decisions           a question of the assistant, and the user's answer
    Facts that changed  the newest statement, and the one that it replaced
    Files               the files that calls read or changed, and the last change
    Commands            the last commands, and the line of their output that tells the result
    Current errors      the errors of the last run of a command
    Current request     what the user asked for last
    Open tasks          the items of the last task list that are not done
    Next step           what the assistant announced last, or asked without an answer

Items are ordered by importance, so any beginning of the list is a state block. A summary writes
them in the order above.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from weft.lazy import lazy_pattern

from .entities import Name, NameReader
from .facts import find_replaced
from .source import SECTIONS, SHORTEST, Source, ToolUse, is_courtesy, is_question

HEADINGS = tuple(SECTIONS)
GOAL, RULES, DECISIONS, FACTS, FILES, COMMANDS, ERRORS, REQUEST, TASKS, NEXT = HEADINGS

REQUEST_MOST = 600
ANSWER_MOST = 200
QUESTIONS = 3
QUOTE_MOST = 160
COMMAND_MOST = 240
ERROR_WINDOW = 30
"""Errors are looked for in this many of the last calls."""

MOST = {RULES: 40, DECISIONS: 12, FACTS: 60, FILES: 60, COMMANDS: 40, ERRORS: 5, TASKS: 12}
FIRST_FILES, FIRST_COMMANDS = 10, 5
"""How many files and commands come before all others in importance."""

_STRONG = lazy_pattern(
    r"\b(?:never|always|must(?:n't)?|do not|don't|does not|may not|cannot|can't|only|from now on"
    r"|forbidden|not allowed|no longer|under no circumstances|make sure|ensure|avoid|prefer"
    r"|without|ask (?:me )?(?:before|first)|have to|has to|constraint|requirement|required?|rule"
    r"|should(?:n't)?|instead of|but not|ever|nothing|nobody|leave|remember|stick to|at most"
    r"|at least|no more than"
    r"|niemals|nie|immer|muss|müssen|darf|nicht|keine?n?|bitte nur"
    r"|jamais|toujours|doit|doivent|ne pas|interdit"
    r"|nunca|siempre|debe|deben|prohibido|solo)\b"
    r"|^(?:no|not)\b|, not\b|, never\b"
    r"|必须|不要|不得|禁止|约束|务必|只能|永远|しないで|必ず|해야|하지 마",
    re.IGNORECASE,
)
_STANDING = lazy_pattern(
    r"^(?:please |also |and )?(?:keep|use|answer|write|stop|wait|stay|respect|follow|treat|put"
    r"|call|name|start|end|work|speak|reply|respond|format|check|test|document|limit)\b"
    r"|^(?:i|we) (?:want|need|expect|require|support|insist)\b",
    re.IGNORECASE,
)
_STANDING_MARK = lazy_pattern(
    r"\b(?:every|each|all|any|new|after|before|when|whenever|in|style|format|below|under|until"
    r"|from|with)\b",
    re.IGNORECASE,
)
_NARRATIVE = lazy_pattern(
    r"^(?:i|he|she|they|it|my \w+|his|her|their|somebody|someone|last \w+|yesterday|a \w+"
    r"|that|this|there)\b(?! (?:want|need|expect|insist|require|must|should|has to|have to))",
    re.IGNORECASE,
)
_INTENT = lazy_pattern(
    r"\b(?:next|now|let me|i'll|i will|i am going to|i'm going to|then|remaining|remains|still"
    r"|todo|to do|pending|continue with|not (?:yet|committed|done))\b|下一步|接下来|まず|次に",
    re.IGNORECASE,
)
_ASKS_FOR_WORK = lazy_pattern(r"\b(?:can|could|would|will) you\b|\bplease\b", re.IGNORECASE)
_ERROR_LINE = lazy_pattern(
    r"\b(?:[A-Z]\w*(?:Error|Exception)|error|fatal|panic|FAILED|FAIL|failed|failure|traceback"
    r"|not found|cannot|undefined|denied|refused)\b|^E\s{2,}|✗|✘|错误|失败",
)
_NO_ERROR = lazy_pattern(
    r"\b(?:0|no|without) (?:errors?|failures?|failed|warnings?)\b", re.IGNORECASE
)
_OUTCOME = lazy_pattern(
    r"\b(?:passed|failed|failures?|errors?|tests?|ok|success\w*|done|built|compiled|finished|created"
    r"|changed|insertions?|exit code|warnings?|found|fatal|denied|up to date|completed?)\b",
    re.IGNORECASE,
)
_CHECKBOX = lazy_pattern(r"^[-*+\s]*\[( |x|X)\]\s+(.+)")
_LISTED = lazy_pattern(
    r"(?P<list>[\w.]+)\.(?P<at>\d+)\.(?P<key>content|title|step|subject|description|task|text"
    r"|status|state|done|completed)"
)
_TASK_NUMBER = lazy_pattern(r"#(\d+)")
_CLOSED = frozenset({"completed", "complete", "done", "cancelled", "canceled", "deleted", "true"})
_QUESTION_KEY = lazy_pattern(r"(?:^|\.)question$")
_CHANGES = lazy_pattern(r"edit|write|create|patch|replace|update|insert|delete|move|rename", re.I)
_PATCHED = lazy_pattern(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_NEW_TEXT = ("new_string", "new_str", "new", "content", "file_text", "replacement", "insert_text")
_OLD_TEXT = ("old_string", "old_str", "old")


class Item(Struct, frozen=True):
    """One item of the state block.

    - `lines`: the texts of the source that it quotes
    - `replaced`: texts of the source that no longer hold
    - `order`: its place in the summary
    """

    heading: str
    text: str
    lines: tuple[str, ...] = ()
    names: tuple[Name, ...] = ()
    replaced: tuple[str, ...] = ()
    order: tuple[int, int] = (0, 0)


State = Sequence[Item]

Found = tuple[int, str, tuple[str, ...]]
"""An item before it has its section: its row, its text, and the lines that it quotes."""


def read_state(source: Source) -> State:
    """The items of the state block, the most important first."""
    sections = {
        GOAL: _goal(source),
        RULES: _rules(source),
        REQUEST: _request(source),
        NEXT: _next_steps(source),
        TASKS: _open_tasks(source),
        DECISIONS: _decisions(source),
        ERRORS: _errors(source),
    }
    files, commands = list(_files(source)), list(_commands(source))
    reader = NameReader()

    def items(heading: str, found: Iterable[Found]) -> Iterator[Item]:
        for row, text, lines in found:
            names = tuple(reader.read(text))
            order = (HEADINGS.index(heading), row)
            yield Item(heading, text, lines, names, (), order)

    state: list[Item] = []
    quoted: set[str] = set()
    for heading, found in sections.items():
        new = [item for item in items(heading, found) if item.text not in quoted]
        state += new[: MOST.get(heading)]
        quoted.update(item.text for item in new)
    state += items(FILES, files[:FIRST_FILES])
    state += items(COMMANDS, commands[:FIRST_COMMANDS])
    state += list(_facts(source, reader))[: MOST[FACTS]]
    state += items(FILES, files[FIRST_FILES : MOST[FILES]])
    state += items(COMMANDS, commands[FIRST_COMMANDS : MOST[COMMANDS]])
    return tuple(state)


def rules_of(source: Source) -> list[str]:
    """The user's rules, verbatim, oldest first."""
    return [text for _, text, _ in sorted(_rules(source))]


def _goal(source: Source) -> Iterator[Found]:
    for row, speaker, sentences in source.turns:
        if speaker == "user" and _is_open_request(source, row, sentences):
            yield from _quote(row, sentences)
            return


def _request(source: Source) -> Iterator[Found]:
    requests = [
        (row, sentences)
        for row, speaker, sentences in source.turns
        if speaker == "user" and _is_open_request(source, row, sentences)
    ]
    if len(requests) > 1:
        yield from _quote(*requests[-1])


def _is_open_request(source: Source, row: int, sentences: Sequence[str]) -> bool:
    """Whether a turn asks for work, and not only for an answer that was given."""
    if not _is_request(sentences):
        return False
    if not all(is_question(one) and not _ASKS_FOR_WORK.search(one) for one in sentences):
        return True
    answers = (later for later, speaker, _ in reversed(source.turns) if speaker == "assistant")
    return next(answers, -1) < row


def _is_request(sentences: Sequence[str]) -> bool:
    return any(len(one) >= SHORTEST and not is_courtesy(one) for one in sentences)


def _quote(row: int, sentences: Sequence[str]) -> Iterator[Found]:
    """The sentences of a request, from the start, as many as a request may have.

    Its rules are in a section of their own.
    """
    size = 0
    asked = [one for one in sentences if not is_rule(one) and not is_courtesy(one)]
    for sentence in asked or sentences:
        size += len(sentence)
        if size > REQUEST_MOST and size > len(sentence):
            return
        yield row, sentence, (sentence,)


def _rules(source: Source) -> Iterator[Found]:
    """The user's rules, and those of system messages in the middle; the newest first."""
    found: dict[str, Found] = {}
    for row, speaker, sentences in reversed(source.turns):
        for sentence in sentences:
            if speaker == "system" or (speaker == "user" and is_rule(sentence)):
                found.setdefault(sentence.lower(), (row, sentence, (sentence,)))
    yield from found.values()


def is_rule(sentence: str) -> bool:
    """Whether a sentence of the user states a rule that holds beyond the current step."""
    if len(sentence) < SHORTEST // 2 or is_question(sentence) or _NARRATIVE.match(sentence):
        return False
    if _STRONG.search(sentence):
        return True
    return _STANDING.search(sentence) is not None and _STANDING_MARK.search(sentence) is not None


def _decisions(source: Source) -> Iterator[Found]:
    """The assistant's questions with the user's answers, the newest first."""
    found: list[Found] = []
    turns = source.turns
    for number, (row, speaker, sentences) in enumerate(turns[:-1]):
        questions = [one for one in sentences if is_question(one)]
        _, replier, answer = turns[number + 1]
        if speaker != "assistant" or replier != "user" or not questions or not answer:
            continue
        if all(is_question(one) for one in answer):
            continue
        reply = " ".join(answer)[:ANSWER_MOST]
        lines = [*questions[-QUESTIONS:], f"User: {reply}"]
        found.append((row, "\n  ".join(lines), (*questions, *answer)))
    for use in source.uses:
        asked = [text for key, text in use.arguments.items() if _QUESTION_KEY.search(key)]
        if asked and use.result:
            reply = " ".join(use.result.split())[:ANSWER_MOST]
            lines = [*(" ".join(one.split()) for one in asked[:QUESTIONS]), f"User: {reply}"]
            found.append((use.row, "\n  ".join(lines), tuple(asked)))
    yield from sorted(found, reverse=True)


def _facts(source: Source, reader: NameReader) -> Iterator[Item]:
    """The statements that replaced others, the newest first."""
    statements = [
        (row, sentence)
        for row, speaker, sentences in source.turns
        if speaker in ("user", "assistant")
        for sentence in sentences
    ]
    for row, new, old in find_replaced(statements):
        text = f"{new}\n  replaces: {old[-1][:QUOTE_MOST]}"
        order = (HEADINGS.index(FACTS), row)
        yield Item(FACTS, text, (new,), tuple(reader.read(text)), tuple(old), order)


def _open_tasks(source: Source) -> Iterator[Found]:
    """The items of the last task list that are not done."""
    for use in reversed(source.uses):
        tasks = _listed_tasks(use)
        if tasks:
            for text, status in tasks:
                if status not in _CLOSED:
                    yield use.row, _with_status(text, status), (text,)
            return
    numbered = _numbered_tasks(source.uses)
    if numbered:
        for row, text, status in numbered:
            if status not in _CLOSED:
                yield row, _with_status(text, status), (text,)
        return
    for row, speaker, sentences in reversed(source.turns):
        boxes = [box for one in sentences if (box := _CHECKBOX.match(one))]
        if speaker in ("assistant", "user") and boxes:
            for box in boxes:
                if box[1] == " ":
                    yield row, box[2], (box[0],)
            return


def _with_status(text: str, status: str) -> str:
    return f"{text}\n  {status.replace('_', ' ')}" if status.startswith("in") else text


def _listed_tasks(use: ToolUse) -> list[tuple[str, str]]:
    """The texts and statuses of a list of tasks in a call's arguments."""
    tasks: dict[tuple[str, str], dict[str, str]] = {}
    for key, text in use.arguments.items():
        match = _LISTED.fullmatch(key)
        if match:
            tasks.setdefault((match["list"], match["at"]), {})[match["key"]] = text
    listed: list[tuple[str, str]] = []
    for task in tasks.values():
        status = task.get("status") or task.get("state") or ""
        keys = ("content", "step", "title", "subject", "task", "text", "description")
        text = next((task[key] for key in keys if task.get(key)), "")
        if status and text:
            listed.append((" ".join(text.split())[:QUOTE_MOST], status.lower()))
    return listed


def _numbered_tasks(uses: Sequence[ToolUse]) -> list[tuple[int, str, str]]:
    """Tasks that one call creates and later calls update by number."""
    tasks: dict[str, tuple[int, str, str]] = {}
    for use in uses:
        number = use.arguments.get("taskId") or use.arguments.get("task_id")
        subject = use.arguments.get("subject") or use.arguments.get("title")
        if number in tasks:
            row, text, status = tasks[number]
            tasks[number] = (row, subject or text, use.arguments.get("status", status).lower())
        elif subject and "task" in use.name.lower():
            created = _TASK_NUMBER.search(use.result)
            if created:
                tasks[created[1]] = (use.row, subject, "pending")
    return list(tasks.values())


def _next_steps(source: Source) -> Iterator[Found]:
    """What the assistant announced in its last text, and its unanswered question."""
    for number in range(len(source.turns) - 1, -1, -1):
        row, speaker, sentences = source.turns[number]
        if speaker == "user" and _is_request(sentences):
            return
        if speaker != "assistant" or not _is_request(sentences):
            continue
        steps = [one for one in sentences if is_question(one) or _INTENT.search(one)]
        for step in steps[-3:]:
            yield row, step, (step,)
        return


def _errors(source: Source) -> Iterator[Found]:
    """The error lines of the last run of each program, the newest first."""
    programs: set[str] = set()
    for use in reversed(source.uses[-ERROR_WINDOW:]):
        key = " ".join(use.command.split()[:2]) or f"{use.name} {use.path}"
        if key in programs:
            continue
        programs.add(key)
        if not use.command and not use.is_error:
            continue
        lines = [line.strip() for line in use.result.splitlines()]
        failing = [
            line for line in lines if _ERROR_LINE.search(line) and not _NO_ERROR.search(line)
        ]
        if not failing and use.is_error:
            failing = [line for line in lines if line][-1:]
        for line in dict.fromkeys(failing[-2:]):
            yield use.row, line[:QUOTE_MOST], (line,)


class _FileUse(Struct):
    row: int = 0
    changes: int = 0
    reads: int = 0
    last_change: str = ""


def _files(source: Source) -> Iterator[Found]:
    """The files that calls read or changed: changed ones first, the newest first."""
    files: dict[str, _FileUse] = {}
    for use in source.uses:
        paths = [use.path] if use.path else _patched_paths(use)
        for path in paths:
            if "\n" in path or "*" in path or len(path) > COMMAND_MOST:
                continue
            of = files.setdefault(path, _FileUse())
            of.row = use.row
            if _CHANGES.search(use.name) or not use.path:
                of.changes += 1
                of.last_change = _changed_line(use) or of.last_change
            else:
                of.reads += 1
    ranked = sorted(files.items(), key=lambda item: (not item[1].changes, -item[1].row))
    for path, of in ranked:
        done = [_times("changed", of.changes), _times("read", of.reads)]
        text = f"{path}\n  {', '.join(filter(None, done))}"
        if of.last_change:
            text += f"; last change: {of.last_change}"
        yield of.row, text, ((of.last_change,) if of.last_change else ())


def _times(verb: str, many: int) -> str:
    return "" if not many else verb if many == 1 else f"{verb} {many} times"


def _patched_paths(use: ToolUse) -> list[str]:
    """The files of a patch in Codex's format."""
    texts = (text for text in use.arguments.values() if "*** " in text)
    return [path.strip() for text in texts for path in _PATCHED.findall(text)]


def _changed_line(use: ToolUse) -> str:
    """The first line of a change that says something and was not there before."""
    new = next((use.arguments[key] for key in _NEW_TEXT if use.arguments.get(key)), "")
    old = next((use.arguments[key] for key in _OLD_TEXT if use.arguments.get(key)), "")
    before = {line.strip() for line in old.splitlines()}
    for raw in new.splitlines():
        line = raw.strip()
        if len(line) >= SHORTEST and line not in before and any(c.isalpha() for c in line):
            return line[:QUOTE_MOST]
    return ""


def _commands(source: Source) -> Iterator[Found]:
    """The last run of each command with the line that states its result, the newest first."""
    seen: Counter[str] = Counter()
    for use in reversed(source.uses):
        command = use.command.strip()
        if not command:
            continue
        first = command.splitlines()[0].strip()
        seen[command] += 1
        if seen[command] > 1:
            continue
        outcome = _outcome_line(use.result)
        text = "\n  ".join(filter(None, (first[:COMMAND_MOST], outcome)))
        yield use.row, text, tuple(filter(None, (first, outcome)))


def _outcome_line(result: str) -> str:
    """The last line of an output that says how it ended, or else the last line."""
    lines = [line.strip() for line in result.splitlines()[-40:] if line.strip()]
    outcomes = (line for line in reversed(lines) if _OUTCOME.search(line))
    line = next(outcomes, lines[-1] if lines else "")
    return line[:QUOTE_MOST]
