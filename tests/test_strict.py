"""A schema in its strict form: what it becomes, what is refused, and how a tool is sent then."""

from __future__ import annotations

import copy
import enum
import json
import logging
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from helpers import array, either, ref
from strict_rules import check_strict
from toolkit import ToolRegistry, tool
from toolkit.errors import ToolDefinitionError
from toolkit.tools.object_root import object_root
from toolkit.tools.strict import strict_form

STRING, INTEGER, NUMBER, BOOLEAN, NULL = (
    {"type": t} for t in ("string", "integer", "number", "boolean", "null")
)


def plain(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    """An object as people write it."""
    written = {"type": "object", "properties": properties}
    return written if required is None else {**written, "required": required}


def closed(**properties: Any) -> dict[str, Any]:
    """An object as strict mode wants it."""
    return {**plain(list(properties), **properties), "additionalProperties": False}


def may(kind: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**kind, "type": [kind["type"], "null"], **more}


MOON = plain(["name"], name=STRING)
CONVERTED = [
    # objects
    pytest.param({}, closed(), id="empty schema"),
    pytest.param(plain(), closed(), id="no properties"),
    pytest.param(plain(["sea"], sea=STRING), closed(sea=STRING), id="one property"),
    pytest.param(plain(sea=STRING, depth=INTEGER), closed(sea=STRING, depth=INTEGER), id="required left out by hand"),
    pytest.param(closed(sea=STRING), closed(sea=STRING), id="strict already"),
    pytest.param(
        plain(["at"], at={"properties": {"x": NUMBER}}), closed(at=closed(x=NUMBER)), id="an object without a type"
    ),
    pytest.param(plain(a=plain(b=plain(c=INTEGER))), closed(a=closed(b=closed(c=INTEGER))), id="nested"),
    pytest.param(
        plain(rows=array(plain(x=NUMBER))), closed(rows=array(closed(x=NUMBER))), id="objects in an array"
    ),
    pytest.param(
        {"type": ["object", "null"], "properties": {"a": STRING}, "required": ["a"]}, closed(a=STRING),
        id="a root that may be null",
    ),
    pytest.param(
        plain(["a"], a={"type": ["object", "null"], "properties": {"b": STRING}, "required": ["b"]}),
        closed(a={**closed(b=STRING), "type": ["object", "null"]}),
        id="an object that may be null",
    ),
    pytest.param(
        plain(["title", "required", "default"], title={**STRING, "title": "Title"}, required=BOOLEAN, default=INTEGER),
        closed(title=STRING, required=BOOLEAN, default=INTEGER),
        id="properties named as keywords",
    ),
    pytest.param(
        plain(properties=plain(type=STRING), items=array(STRING), anyOf=INTEGER),
        closed(properties=closed(type=STRING), items=array(STRING), anyOf=INTEGER),
        id="properties named as structure",
    ),
    pytest.param(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.test/s", **plain(a=STRING)},
        closed(a=STRING),
        id="what says nothing of the values",
    ),
    # what may be missing becomes null
    pytest.param(
        plain(["town"], town=STRING, days=INTEGER), closed(town=STRING, days=may(INTEGER)), id="optional"
    ),
    pytest.param(
        plain(["town"], town=STRING, days={**INTEGER, "default": 3}),
        closed(town=STRING, days=may(INTEGER, description="(default: 3)")),
        id="optional with a default",
    ),
    pytest.param(
        plain(days={**INTEGER, "default": 3, "description": "How many."}),
        closed(days=may(INTEGER, description="How many. (default: 3)")),
        id="a default beside a description",
    ),
    pytest.param(
        plain([], unit={**STRING, "enum": ["C", "F"]}),
        closed(unit=may({**STRING, "enum": ["C", "F", None]})),
        id="optional choice",
    ),
    pytest.param(
        plain([], at=either(INTEGER, NULL, default=None)), closed(at=either(INTEGER, NULL)), id="null by default"
    ),
    pytest.param(
        plain([], at=either(INTEGER, STRING)), closed(at=either(INTEGER, STRING, NULL)), id="optional union"
    ),
    pytest.param(
        plain([], moon=MOON), closed(moon={**closed(name=STRING), "type": ["object", "null"]}), id="optional object"
    ),
    pytest.param(
        {**plain([], moon=ref("Moon")), "$defs": {"Moon": MOON}},
        {**closed(moon=either(ref("Moon"), NULL)), "$defs": {"Moon": closed(name=STRING)}},
        id="optional reference",
    ),
    pytest.param(
        plain(["on"], on=plain(["must"], must=STRING, may={**STRING, "default": "x"})),
        closed(on=closed(must=STRING, may=may(STRING, description="(default: x)"))),
        id="optional below",
    ),
    pytest.param(
        plain(["xs"], xs=array({**NUMBER, "default": None})), closed(xs=array(NUMBER)), id="a null that says nothing"
    ),
    pytest.param(
        plain(["kind"], kind={**STRING, "const": "a"}), closed(kind={**STRING, "const": "a"}), id="a tag"
    ),
    pytest.param(
        plain([], kind={**STRING, "const": "a"}), closed(kind=either({**STRING, "const": "a"}, NULL)),
        id="one value or none",
    ),
    pytest.param(
        plain([], kind={**STRING, "const": "a", "default": "a"}),
        closed(kind={**STRING, "const": "a", "description": "(default: a)"}),
        id="a tag with itself as default has nothing to choose",
    ),
    # references
    pytest.param(
        {**plain(["moon"], moon=ref("Moon")), "$defs": {"Moon": MOON}},
        {**closed(moon=ref("Moon")), "$defs": {"Moon": closed(name=STRING)}},
        id="reference",
    ),
    pytest.param(
        {**plain(["moon"], moon={"$ref": "#/definitions/Moon"}), "definitions": {"Moon": MOON}},
        {**closed(moon=ref("Moon")), "$defs": {"Moon": closed(name=STRING)}},
        id="definitions, the older word",
    ),
    pytest.param(
        {**plain(["near", "far"], near={**ref("Moon"), "description": "N."}, far={**ref("Moon"), "description": "F."}),
         "$defs": {"Moon": {**MOON, "description": "A moon."}}},
        closed(near={**closed(name=STRING), "description": "N."}, far={**closed(name=STRING), "description": "F."}),
        id="a description beside a reference",
    ),
    pytest.param(
        {**plain(["moon"], moon={**ref("Moon"), "title": "Moon"}), "$defs": {"Moon": MOON}},
        {**closed(moon=ref("Moon")), "$defs": {"Moon": closed(name=STRING)}},
        id="a title beside a reference",
    ),
    pytest.param(
        {**plain(["x"], x={**ref("A"), "description": "D."}), "$defs": {"A": ref("B"), "B": ref("Moon"), "Moon": MOON}},
        closed(x={**closed(name=STRING), "description": "D."}),
        id="reference to a reference",
    ),
    pytest.param(
        {**plain(["of"], of={**ref("Moon"), "description": "Which."}),
         "$defs": {"Moon": plain(["name", "of"], name=STRING, of=either(ref("Moon"), NULL))}},
        {**closed(of=either(ref("Moon"), description="Which.")),
         "$defs": {"Moon": closed(name=STRING, of=either(ref("Moon"), NULL))}},
        id="a definition that holds itself",
    ),
    pytest.param(
        plain(["name", "kids"], name=STRING, kids=array({"$ref": "#"})),
        closed(name=STRING, kids=array({"$ref": "#"})),
        id="a root that holds itself",
    ),
    pytest.param(
        {**ref("Form"), "$defs": {"Form": plain(["v"], v=STRING)}}, closed(v=STRING), id="a root that is a reference"
    ),
    # unions
    pytest.param(
        plain(["v"], v=either(plain(["a"], a=STRING), NUMBER)), closed(v=either(closed(a=STRING), NUMBER)), id="anyOf"
    ),
    pytest.param(
        plain(["v"], v={"oneOf": [STRING, INTEGER]}), closed(v=either(STRING, INTEGER)), id="oneOf"
    ),
    pytest.param(
        plain(["v"], v=array({
            "oneOf": [plain(["k"], k={**STRING, "const": "a"}), plain(["k"], k={**STRING, "const": "b"})],
            "discriminator": {"propertyName": "k"},
        })),
        closed(v=array(either(closed(k={**STRING, "const": "a"}), closed(k={**STRING, "const": "b"})))),
        id="oneOf told apart by a field",
    ),
    pytest.param(
        plain(["v"], v={"type": ["integer", "string"]}), closed(v={"type": ["integer", "string"]}), id="two types"
    ),
    pytest.param(
        {"anyOf": [plain(["a", "c"], a=STRING, c=INTEGER), plain(["b", "c"], b=STRING, c=INTEGER)]},
        closed(a=may(STRING), c=INTEGER, b=may(STRING)),
        id="alternatives at the root",
    ),
    pytest.param(
        {"allOf": [{"$ref": "#/$defs/Moon"}, plain(["far"], far=NUMBER)], "$defs": {"Moon": MOON}},
        closed(far=NUMBER, name=STRING),
        id="parts at the root",
    ),
    # arrays
    pytest.param(
        plain(["p"], p={"type": "array", "prefixItems": [INTEGER, INTEGER], "minItems": 2, "maxItems": 2}),
        closed(p=array(INTEGER, minItems=2, maxItems=2)),
        id="tuple of one kind",
    ),
    pytest.param(
        plain(["p"], p={"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}),
        closed(p=array(either(INTEGER, STRING), minItems=2, maxItems=2)),
        id="tuple of two kinds",
    ),
    # keywords
    pytest.param(
        plain(["n"], n={**INTEGER, "minimum": 1, "exclusiveMaximum": 10, "multipleOf": 2}),
        closed(n={**INTEGER, "minimum": 1, "exclusiveMaximum": 10, "multipleOf": 2}),
        id="limits of numbers",
    ),
    pytest.param(
        plain(["u"], u={**STRING, "pattern": "^@[a-z]+$"}), closed(u={**STRING, "pattern": "^@[a-z]+$"}), id="pattern"
    ),
    pytest.param(
        plain(["u"], u={**STRING, "pattern": "^(?=.*x).+$"}),
        closed(u={**STRING, "description": "(pattern: ^(?=.*x).+$)"}),
        id="pattern that looks ahead",
    ),
    pytest.param(
        plain(["u"], u={**STRING, "pattern": r"(a)\1"}), closed(u={**STRING, "description": r"(pattern: (a)\1)"}),
        id="pattern that looks back",
    ),
    pytest.param(
        plain(["u"], u={**STRING, "format": "uuid"}), closed(u={**STRING, "format": "uuid"}), id="known format"
    ),
    pytest.param(
        plain(["u"], u={**STRING, "format": "uri", "description": "Where."}),
        closed(u={**STRING, "description": "Where. (format: uri)"}),
        id="unknown format",
    ),
    pytest.param(
        plain(["u"], u=array(STRING, uniqueItems=True, minItems=1)),
        closed(u=array(STRING, minItems=1, description="(uniqueItems: true)")),
        id="unique items",
    ),
    pytest.param(
        plain(["u"], u={**STRING, "minLength": 2, "maxLength": 5, "examples": ["ab"]}),
        closed(u={**STRING, "description": '(minLength: 2; maxLength: 5; examples: ["ab"])'}),
        id="lengths and examples",
    ),
    pytest.param(
        plain(["o"], o={**plain(["a"], a=STRING), "minProperties": 1, "propertyNames": {"pattern": "^a"}}),
        closed(o={**closed(a=STRING), "description": '(minProperties: 1; propertyNames: {"pattern": "^a"})'}),
        id="limits of objects",
    ),
    pytest.param(
        plain(["v"], v={**STRING, "not": {"enum": ["ü"]}}),
        closed(v={**STRING, "description": '(not: {"enum": ["ü"]})'}),
        id="not",
    ),
    pytest.param(
        {**plain(["a"], a=STRING), "if": {"properties": {"a": {"const": "x"}}}, "then": {"required": []}},
        {**closed(a=STRING), "description": '(if: {"properties": {"a": {"const": "x"}}}; then: {"required": []})'},
        id="if and then",
    ),
    pytest.param(
        plain(["e", "k", "n"], e={"enum": ["x", "y"]}, k={"const": "z"}, n={"enum": [1, None]}),
        closed(
            e={**STRING, "enum": ["x", "y"]}, k={**STRING, "const": "z"},
            n={"type": ["integer", "null"], "enum": [1, None]},
        ),
        id="choices without a type",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("written", "strict"), CONVERTED)
def test_the_strict_form(written: dict[str, Any], strict: dict[str, Any]) -> None:
    before = copy.deepcopy(written)
    made = strict_form(written)
    assert made == strict
    assert list(made["properties"]) == made["required"], (
        "models write in the order of the schema"
    )
    assert check_strict(made) == []
    assert written == before


def test_a_schema_that_a_program_wrote_leaves_out_required_where_all_is_optional() -> (
    None
):
    written = plain(on=plain(a=INTEGER, b={**BOOLEAN, "default": False}))
    assert strict_form(written, unlisted_is_optional=True) == closed(
        on={
            **closed(a=may(INTEGER), b=may(BOOLEAN, description="(default: false)")),
            "type": ["object", "null"],
        }
    )


def test_references_that_end_alike_stay_two() -> None:
    kinds = {
        "A": plain(x=plain(["n"], n=INTEGER)),
        "B": plain(x=plain(["s"], s=STRING)),
    }
    a, b = ({"$ref": f"#/$defs/{name}/properties/x"} for name in ("A", "B"))
    made = strict_form({**plain(["a", "b"], a=a, b=b), "$defs": kinds})
    assert check_strict(made) == []
    Draft202012Validator(made).validate({"a": {"n": 1}, "b": {"s": "t"}})


@pytest.mark.parametrize("name", ["a/b", "a~b", "Page[int]", "ü"])
def test_a_definition_may_have_any_name(name: str) -> None:
    escaped = name.replace("~", "~0").replace("/", "~1")
    made = strict_form(
        {**plain(["x"], x=ref(escaped)), "$defs": {name: plain(["n"], n=INTEGER)}}
    )
    assert check_strict(made) == []
    Draft202012Validator(made).validate({"x": {"n": 1}})


def nested(
    levels: int, wrap: Callable[[Any], Any] = lambda node: node
) -> dict[str, Any]:
    node: dict[str, Any] = dict(STRING)
    for _ in range(levels):
        node = plain(["deeper"], deeper=wrap(node))
    return node


def chained(links: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {f"L{n}": ref(f"L{n + 1}") for n in range(links)}
    return {
        **plain(["root"], root=ref("L0")),
        "$defs": {**definitions, f"L{links}": STRING},
    }


def fanned_out(levels: int) -> dict[str, Any]:
    def both(n: int) -> dict[str, Any]:
        return plain(
            ["a", "b"],
            a={**ref(f"L{n}"), "description": "A."},
            b={**ref(f"L{n}"), "description": "B."},
        )

    return {
        **both(0),
        "$defs": {
            **{f"L{n}": both(n + 1) for n in range(levels)},
            f"L{levels}": STRING,
        },
    }


REFUSED = [
    pytest.param(plain(m={"type": "object"}), "keys of any name", id="object of anything"),
    pytest.param(plain(m={"type": "object", "additionalProperties": STRING}), "keys of any name", id="open map"),
    pytest.param(plain(m={"type": "object", "patternProperties": {"^x": STRING}}), "keys of any name", id="by pattern"),
    pytest.param({**plain(a=NUMBER), "additionalProperties": True}, "keys of any name", id="open root"),
    pytest.param({"type": "object", "additionalProperties": STRING}, "keys of any name", id="root as a map"),
    pytest.param(plain(m=either({"type": "object"}, NULL)), "keys of any name", id="open map in a union"),
    pytest.param(plain(v={}), "any type", id="any value"),
    pytest.param(plain(v={"description": "Anything."}), "any type", id="any value, described"),
    pytest.param(plain(v=array({})), "any type", id="array of any values"),
    pytest.param(plain(v={"type": "array"}), "any type", id="array of nothing said"),
    pytest.param(plain(v=True), "leaves no part of it open", id="the schema true"),
    pytest.param(plain(v={"allOf": [STRING, {"minLength": 2}]}), "allOf", id="allOf"),
    pytest.param(
        {**plain(n={**ref("T"), "required": ["a"]}), "$defs": {"T": plain(["b"], a=INTEGER, b=INTEGER)}},
        r"\['required'\] beside a `\$ref`",
        id="constraints beside a reference",
    ),
    pytest.param({**plain(x=ref("A")), "$defs": {"A": ref("B"), "B": ref("A")}}, "back to itself", id="circle"),
    pytest.param(plain(x=ref("Nowhere")), "'#/\\$defs/Nowhere'.*nowhere", id="reference to nowhere"),
    pytest.param(plain(x={"$ref": "https://example.test/s.json"}), "leads"),
    pytest.param({**ref("A"), "$defs": {"A": {"allOf": [ref("A")]}}}, "back to itself", id="root in a circle"),
    pytest.param(
        {"allOf": [plain(a={**STRING, "pattern": "a"}), plain(a={**STRING, "pattern": "b"})]}, "disagree on 'pattern'",
        id="parts that disagree",
    ),
    pytest.param({"type": "array", "items": STRING}, "object at its root", id="an array at the root"),
    pytest.param("text", "JSON Schema object", id="no schema"),
    pytest.param(nested(11), "10 levels", id="too deep"),
    pytest.param(nested(11, lambda node: array(either(node, NULL))), "10 levels", id="too deep, through arrays"),
    pytest.param(nested(500), "10 levels", id="far too deep"),
    pytest.param(plain(**{f"p{n}": STRING for n in range(5_001)}), "5,000 properties", id="too many properties"),
    pytest.param(
        plain(a={"enum": [f"a{n}" for n in range(600)]}, b={"enum": [f"b{n}" for n in range(600)]}),
        "1,000 enum values",
        id="too many values",
    ),
    pytest.param(plain(a={"enum": [f"{n:060}" for n in range(300)]}), "15,000 characters", id="too long an enum"),
    pytest.param(
        plain(**{f"{n:0100}": STRING for n in range(1_300)}), "120,000 characters", id="too many characters"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("written", "reason"), REFUSED)
def test_no_strict_form(written: Any, reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=reason):
        strict_form(written)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(nested(10), id="10 levels"),
        pytest.param(
            nested(10, lambda node: array(either(node, NULL))),
            id="10 levels through arrays and unions",
        ),
        pytest.param(
            plain(**{f"p{n}": STRING for n in range(2_000)}), id="many properties"
        ),
        pytest.param(
            plain(a={"enum": [f"{n:010}" for n in range(1_000)]}), id="1,000 values"
        ),
        pytest.param(
            plain(a={"enum": [f"{n:060}" for n in range(250)]}),
            id="250 values of any length",
        ),
        pytest.param(chained(1_000), id="a long chain"),
        pytest.param(fanned_out(7), id="references that double at every level"),
    ],
)
def test_what_is_just_within_the_limits(written: dict[str, Any]) -> None:
    assert check_strict(strict_form(written)) == []


def test_references_that_double_do_not_fill_the_memory() -> None:
    """24 levels would be 16 million copies."""
    try:
        made = strict_form(fanned_out(24))
    except ToolDefinitionError as error:
        assert "10 levels" in str(error)  # noqa: PT017  # a refusal is as good an answer
    else:
        assert len(json.dumps(made)) < 120_000


# Any schema

NAMES = st.sampled_from(
    ["a", "b", "title", "type", "properties", "required", "default", "items", "enum"]
)
LEAVES = st.sampled_from([
    STRING, INTEGER, NUMBER, NULL, {}, {"enum": ["x", 1, None]}, {"const": 3}, {**STRING, "const": "k", "default": "k"},
    {**STRING, "format": "uri"}, {"type": ["string", "null"], "default": None}, {"type": "object"}, {"type": "array"},
    {**STRING, "not": {"enum": ["x"]}, "readOnly": True}, {"allOf": [ref("Leaf")]}, {**INTEGER, "enum": [1]},
    ref("Leaf"), ref("Loop"), {**ref("Loop"), "description": "L."}, {**ref("Leaf"), "description": "D.", "default": 1},
])  # fmt: skip


def objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    made = st.dictionaries(NAMES, children, max_size=3)
    return st.builds(
        lambda properties, required, more: {**plain(**properties), **required, **more},
        made,
        st.sampled_from([{}, {"required": []}, {"required": ["a"]}]),
        st.sampled_from(
            [
                {},
                {},
                {"additionalProperties": False},
                {"additionalProperties": True},
                {"x-note": [1]},
            ]
        ),
    )


def larger(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(children, min_size=1, max_size=3)
    return (
        objects(children)
        | st.builds(array, children)
        | st.builds(lambda members: {"anyOf": members, "description": "U."}, few)
        | st.builds(lambda members: {"oneOf": members}, few)
        | st.builds(lambda members: {"type": "array", "prefixItems": members}, few)
    )


DEFINITIONS = {
    "Leaf": {**STRING, "enum": ["p", "q"]},
    "Loop": plain(["n"], n=INTEGER, next=either(ref("Loop"), NULL)),
}


@given(objects(st.recursive(LEAVES, larger, max_leaves=8)))
@settings(max_examples=60)
def test_what_is_converted_is_strict(written: dict[str, Any]) -> None:
    written = {**written, "$defs": DEFINITIONS}
    before = copy.deepcopy(written)
    try:
        made = strict_form(written)
    except ToolDefinitionError:
        return
    finally:
        assert written == before
    assert check_strict(made) == []
    Draft202012Validator.check_schema(made)


# Roots


def test_alternatives_that_disagree_on_a_property_keep_both() -> None:
    written = {
        "oneOf": [
            plain(["k", "text"], k=INTEGER, text=STRING),
            plain(["k", "link"], k=STRING, link=STRING),
        ]
    }
    made = object_root(written)
    assert made["required"] == ["k"]
    for sent in ({"k": 1, "text": "t"}, {"k": "s", "link": "l"}):
        Draft202012Validator(written).validate(sent)
        Draft202012Validator(made).validate(sent)


def test_a_plain_root_stays_as_it_is() -> None:
    written = {
        **plain(["a"], a=STRING),
        "patternProperties": {"^x-": STRING},
        "minProperties": 1,
    }
    assert object_root(written) == written


# A tool with a strict form, and one without


class Line(BaseModel):
    color: str = "black"
    width: float = Field(1.0, gt=0)


class Circle(BaseModel):
    shape: Literal["circle"] = "circle"
    radius: float


class Bar(BaseModel):
    shape: Literal["bar"] = "bar"
    length: float


class Span(NamedTuple):
    start: int
    end: int


class Paper(enum.Enum):
    WHITE = "white"
    GREY = "grey"


class Stroke(BaseModel):
    line: Line = Line()
    parts: list[Stroke] = []


@pytest.fixture
def drawing(registry: ToolRegistry) -> ToolRegistry:
    """Tools with hints of many kinds: five that have a strict form, two that have none."""

    @tool(registry=registry)
    def draw(
        what: Annotated[Circle | Bar, Field(discriminator="shape")],
        line: Annotated[Line, "How."],
        frame: Annotated[Line | None, Field(description="Around.")] = None,
        rows: list[Annotated[Circle | Bar, Field(discriminator="shape")]] = [],  # noqa: B006
    ) -> Any:
        """Draw."""
        return what, line, frame, rows

    @tool(registry=registry)
    def crop(
        box: tuple[int, int, int, int], span: Span, pair: tuple[str, int] = ("a", 1)
    ) -> Any:
        return box, span, pair

    @tool(registry=registry)
    def search(
        query: str,
        limit: int = 10,
        language: str | None = "en",
        paper: Paper = Paper.WHITE,
    ) -> Any:
        """Search.

        Args:
            limit: Maximum of hits.
        """
        return query, limit, language, paper

    @tool(registry=registry)
    def write(root: Stroke, others: list[Stroke]) -> Any:
        return root, others

    @tool(registry=registry)
    def clear() -> None: ...

    @tool(registry=registry)
    def tag(page: int, labels: dict[str, str]) -> Any:
        return labels

    @tool(registry=registry)
    def keep(payload: Any) -> Any:
        return payload

    return registry


def entries(registry: ToolRegistry, *, strict: bool) -> dict[str, Any]:
    return {
        entry["function"]["name"]: entry["function"]
        for entry in registry.schemas(strict=strict)
    }


@pytest.mark.parametrize("name", ["draw", "crop", "search", "write", "clear"])
def test_functions_are_sent_strict(drawing: ToolRegistry, name: str) -> None:
    entry = entries(drawing, strict=True)[name]
    assert entry["strict"] is True
    assert check_strict(entry["parameters"]) == []
    assert list(entry["parameters"]["properties"]) == list(
        drawing[name].parameters["properties"]
    )


def test_a_function_without_a_strict_form_is_sent_as_it_is(
    drawing: ToolRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    plain_entries = entries(drawing, strict=False)
    with caplog.at_level(logging.INFO, logger="toolkit"):
        sent = entries(drawing, strict=True)
    assert {name for name, entry in sent.items() if "strict" not in entry} == {
        "tag",
        "keep",
    }
    assert (sent["tag"], sent["keep"]) == (plain_entries["tag"], plain_entries["keep"])
    told = [
        record.getMessage() for record in caplog.records if record.name == "toolkit"
    ]
    assert ["'tag'" in told[0], "'keep'" in told[1], len(told)] == [True, True, 2]
    assert "keys of any name" in told[0]


def test_strict_is_not_the_default(drawing: ToolRegistry) -> None:
    assert not any("strict" in entry["function"] for entry in drawing.schemas())


def test_a_tool_may_insist(registry: ToolRegistry) -> None:
    registry.register_tool(lambda: 1, name="always", strict=True)
    registry.register_tool(lambda: 1, name="never", strict=False)
    registry.register_tool(lambda: 1, name="whatever")
    asked = [
        [
            name
            for name, entry in entries(registry, strict=s).items()
            if "strict" in entry
        ]
        for s in (False, True)
    ]
    assert asked == [["always"], ["always", "whatever"]]


def test_what_a_strict_schema_has_no_room_for_stands_in_the_description(
    drawing: ToolRegistry,
) -> None:
    shown = entries(drawing, strict=True)["search"]["parameters"]["properties"]
    assert shown["limit"]["description"] == "Maximum of hits. (default: 10)"
    assert shown["paper"]["description"] == "(default: white)"


@pytest.mark.parametrize(
    ("name", "sent", "wanted"),
    [
        pytest.param(
            "search",
            {"query": "q", "limit": None, "language": None, "paper": None},
            ("q", 10, None, Paper.WHITE),
            id="null for what was left out, and null for what takes it",
        ),
        pytest.param(
            "crop",
            {"box": [1, 2, 3, 4], "span": [5, 6], "pair": None},
            ((1, 2, 3, 4), Span(5, 6), ("a", 1)),
            id="tuples",
        ),
        pytest.param(
            "draw",
            {
                "what": {"shape": "bar", "length": 2},
                "line": {"color": None, "width": None},
                "frame": {"color": "red", "width": None},
                "rows": [{"shape": "circle", "radius": 1}],
            },
            (Bar(length=2), Line(), Line(color="red"), [Circle(radius=1)]),
            id="null inside models",
        ),
        pytest.param(
            "write",
            {
                "root": {
                    "line": None,
                    "parts": [{"line": {"color": None, "width": 2}, "parts": None}],
                },
                "others": [],
            },
            (Stroke(parts=[Stroke(line=Line(width=2))]), []),
            id="null inside models inside themselves",
        ),
    ],
)
def test_what_a_strict_schema_asks_for_comes_back(
    drawing: ToolRegistry, name: str, sent: Any, wanted: Any
) -> None:
    Draft202012Validator(entries(drawing, strict=True)[name]["parameters"]).validate(
        sent
    )
    result = drawing.call(name, json.dumps(sent))
    assert not result.is_error, result.content
    assert result.value == wanted


def test_what_a_description_says_is_still_checked(registry: ToolRegistry) -> None:
    @tool(registry=registry)
    def label(
        text: Annotated[str, Field(min_length=2, max_length=5)], codes: set[int]
    ) -> Any:
        return text

    shown = entries(registry, strict=True)["label"]["parameters"]["properties"]
    assert shown["text"]["description"] in (
        "(minLength: 2; maxLength: 5)",
        "(maxLength: 5; minLength: 2)",
    )
    assert shown["codes"]["description"] == "(uniqueItems: true)"
    assert "at least 2" in registry.call("label", {"text": "a", "codes": []}).content


@pytest.mark.parametrize(
    "open_map",
    [
        pytest.param({}, id="any value"),
        pytest.param({"type": "object"}, id="an object"),
        pytest.param(
            {"type": "object", "properties": {}},
            id="an object of which nothing is said",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": {}}, id="an object of anything"
        ),
    ],
)
def test_what_can_hold_anything_is_never_closed_over_nothing(
    registry: ToolRegistry, open_map: dict[str, Any]
) -> None:
    registry.register_tool(
        lambda **given: given, name="attach", schema=plain(["facts"], facts=open_map)
    )
    assert (
        entries(registry, strict=True)["attach"]
        == entries(registry, strict=False)["attach"]
    )
    assert registry.call("attach", {"facts": {"k": [1]}}).value == {"facts": {"k": [1]}}


def test_hand_written_schemas_get_the_same_treatment(registry: ToolRegistry) -> None:
    written = plain(job=plain(user=STRING, age={**INTEGER, "default": 3}))
    registry.register_tool(lambda **given: given, name="process", schema=written)
    entry = entries(registry, strict=True)["process"]
    assert entry["strict"] is True
    assert check_strict(entry["parameters"]) == []
    assert entry["parameters"]["properties"]["job"]["properties"]["user"] == STRING
    assert registry.call("process", {"job": {"user": "u", "age": None}}).value == {
        "job": {"user": "u"}
    }
