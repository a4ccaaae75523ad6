"""One model that is asked and waited for, by code that has no event loop.

A failure is an answer: whoever asks for a summary has to tell a request that was too long from a
server that is down. The question is put from a thread of its own, so that it can be asked from
inside a running loop as well.
"""

import asyncio
from threading import Thread

from weft.catalog import Catalog, Model
from weft.codec import error_of
from weft.errors import UpstreamProtocolError
from weft.model import ApiError, Fold, Request, Response

from .ask import origin_of, stream
from .http import CallLimits, Wire
from .provider import Provider
from .retry import LOOP, Policy


class Asker:
    """A model behind a provider; `model` is what the catalogue knows of it."""

    def __init__(
        self,
        provider: Provider,
        name: str,
        catalog: Catalog,
        *,
        policy: Policy = LOOP,
        silence: float | None = None,
    ) -> None:
        """`silence` is how many seconds an answer may stand still before it has failed; the
        default is that of `CallLimits`."""
        self.model: Model = catalog.find(name, provider.name)
        self._provider = provider
        self._catalog = catalog
        self._policy = policy
        self._limits = (
            CallLimits() if silence is None else CallLimits(first_byte=silence, idle=silence)
        )

    def ask(self, request: Request) -> Response | ApiError:
        """The whole answer, or the error that came instead."""
        answers: list[Response | ApiError] = []
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                answers.append(asyncio.run(self._ask(request)))
            except BaseException as error:
                errors.append(error)

        # A daemon: whoever gives up waiting must not be held up by it when the process ends.
        apart = Thread(target=ask, name="weft-ask", daemon=True)
        apart.start()
        apart.join()
        if errors:
            raise errors[0]
        return answers[0]

    async def _ask(self, request: Request) -> Response | ApiError:
        async with Wire(self._limits) as wire:
            return await fold_answer(
                wire, self._provider, request, catalog=self._catalog, policy=self._policy
            )


async def fold_answer(
    wire: Wire, provider: Provider, request: Request, *, catalog: Catalog, policy: Policy = LOOP
) -> Response | ApiError:
    """The whole answer, or the error that came instead; nothing is raised for what upstreams do."""
    folding = Fold(origin_of(provider, request.model))
    try:
        async for event in stream(wire, provider, request, catalog=catalog, policy=policy):
            folding.send(event)
    except UpstreamProtocolError as error:
        return error_of(error)
    return folding.error or folding.response()
