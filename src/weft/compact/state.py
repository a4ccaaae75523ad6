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

from weft.history import Row
from weft.lazy import lazy_pattern

from .batches import quoted_rules
from .entities import Name, NameReader
from .facts import content_words, find_replaced, is_change
from .source import (
    RULES,
    SECTIONS,
    SHORTEST,
    Source,
    ToolUse,
    Turn,
    is_courtesy,
    is_error_line,
    is_narration,
    is_question,
    read_turns,
)

HEADINGS = tuple(SECTIONS)
GOAL, _, DECISIONS, FACTS, FILES, COMMANDS, ERRORS, REQUEST, TASKS, NEXT = HEADINGS

REQUEST_MOST = 600
ANSWER_MOST = 200
QUESTIONS = 3
QUOTE_MOST = 160
REPLACED_MOST = 80
COMMAND_MOST = 240
CONTEXT_LEAST = 90
"""A shorter question is quoted with the sentence before it, which often lists the options."""

ERROR_RESULT_MOST = 400
ERROR_WINDOW = 30
"""Errors are looked for in this many of the last calls."""

MOST = {RULES: 40, DECISIONS: 12, FACTS: 60, FILES: 60, COMMANDS: 40, ERRORS: 5, TASKS: 12}
FIRST_FILES, FIRST_COMMANDS = 10, 5
"""How many files and commands come before all others in importance."""

FIRST = {RULES: 8, DECISIONS: 3, FACTS: 6}
"""How many items of a section come before the further items of all sections; of the rules, only
clear ones do."""

# These patterns are searched in sentences in lower case: with `re.IGNORECASE` they would be three
# times as slow, and they are searched in every sentence of the user.
_STRONG = lazy_pattern(
    r"\b(?:never|always|must(?:n't)?|do not|don't|may not|from now on|forbidden|not allowed"
    r"|under no circumstances|make sure|ensure|ask (?:me )?(?:before|first)|constraints?"
    r"|requirements?|rules?|please no"
    r"|niemals|nie|immer|muss|müssen|darf|jamais|toujours|doit|doivent|interdit"
    r"|nunca|siempre|debe|deben|prohibido)\b"
    r"|(?:^(?:(?:and|also|but|ok|okay|hmm|please)[,.]? )*|[,.;:] )no (?!wait|idea|problem)\w+"
    r"|必须|不要|不得|禁止|约束|务必|永远|しないで|必ず|해야|하지 마",
)
"""Words of a rule."""

_WEAK = lazy_pattern(
    r"\b(?:does not|(?:you|we) (?:cannot|can't)|only|no longer|avoid|prefer|without|have to|has to"
    r"|required?|should(?:n't)?|instead of|but not|ever|nothing|nobody|leave|remember|stick to"
    r"|at most|at least|no more than|allergic|vegetarian|everywhere|nicht|keine?n?|bitte nur"
    r"|ne pas|solo)\b"
    r"|^(?:no|not)\b|, not\b|^(?:and )?all\b.*\bplease\b|只能",
)
"""Words that a rule may have, and other sentences too."""

_STANDING = lazy_pattern(
    r"^(?:please |also |and )?(?:keep|use|answer|write|stop|wait|stay|respect|follow|treat|put"
    r"|call|name|start|end|work|speak|reply|respond|format|check|test|document|limit)\b"
    r"|^(?:i|we) (?:want|expect|require)\b(?=.*\b(?:every|each|all|any|new)\b)"
    r"|^we (?:only )?(?:support|insist)\b",
)
_STANDING_MARK = lazy_pattern(
    r"\b(?:every|each|all|any|new|after|before|when|whenever|in|style|format|below|under|until"
    r"|from|with)\b",
)
_NARRATIVE = lazy_pattern(
    r"^i (?:have|had)\b|"
    r"^(?:i|he|she|they|it|my \w+|his|her|their|somebody|someone|last \w+|yesterday|a \w+"
    r"|that|this|there)\b"
    r"(?! (?:want|need|expect|insist|require|must|should|has to|have to|can only|only)\b)",
)
_INTENT = lazy_pattern(
    r"\b(?:next|now|let me|i'll|i will|i am going to|i'm going to|then|remaining|remains|still"
    r"|todo|to do|pending|continue with|not (?:yet|committed|done))\b|下一步|接下来|まず|次に",
)
_ASKS_FOR_WORK = lazy_pattern(r"\b(?:can|could|would|will) you\b|\bplease\b", re.IGNORECASE)
_ASKS_IN_REPLY = lazy_pattern(r"\b(?:please|now|next|also|can you|could you)\b", re.IGNORECASE)
_ANYTHING_ELSE = lazy_pattern(r"\banything else\b|\bhow can i help\b", re.IGNORECASE)
_REPORTS_ERROR = lazy_pattern(
    r'"(?:error|errors)"\s*:\s*(?!null|""|\[\]|false)|"status"\s*:\s*"(?:error|failed)"'
    r"|^\s*(?:HTTP(?:/[\d.]+)? [45]\d\d\b|error\b)",
    re.IGNORECASE,
)
"""The start of a short result that reports an error without being marked as one."""

