"""Asking a model: providers as records, one HTTP client, one retry policy, the model inside."""

from weft.demo.offline import OFFLINE_MODEL

from .ask import origin_of, read_error, send, stream
from .asker import Asker, fold_answer
from .http import CallLimits, Wire
from .provider import (
    AUTH,
    HOMES,
    OFFLINE,
    Auth,
    Provider,
    make_provider,
    read_provider,
)
from .reply import STREAM_TYPE, OfflineReply, Reply, read_all, shape_id
from .retry import LOOP, RELAY, Policy, plan_retry
from .routing import Route, find_route
from .upstreams import (
    VENDORS,
    UpstreamTable,
    find_upstream,
    key_variable,
    load_toml,
    read_tables,
    read_upstreams,
)

__all__ = [
    "AUTH",
    "HOMES",
    "LOOP",
    "OFFLINE",
    "OFFLINE_MODEL",
    "RELAY",
    "STREAM_TYPE",
    "VENDORS",
    "Asker",
    "Auth",
    "CallLimits",
    "OfflineReply",
    "Policy",
    "Provider",
    "Reply",
    "Route",
    "UpstreamTable",
    "Wire",
    "find_route",
    "find_upstream",
    "fold_answer",
    "key_variable",
    "load_toml",
    "make_provider",
    "origin_of",
    "plan_retry",
    "read_all",
    "read_error",
    "read_provider",
    "read_tables",
    "read_upstreams",
    "send",
    "shape_id",
    "stream",
]
