"""The API of running agents: their questions, the answers, and hints.

GET  /api/questions?thread=&branch=   the open questions of runs; without a thread, of all runs
                                      that the caller may see
POST /api/answer {thread, branch, id, answer}
                                      `answer` is once, thread, always or deny for a permission,
                                      and an object with a text for each question of an agent
POST /api/hint {thread, branch, text | id}
                                      a text, or a queued text, for the running agent
GET  /api/permissions                 the tools that the caller always allows
POST /api/forget {tool}               require permission for such a tool again
"""

from starlette.concurrency import run_in_threadpool

from weft.errors import Refused
from weft.model import JsonObject

from .api_call import ApiCall, AsyncHandler, Handler
from .auth import may_see
from .socket import give_hint


async def list_questions(call: ApiCall) -> JsonObject:
    """The open questions, each with its thread, branch and run."""
    key: tuple[str, str] | None = None
    if call.text_or_none("thread") is not None:
        key = await run_in_threadpool(call.thread_and_branch)
    runs = [
        run
        for run in call.state.runs
        if key in (None, run.key) and may_see(call.caller, run.spec.scope, call.state.settings)
    ]
    return {
        "questions": [
            {**question, "thread": run.spec.thread, "branch": run.spec.branch, "run": run.id}
            for run in runs
            for question in run.questions.to_json()
        ]
    }


async def answer_question(call: ApiCall) -> JsonObject:
    """Answer a question of a run; the first answer counts."""
    run = call.state.runs.find(*await run_in_threadpool(call.thread_and_branch))
    if run is None:
        raise Refused("nothing runs in this thread", param="thread", status=409)
    run.questions.answer(call.text("id"), call.fields.get("answer"))
    return {"message": "Answered."}


async def add_hint(call: ApiCall) -> JsonObject:
    """Add a text for the running agent, which gets it before its next request."""
    await give_hint(call)
    return {"message": "The agent gets it before its next request."}


def list_permissions(call: ApiCall) -> JsonObject:
    """The tools that run without asking for permission."""
    return {"always": sorted(call.state.permissions.of(call.scope).always)}


def forget_permission(call: ApiCall) -> JsonObject:
    """Require permission again for a tool that was allowed, always or in a thread."""
    tool = call.text("tool")
    call.state.permissions.of(call.scope).forget(tool)
    return {"message": f"Calls of {tool} need permission again."}


RUN_READS: dict[str, Handler | AsyncHandler] = {
    "/api/questions": list_questions,
    "/api/permissions": list_permissions,
}
RUN_WRITES: dict[str, Handler | AsyncHandler] = {
    "/api/answer": answer_question,
    "/api/hint": add_hint,
    "/api/forget": forget_permission,
}
