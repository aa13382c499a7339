"""Walks over a JSON Schema: every schema in it is met once, and nothing that only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.tools.json_schema import (
    alternatives,
    children,
    is_recursive,
    leads_back,
    references,
    resolve,
    rewrite,
    subschemas,
    types_of,
)

CITY = {"type": "string", "title": "city"}
LINK = {"$ref": "#/$defs/City"}


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"items": CITY}, [("items", None)], id="under a keyword"),
        pytest.param({"items": [CITY, True]}, [("items", 0)], id="draft-04 tuple"),
        pytest.param({"not": {}}, [("not", None)], id="negated"),
        pytest.param(
            {"anyOf": [{}, CITY, False]},
            [("anyOf", 0), ("anyOf", 1)],
            id="in a list, booleans passed over",
        ),
        pytest.param(
            {"properties": {"properties": CITY, "default": {}, "open": True}},
            [("properties", "properties"), ("properties", "default")],
            id="under a name, even a keyword's",
        ),
        pytest.param(
            {"dependencies": {"a": ["b"], "c": CITY}},
            [("dependencies", "c")],
            id="draft-07 dependencies",
        ),
        pytest.param({"x-shared": CITY}, [("x-shared", None)], id="unknown keyword"),
        pytest.param(
            {"default": {"type": "a"}, "enum": [{}], "const": {}, "examples": [{}]},
            [],
            id="values are no schemas",
        ),
        pytest.param({"properties": [], "$defs": 3, "required": {}}, [], id="nonsense"),
    ],
)
def test_children_of_a_schema(
    schema: dict[str, Any], places: list[tuple[str, str | int | None]]
) -> None:
    found = list(children(schema))
    assert [(keyword, key) for keyword, key, _ in found] == places
    for keyword, key, child in found:
        assert child is (schema[keyword] if key is None else schema[keyword][key])


def test_all_schemas_are_met_once_and_references_are_not_followed() -> None:
    schema = {"properties": {"a": {"items": LINK}}, "$defs": {"City": CITY}}
    assert list(subschemas(schema)) == [schema, {"items": LINK}, CITY, LINK]
    assert list(subschemas(True)) == []


def test_a_schema_nested_beyond_the_stack_is_walked() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    assert sum(1 for _ in subschemas(schema)) == 5_001


def test_a_schema_is_rewritten_from_the_inside_out() -> None:
    schema = {
        "properties": {"title": CITY, "open": True},
        "anyOf": [{"items": CITY}, {"enum": [CITY]}],
        "default": {"title": "kept"},
    }
    order = []

    def untitled(node: dict[str, Any]) -> dict[str, Any]:
        order.append(list(node))
        return {key: value for key, value in node.items() if key != "title"}

    assert rewrite(schema, untitled) == {
        "properties": {"title": {"type": "string"}, "open": True},
        "anyOf": [{"items": {"type": "string"}}, {"enum": [CITY]}],
        "default": {"title": "kept"},
    }
    assert schema["properties"] == {"title": CITY, "open": True}, "the original stays"
    assert order == [
        ["type", "title"],
        ["type", "title"],
        ["items"],
        ["enum"],
        ["properties", "anyOf", "default"],
    ]
    assert rewrite(False, untitled) is False


ROOT = {
    "$defs": {
        "City": CITY,
        "a/b~c": {"type": "integer"},
        "Tree": {"items": {"$ref": "#/$defs/Tree"}},
        "Even": {"anyOf": [{"$ref": "#/$defs/Odd"}, {"type": "null"}]},
        "Odd": {"anyOf": [{"$ref": "#/$defs/Even"}, {"type": "boolean"}]},
    },
    "prefixItems": [{"type": "number"}],
}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/City", CITY),
        ("#/$defs/a~1b~0c", {"type": "integer"}),
        ("#/prefixItems/0", {"type": "number"}),
        ("#/prefixItems/1", None),
        ("#/prefixItems/-1", None),
        ("#/$defs/City/type/0", None),
        ("#/$defs/Nowhere", None),
        ("#City", None),
        ("https://example.com/city.json", None),
        (3, None),
    ],
)
def test_what_a_reference_stands_for(reference: Any, target: Any) -> None:
    assert resolve(reference, ROOT) == target


def test_references_and_which_of_them_lead_back() -> None:
    assert references({"properties": {"$ref": CITY, "a": LINK}, "default": LINK}) == [
        "#/$defs/City"
    ]
    assert references({"items": {"$dynamicRef": "#n"}}, "$dynamicRef") == ["#n"]
    found = {
        name: leads_back(f"#/$defs/{name}", ROOT)
        for name in ("City", "Tree", "Even", "Odd")
    }
    assert found == {"City": False, "Tree": True, "Even": True, "Odd": True}
    assert (is_recursive(ROOT), is_recursive({"items": CITY})) == (True, False)


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, ["string"]),
        ({"type": ["string", "null"]}, ["string", "null"]),
        (LINK, ["string"]),
        ({"anyOf": [LINK, {"type": "null"}, CITY]}, ["string", "null"]),
        ({"allOf": [{"oneOf": [{"type": "array"}]}]}, ["array"]),
        ({"$ref": "#/$defs/Even"}, ["boolean", "null"]),
        ({"$ref": "#/nowhere"}, []),
        ({}, []),
        (True, []),
        (None, []),
    ],
)
def test_types_that_a_schema_allows(schema: Any, types: list[str]) -> None:
    assert types_of(schema, ROOT) == types


def test_alternatives_are_the_schema_itself_and_what_it_leaves_a_choice_of() -> None:
    schema = {"anyOf": [LINK, {"items": CITY}]}
    assert list(alternatives(schema, ROOT)) == [schema, LINK, CITY, {"items": CITY}]
