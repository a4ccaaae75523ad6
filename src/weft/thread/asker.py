"""`Asker`: a model that can be asked for a summary.

This layer has no network code. A thread is opened with a function that finds the `Asker` for a
model's name (`weft.open` passes one that uses the providers of the environment). Callers may also
pass an `Asker` of their own to `compact(model=...)`.

An `Asker` may be foreign code that hangs or raises. `ask_within` turns both into an answer, so that
the compaction can continue without the model.
"""

from collections.abc import Callable, Generator
from threading import Thread
from typing import TYPE_CHECKING, Protocol, TypeVar

from weft.catalog import Model
from weft.errors import ThreadError
from weft.model import ApiError, Request, Response

if TYPE_CHECKING:  # the modules of compaction are imported when a model is asked
    from weft.compact import Answer, Stopped

SUMMARY_SECONDS = 180.0
"""The default time limit of one request for a summary."""

Result = TypeVar("Result")


class Asker(Protocol):
    """A model that can be asked. A failure is returned as an `ApiError`, not raised."""

    @property
    def model(self) -> Model: ...

    def ask(self, request: Request) -> Response | ApiError:
        """Send a request and return the whole answer."""
        ...


Models = Callable[[str], Asker]
"""Finds the `Asker` for a model's name; raises if there is none."""


def find_asker(model: str | Asker, models: Models | None) -> Asker:
    """The asker for a model's name, or the asker that was passed; raises `ThreadError`."""
    if not isinstance(model, str):
        return model
    if models is None:
        raise ThreadError(
            f"the thread was opened without models=, so it cannot use the model name {model!r}"
        )
    return models(model)


def ask_within(asker: Asker, request: Request, seconds: float | None) -> "Answer":
    """The answer, `Stopped` after a timeout, or an `ApiError` for an exception.

    After a timeout the call keeps running, because Python cannot stop a thread from outside. Its
    thread is a daemon, so it ends with the process.
    """
    answers: list[Response | ApiError] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(asker.ask(request))
        except BaseException as error:
            errors.append(error)

    if seconds is None:
        ask()
    else:
        worker = Thread(target=ask, name="weft-summary", daemon=True)
        worker.start()
        worker.join(seconds)
    if answers:
        return answers[0]
    if not errors:
        return timeout_answer(seconds or 0.0)
    return error_answer(errors[0])


def timeout_answer(seconds: float) -> "Stopped":
    """The answer that reports a timeout."""
    from weft.compact import Stopped

    return Stopped(f"no answer within {seconds:g} seconds")


def error_answer(error: BaseException) -> ApiError:
    """The answer that reports an exception of an asker.

    Exceptions that do not derive from `Exception`, such as `KeyboardInterrupt`, are raised again.
    """
    if not isinstance(error, Exception):
        raise error
    return ApiError("server", str(error) or type(error).__name__, 502)


def drive(
    flow: "Generator[Request, Answer, Result]",
    asker: Asker,
    seconds: float | None = SUMMARY_SECONDS,
) -> Result:
    """Run a flow to its end: send each request that it yields to the model."""
    try:
        request = next(flow)
        while True:
            request = flow.send(ask_within(asker, request, seconds))
    except StopIteration as end:
        return end.value
    finally:
        flow.close()
