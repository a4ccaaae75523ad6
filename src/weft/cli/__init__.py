"""The command line: argparse, and a command's module imported only when it is called."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

from .main import COMMANDS, entry, main

if TYPE_CHECKING:
    from weft.history import newest_first

    from .log_graph import draw
    from .markdown import MarkdownStream

__getattr__ = lazy_names(
    __name__,
    {
        "MarkdownStream": "weft.cli.markdown",
        "draw": "weft.cli.log_graph",
        "newest_first": "weft.history",
    },
)

__all__ = ["COMMANDS", "MarkdownStream", "draw", "entry", "main", "newest_first"]
