"""The state of the task, derived from the conversation itself without a model.

An agent that continues from a summary needs more than names. The state block has these sections,
in the words of the conversation:

    Goal                what the user asked for first
    Rules               what the user requires and forbids, verbatim
    Decisions           a question of the assistant and the user's answer, or what the assistant
                        confirmed; and what came of it, if it failed or was undone
    Findings            the causes that the assistant found
    Done                what the assistant reported about calls that did something
    Further facts       other sentences, in a short summary of a conversation
    Files               the files that calls read or changed, and the last change
    Commands            the last commands, and the line of their output that tells the result
    Current errors      the errors of the last run of a command
    Current request     what the user asked for last
    Open tasks          the items of the last task list that are not done
    Next step           what the assistant announced last, or asked without an answer
    Last answer         what the assistant wrote last, if the next message replies to it

Items are ordered by importance, so the first items of the list are a smaller state block. A summary
writes them in the order above.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import chain, islice

from msgspec import Struct, structs

from weft.history import Row
from weft.lazy import lazy_pattern

from .batches import quoted_rules
from .facts import (
    Claim,
    content_words,
    figures_in,
    refers_back,
    restates,
)
from .names import Name
from .outcomes import (
    Agreement,
    DraftItem,
    OutcomeIndex,
    find_agreements,
    find_findings,
    find_reports,
)
from .source import (
    CHANGED_LATER,
    MIN_CHARS,
    PEOPLE,
    RULES,
    SECTIONS,
    Source,
    ToolUse,
    Turn,
    decode_arguments,
    is_courtesy,
    is_error_line,
    is_narration,
    is_question,
    read_turns,
)

HEADINGS = tuple(SECTIONS)
GOAL, _, DECISIONS, FACTS, FINDINGS, DONE, FURTHER, *_OTHERS = HEADINGS
FILES, COMMANDS, ERRORS, REQUEST, TASKS, NEXT, LAST = _OTHERS

MAX_REQUEST_CHARS = 600
MAX_ANSWER_CHARS = 200
MAX_REPLY_CHARS = 80
MAX_QUOTE_CHARS = 160
MAX_COMMAND_CHARS = 240
"""The longest request, user's answer to a question, such an answer in short, quoted line of code or
output, and command."""

MIN_RULE_CHARS = 6
"""The shortest rule."""

MAX_LAST_ANSWER_CHARS = 280
"""A shorter last answer is quoted as a whole."""

MAX_QUESTIONS = 3
MAX_EARLIER_REQUESTS = 2
MAX_STEPS = 3
"""How many questions of one turn, sentences of an earlier request, and next steps are quoted."""

MAX_FOLLOWING_CHARS = 60
"""A shorter sentence with figures after a change belongs to it."""

MIN_OLD_VALUE_CHARS = 5
"""A shorter old value is too common to mark each text that has it."""

SHORT_QUESTION_CHARS = 90
"""A shorter question is quoted with the sentence before it, which often lists the options."""

MIN_QUESTION_WORDS = 3
"""A question with fewer content words, such as "Which do you prefer?", says nothing alone."""

MAX_ERROR_CALLS = 30
"""Errors are looked for in this many of the last calls."""

MAX_ITEMS = {
    RULES: 40,
    DECISIONS: 24,
    FACTS: 60,
    FINDINGS: 8,
    DONE: 24,
    FILES: 60,
    COMMANDS: 40,
    ERRORS: 5,
    TASKS: 12,
}
"""How many items a section has at most."""

MAX_DECISIONS_READ = 200
"""How many of the last decisions are ranked."""

DECISION_OVERHEAD = 40
"""Added to the characters of a decision when its weight is divided by its length."""

UNDONE_FACTOR = 0.5
"""The factor of a decision that was undone later."""

FIRST_FILES, FIRST_COMMANDS = 10, 5
"""How many files and commands come before all others in importance."""

FIRST_ITEMS = {RULES: 8, DECISIONS: 6, FACTS: 6, FINDINGS: 2, DONE: 4}
FIRST_DOUBTFUL_RULES = 1
"""How many items of a section come before the further items of all sections, and how many of the
sentences that may be no rules."""

# These patterns are searched in sentences in lower case: with `re.IGNORECASE` they would be three
# times as slow, and they are searched in every sentence of the user.
_RULE_WORDS = lazy_pattern(
    r"\b(?:never|always|must(?:n't)?|do not|don't|may not|from now on|forbidden|not allowed"
    r"|under no circumstances|make sure|ensure|ask (?:me )?(?:before|first)|constraints?"
    r"|requirements?|rules?|please no"
    r"|niemals|nie|immer|muss|müssen|darf|dürfen|jamais|toujours|doit|doivent|interdit"
    r"|nunca|siempre|debe|deben|prohibido)\b"
    r"|必须|不要|不得|禁止|约束|务必|永远|しないで|必ず|禁止|해야|하지 마",
)
"""Words of a rule."""

_ENGLISH_NO = lazy_pattern(
    r"(?:^(?:(?:and|also|but|ok|okay|hmm|please)[,.]? )*|[,.;:] )no (?!wait|idea|problem)\w+"
)
_ROMANCE = lazy_pattern(
    r"\b(?:el|la|los|las|que|se|un|una|por|para|con|del|al|puede\w*|podemos|hay|es|está|ya|il|lo"
    r"|gli|di|che|não|uma|em|do|da)\b"
)
"""English rules such as "no restarts", and words of languages in which "no" only negates a verb."""

_MAYBE_RULE_WORDS = lazy_pattern(
    r"\b(?:does not|(?:you|we) (?:cannot|can't)|only|no longer|avoid|prefer|have to|has to"
    r"|required?|should(?:n't)?|instead of|but not|ever|leave|remember|stick to"
    r"|at most|at least|no more than|everywhere|nicht|nichts|keine?n?|überall|bitte nur|höchstens"
    r"|ne pas|solo)\b"
    r"|^not\b|, not\b|^(?:and )?all\b.*\bplease\b"
    r"|^(?:(?:and|also) )?(?:the|all|every|each) (?:\w+ ){1,2}(?:uses?|follows?|stays?|keeps?) "
    r"|^(?:(?:and|also) )?(?:every|each) (?:\w+ ){1,2}(?:gets?|has|needs?|goes) "
    r"|只能|只要|だけ",
)
"""Words of rules that other sentences have too."""

_LASTING_ORDER = lazy_pattern(
    r"^(?:please |also |and )?(?:keep|use|answer|write|stop|wait|stay|respect|follow|treat|put"
    r"|call|name|start|end|work|speak|reply|respond|format|check|test|document|limit)\b"
    r"|^(?:i|we) (?:want|expect|require)\b(?=.*\b(?:every|each|all|any|new)\b)"
    r"|^we (?:only )?(?:support|insist)\b",
)
"""An order that is a rule if it has one of the `_LASTING_WORDS`."""

_ONCE_WORDS = lazy_pattern(
    r"\b(?:in the meantime|meanwhile|right now|right away|today|tonight|this time"
    r"|zwischenzeit|inzwischen|heute|gleich|sofort|en attendant|aujourd'hui|tout de suite"
    r"|mientras tanto|hoy|ahora mismo|enseguida)\b"
)
"""Words of an order that is carried out once."""

_LASTING_WORDS = lazy_pattern(
    r"\b(?:every|each|all|any|new|after|before|when|whenever|in|style|format|below|under|until"
    r"|from|with)\b",
)
_NARRATIVE = lazy_pattern(
    r"(?:(?:so|and|but|then|well|also|ok|okay|hmm|because|since|und|aber|dann)[,.]? )*"
    r"(?:(?:i|we) (?:have (?!to\b)|had|did|tried|talked|spoke|asked)\b|not (?:yet|sure|really)\b"
    r"|ich (?:muss|habe|hatte|bin|war|frage)\b|ich (?:brauche|kann|weiß|glaube|denke|suche)\b"
    r"(?!.*\b(?:immer|nie|niemals|nur)\b)|i have\b|wir (?:haben|hatten|waren)\b"
    r"|(?:i|he|she|they|it|my \w+|his|her|their|somebody|someone|last \w+|yesterday|a \w+"
    r"|that|this|there|er|sie|es|man)\b"
    r"(?! (?:(?:don't|do not|never) )?"
    r"(?:want|need|expect|insist|require|must|should|has to|have to|can only|only|darf|muss)\b)"
    r")",
)
"""The start of a sentence that tells what is or what happened."""

_DESCRIBES = lazy_pattern(
    r"^(?:\w+,? ){0,2}you (?:don't|do not) (?:have|know|seem|look|sound)\b"
    r"|^(?:and |also |then )?(?:we|i) (?:also )?need (?:a|an|some|something) "
)
"""A sentence about the assistant itself, or one that asks for something."""

_PERSONAL_NEEDS = lazy_pattern(
    r"\b(?:allergic|allergy|vegetarian|vegan|wheelchair|intolerant|diabetic|kosher|halal"
    r"|verträgt|allergisch|vegetarisch|rollstuhl)\b|\bonly if\b|\bnur wenn\b|过敏|アレルギー",
)
"""Needs of people, and conditions: they hold as long as a rule does."""

_PRONOUN = lazy_pattern(
    r"\b(?:it|that|this|them|these|those|es|das|dies\w*|sie|ihn|ihm|ça|cela|eso|esto)\b|它|这|それ"
)
"""A pronoun that may refer to another sentence."""

_POLITE = lazy_pattern(r"\b(?:please|bitte|merci de|por favor)\b|ください|请")
_INTENT = lazy_pattern(
    r"\b(?:next|now|let me|i'll|i will|i am going to|i'm going to|then|remaining|remains|still"
    r"|todo|to do|pending|continue with|not (?:yet|committed|done))\b|下一步|接下来|まず|次に",
)
"""Words of a sentence in which the assistant says what it does next."""

_ASKS_FOR_WORK = lazy_pattern(r"\b(?:can|could|would|will) you\b|\bplease\b", re.IGNORECASE)
"""A question that asks for work, and not for an answer."""

_IMPERATIVE = lazy_pattern(
    r"(?:^|[,;:.] |\b(?:and|then|meanwhile|meantime|but|first|und|dann|zwischenzeit|et|ahora|luego"
    r"|puis|maintenant|y) )"
    r"(?:write|draft|make|do(?! not\b)|start|begin|add|send|create|fix|run|check|find|look|prepare"
    r"|show|tell|give|plan|book|search|update|change|move|try|implement|remove|delete|rename"
    r"|explain|compare|list|summari[sz]e|translate|test|build|deploy|review|split|argue|order|open"
    r"|close|set|finish|redo|read|work on|help|go on with|continue with|proceed with"
    r"|weiter mit|mach|schreib|such|plan|buche?|nimm|zeig|prüfe?|erstelle?|schick|sende?|gib|sag"
    r"|ändere?"
    r"|busca|avisa|redacta|prepara|envía|manda|escribe|haz|mira|pide|cambia|añade|quita|comprueba"
    r"|calcula|dime|pon|cherche|prépare|envoie|rédige|écris|fais|regarde|demande|ajoute|vérifie"
    r"|calcule|dis|mets|signale|organise|propose|continue avec|sigue con)\b"
    r"|请|帮我|してくだ|お願い",
    re.IGNORECASE,
)
"""An imperative of the user, which asks for work."""

_ASKS_IN_REPLY = lazy_pattern(
    r"\b(?:please|now|next|also|can you|could you|bitte)\b", re.IGNORECASE
)
"""Words with which an answer to a question also asks for work."""

_OR = lazy_pattern(r"\b(?:or|oder|ou|o|ó)\b|还是|それとも")
_OPTIONS = lazy_pattern(r"\(A\).*\(B\)")
"""A list of options, which is no rule."""

_ONLY_ANNOUNCES = lazy_pattern(
    r"(?:\w+ ){0,3}rules?\W*"
    r"|(?:some|a few|two|three|four|several|zwei|drei|einige|deux|trois|quelques|dos|tres|algunas)"
    r" (?:\w+ ){0,2}(?:things?|points?|dinge|punkte|regeln|règles|choses|normas|cosas|reglas)"
    r"\b[^,:;]{0,24}"
)
"""A sentence that only says that rules follow."""

_ANSWER_START = lazy_pattern(
    r"(?:yes|yeah|yep|no|ok|okay|sure|ja|nein|oui|non|sí|[A-D1-4])\b[,.!:)]?(?= )"
    r"|是|不是|はい|いいえ",
    re.IGNORECASE,
)
"""The start of an answer, which says little without its question."""

_GO_ON = lazy_pattern(
    r"(?:(?:ok|okay|yes|good|great|and|then|now|please|ja|gut|bitte)[,.!]? )*"
    r"(?:go on|go ahead|continue|proceed|carry on|keep going|mach weiter|weiter|继续|続けて)"
    r"\b.{0,40}$",
    re.IGNORECASE,
)
"""A sentence that only says to continue with what was asked before."""


_ANYTHING_ELSE = lazy_pattern(r"\banything else\b|\bhow can i help\b", re.IGNORECASE)
_ERROR_REPORT = lazy_pattern(
    r"^(?:E\s{2,}|(?:\w+ )?error\b[:\[( ]|fatal\b|panic|FAIL|Traceback|npm ERR|✗|✘|\[?ERROR\b"
    r"|[\w.]*(?:Error|Exception)\b|\*\* \(|Found [1-9]\d* errors?)"
    r"|\S:\d+(?::\d+)?:? (?:\w+ )?(?:error|fatal)|\(\d+,\d+\): error"
    r"|: (?:command not found|No such file|Permission denied|cannot |permission denied)"
    r"|\b[1-9]\d* (?:failed|failures?|errors?)\b|\b(?:FAILED|FAIL)\b|\bfailed(?:[.!:]|$)"
    r"|\b[A-Z]\w*(?:Error|Exception): |错误|失败|エラー"
)
"""An error line of a program's output, as programs write it."""

