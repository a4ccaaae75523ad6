"""The address of a request, from the URL of an upstream, its protocol and its settings."""

import pytest

from weft.client import make_provider, read_upstreams
from weft.errors import ConfigError

PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/m:generateContent",
}
A, C, R, G = PATHS
DOCUMENTED = [
    # protocol, the URL that the vendor documents, the path of its requests behind the host
    (C, "https://api.openai.com", "/v1/chat/completions"),
    (C, "https://api.openai.com/v1", "/v1/chat/completions"),
    (C, "https://api.openai.com/v1/chat/completions", "/v1/chat/completions"),
    (R, "https://api.openai.com/v1/", "/v1/responses"),
    (R, "https://api.openai.com/v1/responses", "/v1/responses"),
    (A, "https://api.anthropic.com", "/v1/messages"),
    (A, "https://api.anthropic.com/v1", "/v1/messages"),
    (A, "https://api.anthropic.com/v1/messages", "/v1/messages"),
    (G, "https://generativelanguage.googleapis.com", "/v1beta/models/m:generateContent"),
    (G, "https://generativelanguage.googleapis.com/v1beta/", "/v1beta/models/m:generateContent"),
    (G, "https://generativelanguage.googleapis.com/v1", "/v1/models/m:generateContent"),
    (G, "https://generativelanguage.googleapis.com/v1alpha", "/v1alpha/models/m:generateContent"),
    (
        C,
        "https://generativelanguage.googleapis.com/v1beta/openai/",
        "/v1beta/openai/chat/completions",
    ),
    (C, "https://api.z.ai/api/paas/v4", "/api/paas/v4/chat/completions"),
    (C, "https://api.z.ai/api/coding/paas/v4/", "/api/coding/paas/v4/chat/completions"),
    (A, "https://api.z.ai/api/anthropic", "/api/anthropic/v1/messages"),
    (C, "https://x.openai.azure.com/openai/v1/", "/openai/v1/chat/completions"),
    (R, "https://x.openai.azure.com/openai/v1", "/openai/v1/responses"),
    (
        C,
        "https://x.openai.azure.com/openai/deployments/my-gpt",
        "/openai/deployments/my-gpt/chat/completions",
    ),
    (
        C,
        "https://x.openai.azure.com/openai/deployments/my-gpt/chat/completions",
        "/openai/deployments/my-gpt/chat/completions",
    ),
    (R, "https://x.openai.azure.com/openai", "/openai/responses"),
    (A, "https://x.services.ai.azure.com/anthropic", "/anthropic/v1/messages"),
    (C, "https://x.services.ai.azure.com/models", "/models/chat/completions"),
    (
        G,
        "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google",
        "/v1/projects/p/locations/global/publishers/google/models/m:generateContent",
    ),
    (
        G,
        "https://aiplatform.googleapis.com/v1beta1/publishers/google/",
        "/v1beta1/publishers/google/models/m:generateContent",
    ),
    (
        C,
        "https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi",
        "/v1/projects/p/locations/global/endpoints/openapi/chat/completions",
    ),
    (C, "https://api.perplexity.ai", "/chat/completions"),
    (C, "https://api.perplexity.ai/", "/chat/completions"),
    (C, "https://api.perplexity.ai/chat/completions", "/chat/completions"),
    (C, "https://ark.cn-beijing.volces.com/api/v3", "/api/v3/chat/completions"),
    (C, "https://models.github.ai/inference", "/inference/chat/completions"),
    (C, "https://models.github.ai/orgs/o/inference", "/orgs/o/inference/chat/completions"),
    (C, "https://api.githubcopilot.com", "/chat/completions"),
    (C, "https://api.business.githubcopilot.com/", "/chat/completions"),
    (R, "https://api.githubcopilot.com", "/responses"),
    (A, "https://api.githubcopilot.com", "/v1/messages"),
    (C, "https://openrouter.ai/api/v1", "/api/v1/chat/completions"),
    (C, "https://api.groq.com/openai/v1", "/openai/v1/chat/completions"),
    (C, "https://api.deepseek.com", "/v1/chat/completions"),
    (C, "https://api.deepseek.com/beta", "/beta/chat/completions"),
    (A, "https://api.deepseek.com/anthropic", "/anthropic/v1/messages"),
    (C, "https://api.mistral.ai/v1", "/v1/chat/completions"),
    (C, "https://api.x.ai/v1", "/v1/chat/completions"),
    (C, "https://api.together.xyz/v1", "/v1/chat/completions"),
    (C, "https://api.fireworks.ai/inference/v1", "/inference/v1/chat/completions"),
    (
        C,
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        "/compatible-mode/v1/chat/completions",
    ),
    (C, "https://api.cohere.ai/compatibility/v1", "/compatibility/v1/chat/completions"),
    (C, "http://localhost:11434", "/v1/chat/completions"),  # Ollama
    (C, "http://localhost:11434/v1", "/v1/chat/completions"),
    (C, "http://localhost:8000/v1", "/v1/chat/completions"),  # vLLM
    (C, "http://localhost:1234/v1", "/v1/chat/completions"),  # LM Studio
    (C, "http://localhost:12434/engines/v1", "/engines/v1/chat/completions"),  # Docker
    (C, "http://localhost:4000", "/v1/chat/completions"),  # LiteLLM
    (A, "http://localhost:4000", "/v1/messages"),
    (A, "http://localhost:4000/anthropic", "/anthropic/v1/messages"),
    (G, "http://localhost:4000/gemini", "/gemini/v1beta/models/m:generateContent"),
    (C, "https://gateway.ai.cloudflare.com/v1/a/g/compat", "/v1/a/g/compat/chat/completions"),
    (C, "https://gateway.ai.cloudflare.com/v1/a/g/openai", "/v1/a/g/openai/chat/completions"),
    (A, "https://gateway.ai.cloudflare.com/v1/a/g/anthropic", "/v1/a/g/anthropic/v1/messages"),
    (
        G,
        "https://gateway.ai.cloudflare.com/v1/a/g/google-ai-studio",
        "/v1/a/g/google-ai-studio/v1beta/models/m:generateContent",
    ),
    (C, "http://[::1]:8000/v1", "/v1/chat/completions"),
    (C, "https://xn--bcher-kva.example/v1", "/v1/chat/completions"),
]


