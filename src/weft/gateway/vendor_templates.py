"""The vendor paths that are passed on for callers with keys, unless `pass_through_paths` is set.

All callers share the upstream's account. So the paths create something, or name one object by its
id, which only its creator knows. None lists what the account has stored, and none is about the
account itself: its members, keys, usage or prices.

`{id}` is one part of a path, `{model}` the name of a model. `GET` includes `HEAD`.
"""

import re

TEMPLATES = """
POST /v1/embeddings
POST /v1/moderations
POST /v1/completions
POST /v1/rerank
POST /v1/tokenize
POST /v1/detokenize
POST /v1/images/generations
POST /v1/images/edits
POST /v1/images/variations
POST /v1/audio/speech
POST /v1/audio/transcriptions
POST /v1/audio/translations
POST /v1/videos
GET DELETE /v1/videos/{id}
GET /v1/videos/{id}/content
POST /v1/videos/{id}/remix
POST /v1/files
GET DELETE /v1/files/{id}
GET /v1/files/{id}/content
POST /v1/uploads
POST /v1/uploads/{id}/parts
POST /v1/uploads/{id}/complete
POST /v1/uploads/{id}/cancel
POST /v1/batches
GET /v1/batches/{id}
POST /v1/batches/{id}/cancel
POST /v1/messages/batches
GET DELETE /v1/messages/batches/{id}
GET /v1/messages/batches/{id}/results
POST /v1/messages/batches/{id}/cancel
GET POST DELETE /v1/chat/completions/{id}
GET /v1/chat/completions/{id}/messages
POST /v1/vector_stores
GET POST DELETE /v1/vector_stores/{id}
POST /v1/vector_stores/{id}/search
POST /v1/vector_stores/{id}/files
GET POST DELETE /v1/vector_stores/{id}/files/{id}
POST /v1/conversations
POST /{version}/models/{model}:embedContent
POST /{version}/models/{model}:batchEmbedContents
POST /{version}/models/{model}:predict
POST /{version}/models/{model}:predictLongRunning
POST /{version}/models/{model}:batchGenerateContent
POST /{version}/models/{model}:asyncBatchEmbedContent
GET /{version}/operations/{id}
POST /upload/{version}/files
GET DELETE /{version}/files/{id}
GET /{version}/files/{id}:download
GET DELETE /{version}/batches/{id}
POST /{version}/batches/{id}:cancel
POST /{version}/cachedContents
GET PATCH DELETE /{version}/cachedContents/{id}
"""
"""https://platform.openai.com/docs/api-reference, https://docs.claude.com/en/api,
https://ai.google.dev/api"""

_PARTS = {
    "{id}": r"[A-Za-z0-9][A-Za-z0-9_.~-]*",
    "{model}": r"[^:]+(?::[^:/]+)*",
    "{version}": "(?:v1|v1beta|v1alpha)",
}


def _read(line: str) -> tuple[frozenset[str], re.Pattern[str]]:
    *methods, template = line.split()
    pieces = re.split(r"(\{\w+\})", template)
    pattern = "".join(_PARTS.get(piece) or re.escape(piece) for piece in pieces)
    return frozenset(methods), re.compile(pattern)


_TEMPLATES = [_read(line) for line in TEMPLATES.strip().splitlines()]


def is_template_path(method: str, path: str) -> bool:
    """Whether one of the templates has this method and path."""
    method = "GET" if method == "HEAD" else method
    return any(
        method in methods and pattern.fullmatch(path) is not None for methods, pattern in _TEMPLATES
    )
