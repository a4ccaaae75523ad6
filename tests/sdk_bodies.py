"""Bodies that are generated from the official SDKs' types.

Each body is drawn from the compiled schema of `sdk_types`, so it has any combination of members and
kinds that the type allows.
"""

from functools import cache
from random import Random
from typing import Any

from sdk_types import schema_of

WORDS = ("so", "be brief", "ünï “x” \n", "0")
DEPTH = 9
"""Below this depth, optional members are left out."""

SELDOM = frozenset(
    {
        "cachedContent",
        "conversation",
        "function_call",
        "functions",
        "previous_response_id",
        "prompt",
    }
)
"""Members that hide all others: they refer to context that only the vendor has, or repeat a newer
member in a deprecated form."""


class Maker:
    """Draws values of a schema; `some` is the probability of an optional member."""

    def __init__(self, chance: Random, some: float = 0.3) -> None:
        self.chance = chance
        self.some = some
        self.definitions: dict[str, Any] = {}

    def make(self, schema: Any, depth: int = 0) -> Any:
        """A value that matches the schema, as JSON."""
        return getattr(self, f"_{schema['type'].replace('-', '_')}")(schema, depth)

    def _definitions(self, schema: Any, depth: int) -> Any:
        self.definitions |= {value["ref"]: value for value in schema["definitions"]}
        return self.make(schema["schema"], depth)

    def _definition_ref(self, schema: Any, depth: int) -> Any:
        return self.make(self.definitions[schema["schema_ref"]], depth)

    def _typed_dict(self, schema: Any, depth: int) -> Any:
        body = {}
        for name, field in schema["fields"].items():
            needed = field.get(
                "required", schema["type"] == "model-fields" and not _defaults(field)
            )
            alias = field.get("serialization_alias") or field.get("validation_alias") or name
            often = 0.01 if alias in SELDOM else self.some / (1 + depth / 4)
            if needed or (depth < DEPTH and self.chance.random() < often):
                body[alias] = self.make(field["schema"], depth + 1)
        return body

    _model_fields = _typed_dict

    def _union(self, schema: Any, depth: int) -> Any:
        choices = [one[0] if isinstance(one, tuple) else one for one in schema["choices"]]
        if depth >= DEPTH:
            choices = sorted(choices, key=lambda one: _weight(one, self.definitions))[:1]
        return self.make(self.chance.choice(choices), depth)

    def _tagged_union(self, schema: Any, depth: int) -> Any:
        return self.make(self.chance.choice(list(schema["choices"].values())), depth)

    def _nullable(self, schema: Any, depth: int) -> Any:
        return None if self.chance.random() < 0.1 else self.make(schema["schema"], depth)

    def _list(self, schema: Any, depth: int) -> Any:
        count = self.chance.choice((0, 1, 1, 2, 3)) if depth < DEPTH else 0
        return [self.make(schema["items_schema"], depth + 1) for _ in range(count)]

    def _dict(self, schema: Any, depth: int) -> Any:
        if depth >= DEPTH or "values_schema" not in schema:
            return {}
        return {key: self.make(schema["values_schema"], depth + 1) for key in ("a", "b")}

    def _literal(self, schema: Any, _depth: int) -> Any:
        return self.chance.choice(schema["expected"])

    def _enum(self, schema: Any, _depth: int) -> Any:
        return self.chance.choice(schema["members"]).value

    def _str(self, _schema: Any, _depth: int) -> Any:
        return self.chance.choice(WORDS)

    def _int(self, _schema: Any, _depth: int) -> Any:
        return self.chance.choice((1, 7, 4096)) if self.chance.random() < 0.98 else 0

    def _float(self, _schema: Any, _depth: int) -> Any:
        return self.chance.choice((0.0, 0.5, 1.0))

    def _bool(self, _schema: Any, _depth: int) -> Any:
        return self.chance.random() < 0.5

    def _none(self, _schema: Any, _depth: int) -> Any:
        return None

    def _any(self, _schema: Any, _depth: int) -> Any:
        return self.chance.choice(({"type": "object"}, "x", 1, [True], None))

    def _bytes(self, _schema: Any, _depth: int) -> Any:
        return "aGVsbG8="

    def _date(self, _schema: Any, _depth: int) -> Any:
        return "2026-01-02"

    def _datetime(self, _schema: Any, _depth: int) -> Any:
        return "2026-01-02T03:04:05Z"

    def _inner(self, schema: Any, depth: int) -> Any:
        return self.make(schema["schema"], depth)

    _default = _function_wrap = _function_before = _function_after = _inner

    def _json_or_python(self, schema: Any, depth: int) -> Any:
        return self.make(schema["json_schema"], depth)

    def _lax_or_strict(self, schema: Any, depth: int) -> Any:
        return self.make(schema["strict_schema"], depth)

    def _chain(self, schema: Any, depth: int) -> Any:
        return self.make(schema["steps"][0], depth)


def _defaults(field: Any) -> bool:
    return field["schema"]["type"] == "default"


def _weight(schema: Any, definitions: dict[str, Any]) -> int:
    """How deep a choice may lead."""
    if schema["type"] == "definition-ref":
        schema = definitions[schema["schema_ref"]]
    return {"typed-dict": 2, "model-fields": 2, "list": 1, "union": 3, "tagged-union": 3}.get(
        schema["type"], 0
    )


@cache
def schema(kind_and_protocol: tuple[str, str]) -> Any:
    return schema_of(*kind_and_protocol)


def made(kind: str, protocol: str, seed: int) -> Any:
    """The body with this number; `kind` is `request` or `response`."""
    return Maker(Random(seed), Random(seed).choice((0.1, 0.3, 0.6, 0.9))).make(
        schema((kind, protocol))
    )
