"""Recognises answers that are not summaries, and sentences that give orders to the reader.

A model that is asked for a summary sometimes does something else: it apologises, asks for the
conversation, repeats an error of its server, goes on with the task, calls a tool, or writes broken
JSON. Text from a web page or a file may also make it pass on an instruction. Such an answer must
not replace the conversation.

The rules look at how an answer starts, because a summary may *report* all of these. A summary that
starts with a courtesy ("Here is the summary:") loses that line and is used. So does one that is
wrapped in an element or a JSON object (`without_wrapping`).
"""

import re
from typing import Any, cast

from weft import exact_json
from weft.lazy import lazy_pattern

SHORT_CHARS = 600
"""An apology or an error at the start of a longer text is only a preamble."""

_START = r"\A[\s>*_#\"'`-]*"
"""The start of an answer, with any quotation marks and Markdown before its first word."""

_REFUSAL = lazy_pattern(
    _START
    + r"""(?ix:
        (?: (?: i['’]?m | i\ am | we['’]?re | we\ are ) \s+ (?: (?:so|very|really|truly) \s+ )?
            (?: sorry | afraid | unable | not\ able )
        | sorry \b | my\ apologies | apologies \b | (?: i | we ) \s+ apologi[sz]e
        | (?: unfortunately | regrettably ) ,? \s+ (?: i | we ) \b
        | (?: i | we ) \s+ (?: cannot | can['’]?t | can\ not | won['’]?t | will\ not | do\ not\ feel
            | must\ (?:decline|refuse) | decline | refuse ) \b
        | as\ an?\ (?: ai | large\ language\ model | language\ model | assistant ) \b
        | (?: es\ tut\ mir\ leid | tut\ mir\ leid | lo\ siento | je\ suis\ désolée? | désolée? \b
            | 申し訳 | 抱歉 | 对不起 | 對不起 | 죄송 ) )
    )"""
)

_ASKS_FOR_SOURCE = lazy_pattern(
    r"""(?ix)
    (?: (?: could | can | would | will ) \s+ you \s+ (?: please \s+ )?
      | please \s+ ) (?: provide | share | paste | send | give )
      [^.?!\n]{0,60}
      \b (?: conversation | transcript | messages | text | summar | content | history )
    | (?: there \s+ (?: is | was ) \s+ no | i \s+ (?: do \s+ not | don['’]?t ) \s+ (?: see | have )
        (?: \s+ any | \s+ a | \s+ the )?
      | you \s+ have(?:n['’]?t|\ not) \s+ (?: provided | shared ) )
      \s+ [^.?!\n]{0,40} \b (?: conversation | transcript ) \b
    """
)

_ERROR = lazy_pattern(
    _START
    + r"""(?ix:
        (?: [\w.]*error | exception | fatal | failure ) \s* (?: \d{3} \s* )? :
        | traceback \s \(most\ recent\ call\ last\)
        | (?: http (?: /[\d.]+ )? (?: \s+ error )? | error | status (?: \s+ code )? )
            [\s:]+ [45]\d\d \b
        | [45]\d\d [\s:-]+ (?: bad | unauthorized | forbidden | not\ found | request | too
            | internal | service | gateway | payload ) \b
        | < (?: !doctype | html | head | body ) \b
        | (?: service (?: \s temporarily )? \s unavailable | internal\ server\ error | bad\ gateway
            | gateway\ time-?out | too\ many\ requests | rate\ limit
            | (?: upstream | server | model ) \s+ (?: is \s+ )? (?: currently \s+ )?
              (?: overloaded | unavailable )
            | request\ timed\ out | connection\ (?: reset | refused | error ) | overloaded ) \b
    )"""
)

_CONTINUES = lazy_pattern(
    _START
    + r"""(?ix:
        (?: (?: sure | certainly | of\ course | okay | ok | alright | great | understood | got\ it
              | absolutely | yes | no\ problem ) \b [\s,.!:;-]* )*
        (?: (?: i['’]ll | i \s+ will | let['’]?s | let \s+ (?: me | us ) | i['’]?m \s+ going \s+ to
              | i \s+ am \s+ going \s+ to | i['’]?m \s+ now | next,? \s+ i['’]ll )
            (?! \s+ (?: now \s+ )? (?: briefly \s+ )? (?: summari | recap | record | outline
              | condense | give \s | write \s+ (?: a | the | my ) \s+ (?: summary | record ) ) )
            \s+ [a-z]
          | continuing \s+ (?: with | on | the | from ) \b
          | proceeding \s+ (?: with | to ) \b )
    )"""
)

_CALL_TEXT = lazy_pattern(
    _START + r"(?i:<(?:antml:)?(?:function_calls?|tool_calls?|tool_use|invoke)\b|<\|tool_call"
    r"|\[tool[ _]calls?\b|functions?\.\w+\s*\(|```(?:tool_code|tool_call)\b)"
)

_PREAMBLE = lazy_pattern(
    r"""(?ix) \A \s*
    (?: (?: sure | certainly | of\ course | okay | ok | alright | absolutely ) [\s,.!:-]+ )?
    (?: here (?: ['’]s | \s+ is | \s+ are ) | below \s+ is | this \s+ is
      | the \s+ following \s+ is )
    [^.\n]{0,80} \b (?: summary | record | recap ) \b [^.\n]{0,80} [:.] [ \t]* (?: \n | (?=\S) )
    | \A \s* (?: sure | certainly | of\ course | okay | ok ) [!.,] \s*
      (?= (?: here | the | this | user ) \b | \n )
    """
)

