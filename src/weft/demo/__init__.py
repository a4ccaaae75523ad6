"""What Weft offers without a key: the offline model, the sample thread and the demo tools.

A name is imported when it is first used, so that a command that only needs the offline model does
not load the thread machinery of the sample.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

if TYPE_CHECKING:
    from .offline import answer_offline, read_offline, write_offline
    from .sample import SAMPLE, ensure_sample
    from .tools import demo_tools

OFFLINE_MODEL = "weft-offline"
"""The name of the model that answers without network or key."""

__getattr__ = lazy_names(
    __name__,
    {
        "offline": "answer_offline read_offline write_offline",
        "sample": "SAMPLE ensure_sample",
        "tools": "demo_tools",
    },
)

__all__ = [
    "OFFLINE_MODEL",
    "SAMPLE",
    "answer_offline",
    "demo_tools",
    "ensure_sample",
    "read_offline",
    "write_offline",
]
