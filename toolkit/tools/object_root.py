"""A JSON Schema with a plain object at its root, as every wire requires it; and whether its references hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.errors import ToolDefinitionError
from toolkit.tools.json_schema import MutableSchema, Schema, references, resolve

_DEFINITIONS = ("$defs", "definitions")
ANNOTATIONS = ("title", "description", "default", "examples")
"""Keywords that only describe a value, and refuse none."""


def object_root(schema: Any) -> MutableSchema:
    """Return the schema with a plain object at its root.

    Alternatives at the root become one object with the properties of all, of which those are required that every
    alternative requires. Raises ToolDefinitionError if the root is not an object.
    """
    if not isinstance(schema, Mapping):
        raise ToolDefinitionError(
            f"A tool's schema is a JSON Schema object, not {type(schema).__name__}."
        )
    root = dict(schema)
    definitions = {key: schema[key] for key in _DEFINITIONS if key in schema}
    if "$ref" in root or "allOf" in root:
        root = _merge_parts(schema, schema) | definitions
    for key in ("anyOf", "oneOf"):
        if key in root:
            parts = [_merge_parts(branch, schema) for branch in root.pop(key)]
            _add_alternatives(root, [object_root(part | definitions) for part in parts])
    kind = root.get("type", "object")
    if "object" not in (kind if isinstance(kind, list) else [kind]):
        raise ToolDefinitionError(
            f"A tool's schema has an object at its root, not {kind!r}. Put it into a property."
        )
    return {**root, "type": "object", "properties": dict(root.get("properties") or {})}


def _add_alternatives(root: MutableSchema, branches: list[MutableSchema]) -> None:
    properties: MutableSchema = {}
    for branch in branches:
        for name, child in branch["properties"].items():
            earlier = properties.setdefault(name, child)
            if earlier != child:
                properties[name] = {"anyOf": [earlier, child]}
    required = [
        name
        for name in properties
        if all(name in branch.get("required", ()) for branch in branches)
    ]
    root["properties"] = {**properties, **root.get("properties", {})}
    root["required"] = [*root.get("required", ()), *required]


def check_references(schema: Schema) -> None:
    """Raise ToolDefinitionError if a reference leads nowhere, back to itself, or out of the schema."""
    dynamic = references(schema, "$dynamicRef")
    out_of_schema = [each for each in dynamic if not each.startswith("#")]
    for reference in [*references(schema), *out_of_schema]:
        follow({"$ref": reference}, schema)


def follow(
    node: Schema, root: Schema, passed: tuple[str, ...] = ()
) -> tuple[str, Schema]:
    """Follow the reference of `node`, and others as long as one leads to the next.

    Returns the last reference and its target. Raises ToolDefinitionError if there is no target, or if the way leads
    through a reference again, those that were `passed` before among them.
    """
    reference = ""
    while "$ref" in node:
        reference = node["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ToolDefinitionError(
                f"The reference {reference!r} leads out of the schema. Put its target into $defs."
            )
        if reference in passed:
            raise ToolDefinitionError(
                f"The reference {reference!r} of the schema leads back to itself."
            )
        passed = (*passed, reference)
        node = resolve(reference, root)
        if not isinstance(node, Mapping):
            raise ToolDefinitionError(
                f"The reference {reference!r} of the schema leads nowhere."
            )
    return reference, node


def _merge_parts(node: Any, root: Schema) -> MutableSchema:
    """Merge the target of a reference in `node` and the members of its `allOf` with it, to any depth."""
    separate = ("$ref", "allOf", *_DEFINITIONS)
    merged: MutableSchema = {}
    # Each part with the references that led to it.
    waiting: list[tuple[Any, tuple[str, ...]]] = [(node, ())]
    for part, passed in waiting:  # which grows
        if not isinstance(part, Mapping):
            raise ToolDefinitionError("A part of `allOf` is not a schema object.")
        own = {key: value for key, value in part.items() if key not in separate}
        merged = _merge(merged, own)
        if "$ref" in part:
            reference, target = follow(part, root, passed)
            waiting.append((target, (*passed, reference)))
        waiting += [(member, passed) for member in part.get("allOf", ())]
    return merged


def _merge(one: Schema, other: Schema) -> MutableSchema:
    """A schema that accepts what both accept. Raises ToolDefinitionError if a keyword would need two values."""
    merged = dict(one)
    for key, value in other.items():
        if key not in merged or merged[key] == value:
            merged[key] = value
        elif key == "properties":
            properties = dict(merged[key])
            for name, child in value.items():
                earlier = properties.get(name, {})
                properties[name] = _merge(earlier, child) if earlier else child
            merged[key] = properties
        elif key == "required":
            merged[key] = list(dict.fromkeys([*merged[key], *value]))
        elif key not in ANNOTATIONS:
            raise ToolDefinitionError(
                f"Two parts of the schema disagree on {key!r}; no single schema says both."
            )
    return merged