_OUTCOME = lazy_pattern(
    r"\b(?:passed|failed|failures?|errors?|tests?|ok|success\w*|done|built|compiled|finished|created"
    r"|changed|insertions?|exit code|warnings?|found|fatal|denied|up to date|completed?)\b",
    re.IGNORECASE,
)
_OUTPUT = lazy_pattern(r"\[Tool |replaces:|\d+→|(?:DEBUG|INFO)\b|> |[`{}()<]|\W*:\w")
"""The start of a text that is code or the output of a tool."""

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

DraftItem = tuple[int, str, tuple[str, ...]]
"""An item before it has its section: its row, its text, and the lines that it quotes."""


def read_state(source: Source, after: Sequence[Turn] = ()) -> State:
    """The items of the state block, the most important first.

    `after` are the turns that follow in the context: a request or a next step there is newer.
    """
    decisions = list(_decisions(source))
    clear, doubtful = _rules(source.turns, decisions)
    rules = [*clear, *doubtful]
    sections = {
        GOAL: _goal(source),
        REQUEST: () if _has_request(source, after) else _request(source),
        NEXT: () if _has_speaker(after, "assistant") else _next_steps(source),
        RULES: rules,
        TASKS: _open_tasks(source),
        ERRORS: _errors(source),
    }
    files, commands = list(_files(source)), list(_commands(source))
    reader = NameReader()

    def items(heading: str, drafts: Iterable[DraftItem]) -> Iterator[Item]:
        for row, text, lines in drafts:
            names = tuple(reader.read(text))
            order = (HEADINGS.index(heading), row)
            yield Item(heading, text, lines, names, (), order)

    clear_texts = {text for _, text, _ in clear}
    first: list[Item] = []
    further: list[Item] = []
    quoted: set[str] = set()

    def add(heading: str, new: Sequence[Item]) -> None:
        most = FIRST.get(heading, len(new))
        if heading == RULES:
            most = min(most, sum(item.text in clear_texts for item in new))
        first.extend(new[:most])
        further.extend(new[most : MOST.get(heading)])

    for heading, drafts in sections.items():
        new = [item for item in items(heading, drafts) if item.text not in quoted]
        add(heading, new[: MOST.get(heading)])
        quoted.update(item.text for item in new)
    add(FACTS, [item for item in _facts(source, reader) if item.lines[0] not in clear_texts])
    add(DECISIONS, list(items(DECISIONS, decisions[: MOST[DECISIONS]])))
    return (
        *first,
        *items(FILES, files[:FIRST_FILES]),
        *items(COMMANDS, commands[:FIRST_COMMANDS]),
        *further,
        *items(FILES, files[FIRST_FILES : MOST[FILES]]),
        *items(COMMANDS, commands[FIRST_COMMANDS : MOST[COMMANDS]]),
    )


def find_rules(rows: Sequence[Row]) -> list[str]:
    """The user's rules in some rows, verbatim: clear ones first, of each kind the newest first."""
    turns = read_turns(rows)
    clear, doubtful = _rules(turns, ())
    rules = [text for _, text, _ in (*clear, *doubtful)]
    quoted = [rule for row in reversed(rows) for rule in quoted_rules(row.message.text)]
    return list(dict.fromkeys([*quoted, *rules]))


def _goal(source: Source) -> Iterator[DraftItem]:
    for row, speaker, sentences in source.turns:
        if speaker == "user" and _is_open_request(source, row, sentences):
            yield from _quote(row, sentences)
            return


