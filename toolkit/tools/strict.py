"""A JSON Schema as the wires want it: an object at its root, and its strict form.

What strict mode takes is said in OpenAI's guide "Structured model outputs", section "Supported
schemas" (read 2026-09): every object closed and every property required, no `allOf`, `oneOf`,
`prefixItems` or open maps, a few formats, 5,000 properties, 10 levels, 1,000 enum values, 120,000
characters. What a keyword said and strict mode has no room for goes into the description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from toolkit.errors import ToolDefinitionError
from toolkit.tools.json_schema import leads_back, references, resolve

_FORMATS = {
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
}
_KEPT = {"enum", "const", "minItems", "maxItems", "multipleOf"}
_KEPT |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_CONVERTED = {"type", "anyOf", "items", "prefixItems", "required"}
_SILENT = {
    "title",
    "description",
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "discriminator",
}
_OBJECT = {"properties", "additionalProperties", "unevaluatedProperties"}
_LOOKAROUND = re.compile(r"\(\?[=!<]|\\[1-9]")
_MAX_LEVELS, _MAX_PROPERTIES, _MAX_ENUM, _MAX_CHARACTERS = 10, 5_000, 1_000, 120_000
_MAX_INLINED = 200  # references with siblings are copied; past this many they are wrapped, or copies double and double


def object_root(schema: Any) -> dict[str, Any]:
    """Return the schema with a plain object at its root, as every wire requires it.

    Alternatives at the root become one object with the properties of all, of which those are
    required that every alternative requires. Raises ToolDefinitionError where the root is no object.
    """
    if not isinstance(schema, Mapping):
        raise ToolDefinitionError(
            f"A tool's schema is a JSON Schema object, not {type(schema).__name__}."
        )
    root = dict(schema)
    if "$ref" in root or "allOf" in root:
        root = _flatten(root, root)
        root |= _definitions(schema)
    for key in ("anyOf", "oneOf"):
        if key in root:
            branches = [
                object_root({**_flatten(b, schema), **_definitions(schema)})
                for b in root.pop(key)
            ]
            properties: dict[str, Any] = {}
            for name, child in (
                item for branch in branches for item in branch["properties"].items()
            ):
                known = properties.setdefault(name, child)
                properties[name] = (
                    child if known == child else {"anyOf": [known, child]}
                )
            required = [
                n
                for n in properties
                if branches and all(n in b.get("required", ()) for b in branches)
            ]
            root["properties"] = {**properties, **root.get("properties", {})}
            root["required"] = [*root.get("required", ()), *required]
    kind = root.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ToolDefinitionError(
            f"A tool's schema has an object at its root, not {kind!r}. Put it into a property."
        )
    return {**root, "type": "object", "properties": dict(root.get("properties") or {})}


def strict_form(
    schema: Mapping[str, Any], *, unlisted_is_optional: bool = False
) -> dict[str, Any]:
    """Return the schema as strict mode accepts it, the given one untouched.

    Optional properties become nullable. An object without any `required` list says by that, where a
    program wrote it (`unlisted_is_optional`), that all are optional; people who write schemas by hand
    often just leave it out, so that there only what has a default may be null.

    Raises ToolDefinitionError with the reason where no strict schema says the same: an open map, a
    value of any type, conflicting parts, a limit exceeded.
    """
    strict = _Strict(object_root(schema), unlisted_is_optional)
    try:
        root = strict.convert(strict.root, 0, at_root=True)
    except RecursionError:
        raise ToolDefinitionError(
            "A strict schema is not nested as deep as this one."
        ) from None
    if strict.definitions:
        root["$defs"] = {
            name: body for name, body in strict.definitions.items() if body is not None
        }
    if len(json.dumps(root)) > _MAX_CHARACTERS:
        raise ToolDefinitionError(
            f"A strict schema has at most {_MAX_CHARACTERS:,} characters."
        )
    return root


def check_references(schema: Mapping[str, Any]) -> None:
    """Raise ToolDefinitionError where a reference of the schema leads nowhere, to itself, or out of the schema."""
    for reference in references(schema):
        _resolve({"$ref": reference}, schema)
    if elsewhere := [
        reference
        for reference in references(schema, "$dynamicRef")
        if not reference.startswith("#")
    ]:
        raise ToolDefinitionError(
            f"The reference {elsewhere[0]!r} leads out of the schema. Put its target into $defs."
        )


class _Strict:
    """One conversion: the schema it reads, the definitions it has met, and what it has spent of the limits."""

    def __init__(self, root: dict[str, Any], unlisted_is_optional: bool) -> None:
        self.root = root
        self.unlisted_is_optional = unlisted_is_optional
        self.definitions: dict[str, Any] = {}
        self.names: dict[str, str] = {}  # of the definitions, by the reference
        self.properties = self.values = self.inlined = 0

    def convert(
        self, node: Any, level: int, *, at_root: bool = False
    ) -> dict[str, Any]:
        if not isinstance(node, Mapping):
            raise ToolDefinitionError("A strict schema leaves no part of it open.")
        if "$ref" in node:
            return self._reference(node, level)
        if "allOf" in node:
            raise ToolDefinitionError("A strict schema has no `allOf`.")
        node = (
            {("anyOf" if key == "oneOf" else key): value for key, value in node.items()}
            if "oneOf" in node
            else node
        )
        strict: dict[str, Any] = {}
        notes = [
            f"{key}: {_brief(value)}"
            for key, value in node.items()
            if not self._keep(key, value, node, strict)
        ]
        kinds = _types(node)
        if kinds:
            strict = {"type": kinds[0] if len(kinds) == 1 else kinds, **strict}
        elif "anyOf" not in node:
            raise ToolDefinitionError(
                "A strict schema has no place for a value of any type."
            )
        if "anyOf" in node:
            strict["anyOf"] = [self.convert(branch, level) for branch in node["anyOf"]]
        if "object" in kinds:
            self._close(node, strict, level, at_root)
        if "array" in kinds:
            self._fix_items(node, strict, level)
        values = strict.get("enum", ())
        self.values += len(values)
        if self.values > _MAX_ENUM or (
            len(values) > 250 and sum(len(str(value)) for value in values) > 15_000
        ):
            raise ToolDefinitionError(
                f"Strict schemas hold {_MAX_ENUM:,} enum values at most, and long enums 15,000 characters."
            )
        return _described(strict, node.get("description"), notes)

    def _keep(
        self, key: str, value: Any, node: Mapping[str, Any], strict: dict[str, Any]
    ) -> bool:
        """Take a keyword over, or say that it has to become words."""
        if (
            key in _SILENT
            or key in _CONVERTED
            or (key in _OBJECT and "object" in _types(node))
        ):
            return True
        allowed = key in _KEPT or (key == "format" and value in _FORMATS)
        if allowed or (key == "pattern" and not _LOOKAROUND.search(str(value))):
            strict[key] = value
            return True
        return key == "default" and value is None

    def _close(
        self, node: Mapping[str, Any], strict: dict[str, Any], level: int, at_root: bool
    ) -> None:
        properties = node.get("properties")
        opened = node.get("additionalProperties") or node.get("patternProperties")
        if opened or (
            not properties
            and not at_root
            and node.get("additionalProperties") is not False
        ):
            raise ToolDefinitionError(
                "A strict schema has no place for an object with keys of any name."
            )
        if level >= _MAX_LEVELS:
            raise ToolDefinitionError(
                f"A strict schema has {_MAX_LEVELS} levels at most."
            )
        listed, strict["properties"] = node.get("required"), {}
        for name, child in (properties or {}).items():
            converted = self.convert(child, level + 1)
            unsaid = (
                listed is None
                and not self.unlisted_is_optional
                and "default" not in child
            )
            only = (
                "const" in converted and child.get("default") == child["const"]
            )  # nothing to choose
            required = unsaid or only or (listed is not None and name in listed)
            strict["properties"][name] = converted if required else _nullable(converted)
        self.properties += len(strict["properties"])
        if self.properties > _MAX_PROPERTIES:
            raise ToolDefinitionError(
                f"Strict schemas hold {_MAX_PROPERTIES:,} properties at most."
            )
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False

    def _fix_items(
        self, node: Mapping[str, Any], strict: dict[str, Any], level: int
    ) -> None:
        items = [
            *node.get("prefixItems", ()),
            *([node["items"]] if isinstance(node.get("items"), Mapping) else []),
        ]
        if not items:
            raise ToolDefinitionError(
                "A strict schema has no place for an array of values of any type."
            )
        kinds: list[dict[str, Any]] = []
        for item in items:
            if (converted := self.convert(item, level)) not in kinds:
                kinds.append(converted)
        strict["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}

    def _reference(self, node: Mapping[str, Any], level: int) -> dict[str, Any]:
        reference, target = _resolve(node, self.root)
        if others := set(node) - {
            "$ref",
            "title",
            "description",
            "default",
            "examples",
        }:
            raise ToolDefinitionError(
                f"A strict schema has no place for {sorted(others)} beside a `$ref`."
            )
        description = node.get("description")
        notes = [
            f"{key}: {_brief(node[key])}"
            for key in ("default", "examples")
            if node.get(key) is not None
        ]
        self.inlined += 1
        if (
            description
            and not leads_back(reference, self.root)
            and self.inlined < _MAX_INLINED
        ):
            return self.convert(
                {
                    **target,
                    "description": _described({}, description, notes)["description"],
                },
                level,
            )
        name = self.names.setdefault(
            reference, re.sub(r"[^\w-]", "_", reference.rpartition("/")[2])
        )
        if list(self.names.values()).count(name) > 1:
            name = self.names[reference] = f"{name}_{len(self.names)}"
        if reference != "#" and name not in self.definitions:
            self.definitions[name] = None
            self.definitions[name] = self.convert(target, level)
        plain = {"$ref": "#" if reference == "#" else f"#/$defs/{name}"}
        return (
            _described({"anyOf": [plain]}, description, notes)
            if description or notes
            else plain
        )


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("$defs", "definitions") if key in schema}


def _resolve(node: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[str, Any]:
    """Follow a chain of bare references; return the last of them and what it stands for."""
    seen: list[str] = []
    while True:
        reference = node["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ToolDefinitionError(
                f"The reference {reference!r} leads out of the schema. Put its target into $defs."
            )
        if reference in seen:
            raise ToolDefinitionError(
                f"The reference {reference!r} of the schema leads back to itself."
            )
        seen.append(reference)
        target = resolve(reference, root)
        if not isinstance(target, Mapping):
            raise ToolDefinitionError(
                f"The reference {reference!r} of the schema leads nowhere."
            )
        if "$ref" not in target:
            return reference, target
        node = target


def _flatten(node: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Merge references at the top of `node` and its `allOf` into one schema that says them all."""
    merged: dict[str, Any] = {}
    todo: list[tuple[Any, tuple[str, ...]]] = [(node, ())]
    while todo:
        part, behind = todo.pop(0)
        if not isinstance(part, Mapping):
            raise ToolDefinitionError("A part of `allOf` is no schema object.")
        merged = _merge(
            merged,
            {
                k: v
                for k, v in part.items()
                if k not in ("$ref", "allOf", "$defs", "definitions")
            },
        )
        if "$ref" in part:
            reference, target = _resolve(part, root)
            if reference in behind:
                raise ToolDefinitionError(
                    f"The reference {reference!r} of the schema leads back to itself."
                )
            todo.append((target, (*behind, reference)))
        todo += [(member, behind) for member in part.get("allOf", ())]
    return merged


