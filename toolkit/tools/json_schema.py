"""Walks over a JSON Schema: the schemas in it, its references, and changes to all of its parts.

A schema stands directly under a keyword (`items`), in a list (`anyOf`) or under a name (`properties`). Values that only
look like schemas (`default`, `enum` …) are not walked. Unknown keywords are, because a reference may lead into them.
Booleans are schemas too, but have no parts: a walk passes over them. Schemas may come from strangers, so that a walk
takes any JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
MutableSchema = dict[str, Any]
_Change = Callable[[MutableSchema], Any]

_UNIONS = ("anyOf", "oneOf", "allOf")
# Their value holds schemas by name.
_NAMED = {
    *("properties", "patternProperties", "$defs", "definitions"),
    *("dependentSchemas", "dependencies"),
}
_VALUES = {
    *("const", "enum", "default", "example", "examples"),
    *("required", "dependentRequired", "discriminator"),
}


def children(schema: Schema) -> Iterator[tuple[str, str | int | None, Schema]]:
    """The schemas directly inside a schema, in its order: (keyword, key, child).

    A child is `schema[keyword][key]`, or `schema[keyword]` if the key is None.
    """
    for keyword, value in schema.items():
        inside: Any = [(None, value)]
        if isinstance(value, list):
            inside = enumerate(value)
        elif keyword in _NAMED and isinstance(value, Mapping):
            inside = value.items()
        if keyword not in _VALUES:
            for key, child in inside:
                if isinstance(child, Mapping):
                    yield keyword, key, child


def subschemas(schema: Any) -> Iterator[Schema]:
    """A schema and all schemas in it, the outer ones first. References are not followed."""
    nodes = [schema] if isinstance(schema, Mapping) else []
    for (
        node
    ) in nodes:  # which grows; a recursion would not reach the end of every schema
        yield node
        nodes += [child for _, _, child in children(node)]


def rewrite(schema: Any, change: _Change) -> Any:
    """A copy of a schema with each schema in it replaced by what `change` makes of it, the innermost first."""
    if not isinstance(schema, Mapping):
        return schema
    return change(
        {
            keyword: _rewritten_value(keyword, value, change)
            for keyword, value in schema.items()
        }
    )


def _rewritten_value(keyword: str, value: Any, change: _Change) -> Any:
    if keyword in _VALUES:
        return value
    if isinstance(value, list):
        return [rewrite(child, change) for child in value]
    if keyword in _NAMED and isinstance(value, Mapping):
        return {name: rewrite(child, change) for name, child in value.items()}
    return rewrite(value, change)


def references(schema: Any, keyword: str = "$ref") -> list[str]:
    """The references in a schema, as they are written."""
    nodes = subschemas(schema)
    return [node[keyword] for node in nodes if isinstance(node.get(keyword), str)]


def resolve(reference: Any, root: Schema) -> Any:
    """What a reference ("#/$defs/City", "#") stands for in its schema; None if it leads nowhere or out of it."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target: Any = root
    path = reference[1:].removeprefix("/")
    for part in path.split("/") if reference != "#" else ():
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(name)
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            return None
    return target


def leads_back(reference: str, root: Schema) -> bool:
    """Whether the target of a reference refers to it again, directly or through others."""
    reached = references(resolve(reference, root))
    for each in reached:  # which grows
        behind = references(resolve(each, root))
        reached += [other for other in behind if other not in reached]
    return reference in reached


def is_recursive(schema: Schema) -> bool:
    """Whether some part of a schema contains itself."""
    return any(leads_back(each, schema) for each in set(references(schema)))


def alternatives(schema: Any, root: Schema) -> Iterator[Schema]:
    """A schema and all that it leaves a choice of: members of unions, and targets of references, each once.

    `root` is the schema in which references count.
    """
    followed = set[str]()
    waiting = [schema]
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, Mapping):
            continue
        yield node
        members = [member for key in _UNIONS for member in node.get(key, ())]
        reference = node.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            members.append(resolve(reference, root))
        waiting = [*members, *waiting]


def types_of(schema: Any, root: Schema) -> list[str]:
    """The names of the JSON types that a schema allows, each once; [] if it does not say."""
    names = dict[str, None]()
    for node in alternatives(schema, root):
        kind = node.get("type", ())
        names |= dict.fromkeys([kind] if isinstance(kind, str) else kind)
    return list(names)
