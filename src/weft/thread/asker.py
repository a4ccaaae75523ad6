"""Whom a thread asks when it needs a model: anything that has a model and answers a request.

This layer knows no network. A name is resolved by the function that a thread was opened with
(`weft.open` gives one that knows the providers of the environment); whoever has an asker of their
own hands it to `compact(model=...)` instead of a name.

An asker may be anybody's code. It can hang or raise; `ask_within` turns both into an answer, so
that the flow which waits for it can go on without.
"""

from collections.abc import Callable, Generator
from threading import Thread
from typing import Protocol, TypeVar

from weft.catalog import Model
from weft.compact import Answer, Stopped
from weft.errors import ThreadError
from weft.model import ApiError, Request, Response

SUMMARY_SECONDS = 180.0
"""How long one request for a summary may take before it is given up."""

Result = TypeVar("Result")


class Asker(Protocol):
    """One model that can be asked; a failure is an answer too."""

    @property
    def model(self) -> Model: ...

    def ask(self, request: Request) -> Response | ApiError:
        """The whole answer, when it is there."""
        ...


Models = Callable[[str], Asker]
"""From a model's name to whoever answers for it; raises where nobody does."""


def find_asker(model: str | Asker, models: Models | None) -> Asker:
    """The asker that is meant; raises `ThreadError` where a name is nobody's."""
    if not isinstance(model, str):
        return model
    if models is None:
        raise ThreadError(f"no summariser is set up that could ask {model!r}")
    return models(model)


def ask_within(asker: Asker, request: Request, seconds: float | None) -> Answer:
    """The answer, `Stopped` where there is none in time, or an `ApiError` for what was raised.

    The call is left alone when the time is over: no thread can be ended from outside. It runs in
    one that ends with the process.
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
        apart = Thread(target=ask, name="weft-summary", daemon=True)
        apart.start()
        apart.join(seconds)
    if answers:
        return answers[0]
    if not errors:
        return no_answer_within(seconds or 0.0)
    return answer_for(errors[0])


def no_answer_within(seconds: float) -> Stopped:
    """The answer for a summariser that is given up."""
    return Stopped(f"no answer within {seconds:g} seconds")


def answer_for(error: BaseException) -> ApiError:
    """The answer for what an asker raised; what ends a program is raised again."""
    if not isinstance(error, Exception):
        raise error
    return ApiError("server", str(error) or type(error).__name__, 502)


def drive(
    flow: Generator[Request, Answer, Result], asker: Asker, seconds: float | None = SUMMARY_SECONDS
) -> Result:
    """Run a flow to its end, asking one model whatever it yields, each time for so long."""
    try:
        request = next(flow)
        while True:
            request = flow.send(ask_within(asker, request, seconds))
    except StopIteration as end:
        return end.value
    finally:
        flow.close()