_OLD_RULES = (
    r"(?:previous|prior|earlier|above|preceding|former|original|other|existing)\s+"
    r"(?:instructions?|rules?|messages?|prompts?|directions?|guidelines|system|conversation)"
)
_ORDER = lazy_pattern(
    rf"""(?ix) {_START}
    (?: (?: please \s+ | now \s+ | important \s* :? \s* | attention \s* :? \s* | note \s* : \s* )*
        (?: ignore | disregard | forget | override | bypass ) \b [^.!?\n]{{0,60}} (?: {_OLD_RULES} )
      | (?: you \s+ are \s+ now
          | from \s+ now \s+ on ,? \s+ (?: you | act | always | never | ignore )
          | new \s+ (?: system \s+ )? (?: instructions? | prompt ) \s* :
          | (?: system | developer ) \s+ (?: prompt | message | override | instructions? ) \s* :
          | </? \s* (?: system | system-reminder | developer | instructions? | im_start ) \b
          | <\| ) )
    """
)

_DRAFT = lazy_pattern(r"(?is)<(analysis|thinking|scratchpad)>.*?</\1>")
_SUMMARY_ELEMENT = lazy_pattern(r"(?is)\A\s*<summary>(.*?)(?:</summary>.*)?\Z")
"""What models write around a summary: their notes, and an element."""

_SENTENCE = lazy_pattern(r"(?<=[.!?。！？])\s*(?=\S)|\n+")


def non_summary_reason(text: str) -> str | None:
    """Why a text is not a summary, as a phrase that follows "it"; `None` if it may be one."""
    start = text.strip()
    if not any(character.isalnum() for character in start):
        return "answered without words"
    if _is_broken_json(start):
        return "answered with broken JSON"
    if _is_error_json(start):
        return "answered with an error message"
    if _CALL_TEXT.match(start):
        return "answered with a tool call"
    if _ORDER.match(start):
        return "gave an instruction instead of a summary"
    body = without_preamble(start)
    if _ERROR.match(body) and len(body) < SHORT_CHARS:
        return "answered with an error message"
    if _REFUSAL.match(body) and len(body) < SHORT_CHARS:
        return "declined or apologised"
    if _ASKS_FOR_SOURCE.search(body[:SHORT_CHARS]) and len(body) < SHORT_CHARS:
        return "asked for the conversation"
    if _CONTINUES.match(body):
        return "continued the task"
    return None


def without_preamble(text: str) -> str:
    """The text without a first line such as "Sure! Here is the summary:"."""
    match = _PREAMBLE.match(text)
    body = text[match.end() :].strip() if match else ""
    return body or text


def without_wrapping(text: str) -> str:
    """The text without notes before it, and out of its `<summary>` element or its JSON object."""
    body = _DRAFT.sub("", text).strip()
    element = _SUMMARY_ELEMENT.match(without_preamble(body))
    if element is not None:
        body = element[1].strip()
    value = _parse(_without_fence(body))
    if isinstance(value, dict):
        members = cast(dict[str, object], value)
        inner = members.get("summary", members if len(members) > 1 else None)
        if isinstance(inner, str):
            return inner.strip()
        if isinstance(inner, dict) and not {"error", "errors", "detail"} & inner.keys():
            return "\n\n".join(_as_section(*item) for item in cast(Any, inner).items())
    return body or text


def _as_section(heading: str, value: object) -> str:
    """A member of a JSON object as a section."""
    if isinstance(value, list):
        lines = "\n".join(f"- {item}" for item in cast(list[object], value))
        return f"## {heading}\n{lines}"
    return f"## {heading}\n{value}"


def without_orders(text: str) -> tuple[str, list[str]]:
    """The text without sentences that order its reader to act, and those sentences."""
    orders: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        sentences = [part for part in _SENTENCE.split(line) if part and part.strip()]
        line_orders = [sentence for sentence in sentences if _ORDER.match(sentence)]
        if not line_orders:
            lines.append(line)
            continue
        orders += [sentence.strip() for sentence in line_orders]
        remaining = " ".join(sentence for sentence in sentences if sentence not in line_orders)
        if remaining.strip():
            lines.append(remaining)
    return ("\n".join(lines).strip(), orders) if orders else (text, orders)


def _is_broken_json(text: str) -> bool:
    """Whether a text starts like JSON and is not valid JSON."""
    body = _without_fence(text)
    starts_like_json = re.match(r"\{\s*[\"}]|\[\s*(?:[\[{\"\d\]-]|true\b|false\b|null\b)", body)
    return starts_like_json is not None and _parse(body) is None


def _is_error_json(text: str) -> bool:
    value = _parse(_without_fence(text))
    return isinstance(value, dict) and bool({"error", "errors", "detail"} & value.keys())


def _without_fence(text: str) -> str:
    return re.sub(r"\A```\w*\s*|\s*```\Z", "", text)


def _parse(text: str) -> object:
    """The JSON value of a text; `None` if it is not JSON."""
    try:
        return exact_json.loads(text)
    except exact_json.JSONDecodeError:
        return None