_ERROR_CODE = lazy_pattern(
    r"[A-Z]+(?:[-_][A-Z0-9]+)+|\b[A-Z]{4,}\b|\b[45]\d\d\b|\b\w+(?:Error|Exception)\b"
)
"""A code of an error, such as `E-4031` or `SLOT_TAKEN`, or the status of an HTTP answer."""

_PATH = lazy_pattern(r"\S*/\S*\w")
_OUTCOME = lazy_pattern(
    r"\b(?:passed|failed|failures?|errors?|tests?|ok|success\w*|done|built|compiled|finished|created"
    r"|changed|insertions?|exit code|warnings?|found|fatal|denied|up to date|completed?)\b",
    re.IGNORECASE,
)
"""Words of a line that says how a command ended."""

_OUTPUT_START = lazy_pattern(r"\[Tool |\d+→|(?:DEBUG|INFO)\b|> |[`{}()<]|\W*:\w")
"""The start of a text that is code or the output of a tool."""

_CHECKBOX = lazy_pattern(r"^[-*+\s]*\[( |x|X)\]\s+(.+)")
_LISTED = lazy_pattern(
    r"(?P<list>[\w.]+)\.(?P<at>\d+)\.(?P<key>content|title|step|subject|description|task|text"
    r"|status|state|done|completed)"
)
"""The key of a member of a task in a list, such as `todos.0.content`."""

