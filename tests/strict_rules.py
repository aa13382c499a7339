"""What strict mode takes, as its documents and its error texts tell it; written apart from the code that converts.

    guide    OpenAI, "Structured model outputs", section "Supported schemas" (developers.openai.com, read 2026-09)
    errors   texts of the service on record: "'oneOf' is not permitted" (ai-dynamo/dynamo#15153), "'uniqueItems' is not
             permitted" (mastra-ai/mastra#23321), "'prefixItems' is not permitted" (openai/openai-agents-python#4752),
             "'uri' is not a valid format" (BuilderIO/agent-native#3085), "schema must have a 'type' key"
             (can1357/oh-my-pi#211), "array schema missing items" (AnswerDotAI/fastcore#798), "$ref cannot have
             keywords {'description'}" (camel-ai/camel#3001), "'default' is not permitted" (dotnet/extensions#6196),
             "schema must have type 'object' and not have 'oneOf'/'anyOf'/… at the top level" (cecli-dev/cecli#281)
    profile  UnitVectorY-Labs/jsonschemaprofiles, schemas/openai_202602.yaml: the guide as a schema of schemas

Not judged, for the sources contradict one another: minLength, maxLength.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

FORMATS = {
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
}  # guide
TYPES = {"string", "number", "boolean", "integer", "object", "array", "null"}  # guide
REFUSED = {
    "allOf",
    "not",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "then",
    "else",
}  # guide
REFUSED |= {"oneOf", "uniqueItems", "prefixItems", "default", "discriminator"}  # errors
# In no list of what is supported: neither in the guide nor in the profile.
REFUSED |= {
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "minProperties",
    "maxProperties",
    "nullable",
}
REFUSED |= {
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "additionalItems",
    "dependencies",
}
REFUSED |= {
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "examples",
    "readOnly",
    "writeOnly",
    "deprecated",
}
PROPERTIES, LEVELS, CHARACTERS, VALUES = 5_000, 10, 120_000, 1_000  # guide
MANY_VALUES, THEIR_CHARACTERS = (
    250,
    15_000,
)  # guide: of one enum of strings with more than so many values


def check_strict(schema: Any) -> list[str]:
    """Say of each rule that the schema breaks where and which; nothing for a strict schema."""
    broken = [
        f"{path}: {rule}"
        for path, node in _nodes(schema, "")
        for rule in _rules(node, schema)
    ]
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        broken.append(": the root has to be an object")  # guide
    else:
        broken += [
            f": {key} at the root"
            for key in ("anyOf", "enum", "$ref", "const")
            if key in schema
        ]  # guide, errors
    return broken + _limits(schema)


def _nodes(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, node
    if not isinstance(node, Mapping):
        return
    for key in ("properties", "$defs", "definitions"):
        for name, child in (node.get(key) or {}).items():
            yield from _nodes(child, f"{path}/{key}/{name}")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for position, child in enumerate(node.get(key) or ()):
            yield from _nodes(child, f"{path}/{key}/{position}")
    if "items" in node:
        yield from _nodes(node["items"], f"{path}/items")


def _rules(node: Any, root: Any) -> Iterator[str]:
    if not isinstance(node, Mapping):
        yield f"{node!r} is no schema object"  # profile
        return
    yield from (f"{key} is not permitted" for key in sorted(REFUSED & node.keys()))
    kinds = _kinds(node)
    if not kinds <= TYPES:
        yield f"{kinds - TYPES} is no type"
    if not node.keys() & {"type", "$ref", "anyOf"}:
        yield "neither type, $ref nor anyOf"  # errors, profile
    if "$ref" in node:
        if set(node) - {"$ref", "$defs", "definitions"}:
            yield "keywords beside $ref"  # errors
        if not isinstance(_target(node, root), Mapping):
            yield f"{node['$ref']} leads nowhere"
    if node.get("format", "date") not in FORMATS:
        yield f"{node['format']} is no valid format"  # guide, errors
    if any(sign in str(node.get("pattern", "")) for sign in ("(?=", "(?!", "(?<")):
        yield "the pattern looks around"  # pydantic/pydantic-ai, profiles/openai.py
    if "object" in kinds or "properties" in node:
        if node.get("additionalProperties") is not False or not isinstance(
            node.get("properties"), Mapping
        ):
            yield "the object is not closed"  # guide
        elif set(node.get("required", ())) != set(node["properties"]):
            yield "not every property is required"  # guide
    if "array" in kinds and not isinstance(node.get("items"), Mapping):
        yield "an array without items"  # errors
    if not all(node.get(key, True) for key in ("anyOf", "enum")):
        yield "an empty choice"


def _limits(schema: Any) -> list[str]:
    nodes = [node for _, node in _nodes(schema, "") if isinstance(node, Mapping)]
    enums = [node["enum"] for node in nodes if "enum" in node]
    names = [
        name
        for node in nodes
        for key in ("properties", "$defs")
        for name in node.get(key) or ()
    ]
    written = [value for enum in enums for value in enum] + [
        node["const"] for node in nodes if "const" in node
    ]
    characters = sum(map(len, names)) + sum(
        len(v) if isinstance(v, str) else len(json.dumps(v)) for v in written
    )
    big = [
        enum
        for enum in enums
        if len(enum) > MANY_VALUES and sum(map(len, map(str, enum))) > THEIR_CHARACTERS
    ]
    counted = {
        "properties": (
            sum(len(node.get("properties") or ()) for node in nodes),
            PROPERTIES,
        ),
        "levels": (_levels(schema, schema, ()), LEVELS),
        "characters": (characters, CHARACTERS),
        "enum values": (sum(map(len, enums)), VALUES),
        "enums of many characters": (len(big), 0),
    }
    return [
        f": {count} {what}, {most} at most"
        for what, (count, most) in counted.items()
        if count > most
    ]


def _levels(node: Any, root: Any, behind: tuple[str, ...]) -> int:
    """How deep objects stand in objects; a definition that holds itself counts once."""
    if not isinstance(node, Mapping):
        return 0
    if "$ref" in node:
        seen = node["$ref"] in behind
        return (
            0 if seen else _levels(_target(node, root), root, (*behind, node["$ref"]))
        )
    below = [
        *(node.get("properties") or {}).values(),
        node.get("items"),
        *node.get("anyOf", ()),
    ]
    return ("properties" in node) + max(
        (_levels(child, root, behind) for child in below), default=0
    )


def _kinds(node: Mapping[str, Any]) -> set[str]:
    kind = node.get("type", [])
    return {kind} if isinstance(kind, str) else set(kind)


def _target(node: Mapping[str, Any], root: Any) -> Any:
    for part in str(node["$ref"]).removeprefix("#").split("/")[1:]:
        root = (
            root.get(part.replace("~1", "/").replace("~0", "~"))
            if isinstance(root, Mapping)
            else None
        )
    return root
