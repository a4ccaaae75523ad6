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
    """The thread of that name, made if it is new.

    `target` is a file's path, nothing for this process's memory, or an open store, which stays
    open when the thread is closed. With `scope`, its appends can be found by `find_prefix`.
    `budget` limits what the thread may compile to, for this handle. `models` finds who answers for
    a model's name; without it the providers of the environment do, and the offline model.
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
    """Who answers for a name, by the environment's keys; raises `ThreadError` where nobody does."""
    from weft.catalog import load_catalog
    from weft.client import ModelClient, find_upstream

    catalog = load_catalog()
    try:
        route = find_upstream(name, os.environ, catalog)
    except ConfigError as error:
        line = f"{error}; or open the thread with models=, or give an asker of your own"
        raise ThreadError(f"nobody can be asked for the model {name!r}: {line}") from error
    return ModelClient(route.provider, route.model, catalog)