def _merge(one: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that accepts what both accept; refuses where one keyword would have to hold two values."""
    merged = dict(one)
    for key, value in other.items():
        if key not in merged or merged[key] == value:
            merged[key] = value
        elif key == "properties":
            mine = merged[key]
            both = {
                name: _merge(mine[name], child) if name in mine else child
                for name, child in value.items()
            }
            merged[key] = {**mine, **both}
        elif key == "required":
            merged[key] = list(dict.fromkeys([*merged[key], *value]))
        elif key not in ("title", "description", "default", "examples"):
            raise ToolDefinitionError(
                f"Two parts of the schema disagree on {key!r}; no single schema says both."
            )
    return merged


def _types(node: Mapping[str, Any]) -> list[str]:
    kind = node.get("type")
    if kind is None:
        values = node.get("enum", [node["const"]] if "const" in node else [])
        names = {
            str: "string",
            bool: "boolean",
            int: "integer",
            float: "number",
            type(None): "null",
        }
        if values:
            return list(
                dict.fromkeys(names.get(type(value), "object") for value in values)
            )
        if "anyOf" in node or "oneOf" in node:
            return []
        return (
            ["object"]
            if "properties" in node
            else ["array"]
            if "items" in node or "prefixItems" in node
            else []
        )
    return list(kind) if isinstance(kind, list) else [kind]


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    kinds = _types(node)
    if "null" in kinds or {"type": "null"} in node.get("anyOf", ()):
        return node
    if kinds and "const" not in node and "anyOf" not in node:
        wider = {**node, "type": [*kinds, "null"]}
        return {**wider, "enum": [*node["enum"], None]} if "enum" in node else wider
    rest = {key: value for key, value in node.items() if key != "description"}
    branches = rest["anyOf"] if set(rest) == {"anyOf"} else [rest]
    return _described(
        {"anyOf": [*branches, {"type": "null"}]}, node.get("description"), []
    )


def _described(
    node: dict[str, Any], description: Any, notes: list[str]
) -> dict[str, Any]:
    text = " ".join(
        filter(None, [str(description or ""), f"({'; '.join(notes)})" if notes else ""])
    )
    return {**node, "description": text} if text else node


def _brief(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, default=str)
    )
