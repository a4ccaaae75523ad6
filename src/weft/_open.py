"""`weft.open`: opens a thread that can ask models by name.

The packages `thread` and `client` do not import each other. This module is above both: a thread
opened here can be given a model's name (`t.compact(model="gpt-5")`), and finds its provider by the
keys in the environment. No network code is imported until then.
"""

import os
from typing import TYPE_CHECKING

from weft.errors import ConfigError, ThreadError
from weft.thread import Budget, Models, Target, Thread, open as open_thread

if TYPE_CHECKING:
    from weft.client import ModelClient


def open(
    target: Target = None,
    thread: str = "default",
    checkpoints: bool = False,
    *,
    branch: str | None = None,
    scope: str | None = None,
    budget: Budget | None = None,
    models: Models | None = None,
) -> Thread:
    """Open the thread with this name, or create it.

    - `target`: where the thread is stored. The path of a SQLite file, a PostgreSQL URL, an open
      store, or `None` for a thread in memory. Closing the thread does not close a store that you
      passed.
    - `checkpoints`: whether user and tool messages end with a checkpoint: a short id that the model
      reads, and by which it names the messages to compact.
    - `branch`: the branch to work on; by default the thread's current branch. It must exist,
      unless the thread is new.
    - `scope`: the name of a prefix index that new messages are added to. The gateway has one for
      each API key, and uses it to find which conversation a request continues.
    - `budget`: a limit on the size of the compiled thread, for this handle only.
    - `models`: a function that returns the `Asker` for a model's name. By default, Weft chooses the
      provider by the name and reads its key from the environment. `weft-offline` needs no key.
    """
    return open_thread(
        target,
        thread,
        checkpoints,
        branch=branch,
        scope=scope,
        budget=budget,
        models=models or find_model,
    )


def find_model(name: str) -> "ModelClient":
    """The client for a model name, by the keys in the environment; raises `ThreadError`."""
    from weft.catalog import load_catalog
    from weft.client import ModelClient, find_upstream

    catalog = load_catalog()
    try:
        route = find_upstream(name, os.environ, catalog)
    except ConfigError as error:
        raise ThreadError(
            f"the model {name!r} is not available: {error}; or open the thread with models=, or "
            "pass an object with an `ask` method instead of a name"
        ) from error
    return ModelClient(route.provider, route.model, catalog)
