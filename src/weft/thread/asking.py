"""Whom a thread asks when it needs a model: anything that has a model and answers a request.

This layer knows no network. A name is resolved by the function that a thread was opened with
(`weft.open` gives one that knows the providers of the environment); whoever has an asker of their
own hands it to `compact(model=...)` instead of a name.
"""

from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

from weft.catalog import Model
from weft.errors import ThreadError
from weft.model import ApiError, Request, Response

Answer = TypeVar("Answer")


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


def drive(flow: Generator[Request, Response | ApiError, Answer], asker: Asker) -> Answer:
    """Run a flow to its end, asking one model whatever it yields."""
    try:
        request = next(flow)
        while True:
            request = flow.send(asker.ask(request))
    except StopIteration as end:
        return end.value
    finally:
        flow.close()
