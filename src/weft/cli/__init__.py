"""The command line: argparse, and a command's module imported only when it is called."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

from .main import COMMANDS, entry, main

if TYPE_CHECKING:
    from .inspect import draw_graph
    from .terminal import MarkdownStream

__getattr__ = lazy_names(
    __name__,
    {
        "inspect": "draw_graph",
        "terminal": "MarkdownStream",
    },
)

__all__ = ["COMMANDS", "MarkdownStream", "draw_graph", "entry", "main"]