def _request(source: Source) -> Iterator[DraftItem]:
    """The last request, unless it is the only one: that is the goal."""
    requests = (
        (row, sentences)
        for number, (row, speaker, sentences) in _backwards(source.turns)
        if speaker == "user"
        and _is_open_request(source, row, sentences)
        and not _is_reply(sentences, source.turns[number - 1])
    )
    last = next(requests, None)
    if last is not None and next(requests, None) is not None:
        yield from _quote(*last)


def _backwards(turns: Sequence[Turn]) -> Iterator[tuple[int, Turn]]:
    """The turns with their numbers, the last one first."""
    return ((number, turns[number]) for number in range(len(turns) - 1, -1, -1))


def _has_request(source: Source, after: Sequence[Turn]) -> bool:
    """Whether the user asks for work in what follows, and does not only answer a question."""
    if not _has_speaker(after, "user"):
        return False
    _, speaker, sentences = after[0]
    before: Turn = source.turns[-1] if source.turns else (0, "", [])
    only_replies = speaker == "user" and _is_reply(sentences, before)
    return not only_replies or sum(turn[1] == "user" for turn in after) > 1


def _has_speaker(turns: Sequence[Turn], speaker: str) -> bool:
    return any(turn[1] == speaker for turn in turns)


def _is_reply(sentences: Sequence[str], turn_before: Turn) -> bool:
    """Whether a turn only answers a question of the assistant, or only states rules."""
    if all((is_rule(one) and _is_clear(one)) or is_courtesy(one) for one in sentences):
        return True
    _, speaker, before = turn_before
    was_asked = speaker == "assistant" and any(is_question(one) for one in before[-2:])
    return was_asked and not any(_ASKS_IN_REPLY.search(one) for one in sentences)


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


def _quote(row: int, sentences: Sequence[str]) -> Iterator[DraftItem]:
    """The sentences of a request, from the start, as many as a request may have.

    Its clear rules are in a section of their own.
    """
    size = 0
    asked = [
        one for one in sentences if not is_courtesy(one) and not (is_rule(one) and _is_clear(one))
    ]
    for sentence in asked or sentences:
        size += len(sentence)
        if size > REQUEST_MOST and size > len(sentence):
            return
        yield row, sentence, (sentence,)


def _rules(
    turns: Sequence[Turn], decisions: Sequence[DraftItem]
) -> tuple[list[DraftItem], list[DraftItem]]:
    """The user's rules, and those of system messages in the middle, the newest first.

    The second list has the sentences that may be no rules, and those that a decision quotes.
    """
    decided = {line for _, _, lines in decisions for line in lines}
    by_text: dict[str, tuple[int, DraftItem]] = {}
    for row, speaker, sentences in reversed(turns):
        for sentence in sentences:
            if speaker == "system" or (speaker == "user" and is_rule(sentence)):
                is_clear = speaker == "system" or _is_clear(sentence)
                rank = 2 if sentence in decided else 0 if is_clear else 1
                by_text.setdefault(sentence.lower(), (rank, (row, sentence, (sentence,))))
    ranked = sorted(by_text.values(), key=lambda item: item[0])
    clear = [rule for rank, rule in ranked if rank == 0]
    return clear, [rule for rank, rule in ranked if rank]


def is_rule(sentence: str) -> bool:
    """Whether a sentence of the user states a rule that holds beyond the current step."""
    lowered = sentence.lower()
    if len(sentence) < SHORTEST // 2 or is_question(sentence) or _NARRATIVE.match(lowered):
        return False
    return _is_clear(sentence) or _WEAK.search(lowered) is not None


def _is_clear(rule: str) -> bool:
    """Whether a rule has the words of one, and not only words that other sentences have too."""
    lowered = rule.lower()
    if _STRONG.search(lowered):
        return True
    return _STANDING.search(lowered) is not None and _STANDING_MARK.search(lowered) is not None


def _decisions(source: Source) -> Iterator[DraftItem]:
    """The assistant's questions with the user's answers, the newest first."""
    drafts: list[DraftItem] = []
    turns = source.turns
    for number, (row, speaker, sentences) in enumerate(turns[:-1]):
        _, replier, answer = turns[number + 1]
        if speaker != "assistant" or replier != "user" or not answer:
            continue
        questions = _questions(sentences)
        if not questions or all(is_question(one) for one in answer):
            continue
        reply = _shorten(" ".join(answer), ANSWER_MOST)
        lines = [*questions[-QUESTIONS:], f"User: {reply}"]
        drafts.append((row, "\n  ".join(lines), (*questions, *answer)))
    for use in source.uses:
        asked = [text for key, text in use.arguments.items() if _QUESTION_KEY.search(key)]
        if asked and use.result:
            reply = _shorten(" ".join(use.result.split()), ANSWER_MOST)
            lines = [*(" ".join(one.split()) for one in asked[:QUESTIONS]), f"User: {reply}"]
            drafts.append((use.row, "\n  ".join(lines), tuple(asked)))
    yield from sorted(drafts, reverse=True)