@pytest.mark.parametrize(("protocol", "url", "path"), DOCUMENTED)
def test_a_documented_url_gives_the_documented_address(protocol, url, path):
    host = "/".join(url.split("/")[:3])
    assert make_provider("u", protocol, url).url(PATHS[protocol]) == host + path
    assert make_provider("u", protocol, url + "?a=b").url(PATHS[protocol]) == host + path + "?a=b"


def url_of(url, wanted, protocol=C, **settings):
    return make_provider("u", protocol, url, **settings).url(wanted)


@pytest.mark.parametrize(
    ("url", "settings", "wanted", "expected"),
    [
        ("http://h", {"path": "/chat/completions"}, PATHS[C], "http://h/chat/completions"),
        (
            "http://h/a",
            {"path": "/v9/chat/completions"},
            PATHS[C],
            "http://h/a/v9/chat/completions",
        ),
        ("http://h/v1", {"path": "/complete/"}, PATHS[C], "http://h/v1/complete"),
        # the other endpoints are beside the one that `path` or `url` names
        ("http://h", {"path": "/chat/completions"}, "/v1/models", "http://h/models"),
        ("http://h/x/chat/completions", {}, "/v1/embeddings", "http://h/x/embeddings"),
        ("http://h/api/v3/chat/completions", {}, "/v1/models", "http://h/api/v3/models"),
        ("http://h/v1", {"path": "/complete"}, "/v1/models", "http://h/v1/models"),
        ("http://h/api/paas/v4/", {}, "/v1/models", "http://h/api/paas/v4/models"),
        # parameters: the upstream's own win over those of the request
        ("http://h?v=1", {}, "/v1/models?limit=9", "http://h/v1/models?limit=9&v=1"),
        ("http://h?v=1", {}, "/v1/models?v=2", "http://h/v1/models?v=1"),
        ("http://h", {"query": {"api-version": "1 2"}}, "/v1/m", "http://h/v1/m?api-version=1+2"),
        ("http://h", {"query": "?a=1&b="}, "/v1/m", "http://h/v1/m?a=1&b="),
        ("http://h?a=1&c=3", {"query": {"a": "2"}}, "/v1/m", "http://h/v1/m?a=2&c=3"),
    ],
)
def test_path_and_query_are_settings(url, settings, wanted, expected):
    assert url_of(url, wanted, **settings) == expected


def test_uploads_keep_their_place_before_the_version():
    for url in ("http://h/g", "http://h/g/v1beta"):
        assert url_of(url, "/upload/v1beta/files", G) == "http://h/g/upload/v1beta/files"


