"""Sends requests to models: providers, model lookup, the HTTP client and the retry policy."""

from weft.demo import OFFLINE_MODEL

from .ask import SUMMARY_RETRIES, ModelClient, SentBody, ask, read_error, stream, summary_client
from .http import CallLimits, HttpClient
from .models import (
    SAME_MODEL,
    Alias,
    CompactionSettings,
    Route,
    UpstreamTable,
    find_route,
    find_upstream,
    key_variable,
    load_toml,
    read_aliases,
    read_compaction,
    read_tables,
    read_upstreams,
)
from .provider import (
    OFFLINE,
    Provider,
    make_provider,
    read_provider,
)
from .reply import STREAM_TYPE, OfflineReply, Reply, read_all, shape_id
from .retry import LOOP, RELAY, RETRYABLE, UNREACHED, Retry, RetryPolicy, plan_retry

__all__ = [
    "LOOP",
    "OFFLINE",
    "OFFLINE_MODEL",
    "RELAY",
    "RETRYABLE",
    "SAME_MODEL",
    "STREAM_TYPE",
    "SUMMARY_RETRIES",
    "UNREACHED",
    "Alias",
    "CallLimits",
    "CompactionSettings",
    "HttpClient",
    "ModelClient",
    "OfflineReply",
    "Provider",
    "Reply",
    "Retry",
    "RetryPolicy",
    "Route",
    "SentBody",
    "UpstreamTable",
    "ask",
    "find_route",
    "find_upstream",
    "key_variable",
    "load_toml",
    "make_provider",
    "plan_retry",
    "read_aliases",
    "read_all",
    "read_compaction",
    "read_error",
    "read_provider",
    "read_tables",
    "read_upstreams",
    "shape_id",
    "stream",
    "summary_client",
]
