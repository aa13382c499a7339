"""The strict form of a JSON Schema.

What strict mode takes is said in OpenAI's guide "Structured model outputs", section "Supported
schemas" (read 2026-09): every object closed and every property required, no `allOf`, `oneOf`,
`prefixItems` or open maps, a few formats, 5,000 properties, 10 levels, 1,000 enum values, 120,000
characters. What other keywords say goes into the description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from toolkit.errors import ToolDefinitionError
from toolkit.tools.json_schema import MutableSchema, Schema, leads_back
from toolkit.tools.object_root import ANNOTATIONS, follow, object_root

_FORMATS = {
    *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6"),
    "uuid",
}
_ALLOWED = {
    *("enum", "const", "minItems", "maxItems", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_CONVERTED = {"type", "items", "prefixItems", "required"}
_DROPPED = {
    *("title", "description", "discriminator"),
    *("$schema", "$id", "$comment", "$defs", "definitions"),
}
_OF_OBJECTS = {"properties", "additionalProperties", "unevaluatedProperties"}
_UNSUPPORTED_PATTERN = re.compile(r"\(\?[=!<]|\\[1-9]")
_MAX_LEVELS, _MAX_PROPERTIES, _MAX_CHARACTERS = 10, 5_000, 120_000
_MAX_ENUM, _LONG_ENUM, _MAX_ENUM_CHARACTERS = 1_000, 250, 15_000
# References with a description are copied. Beyond this many they are wrapped, or copies of copies fill the memory.
_MAX_COPIES = 200
_JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def strict_form(schema: Schema, *, unlisted_is_optional: bool = False) -> MutableSchema:
    """Return the schema as strict mode accepts it; the original is not changed.

    Optional properties become nullable. An object without any `required` list means, if a program wrote it
    (`unlisted_is_optional`), that all are optional. People who write schemas by hand often just leave the list out,
    so that there only a property with a default may be null.

    Raises ToolDefinitionError with the reason if no strict schema says the same: an open map, a value of any type,
    conflicting parts, a limit exceeded.
    """
    conversion = _Conversion(object_root(schema), unlisted_is_optional)
    try:
        strict = conversion.convert(conversion.root, 0)
    except RecursionError:
        raise ToolDefinitionError(
            "A strict schema is not nested as deep as this one."
        ) from None
    if conversion.definitions:
        strict["$defs"] = conversion.definitions
    if len(json.dumps(strict)) > _MAX_CHARACTERS:
        raise ToolDefinitionError(
            f"A strict schema has at most {_MAX_CHARACTERS:,} characters."
        )
    return strict


class _Conversion:
    """One conversion: the schema that it reads, its definitions so far, and how much of the limits is used."""

    def __init__(self, root: MutableSchema, unlisted_is_optional: bool) -> None:
        self.root = root
        self.unlisted_is_optional = unlisted_is_optional
        self.definitions: MutableSchema = {}
        self.names: dict[str, str] = {}  # of the definitions, by reference
        self.properties = self.enum_values = self.copies = 0

    def convert(self, node: Any, level: int) -> MutableSchema:
        """The strict form of one part, which stands inside `level` objects."""
        if not isinstance(node, Mapping):
            raise ToolDefinitionError("A strict schema leaves no part of it open.")
        if "$ref" in node:
            return self._convert_reference(node, level)
        if "allOf" in node:
            raise ToolDefinitionError("A strict schema has no `allOf`.")
        types = _types(node)
        union = "anyOf" if "anyOf" in node else "oneOf"
        strict: MutableSchema = {}
        if types:
            strict["type"] = types[0] if len(types) == 1 else types
        elif union not in node:
            raise ToolDefinitionError(
                "A strict schema has no place for a value of any type."
            )
        no_words = _CONVERTED | _DROPPED | {union}
        if "object" in types:
            no_words |= _OF_OBJECTS
        notes = []
        for keyword, value in node.items():
            if _is_allowed(keyword, value):
                strict[keyword] = value
            elif keyword not in no_words and (keyword, value) != ("default", None):
                notes.append(keyword)
        if union in node:
            strict["anyOf"] = [self.convert(branch, level) for branch in node[union]]
        if "object" in types:
            strict |= self._closed_object(node, level)
        if "array" in types:
            strict["items"] = self._items(node, level)
        self._count_enum(strict.get("enum", ()))
        return _described(strict, node, notes)

    def _closed_object(self, node: Schema, level: int) -> MutableSchema:
        properties = node.get("properties") or {}
        others = node.get("additionalProperties")
        is_map = others or node.get("patternProperties")
        is_any = not properties and others is not False and node is not self.root
        if is_map or is_any:
            raise ToolDefinitionError(
                "A strict schema has no place for an object with keys of any name."
            )
        if level >= _MAX_LEVELS:
            raise ToolDefinitionError(
                f"A strict schema has {_MAX_LEVELS} levels at most."
            )
        converted = {}
        for name, child in properties.items():
            strict = self.convert(child, level + 1)
            # If its only value is the default, there is nothing to leave out.
            default = child.get("default")
            has_one_value = "const" in strict and strict["const"] == default
            if not has_one_value and not self._is_required(name, child, node):
                strict = _nullable(strict)
            converted[name] = strict
        self.properties += len(converted)
        if self.properties > _MAX_PROPERTIES:
            raise ToolDefinitionError(
                f"Strict schemas hold {_MAX_PROPERTIES:,} properties at most."
            )
        return {
            "properties": converted,
            "required": list(converted),
            "additionalProperties": False,
        }

    def _is_required(self, name: str, child: Schema, node: Schema) -> bool:
        listed: Collection[str] | None = node.get("required")
        if listed is None:
            return not self.unlisted_is_optional and "default" not in child
        return name in listed

    def _items(self, node: Schema, level: int) -> MutableSchema:
        items = list(node.get("prefixItems", ()))
        if isinstance(node.get("items"), Mapping):
            items.append(node["items"])
        if not items:
            raise ToolDefinitionError(
                "A strict schema has no place for an array of values of any type."
            )
        kinds: list[MutableSchema] = []
        for item in items:
            strict = self.convert(item, level)
            if strict not in kinds:
                kinds.append(strict)
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}

    def _count_enum(self, values: Collection[Any]) -> None:
        self.enum_values += len(values)
        is_long = len(values) > _LONG_ENUM
        characters = sum(len(str(value)) for value in values) if is_long else 0
        if self.enum_values > _MAX_ENUM or characters > _MAX_ENUM_CHARACTERS:
            raise ToolDefinitionError(
                f"Strict schemas hold {_MAX_ENUM:,} enum values at most, and long enums "
                f"{_MAX_ENUM_CHARACTERS:,} characters."
            )

    def _convert_reference(self, node: Schema, level: int) -> MutableSchema:
        reference, target = follow(node, self.root)
        others = set(node) - {"$ref", *ANNOTATIONS}
        if others:
            raise ToolDefinitionError(
                f"A strict schema has no place for {sorted(others)} beside a `$ref`."
            )
        notes = [key for key in ("default", "examples") if node.get(key) is not None]
        note = _described({}, node, notes)
        self.copies += 1
        may_copy = node.get("description") and self.copies < _MAX_COPIES
        if may_copy and not leads_back(reference, self.root):
            return self.convert({**target, **note}, level)
        link = {"$ref": self._strict_reference(reference, target, level)}
        return {"anyOf": [link], **note} if note else link

    def _strict_reference(self, reference: str, target: Schema, level: int) -> str:
        if reference not in self.names:
            name = re.sub(r"[^\w-]", "_", reference.rpartition("/")[2])
            if name in self.names.values():
                name = f"{name}_{len(self.names) + 1}"
            self.names[reference] = name
            if reference != "#":
                # It takes its place before what is inside it.
                self.definitions[name] = None
                self.definitions[name] = self.convert(target, level)
        return "#" if reference == "#" else f"#/$defs/{self.names[reference]}"


def _is_allowed(keyword: str, value: Any) -> bool:
    if keyword == "pattern":
        return not _UNSUPPORTED_PATTERN.search(str(value))
    return keyword in _ALLOWED or (keyword == "format" and value in _FORMATS)


def _types(node: Schema) -> list[str]:
    kind = node.get("type")
    if kind is not None:
        return list(kind) if isinstance(kind, list) else [kind]
    values = node.get("enum", [node["const"]] if "const" in node else [])
    if values:
        names = (_JSON_TYPES.get(type(value), "object") for value in values)
        return list(dict.fromkeys(names))
    if "anyOf" in node or "oneOf" in node:
        return []
    if "properties" in node:
        return ["object"]
    return ["array"] if "items" in node or "prefixItems" in node else []


def _nullable(strict: MutableSchema) -> MutableSchema:
    types = _types(strict)
    if "null" in types or {"type": "null"} in strict.get("anyOf", ()):
        return strict
    if types and "const" not in strict and "anyOf" not in strict:
        wider = {**strict, "type": [*types, "null"]}
        return {**wider, "enum": [*strict["enum"], None]} if "enum" in strict else wider
    plain = {key: value for key, value in strict.items() if key != "description"}
    branches = plain["anyOf"] if plain.keys() == {"anyOf"} else [plain]
    return _described({"anyOf": [*branches, {"type": "null"}]}, strict, [])


def _described(strict: MutableSchema, node: Schema, notes: list[str]) -> MutableSchema:
    """`strict` with the description of `node`, and with its keywords `notes` in words."""
    remarks = "; ".join(f"{keyword}: {_text(node[keyword])}" for keyword in notes)
    text = str(node.get("description") or "")
    if remarks:
        text = f"{text} ({remarks})".lstrip()
    return {**strict, "description": text} if text else strict


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