_TASK_NUMBER = lazy_pattern(r"#(\d+)")
_CLOSED = frozenset({"completed", "complete", "done", "cancelled", "canceled", "deleted", "true"})
"""The statuses of tasks that are done."""

_QUESTION_KEY = lazy_pattern(r"(?:^|\.)question$")
"""The argument of a tool that asks the user a question."""

_CHANGING_TOOL = lazy_pattern(
    r"edit|write|create|patch|replace|update|insert|delete|move|rename", re.I
)
"""A part of the names of tools that change files."""

_PATCHED = lazy_pattern(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
"""The files of a patch in Codex's format."""

_NEW_TEXT = ("new_string", "new_str", "new", "content", "file_text", "replacement", "insert_text")
_OLD_TEXT = ("old_string", "old_str", "old")


class Item(Struct, frozen=True):
    """One item of the state block.

    - `lines`: the texts of the source that it quotes
    - `replaced`: texts of the source that no longer hold
    - `order`: the number of its section and its row; a summary sorts by it
    - `outdated`: the replaced texts, and texts of which a part no longer holds
    - `short`: its text in a short summary, if that differs
    - `is_doubtful`: it may be no rule
    """

    heading: str
    text: str
    lines: tuple[str, ...] = ()
    names: tuple[Name, ...] = ()
    replaced: tuple[str, ...] = ()
    order: tuple[int, int] = (0, 0)
    outdated: tuple[str, ...] = ()
    short: str = ""
    is_doubtful: bool = False


State = Sequence[Item]


class Decision(Struct, frozen=True):
    """A question of the assistant and the user's answer.

    - `number`: the number of the user's turn
    - `lines`: the sentences that it quotes
    - `about`: all sentences of the two turns
    """

    number: int
    row: int
    text: str
    short: str
    lines: tuple[str, ...]
    about: tuple[str, ...]


def read_state(source: Source, after: Sequence[Turn] = ()) -> State:
    """The items of the state block, the most important first.

    `after` are the turns that follow in the context: a request or a next step there is newer.
    """
    decisions = _decisions(source)
    clear_rules, doubtful_rules = _rules(source.turns, decisions)
    block = _StateBlock(source, {rule.text for rule in clear_rules})
    rules = [*clear_rules, *doubtful_rules]
    has_answer = _has_speaker(after, "assistant")
    has_request = _has_request(source, after)
    block.add_new(GOAL, _goal(source))
    block.add_new(REQUEST, _earlier_request(source, after) if has_request else _request(source))
    block.add_new(NEXT, () if has_answer else _next_steps(source))
    block.add_new(LAST, _last_answer(source, after) if has_answer else ())
    block.add_new(RULES, rules)
    block.add_new(TASKS, _open_tasks(source))
    block.add(ERRORS, list(_current_errors(source))[: MAX_ITEMS[ERRORS]])
    replaced = set[str]()
    outdated = set[str]()
    block.add_drafts(FINDINGS, _current_findings(source, replaced))
    block.add_drafts(DONE, _current_reports(source, block.quoted, replaced))
    decision_items = _decision_items(source, decisions, block.quoted, replaced, outdated)
    block.add(DECISIONS, list(decision_items))
    return block.ordered(outdated)


class _StateBlock:
    """Collects the items of the state block and orders them by importance.

    - `first`: the most important items, in order
    - `ranked`: the first items of several sections with their rank in the section. They follow
      `first`, ordered by rank.
    - `further`: the other items
    - `quoted`: the texts that are in the block already
    - `clear_rules`: the texts of the rules that are certainly rules
    """

    def __init__(self, source: Source, clear_rules: Set[str]) -> None:
        self.source = source
        self.clear_rules = clear_rules
        self.first: list[Item] = []
        self.ranked: list[tuple[int, Item]] = []
        self.further: list[Item] = []
        self.quoted: set[str] = set()

    def add_new(self, heading: str, drafts: Iterable[DraftItem]) -> None:
        """Add those items of a section that the block does not quote yet."""
        new = [item for item in self._items(heading, drafts) if item.text not in self.quoted]
        self.add(heading, new[: MAX_ITEMS.get(heading)])
        self.quoted.update(item.text for item in new)

    def add_drafts(self, heading: str, drafts: Sequence[DraftItem]) -> None:
        """Add all items of a section, and remember the lines that they quote."""
        self.quoted.update(line for draft in drafts for line in draft.lines)
        self.add(heading, list(self._items(heading, drafts)))

    def add(self, heading: str, items: Sequence[Item]) -> None:
        """Add the items of a section, which are ordered by importance."""
        first = FIRST_ITEMS.get(heading, len(items))
        if heading == RULES:
            first = min(first, sum(not self._is_doubtful(item) for item in items))
            doubtful = [item for item in items[first:] if self._is_doubtful(item)]
            self.ranked.extend(enumerate(doubtful[:FIRST_DOUBTFUL_RULES], start=1))
        if heading in (FACTS, FINDINGS, DECISIONS, DONE):
            self.ranked.extend(enumerate(items[:first]))
        else:
            self.first.extend(items[:first])
        in_ranked = {id(item) for _, item in self.ranked}
        others = items[first : MAX_ITEMS.get(heading)]
        self.further.extend(item for item in others if id(item) not in in_ranked)

    def ordered(self, outdated: Collection[str]) -> State:
        """All items with those of files and commands; outdated ones say so."""
        files, commands = list(_files(self.source)), list(_commands(self.source))
        by_rank = sorted(self.ranked, key=lambda entry: entry[0])
        first = [*self.first, *(item for _, item in by_rank)]
        return (
            *(_mark_outdated(item, outdated) for item in first),
            *self._items(FILES, files[:FIRST_FILES]),
            *self._items(COMMANDS, commands[:FIRST_COMMANDS]),
            *(_mark_outdated(item, outdated) for item in self.further),
            *self._items(FILES, files[FIRST_FILES : MAX_ITEMS[FILES]]),
            *self._items(COMMANDS, commands[FIRST_COMMANDS : MAX_ITEMS[COMMANDS]]),
        )

    def _items(self, heading: str, drafts: Iterable[DraftItem]) -> Iterator[Item]:
        """The drafts as items of a section."""
        for row, text, lines in drafts:
            names = tuple(self.source.reader.read(text))
            order = (HEADINGS.index(heading), row)
            is_doubtful = heading == RULES and text not in self.clear_rules
            yield Item(heading, text, lines, names, (), order, is_doubtful=is_doubtful)

    def _is_doubtful(self, item: Item) -> bool:
        return item.text not in self.clear_rules


def _current_findings(source: Source, replaced: Set[str]) -> list[DraftItem]:
    """The findings without those that quote a statement which no longer holds."""
    findings = find_findings(source.turns, source.reader)
    current = [finding for finding in findings if replaced.isdisjoint(finding.lines)]
    return current[: MAX_ITEMS[FINDINGS]]


def _current_reports(source: Source, quoted: Set[str], replaced: Set[str]) -> list[DraftItem]:
    """The reports without those that another section quotes or that no longer hold."""
    reports = find_reports(source.turns, source.uses, source.reader)
    new = [report for report in reports if quoted.isdisjoint(report.lines)][: MAX_ITEMS[DONE]]
    return [
        DraftItem(report.row, report.text, report.lines)
        for report in new
        if replaced.isdisjoint(report.lines)
    ]


def _mark_outdated(item: Item, outdated: Collection[str]) -> Item:
    """The item, marked as changed later if it quotes an outdated text."""
    if item.heading == FACTS or not _is_outdated(item.lines, outdated):
        return item
    short = f"{item.short} {CHANGED_LATER}" if item.short else ""
    return structs.replace(item, text=f"{item.text} {CHANGED_LATER}", short=short)


def asks_for_work(sentence: str) -> bool:
    """Whether a sentence of the user asks for work."""
    return _IMPERATIVE.search(sentence) is not None


def _is_outdated(lines: Iterable[str], outdated: Collection[str]) -> bool:
    """Whether one of the lines contains an outdated text."""
    return any(text in line for line in lines for text in outdated)


def _decision_items(
    source: Source,
    decisions: Sequence[Decision],
    quoted: Set[str],
    replaced: Set[str],
    outdated: Set[str],
) -> Iterator[Item]:
    """The decisions with what came of them: alternately the newest and the most important one.

    - `quoted`: the texts of other sections
    - `replaced`: statements that no longer hold
    - `outdated`: these, and values of which a fact has a newer one
    """

    def is_known(sentence: str) -> bool:
        return sentence in quoted or _is_clear_rule(sentence)

    use_rows = [use.row for use in source.uses]
    all_agreements = find_agreements(source.turns, use_rows, is_known, asks_for_work)
    agreements = {agreement.number: agreement for agreement in all_agreements}
    outcomes = OutcomeIndex(source.turns, source.reader)
    weighted: list[tuple[float, Item]] = []

    def add(decision: Decision | Agreement, short: str) -> None:
        agreement = agreements.get(decision.number)
        lines = (*decision.lines, *agreement.lines) if agreement else decision.lines
        outcome = outcomes.find_outcome(decision.number, lines, decision.about)
        is_outdated = _is_outdated(decision.lines, outdated)
        if outcome in quoted or (outcome and is_outdated):
            return  # a changed fact or a finding says so
        item = _decision_item(source, decision, short, outcome)
        has_turn = decision.number < len(source.turns)
        user_sentences = source.turns[decision.number].sentences if has_turn else ()
        weight = outcomes.weight(decision.number, user_sentences, short or decision.text)
        weight *= UNDONE_FACTOR if outcome or is_outdated else 1.0
        length = len(short or item.text)
        weighted.append((weight / (DECISION_OVERHEAD + length) ** 0.5, item))

    for decision in decisions[:MAX_DECISIONS_READ]:
        agreement = agreements.get(decision.number)
        if all(line in quoted for line in decision.lines):
            continue
        if agreement and agreement.is_confirmed and agreement.lines[0] in quoted:
            continue  # the new value is a changed fact
        add(decision, _short_decision(decision, agreement, replaced))
    answered = {decision.number for decision in decisions}
    newer_lines = set[str]()
    for agreement in reversed(agreements.values()):
        lines = {*agreement.lines}
        holds = replaced.isdisjoint(lines) and agreement.lines[0] not in quoted
        if agreement.number not in answered and holds and newer_lines.isdisjoint(lines):
            add(agreement, "")
        newer_lines |= lines
    newest_first = _without_replaced(sorted(weighted, key=lambda entry: -entry[1].order[1]))
    by_weight = sorted(newest_first, key=lambda entry: -entry[0])
    alternating = chain.from_iterable(zip(newest_first, by_weight, strict=True))
    ranked = {id(item): item for _, item in alternating}
    return islice(ranked.values(), MAX_ITEMS[DECISIONS])


def _decision_item(
    source: Source, decision: Decision | Agreement, short: str, outcome: str
) -> Item:
    """A decision as an item, with its outcome if there is one."""
    later = f"\n  Later: {outcome}" if outcome else ""
    text = decision.text + later
    return Item(
        DECISIONS,
        text,
        lines=(*decision.lines, outcome) if outcome else decision.lines,
        names=tuple(source.reader.read(text)),
        order=(HEADINGS.index(DECISIONS), decision.row),
        short=short + later if short else "",
    )


def _short_decision(decision: Decision, agreement: Agreement | None, replaced: Set[str]) -> str:
    """The shorter of a decision's short form and the assistant's confirmation of it."""
    short_texts = [decision.short]
    if agreement is not None and agreement.is_confirmed and replaced.isdisjoint(agreement.lines):
        shared = content_words(agreement.text) & content_words(decision.text)
        if figures_in(agreement.text) or len(shared) > 1:  # not just "I will prepare that."
            short_texts.append(agreement.text)
    return min(filter(None, short_texts), key=len, default="")


def _without_replaced(weighted: list[tuple[float, Item]]) -> list[tuple[float, Item]]:
    """The decisions, the newest first, without those that a newer one restates with other
    figures."""
    newer_claims: list[Claim] = []
    current: list[tuple[float, Item]] = []
    for weight, item in weighted:
        claim = Claim(item.short or item.text)
        if not any(restates(newer, claim) for newer in newer_claims):
            current.append((weight, item))
        newer_claims.append(claim)
    return current


def find_rules(rows: Sequence[Row]) -> list[str]:
    """The user's rules in some rows, verbatim: those that earlier summaries quote, then clear ones,
    then doubtful ones, each the newest first."""
    rules = [rule for row in rows for rule in quoted_rules(row.message.text)][::-1]
    for group in _rules(read_turns(rows), ()):
        # `_rules` has the rules of one row in the order of the text.
        rules += [rule.text for rule in sorted(reversed(group), key=lambda rule: -rule.row)]
    return list(dict.fromkeys(rules))


def _goal(source: Source) -> Iterator[DraftItem]:
    """The first request for work."""
    for row, speaker, sentences in source.turns:
        if speaker == "user" and _is_open_request(source, row, sentences):
            yield from _quote(row, sentences)
            return


def _request(source: Source) -> Iterator[DraftItem]:
    """The last request, unless it is the only one: that is the goal."""
    requests = (
        (row, sentences)
        for number, (row, speaker, sentences) in _newest_turns(source.turns)
        if speaker == "user"
        and _is_open_request(source, row, sentences)
        and not _is_reply(sentences, source.turns[number - 1])
    )
    last_request = next(requests, None)
    has_earlier = next(requests, None) is not None
    if last_request is not None and has_earlier:
        yield from _quote(*last_request, is_current=True)


def _earlier_request(source: Source, after: Sequence[Turn]) -> Iterator[DraftItem]:
    """The work that the user asked for before, if the next message answers a question about it."""
    turns = source.turns
    if not turns or not after or after[0].speaker != "user" or turns[-1].speaker != "assistant":
        return
    if not any(map(is_question, turns[-1].sentences[-2:])) or _has_speaker(after, "assistant"):
        return
    reply = after[0].sentences
    if any(asks_for_work(sentence) and not _PRONOUN.search(sentence.lower()) for sentence in reply):
        return  # the reply says itself what to do
    for number, (row, speaker, sentences) in _newest_turns(turns):
        if speaker != "user" or (number and _is_reply(sentences, turns[number - 1])):
            continue
        asked = [
            sentence
            for sentence in sentences
            if asks_for_work(sentence) and not is_question(sentence)
        ]
        for sentence in asked[-MAX_EARLIER_REQUESTS:]:
            yield DraftItem(row, sentence, (sentence,))
        return


def _newest_turns(turns: Sequence[Turn]) -> Iterator[tuple[int, Turn]]:
    """The turns with their numbers, the last one first."""
    return ((number, turns[number]) for number in range(len(turns) - 1, -1, -1))


def _has_request(source: Source, after: Sequence[Turn]) -> bool:
    """Whether the user asks for work in what follows, and does not only answer a question."""
    if not _has_speaker(after, "user"):
        return False
    _, speaker, sentences = after[0]
    before: Turn = source.turns[-1] if source.turns else Turn(0, "", [])
    only_replies = speaker == "user" and _is_reply(sentences, before)
    return not only_replies or sum(turn.speaker == "user" for turn in after) > 1


def _has_speaker(turns: Sequence[Turn], speaker: str) -> bool:
    return any(turn.speaker == speaker for turn in turns)


def _is_reply(sentences: Sequence[str], turn_before: Turn) -> bool:
    """Whether a turn only answers a question of the assistant, or only states rules."""
    if all(_is_clear_rule(sentence) or is_courtesy(sentence) for sentence in sentences):
        return True
    new = [sentence for sentence in sentences if not _GO_ON.match(sentence)]
    if not _has_substance(new):
        return True
    last_sentences = turn_before.sentences[-2:]
    was_asked = turn_before.speaker == "assistant" and any(map(is_question, last_sentences))
    return was_asked and not any(
        _ASKS_IN_REPLY.search(sentence) or _IMPERATIVE.search(sentence) for sentence in new
    )


def _is_clear_rule(sentence: str) -> bool:
    """Whether a sentence is certainly a rule."""
    return is_rule(sentence) and _has_rule_words(sentence)


def _is_open_request(source: Source, row: int, sentences: Sequence[str]) -> bool:
    """Whether a turn asks for work, or for an answer that was not given yet."""
    if not _has_substance(sentences):
        return False
    if not all(
        is_question(sentence) and not _ASKS_FOR_WORK.search(sentence) for sentence in sentences
    ):
        return True
    answer_rows = (turn.row for turn in reversed(source.turns) if turn.speaker == "assistant")
    return next(answer_rows, -1) < row


def _has_substance(sentences: Sequence[str]) -> bool:
    """Whether a turn has more than short sentences and courtesies."""
    return any(len(sentence) >= MIN_CHARS and not is_courtesy(sentence) for sentence in sentences)


def _quote(row: int, sentences: Sequence[str], *, is_current: bool = False) -> Iterator[DraftItem]:
    """The first sentences of a request, up to `MAX_REQUEST_CHARS`.

    Its clear rules are left out, because they have a section of their own. In the current request
    they stay if they also ask for work, and vague sentences are left out.
    """
    size = 0
    asked = [
        sentence
        for sentence in sentences
        if not is_courtesy(sentence)
        and (not _is_clear_rule(sentence) or (is_current and _IMPERATIVE.search(sentence)))
    ]
    if is_current:
        asked = [sentence for sentence in asked if not _is_vague(sentence)] or asked
    for sentence in asked or sentences:
        size += len(sentence)
        if size > MAX_REQUEST_CHARS and size > len(sentence):
            return
        yield DraftItem(row, sentence, (sentence,))


def _rules(
    turns: Sequence[Turn], decisions: Sequence[Decision]
) -> tuple[list[DraftItem], list[DraftItem]]:
    """The clear rules of the user and of later system messages, and the sentences that may be no
    rules. Both start with the newest row; the rules of one row are in the order of the text."""
    decided = {line for decision in decisions for line in decision.lines}
    rules: dict[str, tuple[bool, DraftItem]] = {}  # by text: whether it is clear, and the rule
    for row, speaker, sentences in reversed(turns):
        for sentence in sentences:
            if speaker == "system" or (speaker == "user" and is_rule(sentence)):
                is_answer = sentence in decided and _ANSWER_START.match(sentence) is not None
                is_clear = speaker == "system" or (_has_rule_words(sentence) and not is_answer)
                if not is_clear and sentence in decided:
                    continue  # the decision quotes it
                rule = DraftItem(row, sentence, (sentence,))
                rules.setdefault(sentence.lower(), (is_clear, rule))
    clear = [rule for is_clear, rule in rules.values() if is_clear]
    doubtful = [rule for is_clear, rule in rules.values() if not is_clear]
    return clear, doubtful


def is_rule(sentence: str) -> bool:
    """Whether a sentence of the user states a rule that holds beyond the current step."""
    lowered = sentence.lower()
    if len(sentence) < MIN_RULE_CHARS or is_question(sentence):
        return False
    if _NARRATIVE.match(lowered) and not _PERSONAL_NEEDS.search(lowered):
        return False
    if _OPTIONS.search(sentence) or _ONLY_ANNOUNCES.fullmatch(lowered):
        return False
    if _DESCRIBES.search(lowered):
        return False
    if _has_rule_words(sentence) or _MAYBE_RULE_WORDS.search(lowered) is not None:
        return True
    return lowered.startswith("no ") and not _ROMANCE.search(lowered)


def _has_rule_words(sentence: str) -> bool:
    """Whether a sentence has words that hardly any sentence but a rule has."""
    lowered = sentence.lower()
    if _RULE_WORDS.search(lowered) or _PERSONAL_NEEDS.search(lowered):
        return True
    if _ENGLISH_NO.search(lowered) and not _ROMANCE.search(lowered):
        return True
    if _POLITE.search(lowered) and _MAYBE_RULE_WORDS.search(lowered):
        return True
    if _LASTING_ORDER.search(lowered) is None or _ONCE_WORDS.search(lowered) is not None:
        return False
    return _LASTING_WORDS.search(lowered) is not None


def _decisions(source: Source) -> list[Decision]:
    """The assistant's questions with the user's answers, the newest first."""
    decisions: list[Decision] = []
    turns = source.turns
    for number in range(len(turns) - 2, -1, -1):
        if len(decisions) == MAX_DECISIONS_READ:
            break
        decision = _decision_in_turns(turns, number)
        if decision is not None:
            decisions.append(decision)
    rows = [turn.row for turn in turns]
    for use in source.uses:
        asked = [text for key, text in use.arguments.items() if _QUESTION_KEY.search(key)]
        if asked and use.result:
            reply = _shorten(" ".join(use.result.split()), MAX_ANSWER_CHARS)
            questions = [" ".join(question.split()) for question in asked[:MAX_QUESTIONS]]
            text = "\n  ".join([*questions, f"User: {reply}"])
            number = bisect_right(rows, use.row)
            decisions.append(Decision(number, use.row, text, "", tuple(asked), tuple(asked)))
    return sorted(decisions, key=lambda decision: -decision.row)


def _decision_in_turns(turns: Sequence[Turn], number: int) -> Decision | None:
    """The decision in two turns: a question of the assistant, and the user's answer to it.

    `number` is the turn of the question. `None` if the two turns are not such a pair.
    """
    row, speaker, sentences = turns[number]
    _, replier, answer = turns[number + 1]
    if speaker != "assistant" or replier != "user" or not answer:
        return None
    questions = _questions(sentences, answer)
    if not questions or all(is_question(sentence) for sentence in answer):
        return None
    replies = [
        sentence
        for sentence in answer
        if not _is_clear_rule(sentence) or _ANSWER_START.match(sentence)
    ]
    if not replies:
        return None  # the rules have a section of their own
    requests = [reply for reply in replies if is_question(reply) or asks_for_work(reply)]
    meaningful = [reply for reply in replies if len(content_words(reply)) > 1]
    if any(map(is_question, requests)) and all(reply in requests for reply in meaningful):
        return None  # the answer asks for more work
    full_reply = _shorten(" ".join(replies), MAX_ANSWER_CHARS)
    short_reply = _first_sentences(replies, MAX_REPLY_CHARS)
    return Decision(
        number + 1,
        row,
        text="\n  ".join([*questions[-MAX_QUESTIONS:], f"User: {full_reply}"]),
        short="\n  ".join([*_core_question(questions), f"User: {short_reply}"]),
        lines=(*questions, *replies),
        about=(*sentences, *answer),
    )


def _core_question(questions: Sequence[str]) -> Sequence[str]:
    """The last question alone, or else the sentences before it if it says little alone."""
    *before, question = questions[-MAX_QUESTIONS:]
    has_words = len(content_words(question)) >= MIN_QUESTION_WORDS
    if not before or has_words or _OR.search(question.lower()):
        return [question]
    return before


def _first_sentences(sentences: Sequence[str], max_chars: int) -> str:
    """The first sentence, and further ones up to `max_chars` together."""
    text = sentences[0]
    for sentence in sentences[1:]:
        if len(text) + len(sentence) > max_chars:
            break
        text += f" {sentence}"
    return _shorten(text, MAX_ANSWER_CHARS)


def _shorten(text: str, max_chars: int) -> str:
    """The start of a text, cut between words."""
    return text if len(text) <= max_chars else f"{text[:max_chars].rsplit(' ', 1)[0]} ..."


def _questions(sentences: Sequence[str], answer: Sequence[str]) -> list[str]:
    """The questions of a turn; if the first one is short, after the sentences that it is about."""
    questions: list[str] = []
    answer_words = content_words(" ".join(answer))
    for number, sentence in enumerate(sentences):
        if not is_question(sentence) or _ANYTHING_ELSE.search(sentence):
            continue
        if number and not questions and len(sentence) < SHORT_QUESTION_CHARS:
            questions += _question_context(sentences[:number], answer_words)
        questions.append(sentence)
    return questions


def _question_context(before: Sequence[str], answer_words: Set[str]) -> list[str]:
    """What a short question is about, from the sentences before it.

    That is the last sentence that shares words with the answer, or else the sentence before the
    question, with the one before that if it only refers back.
    """
    named = [text for text in before if not answer_words.isdisjoint(content_words(text))]
    first = len(before) - 1
    while first and (refers_back(before[first]) or _is_vague(before[first])):
        first -= 1
    context = named[-1:] or list(before[first:])
    index = before.index(context[0])
    if index and _is_vague(context[0]):
        return [before[index - 1], *context]
    return context


def _is_vague(sentence: str) -> bool:
    """Whether a sentence has a pronoun and few other words, such as "Do not accept it yet."."""
    has_few_words = len(content_words(sentence)) < MIN_QUESTION_WORDS
    return has_few_words and _PRONOUN.search(sentence.lower()) is not None


def _open_tasks(source: Source) -> Iterator[DraftItem]:
    """The items of the last task list that are not done.

    It is looked for in the arguments of one call, in calls that create and update single tasks, and
    in checkboxes of a text.
    """
    for use in reversed(source.uses):
        tasks = _listed_tasks(use)
        if tasks:
            for text, status in tasks:
                if status not in _CLOSED:
                    yield DraftItem(use.row, _with_status(text, status), (text,))
            return
    numbered = _numbered_tasks(source.uses)
    if numbered:
        for row, text, status in numbered:
            if status not in _CLOSED:
                yield DraftItem(row, _with_status(text, status), (text,))
        return
    for row, speaker, sentences in reversed(source.turns):
        boxes = [box for sentence in sentences if (box := _CHECKBOX.match(sentence))]
        if speaker in PEOPLE and boxes:
            for box in boxes:
                if box[1] == " ":
                    yield DraftItem(row, box[2], (box[0],))
            return


def _with_status(text: str, status: str) -> str:
    """A task, with its status if it is in progress."""
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
            listed.append((" ".join(text.split())[:MAX_QUOTE_CHARS], status.lower()))
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
        if speaker == "user" and _has_substance(sentences):
            return
        if speaker != "assistant" or not _has_substance(sentences):
            continue
        steps = [
            (number, sentence)
            for number, sentence in enumerate(sentences)
            if is_question(sentence) or _INTENT.search(sentence.lower())
        ]
        for number, step in steps[-MAX_STEPS:]:
            is_short = is_question(step) and len(content_words(step)) < MIN_QUESTION_WORDS
            needs_context = number > 0 and (is_short or _is_vague(step))
            lines = sentences[number - 1 : number + 1] if needs_context else [step]
            yield DraftItem(row, " ".join(lines), tuple(lines))
        return


def _last_answer(source: Source, after: Sequence[Turn]) -> Iterator[DraftItem]:
    """The assistant's last question or proposal, if the next message is the user's reply to it."""
    if not source.turns or not after or after[0].speaker != "user":
        return
    row, speaker, sentences = source.turns[-1]
    if speaker != "assistant" or not _has_substance(sentences):
        return
    reply = after[0].sentences
    lines = _questions(sentences, reply)[-MAX_QUESTIONS:]
    if sum(map(len, sentences)) <= MAX_LAST_ANSWER_CHARS:
        lines = [sentence for sentence in sentences if not is_courtesy(sentence)]
    elif not lines:
        reply_words = content_words(" ".join(reply))
        stated = [
            sentence
            for sentence in sentences
            if not is_narration(sentence) and not is_courtesy(sentence)
        ]
        lines = (
            sorted(stated, key=lambda sentence: -len(reply_words & content_words(sentence)))[:1]
            or stated[:1]
        )
    for line in dict.fromkeys(lines):
        yield DraftItem(row, line, (line,))


def _current_errors(source: Source) -> Iterator[Item]:
    """The error lines of the last run of each program or tool, the newest first.

    In a short summary, the assistant's comment replaces an error, because it says what failed.
    """
    later_programs: set[str] = set()
    turn_rows = [turn.row for turn in source.turns]
    for use in reversed(source.uses[-MAX_ERROR_CALLS:]):
        program = " ".join(use.command.split()[:2]) or f"{use.name} {use.address}"
        if program in later_programs:
            continue
        later_programs.add(program)
        if not use.command and not use.failed:
            continue
        call = "" if use.command else " ".join(filter(None, (use.name, use.address)))
        for line in _error_lines(use):
            text = f"{call}\n  {line[:MAX_QUOTE_CHARS]}" if call else line[:MAX_QUOTE_CHARS]
            short, quoted = "", (line,)
            if call:
                next_turn = bisect_right(turn_rows, use.row)
                comment = _comment_on_error(f"{line} {use.path}", source, next_turn)
                short = comment or f"{call}: {_plain_error(line)}"
                quoted = (line, comment) if comment else quoted
            names = tuple(source.reader.read(text))
            order = (HEADINGS.index(ERRORS), use.row)
            yield Item(ERRORS, text, quoted, names, (), order, (), short)


def _error_lines(use: ToolUse) -> Iterable[str]:
    """The last two error lines of a result, each once; the last line if a call failed without
    any."""
    failed = use.failed
    lines = [line.strip() for line in use.result.splitlines()]
    errors = [line for line in lines if is_error_line(line) and (failed or _is_error_report(line))]
    if not errors and failed:
        errors = [line for line in lines if line][-1:]
    return dict.fromkeys(errors[-2:])


def _comment_on_error(error: str, source: Source, number: int) -> str:
    """The assistant's sentence in turn `number` with a code or a path of the error; else empty."""
    if number >= len(source.turns) or source.turns[number].speaker != "assistant":
        return ""
    codes = {*_ERROR_CODE.findall(error), *_PATH.findall(error)}
    for sentence in source.turns[number].sentences:
        is_short = len(sentence) <= MAX_ANSWER_CHARS and not is_question(sentence)
        if is_short and any(code in sentence for code in codes):
            return sentence
    return ""


def _plain_error(line: str) -> str:
    """The texts in an error that is JSON; any other line unchanged."""
    texts = decode_arguments(line) if line.startswith("{") else {}
    values = [text for key, text in texts.items() if text and key not in ("status", "type")]
    return ", ".join(values)[:MAX_QUOTE_CHARS] or line[:MAX_QUOTE_CHARS]


def _is_error_report(line: str) -> bool:
    """Whether a line has the form in which programs report errors, and is not a text about
    errors."""
    return _ERROR_REPORT.search(line) is not None


class _FileUse(Struct):
    """How calls used a file; `row` is that of the last call."""

    row: int = 0
    changes: int = 0
    reads: int = 0
    last_change: str = ""


def _files(source: Source) -> Iterator[DraftItem]:
    """The files that calls read or changed: changed ones first, the newest first."""
    file_uses: dict[str, _FileUse] = {}
    for use in source.uses:
        if use.failed:
            continue  # the errors say so
        paths = [use.path] if use.path else _patched_paths(use)
        for path in paths:
            if "\n" in path or "*" in path or len(path) > MAX_COMMAND_CHARS:
                continue
            file_use = file_uses.setdefault(path, _FileUse())
            file_use.row = use.row
            if _CHANGING_TOOL.search(use.name) or not use.path:
                file_use.changes += 1
                file_use.last_change = _changed_line(use) or file_use.last_change
            else:
                file_use.reads += 1
    ranked = sorted(file_uses.items(), key=lambda entry: (not entry[1].changes, -entry[1].row))
    for path, file_use in ranked:
        counts = [_times("changed", file_use.changes), _times("read", file_use.reads)]
        text = f"{path}\n  {', '.join(filter(None, counts))}"
        lines = (file_use.last_change,) if file_use.last_change else ()
        if file_use.last_change:
            text += f"; last change: {file_use.last_change}"
        yield DraftItem(file_use.row, text, lines)


def _times(verb: str, count: int) -> str:
    """`changed`, `changed 3 times`, or empty for 0."""
    if count == 0:
        return ""
    return verb if count == 1 else f"{verb} {count} times"


def _patched_paths(use: ToolUse) -> list[str]:
    """The files of a patch in Codex's format."""
    texts = (text for text in use.arguments.values() if "*** " in text)
    return [path.strip() for text in texts for path in _PATCHED.findall(text)]


def _changed_line(use: ToolUse) -> str:
    """The first new line of a change that has enough characters, and letters."""
    new = next((use.arguments[key] for key in _NEW_TEXT if use.arguments.get(key)), "")
    old = next((use.arguments[key] for key in _OLD_TEXT if use.arguments.get(key)), "")
    before = {line.strip() for line in old.splitlines()}
    for raw in new.splitlines():
        line = raw.strip()
        if len(line) >= MIN_CHARS and line not in before and any(c.isalpha() for c in line):
            return line[:MAX_QUOTE_CHARS]
    return ""


def _commands(source: Source) -> Iterator[DraftItem]:
    """The last run of each command with the line that states its result, the newest first."""
    later_commands: set[str] = set()
    for use in reversed(source.uses):
        command = use.command.strip()
        if not command or command in later_commands:
            continue
        later_commands.add(command)
        first_line = command.splitlines()[0].strip()
        outcome = _outcome_line(use.result)
        text = "\n  ".join(filter(None, (first_line[:MAX_COMMAND_CHARS], outcome)))
        yield DraftItem(use.row, text, tuple(filter(None, (first_line, outcome))))


def _outcome_line(result: str) -> str:
    """The last line of an output that says how it ended, or else the last line."""
    lines = [line.strip() for line in result.splitlines()[-40:] if line.strip()]
    outcomes = (line for line in reversed(lines) if _OUTCOME.search(line))
    line = next(outcomes, lines[-1] if lines else "")
    return line[:MAX_QUOTE_CHARS]
