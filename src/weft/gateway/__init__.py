"""The gateway: any client's protocol to any upstream's, every exchange kept as a thread."""

from .app import build, open_state, serve, url_of
from .settings import DEFAULT_HOST, DEFAULT_PORT, Flags, Settings, read_settings
from .state import State

__all__ = [
    "DEFAULT_HOST",
    "DEFAULT_PORT",
    "Flags",
    "Settings",
    "State",
    "build",
    "open_state",
    "read_settings",
    "serve",
    "url_of",
]