def _shorten(text: str, most: int) -> str:
    """The start of a text, cut between words."""
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} ..."


def _questions(sentences: Sequence[str]) -> list[str]:
    """The questions of a turn; before a short one, the sentence that it is about."""
    questions: list[str] = []
    for number, sentence in enumerate(sentences):
        if not is_question(sentence) or _ANYTHING_ELSE.search(sentence):
            continue
        if number and not questions and len(sentence) < CONTEXT_LEAST:
            questions.append(sentences[number - 1])
        questions.append(sentence)
    return questions


def _facts(source: Source, reader: NameReader) -> Iterator[Item]:
    """The statements that replaced others, and the user's other statements of change, because what
    they replace is not always clear.

    The user's come first, and among these what the goal is about; otherwise the newest.
    """
    statements = [
        (row, sentence, speaker == "user")
        for row, speaker, sentences in source.turns
        if speaker in ("user", "assistant")
        for sentence in sentences
        if not _OUTPUT.match(sentence) and (speaker == "user" or not is_narration(sentence))
    ]
    by_user = {sentence for _, sentence, is_user in statements if is_user}
    replaced = list(find_replaced(statements))
    gone = {text for _, _, old in replaced for text in old}
    changes = [
        (row, sentence, list[str]())
        for row, sentence, is_user in reversed(statements)
        if is_user and sentence not in gone and is_change(sentence)
    ]
    stated = {new for _, new, _ in replaced}
    replaced += [change for change in changes if change[1] not in stated]
    subject = {word for _, text, _ in _goal(source) for word in content_words(text)}
    replaced.sort(key=lambda fact: -fact[0])
    replaced.sort(
        key=lambda fact: (fact[1] not in by_user, subject.isdisjoint(content_words(fact[1])))
    )
    for row, new, old in replaced:
        text = f"{new}\n  replaces: {_shorten(old[-1], REPLACED_MOST)}" if old else new
        order = (HEADINGS.index(FACTS), row)
        yield Item(FACTS, text, (new,), tuple(reader.read(text)), tuple(old), order)


def _open_tasks(source: Source) -> Iterator[DraftItem]:
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


def _next_steps(source: Source) -> Iterator[DraftItem]:
    """What the assistant announced in its last text, and its unanswered question."""
    for row, speaker, sentences in reversed(source.turns):
        if speaker == "user" and _is_request(sentences):
            return
        if speaker != "assistant" or not _is_request(sentences):
            continue
        steps = [one for one in sentences if is_question(one) or _INTENT.search(one.lower())]
        for step in steps[-3:]:
            yield row, step, (step,)
        return


def _errors(source: Source) -> Iterator[DraftItem]:
    """The error lines of the last run of each program or tool, the newest first."""
    programs: set[str] = set()
    for use in reversed(source.uses[-ERROR_WINDOW:]):
        key = " ".join(use.command.split()[:2]) or f"{use.name} {use.address}"
        if key in programs:
            continue
        programs.add(key)
        is_error = use.is_error or _reports_error(use.result)
        if not use.command and not is_error:
            continue
        lines = [line.strip() for line in use.result.splitlines()]
        failing = [line for line in lines if is_error_line(line)]
        if not failing and is_error:
            failing = [line for line in lines if line][-1:]
        about = "" if use.command else " ".join(filter(None, (use.name, use.address))) + "\n  "
        for line in dict.fromkeys(failing[-2:]):
            yield use.row, f"{about}{line[:QUOTE_MOST]}", (line,)


def _reports_error(result: str) -> bool:
    return len(result) <= ERROR_RESULT_MOST and _REPORTS_ERROR.search(result) is not None


class _FileUse(Struct):
    row: int = 0
    changes: int = 0
    reads: int = 0
    last_change: str = ""


def _files(source: Source) -> Iterator[DraftItem]:
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


def _commands(source: Source) -> Iterator[DraftItem]:
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