@pytest.mark.parametrize(
    ("protocol", "url", "settings", "words"),
    [
        (C, "https://api.anthropic.com/v1/messages", {}, "url ends in /messages, .* of anthropic"),
        (A, "https://h/v1/chat/completions", {}, "an endpoint of openai-chat"),
        (C, "https://h/v1/responses", {}, "an endpoint of openai-responses"),
        (R, "https://h/v1/responses/compact", {}, "/responses/compact"),
        (G, "https://h/v1beta/models/gemini-2:generateContent", {}, "url names a model"),
        (G, "https://h/v1/publishers/google/models/gemini-2", {}, "url names a model"),
        (A, "https://h/v1/publishers/anthropic/models/claude:rawPredict", {}, "names a model"),
        (C, "https://h//v1", {}, "cannot be right"),
        (C, "https://h/%2e%2e/admin", {}, "cannot be right"),
        (C, "https://h/a%2F..%2Fadmin", {}, "cannot be right"),
        (C, "https://h/openai/deployments/{model}", {}, "cannot be right"),
        (C, "https://hüst/v1", {}, "xn--"),
        (C, "https://h/v1", {"path": "chat"}, "path must be a path"),
        (C, "https://h/v1", {"path": "/a?b=c"}, "path must be a path"),
        (C, "https://h/v1", {"path": "/../x"}, "path must be a path"),
        (C, "https://h/v1", {"path": "/messages"}, "path ends in /messages"),
        (C, "https://h/chat/completions", {"path": "/chat/completions"}, "ends in an endpoint"),
        (G, "https://h", {"path": "/x"}, "path is not possible with gemini"),
        (C, "https://h", {"headers": {"X-A": "a\r\nX-B: c"}}, "headers has a value for X-A"),
        (C, "https://h", {"headers": {"a b": "c"}}, "headers has a name"),
        (C, "https://h", {"headers": {"Host": "c"}}, "headers cannot set Host"),
        (C, "https://h", {"headers": {"Transfer-Encoding": "chunked"}}, "cannot set"),
        (C, "https://h", {"auth_header": ""}, "auth_header has a name"),
        (C, "https://h", {"auth_header": "x y"}, "auth_header has a name"),
        (C, "https://h", {"auth_header": "Content-Length"}, "auth_header cannot set"),
        (C, "https://h", {"key_command": "echo 'x"}, "key_command is not a command"),
        (C, "https://h", {"key_command": "  "}, "key_command is empty"),
    ],
)
def test_a_setting_that_cannot_be_right_is_refused_at_start(protocol, url, settings, words):
    with pytest.raises(ConfigError, match=words):
        make_provider("u", protocol, url, **settings)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, {"authorization": "Bearer k"}),
        ("api-key", {"api-key": "k"}),
        ("X-Api-Key:", {"x-api-key": "k"}),
        ("Authorization: Bearer", {"authorization": "Bearer k"}),
        ("authorization", {"authorization": "Bearer k"}),  # the header requires a scheme
        ("Authorization:", {"authorization": "k"}),
        ("X-Auth: Token", {"x-auth": "Token k"}),
    ],
)
def test_the_header_of_the_key_is_a_setting(header, expected):
    provider = make_provider("u", C, "http://h", key="k", auth_header=header)
    assert provider.auth_headers() == expected


SPEC = (
    "az=openai-chat:https://x.example/openai/deployments/d?api-version=1 auth_header=api-key "
    "headers.X-Team=red query.b=2 'key_command=print token' pass_through=true"
)


def test_a_command_line_has_the_same_settings():
    [provider] = read_upstreams([SPEC], (), {}, base_urls=False)
    assert provider.url(PATHS[C]) == (
        "https://x.example/openai/deployments/d/chat/completions?api-version=1&b=2"
    )
    assert provider.own_headers == (("x-team", "red"),)
    assert (provider.key_command, provider.pass_through) == (("print", "token"), True)
    assert provider.token_headers("t") == {"api-key": "t"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("a=openai-chat:http://h colour=red", "'colour' is not KEY=VALUE"),
        ("a=openai-chat:http://h headers=red", "'headers' is not KEY=VALUE"),
        ("a=openai-chat:http://h path.x=red", "'path.x' is not KEY=VALUE"),
        ("a=openai-chat:http://h path", "'path' is not KEY=VALUE"),
        ("a=openai-chat:http://h path=chat", "path must be a path"),
        ("a=openai-chat:http://h cache=perhaps", "cache"),
        ("a=openai-chat:http://h 'path=/x", "NAME=PROTOCOL:URL"),
        ("a=openai-chat:ftp://h?sig=hunter2", "NAME=PROTOCOL:URL"),
        ("a=openai-chat:https://me:hunter2@h/", "user or password"),
        ("a:openai-chat:https://me:hunter2@h/", "NAME=PROTOCOL:URL"),
    ],
)
def test_a_wrong_command_line_is_explained_without_its_secrets(spec, words):
    with pytest.raises(ConfigError, match=words) as refused:
        read_upstreams([spec], (), {}, base_urls=False)
    assert "hunter2" not in str(refused.value)


def test_a_provider_does_not_show_its_secrets():
    provider = make_provider("u", C, "http://h/v1?sig=hunter2", key="hunter2", query={"code": "h2"})
    assert repr(provider) == "Provider(u=openai-chat:http://h/v1)"
