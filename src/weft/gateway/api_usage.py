"""`GET /api/usage`: tokens and dollars, per turn, thread, model and day.

    thread      one thread, with its `turns`; without it, all threads that the caller may see
    offset      minutes between the reader's clock and UTC: days begin at the reader's midnight

As in `weft stats`, the answers of all branches count, each once.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from weft.errors import Refused
from weft.model import JsonObject
from weft.store import ThreadRecord
from weft.thread import AnswerCost, add_up, read_costs

from .api_call import ApiCall

TURNS = 500
THREADS = 100
LONGEST_OFFSET = 14 * 60


def show_usage(call: ApiCall) -> JsonObject:
    """The usage of one thread, or of all."""
    offset = _offset(call)
    if call.text_or_none("thread") is not None:
        record = call.record()
        answers = () if record is None else _answers(call, record)
        turns = _groups(answers, lambda answer: answer.turn or answer.commit)
        first_answer = {answer.turn or answer.commit: answer for answer in reversed(answers)}
        rows = [
            {"turn": turn, "created": first_answer[turn].created, **total}
            for turn, total in turns[-TURNS:]
        ]
        return {"turns": rows, **_totals(answers, offset)}
    by_thread = {record.name: _answers(call, record) for record in call.threads()}
    all_answers = [answer for answers in by_thread.values() for answer in answers]
    totals = [
        {"thread": name, **add_up(answers).to_dict()}
        for name, answers in by_thread.items()
        if answers
    ]
    totals.sort(key=lambda row: (row["cost"] or 0.0, row["input"] or 0), reverse=True)
    return {"threads": totals[:THREADS], **_totals(all_answers, offset)}


def _totals(answers: Iterable[AnswerCost], offset: timedelta) -> JsonObject:
    answers = list(answers)
    models = _groups(answers, lambda answer: answer.model)
    days = _groups(
        sorted(answers, key=lambda answer: answer.created),
        lambda answer: (datetime.fromtimestamp(answer.created, UTC) + offset).date().isoformat(),
    )
    return {
        "total": add_up(answers).to_dict(),
        "models": [{"model": model, **total} for model, total in models],
        "days": [{"day": day, **total} for day, total in days],
    }


def _groups(
    answers: Iterable[AnswerCost], key: Callable[[AnswerCost], str]
) -> list[tuple[str, JsonObject]]:
    groups: dict[str, list[AnswerCost]] = {}
    for answer in answers:
        groups.setdefault(key(answer), []).append(answer)
    return [(name, add_up(group).to_dict()) for name, group in groups.items()]


def _answers(call: ApiCall, record: ThreadRecord) -> tuple[AnswerCost, ...]:
    """The answers of a thread; read again only if one of its branches has moved."""
    heads = tuple(sorted(call.store.refs(record.name).items()))
    return call.state.views.costs(
        (record.name, heads), lambda: tuple(read_costs(call.store, record.name, call.state.catalog))
    )


def _offset(call: ApiCall) -> timedelta:
    value = str(call.fields.get("offset") or "0")
    try:
        minutes = int(value)
    except ValueError:
        minutes = LONGEST_OFFSET + 1
    if abs(minutes) > LONGEST_OFFSET:
        raise Refused(f"must be minutes between -840 and 840, not {value[:20]!r}", param="offset")
    return timedelta(minutes=minutes)
