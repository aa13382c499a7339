"""What a signature and a docstring become: a schema that a model reads, and values that a function gets."""

# ruff: noqa: UP007, UP045  # Optional and Union are spelled both ways here, as the functions of the world are
from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import ipaddress
import json
import pathlib
import re
import sys
import threading
import types
import typing
import uuid
import warnings
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    ParamSpec,
    TypeVar,
    Union,
)

import annotated_types
import pytest
import typing_extensions
from jsonschema import Draft202012Validator
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    RootModel,
    SecretStr,
    WithJsonSchema,
    conlist,
    constr,
    field_validator,
)
from typing_extensions import NotRequired, Required, TypeAliasType, TypedDict

from helpers import array, either, ref
from toolkit import ToolContext, ToolRegistry, ToolResult, tool
from toolkit.errors import ToolDefinitionError
from toolkit.tools.docstrings import read_docstring

T = TypeVar("T")
P = ParamSpec("P")
STRING, INTEGER, NUMBER, BOOLEAN, NULL = (
    {"type": t} for t in ("string", "integer", "number", "boolean", "null")
)


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The schema that a model reads, checked to be one."""
    schema = ToolRegistry([function]).schemas()[0]["function"]["parameters"]
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema, (
        "JSON cannot carry it"
    )
    return schema


def send(function: Callable[..., Any], arguments: Any, **options: Any) -> ToolResult:
    """Call a function as a model does: with JSON text."""
    registry = ToolRegistry()
    made = registry.register_tool(function, timeout=None)
    return registry.call(made.name, json.dumps(arguments), **options)


def value(function: Callable[..., Any], arguments: Any) -> Any:
    result = send(function, arguments)
    assert not result.is_error, result.content
    return result.value


def taking(hint: Any) -> Callable[..., Any]:
    """A function of one parameter with this hint; its hint is no string, unlike those of this module."""

    def take(given):  # type: ignore[no-untyped-def]
        return given

    take.__annotations__ = {"given": hint}
    return take


# One hint: its schema, what is taken and as what, what is refused


class Season(enum.Enum):
    SPRING = "spring"
    AUTUMN = "autumn"


class Gauge(enum.IntEnum):
    NARROW = 750
    STANDARD = 1435


class Grade(str, enum.Enum):
    FINE = "fine"
    COARSE = "coarse"


class Berth(BaseModel):
    """A place to tie up."""

    quay: str
    depth: float = 4.0


class Ship(BaseModel):
    hull: str
    berth: Berth
    pilots: list[str] = []


class Shelf(TypedDict):
    letter: str
    row: NotRequired[int]


class Filters(TypedDict, total=False):
    author: str
    language: Required[str]


@dataclasses.dataclass
class Bed:
    length: float
    plants: list[str] = dataclasses.field(default_factory=list)
    sunny: bool = True


class Square(NamedTuple):
    file: str
    rank: int = 1


class Branch(BaseModel):
    length: int
    twigs: list[Branch] = []


@dataclasses.dataclass
class Link:
    ring: int
    next: Link | None = None


class Steam(BaseModel):
    engine: Literal["steam"]
    coal: int


class Diesel(BaseModel):
    engine: Literal["diesel"]
    litres: float


class Ticket(BaseModel):
    start: str = Field(alias="from")
    end: str = Field("Bray", validation_alias=AliasChoices("to", "until"))


class Fare(BaseModel):
    zone: int = Field(alias="from-zone")


class Sealed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    wax: str


class Precise(BaseModel):
    model_config = ConfigDict(strict=True)
    day: dt.date
    count: int
    tags: set[str]


class Batch(BaseModel, Generic[T]):
    entries: list[T]


class Heights(RootModel[list[int]]):
    pass


class Odd(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_odd(cls, number: int) -> int:
        if number % 2 == 0:
            raise ValueError("even numbers have no middle")
        return number


Catalogue = NewType("Catalogue", int)
Tones = TypeAliasType("Tones", list[int])
Tree = TypeAliasType("Tree", "int | list[Tree]")  # type: ignore[misc]

BERTH = {
    "type": "object",
    "description": "A place to tie up.",
    "properties": {"quay": STRING, "depth": {**NUMBER, "default": 4.0}},
    "required": ["quay"],
}
STEAM, DIESEL = (
    {
        "type": "object",
        "properties": {"engine": {**STRING, "const": name}, key: kind},
        "required": ["engine", key],
    }
    for name, key, kind in (("steam", "coal", INTEGER), ("diesel", "litres", NUMBER))
)


ISBN = "6f0b1c52-5a35-4a50-9f0e-0c2f1f0e9a11"

HINTS = [
    # scalars
    pytest.param(str, STRING, {"ivy": "ivy", "007": "007", "null": "null"}, [7, None, ["ivy"]], id="str"),
    pytest.param(int, INTEGER, {4: 4, -1: -1, 2**70: 2**70}, ["4.5", 4.5, None, "four", [4]], id="int"),
    pytest.param(float, NUMBER, {2.5: 2.5, 3: 3.0}, ["wide", None], id="float"),
    pytest.param(bool, BOOLEAN, {True: True, False: False}, ["perhaps", None, 7], id="bool"),
    pytest.param(None, NULL, {None: None}, [0, "", {}], id="None"),
    pytest.param(Any, {}, {"s": "s", 1.5: 1.5, True: True, None: None, (1,): [1]}, [], id="Any"),
    pytest.param(object, {}, {"s": "s", None: None}, [], id="object"),
    pytest.param(Catalogue, INTEGER, {9: 9}, ["nine"], id="NewType"),
    # unions
    pytest.param(Optional[int], either(INTEGER, NULL), {2: 2, None: None}, ["two"], id="Optional"),
    pytest.param(int | None, either(INTEGER, NULL), {2: 2, None: None}, ["two"], id="pipe with None"),
    pytest.param(Union[str, None, int], either(STRING, INTEGER, NULL), {"a": "a", 5: 5, None: None}, [[1]], id="three"),
    pytest.param(int | float, either(INTEGER, NUMBER), {1: 1, 2.5: 2.5}, ["x", None], id="int or float"),
    pytest.param(int | str, either(INTEGER, STRING), {4: 4, "4": "4"}, [None, []], id="text stays text"),
    pytest.param(
        Literal["low", "high"] | int | None,
        either({**STRING, "enum": ["low", "high"]}, INTEGER, NULL),
        {"low": "low", 40: 40, None: None},
        ["middle", 1.5],
        id="Literal or int or None",
    ),
    # containers
    pytest.param(list[str], array(STRING), {("a", "b"): ["a", "b"], (): []}, ["a", [1], None], id="list of str"),
    pytest.param(list, array({}), {(1, "a", None): [1, "a", None]}, ["abc"], id="bare list"),
    pytest.param(list[list[float]], array(array(NUMBER)), {((1.5,), ()): [[1.5], []]}, [[1.5]], id="list of lists"),
    pytest.param(list[str | int], array(either(STRING, INTEGER)), {("a", 1): ["a", 1]}, [[None], "a"], id="of unions"),
    pytest.param(list[Optional[int]], array(either(INTEGER, NULL)), {(1, None): [1, None]}, [["x"]], id="of Optional"),
    pytest.param(set[int], array(INTEGER, uniqueItems=True), {(3, 5): {3, 5}}, [["x"]], id="set"),
    pytest.param(frozenset[int], array(INTEGER, uniqueItems=True), {(3,): frozenset({3})}, [3], id="frozenset"),
    pytest.param(
        tuple[int, str],
        {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2},
        {(1, "a"): (1, "a")},
        [[1], [1, "a", 2], ["a", 1]],
        id="pair",
    ),
    pytest.param(tuple[int, ...], array(INTEGER), {(): (), (1, 2, 3): (1, 2, 3)}, [["x"], 1], id="tuple of any length"),
    pytest.param(Sequence[str], array(STRING), {("a", "b"): ["a", "b"]}, ["ab", [1]], id="Sequence takes no text"),
    pytest.param(collections.deque[int], array(INTEGER), {(1,): collections.deque([1])}, [["x"]], id="deque"),
    pytest.param(list[Season], array(ref("Season")), {("spring",): [Season.SPRING]}, [["winter"]], id="list of Enum"),
    # choices
    pytest.param(Literal["mo", "tu"], {**STRING, "enum": ["mo", "tu"]}, {"mo": "mo"}, ["we", None], id="Literal"),
    pytest.param(Literal["sum"], {**STRING, "const": "sum"}, {"sum": "sum"}, ["mean"], id="Literal of one"),
    pytest.param(Literal[1, 2, 3], {**INTEGER, "enum": [1, 2, 3]}, {2: 2}, [4, "x"], id="Literal of numbers"),
    pytest.param(Literal[1, "a"], {"enum": [1, "a"]}, {1: 1, "a": "a"}, [2, "b", None], id="mixed Literal"),
    pytest.param(Literal["red", None], {"enum": ["red", None]}, {"red": "red", None: None}, ["blue"], id="or nothing"),
    pytest.param(
        Season, {**STRING, "enum": ["spring", "autumn"]}, {"spring": Season.SPRING}, ["SPRING", "winter"], id="Enum"
    ),
    pytest.param(Gauge, {**INTEGER, "enum": [750, 1435]}, {750: Gauge.NARROW}, [751], id="IntEnum"),
    pytest.param(Grade, {**STRING, "enum": ["fine", "coarse"]}, {"fine": Grade.FINE}, ["FINE"], id="str Enum"),
    # what JSON writes as text
    pytest.param(dt.date, {**STRING, "format": "date"}, {"2031-05-06": dt.date(2031, 5, 6)}, ["May"], id="date"),
    pytest.param(
        dt.datetime,
        {**STRING, "format": "date-time"},
        {"2031-05-06T07:08:09Z": dt.datetime(2031, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)},
        ["soon"],
        id="datetime",
    ),
    pytest.param(dt.time, {**STRING, "format": "time"}, {"07:08": dt.time(7, 8)}, ["late"], id="time"),
    pytest.param(
        dt.timedelta, {**STRING, "format": "duration"}, {"PT90S": dt.timedelta(seconds=90)}, ["long"], id="timedelta"
    ),
    pytest.param(uuid.UUID, {**STRING, "format": "uuid"}, {ISBN: uuid.UUID(ISBN)}, ["6f0b"], id="UUID"),
    pytest.param(
        pathlib.Path, {**STRING, "format": "path"}, {"a/b.txt": pathlib.Path("a/b.txt")}, [4, None], id="Path"
    ),
    pytest.param(bytes, {**STRING, "format": "binary"}, {"hüt": "hüt".encode()}, [1], id="bytes"),
    pytest.param(re.Pattern, {**STRING, "format": "regex"}, {"a+": re.compile("a+")}, ["("], id="Pattern"),
    pytest.param(
        ipaddress.IPv4Address,
        {**STRING, "format": "ipv4"},
        {"10.0.0.7": ipaddress.IPv4Address("10.0.0.7")},
        ["10.0.0"],
        id="IPv4Address",
    ),
    pytest.param(
        HttpUrl,
        {**STRING, "format": "uri", "minLength": 1, "maxLength": 2083},
        {"https://example.org/a": HttpUrl("https://example.org/a")},
        ["ftp://example.org"],
        id="HttpUrl",
    ),
    # models of every kind
    pytest.param(Berth, BERTH, {}, [{"depth": 2}, "quay", {"quay": 1}], id="BaseModel"),
    pytest.param(Heights, array(INTEGER), {(1, 2): Heights([1, 2])}, [["x"]], id="RootModel"),
    pytest.param(Tones, array(INTEGER), {(1,): [1]}, [["x"]], id="type alias"),
    pytest.param(
        Square,
        {
            "type": "array",
            "prefixItems": [STRING, {**INTEGER, "default": 1}],
            "minItems": 1,
            "maxItems": 2,
        },
        {("e",): Square("e", 1), ("e", 4): Square("e", 4)},
        [[], [1, 1]],
        id="NamedTuple",
    ),
    # limits
    pytest.param(
        Annotated[int, Field(gt=0, le=9)], {**INTEGER, "exclusiveMinimum": 0, "maximum": 9}, {9: 9}, [0, 10], id="Field"
    ),
    pytest.param(
        Annotated[int, annotated_types.Gt(1)], {**INTEGER, "exclusiveMinimum": 1}, {2: 2}, [1], id="annotated_types"
    ),
    pytest.param(
        constr(min_length=2, pattern="^b"), {**STRING, "minLength": 2, "pattern": "^b"}, {"bo": "bo"}, ["b", "ab"],
        id="constr",
    ),
    pytest.param(conlist(str, min_length=1), array(STRING, minItems=1), {("a",): ["a"]}, [[]], id="conlist"),
    pytest.param(
        Annotated[Any, WithJsonSchema({"type": "string", "format": "blob"})],
        {**STRING, "format": "blob"},
        {"x": "x"},
        [],
        id="WithJsonSchema",
    ),
    pytest.param(Annotated[int, 456, object()], INTEGER, {1: 1}, ["x"], id="metadata of others"),
    pytest.param(Annotated[int, [1], {"a": 1}], INTEGER, {1: 1}, ["x"], id="metadata without a hash"),
    pytest.param(
        Annotated[int, Field(json_schema_extra={"x-unit": {"of": ["mm"]}})],
        {**INTEGER, "x-unit": {"of": ["mm"]}},
        {1: 1},
        ["x"],
        id="json_schema_extra",
    ),
]  # fmt: skip


def plain(key: Any) -> Any:
    """A dictionary's key as the JSON that was meant: its tuples are arrays."""
    return [plain(item) for item in key] if isinstance(key, tuple) else key


@pytest.mark.parametrize(("hint", "schema", "taken", "refused"), HINTS)
def test_a_hint_becomes_a_schema_and_a_validator(
    hint: Any, schema: dict[str, Any], taken: dict[Any, Any], refused: list[Any]
) -> None:
    made = parameters(taking(hint))
    definitions = made.pop("$defs", {})
    assert made == {
        "type": "object",
        "properties": {"given": schema},
        "required": ["given"],
    }
    for sent, wanted in taken.items():
        got = value(taking(hint), {"given": plain(sent)})
        assert (got, type(got)) == (wanted, type(wanted))
        Draft202012Validator({**schema, "$defs": definitions}).validate(plain(sent))
    for wrong in refused:
        result = send(taking(hint), {"given": wrong})
        assert (result.reason, "given" in result.content) == ("malformed", True), wrong


OBJECTS = [
    pytest.param(dict, {"additionalProperties": True}, {"a": [{"b": None}]}, {"a": [{"b": None}]}, id="bare dict"),
    pytest.param(dict[str, int], {"additionalProperties": INTEGER}, {"k": 2}, {"k": 2}, id="dict of numbers"),
    pytest.param(dict[int, str], {"additionalProperties": STRING}, {"1": "a"}, {1: "a"}, id="dict by numbers"),
    pytest.param(dict[str, Any], {"additionalProperties": True}, {"k": [None]}, {"k": [None]}, id="dict of anything"),
    pytest.param(
        MutableMapping[str, list[str]], {"additionalProperties": array(STRING)}, {"a": ["x"]}, {"a": ["x"]},
        id="Mapping",
    ),
    pytest.param(
        dict[Grade, int],
        {"additionalProperties": INTEGER, "propertyNames": ref("Grade")},
        {"fine": 3},
        {Grade.FINE: 3},
        id="dict by Enum",
    ),
    pytest.param(
        Ship,
        {
            "properties": {"hull": STRING, "berth": ref("Berth"), "pilots": array(STRING, default=[])},
            "required": ["hull", "berth"],
        },
        {"hull": "H1", "berth": {"quay": "north"}},
        Ship(hull="H1", berth=Berth(quay="north")),
        id="model in a model",
    ),
    pytest.param(
        Shelf, {"properties": {"letter": STRING, "row": INTEGER}, "required": ["letter"]}, {"letter": "Q"},
        {"letter": "Q"}, id="TypedDict",
    ),
    pytest.param(
        Filters,
        {"properties": {"author": STRING, "language": STRING}, "required": ["language"]},
        {"language": "ga"},
        {"language": "ga"},
        id="TypedDict that need not be whole",
    ),
    pytest.param(
        Bed,
        {
            "properties": {"length": NUMBER, "plants": array(STRING), "sunny": {**BOOLEAN, "default": True}},
            "required": ["length"],
        },
        {"length": 2},
        Bed(2.0),
        id="dataclass",
    ),
    pytest.param(
        Ticket,
        {"properties": {"from": STRING, "to": {**STRING, "default": "Bray"}}, "required": ["from"]},
        {"from": "Cork", "until": "Cobh"},
        Ticket(**{"from": "Cork", "to": "Cobh"}),
        id="model with aliases",
    ),
    pytest.param(
        Batch[int], {"properties": {"entries": array(INTEGER)}, "required": ["entries"]}, {"entries": [1]},
        Batch[int](entries=[1]), id="generic model",
    ),
    pytest.param(
        Sealed, {"properties": {"wax": STRING}, "required": ["wax"], "additionalProperties": False}, {"wax": "red"},
        Sealed(wax="red"), id="model that forbids more",
    ),
    pytest.param(
        Precise,
        {
            "properties": {
                "day": {**STRING, "format": "date"},
                "count": INTEGER,
                "tags": array(STRING, uniqueItems=True),
            },
            "required": ["day", "count", "tags"],
        },
        {"day": "2031-05-06", "count": 1, "tags": ["a"]},
        Precise(day=dt.date(2031, 5, 6), count=1, tags={"a"}),
        id="model that is strict about Python values",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "schema", "sent", "wanted"), OBJECTS)
def test_a_hint_for_an_object(
    hint: Any, schema: dict[str, Any], sent: Any, wanted: Any
) -> None:
    made = parameters(taking(hint))
    assert made["properties"] == {"given": {"type": "object", **schema}}
    Draft202012Validator(made).validate({"given": sent})
    assert value(taking(hint), {"given": sent}) == wanted
    assert send(taking(hint), {"given": [1]}).reason == "malformed"


def test_models_that_hold_themselves() -> None:
    def prune(root: Branch, chain: Link, numbers: Tree) -> Any:
        return root, chain, numbers

    made = parameters(prune)
    twigs = {**array(ref("Branch")), "default": []}
    assert made["properties"] == {
        "root": ref("Branch"),
        "chain": ref("Link"),
        "numbers": ref("Tree"),
    }
    assert made["$defs"]["Branch"]["properties"] == {"length": INTEGER, "twigs": twigs}
    assert made["$defs"]["Link"]["properties"]["next"] == {
        **either(ref("Link"), NULL),
        "default": None,
    }
    assert made["$defs"]["Tree"] == either(INTEGER, array(ref("Tree")))
    sent = {
        "root": {"length": 2, "twigs": [{"length": 1}]},
        "chain": {"ring": 1, "next": {"ring": 2}},
        "numbers": [1, [2]],
    }
    root, chain, numbers = value(prune, sent)
    assert (root.twigs[0].length, chain.next, numbers) == (1, Link(2), [1, [2]])
    assert (
        "root.twigs.0.length"
        in send(prune, {**sent, "root": {"length": 1, "twigs": [{}]}}).content
    )


def test_a_union_told_apart_by_a_field() -> None:
    def haul(engine: Annotated[Steam | Diesel, Field(discriminator="engine")]) -> str:
        return type(engine).__name__

    made = parameters(haul)
    assert made["properties"]["engine"]["oneOf"] == [ref("Steam"), ref("Diesel")]
    assert made["$defs"] == {"Steam": STEAM, "Diesel": DIESEL}
    assert value(haul, {"engine": {"engine": "diesel", "litres": 3}}) == "Diesel"
    told = send(haul, {"engine": {"engine": "sail", "litres": 3}}).content
    assert all(word in told for word in ("engine", "steam", "diesel"))


def test_a_lone_model_is_not_unwrapped() -> None:
    def moor(berth: Berth) -> str:
        return berth.quay

    assert parameters(moor) == {
        "type": "object",
        "properties": {"berth": BERTH},
        "required": ["berth"],
    }
    assert value(moor, {"berth": {"quay": "north"}}) == "north"


def test_models_arrive_as_models_inside_containers() -> None:
    def inspect_all(
        rows: list[Berth], by_name: dict[str, Bed], spare: Optional[Berth] = None
    ) -> str:
        return f"{rows[0].quay} {by_name['b'].length} {type(spare).__name__}"

    sent = {
        "rows": [{"quay": "n"}],
        "by_name": {"b": {"length": 1}},
        "spare": {"quay": "s"},
    }
    assert value(inspect_all, sent) == "n 1.0 Berth"


def test_a_rule_in_code_speaks_to_the_model() -> None:
    assert (
        "even numbers have no middle"
        in send(taking(Odd), {"given": {"number": 4}}).content
    )


def test_one_model_twice_keeps_two_descriptions() -> None:
    def tow(near: Berth, far: Annotated[Berth, "Where it ends."]) -> str:
        """Tow.

        Args:
            near: Where it starts.
        """
        return near.quay

    entries = parameters(tow)["properties"]
    assert [entries[name]["description"] for name in ("near", "far")] == [
        "Where it starts.",
        "Where it ends.",
    ]


def test_a_description_stays_with_its_parameter() -> None:
    def graft(
        onto: Annotated[Branch, Field(description="What is cut.")],
        scion: Branch | None = None,
    ) -> None: ...

    def burn(wood: list[Branch]) -> None: ...

    assert parameters(graft)["properties"]["onto"] == {
        **ref("Branch"),
        "description": "What is cut.",
    }
    assert parameters(graft)["properties"]["scion"] == {
        **either(ref("Branch"), NULL),
        "default": None,
    }
    assert parameters(burn)["properties"]["wood"] == array(ref("Branch"))


def test_the_order_of_a_union_is_its_own() -> None:
    """In Python `date | str == str | date`: what one function wrote must not decide for another."""

    def dated(when: dt.date | str) -> Any:
        return when

    def written(when: str | dt.date) -> Any:
        return when

    day = {**STRING, "format": "date"}
    assert parameters(dated)["properties"]["when"] == either(day, STRING)
    assert parameters(written)["properties"]["when"] == either(STRING, day)
    assert value(dated, {"when": "2031-05-06"}) == dt.date(2031, 5, 6)
    assert value(written, {"when": "2031-05-06"}) == "2031-05-06"


@pytest.mark.parametrize(
    ("hint", "sent", "walk"),
    [
        pytest.param(Iterable[int], [1, 2], list, id="Iterable"),
        pytest.param(Optional[Iterable[int]], [1, 2], list, id="or nothing"),
        pytest.param(
            Annotated[Iterable[int], "Numbers."], [1, 2], list, id="annotated"
        ),
        pytest.param(Generator[int, None, None], [1, 2], list, id="Generator"),
        pytest.param(
            dict[str, Iterable[int]],
            {"k": [1, 2]},
            lambda given: list(given["k"]),
            id="in a dict",
        ),
        pytest.param(Iterable, [1, 2], list, id="of anything"),
    ],
)
def test_an_iterable_is_checked_before_the_function_runs(
    hint: Any, sent: Any, walk: Callable[..., Any]
) -> None:
    def count(given):  # type: ignore[no-untyped-def]
        return [*walk(given), *walk(given)]

    count.__annotations__ = {"given": hint}
    assert value(count, {"given": sent}) == [1, 2, 1, 2], (
        "it may be walked through twice, as any list"
    )
    wrong = {"given": {"k": ["x"]} if isinstance(sent, dict) else ["x"]}
    assert hint is Iterable or send(count, wrong).reason == "malformed"


def test_hints_nest_to_any_depth() -> None:
    Plan = Sequence[Mapping[str, list[tuple[int, dict[str, str]]]]]
    assert value(taking(Plan), {"given": [{"day": [[1, {"x": "y"}]]}]}) == [
        {"day": [(1, {"x": "y"})]}
    ]
    assert send(taking(Plan), {"given": [{"day": [["a", {}]]}]}).is_error


@pytest.mark.parametrize("text", ["12.50", "0.1"])
def test_decimals_keep_their_digits(text: str) -> None:
    got = value(taking(decimal.Decimal), {"given": text})
    assert (type(got), str(got)) == (decimal.Decimal, str(decimal.Decimal(text)))
    Draft202012Validator(parameters(taking(decimal.Decimal))).validate({"given": text})


@pytest.mark.parametrize(
    ("hint", "sent", "wanted"),
    [
        pytest.param(int, "12", 12, id="digits for an int"),
        pytest.param(float, "2.5", 2.5, id="digits for a float"),
        pytest.param(bool, "true", True, id="a word for a bool"),
        pytest.param(list[int], "[1, 2]", [1, 2], id="JSON text for a list"),
        pytest.param(
            Berth, '{"quay": "n"}', Berth(quay="n"), id="JSON text for a model"
        ),
        pytest.param(str, "[1, 2]", "[1, 2]", id="text that looks like a list"),
        pytest.param(str, "true", "true", id="text that looks like a bool"),
        pytest.param(Optional[str], "null", "null", id="text that looks like nothing"),
    ],
)
def test_what_has_one_reading_is_converted(hint: Any, sent: Any, wanted: Any) -> None:
    got = value(taking(hint), {"given": sent})
    assert (got, type(got)) == (wanted, type(wanted))


def test_a_secret_keeps_its_default_to_itself() -> None:
    """pydantic writes a secret as asterisks; a model that sends these back would set it."""

    def unlock(door: str, code: SecretStr = SecretStr("4711")) -> str:  # noqa: B008
        return code.get_secret_value()

    assert parameters(unlock)["properties"]["code"] == {
        **STRING,
        "format": "password",
        "writeOnly": True,
    }
    assert value(unlock, {"door": "cellar"}) == "4711"
    assert value(unlock, {"door": "cellar", "code": "1"}) == "1"


def test_two_classes_of_one_name() -> None:
    def other() -> type[BaseModel]:
        class Berth(BaseModel):
            bunk: int

        return Berth

    def reserve(ship: list[Any], cabin: list[Any]) -> Any:
        return ship[0].quay, cabin[0].bunk

    reserve.__annotations__ = {"ship": list[Berth], "cabin": list[other()]}  # type: ignore[misc]
    made = parameters(reserve)
    entries = [
        made["properties"][name]["items"]["$ref"].rpartition("/")[2]
        for name in ("ship", "cabin")
    ]
    assert [list(made["$defs"][name]["properties"]) for name in entries] == [
        ["quay", "depth"],
        ["bunk"],
    ]
    assert value(reserve, {"ship": [{"quay": "n"}], "cabin": [{"bunk": 3}]}) == ("n", 3)


@pytest.mark.parametrize(
    ("extra", "outcome"),
    [
        pytest.param("allow", 2, id="a model that takes more"),
        pytest.param("ignore", None, id="one that ignores more"),
        pytest.param("forbid", "given.rim: unexpected", id="one that forbids more"),
    ],
)
def test_keys_that_a_model_does_not_list(extra: Any, outcome: Any) -> None:
    class Wheel(BaseModel):
        model_config = ConfigDict(extra=extra)
        hub: int

    result = send(taking(Wheel), {"given": {"hub": 1, "rim": 2}})
    if isinstance(outcome, str):
        assert outcome in result.content
    else:
        assert getattr(result.value, "rim", None) == outcome
        assert result.repairs == ("unlisted_key:given.rim",), "told of in either case"


# Defaults


def test_what_has_a_default_is_not_required() -> None:
    def report(
        town: str, unit: str = "C", days: int = 0, loud: bool = False, sep: str = "", lat: float = -33.5,
        note: Optional[str] = None, rows: list[int] = [1], limit: int | None = 5,  # noqa: B006
    ) -> Any:  # fmt: skip
        return town, unit, days, loud, sep, lat, note, rows, limit

    made = parameters(report)
    assert made["required"] == ["town"]
    defaults = {
        name: entry.get("default", "none") for name, entry in made["properties"].items()
    }
    assert defaults == {
        "town": "none", "unit": "C", "days": 0, "loud": False, "sep": "", "lat": -33.5, "note": None, "rows": [1],
        "limit": 5,
    }  # fmt: skip
    assert value(report, {"town": "x"}) == ("x", "C", 0, False, "", -33.5, None, [1], 5)


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        pytest.param({"must": None}, (None, None, 3, 4), id="null where it is allowed"),
        pytest.param(
            {"must": 1, "may": None, "wide": None},
            (1, None, 3, None),
            id="null that the type takes",
        ),
        pytest.param(
            {"must": 1, "plain": None},
            (1, None, 3, 4),
            id="null that the type refuses is the default",
        ),
    ],
)
def test_optional_and_nullable_are_two_things(
    sent: dict[str, Any], wanted: Any
) -> None:
    def move(
        must: Optional[int],
        may: Optional[int] = None,
        plain: int = 3,
        wide: int | None = 4,
    ) -> Any:
        return must, may, plain, wide

    assert parameters(move)["required"] == ["must"]
    assert value(move, sent) == wanted
    assert "must" in send(move, {}).content


def test_null_inside_a_model_is_its_default() -> None:
    class Sail(BaseModel):
        area: float = 20.0
        reefs: list[int] = [1]

    def hoist(main: Sail, others: list[Sail], shelf: Shelf) -> Any:
        return main, others, shelf

    nulls = {"area": None, "reefs": None}
    sent = {"main": nulls, "others": [nulls], "shelf": {"letter": "Q", "row": None}}
    hoist.__annotations__ = {"main": Sail, "others": list[Sail], "shelf": Shelf}
    assert value(hoist, sent) == (Sail(), [Sail()], {"letter": "Q"})


@pytest.mark.parametrize(
    ("hint", "default", "shown"),
    [
        pytest.param(Grade, Grade.FINE, "fine", id="Enum by its value"),
        pytest.param(list[Season], [Season.SPRING], ["spring"], id="Enums in a list"),
        pytest.param(pathlib.Path, pathlib.Path("a/b"), "a/b", id="Path"),
        pytest.param(dt.date, dt.date(2031, 5, 6), "2031-05-06", id="date"),
        pytest.param(dt.timedelta, dt.timedelta(seconds=90), "PT1M30S", id="timedelta"),
        pytest.param(decimal.Decimal, decimal.Decimal("1.10"), "1.10", id="Decimal"),
        pytest.param(frozenset[str], frozenset(), [], id="empty set"),
        pytest.param(Berth, Berth(quay="n"), {"quay": "n", "depth": 4.0}, id="model"),
        pytest.param(
            Fare, Fare(**{"from-zone": 2}), {"from-zone": 2}, id="model by its aliases"
        ),
        pytest.param(
            Bed, Bed(1.0), {"length": 1.0, "plants": [], "sunny": True}, id="dataclass"
        ),
        pytest.param(int, 2**80, 2**80, id="big number"),
        pytest.param(float, float("inf"), "left out", id="infinity"),
        pytest.param(float, float("nan"), "left out", id="no number"),
        pytest.param(list[float], [float("nan")], "left out", id="no number in a list"),
        pytest.param(bytes, b"\xff", "left out", id="bytes that are no text"),
        pytest.param(Any, object(), "left out", id="sentinel"),
        pytest.param(Any, print, "left out", id="function"),
    ],
)
def test_a_default_is_shown_as_json_has_it(hint: Any, default: Any, shown: Any) -> None:
    def keep(thing=default):  # type: ignore[no-untyped-def]
        return thing

    keep.__annotations__ = {"thing": hint}
    made = parameters(keep)
    assert made["properties"]["thing"].get("default", "left out") == shown
    assert "required" not in made
    assert value(keep, {}) is default


def test_defaults_inside_models_are_json_as_well() -> None:
    class Tide(BaseModel):
        table: pathlib.Path = pathlib.Path("tides")
        height: float = float("nan")
        marker: Any = object()

    entries = parameters(taking(Tide))["properties"]["given"]["properties"]
    assert entries == {
        "table": {**STRING, "format": "path", "default": "tides"},
        "height": NUMBER,
        "marker": {},
    }


# Field and Annotated


def test_fields_as_defaults() -> None:
    def order(
        dish: str = Field(..., description="What to cook.", examples=["pie"]),
        covers: int = Field(2, ge=1, description="For how many."),
        least: int = Field(ge=0),
        notes: list[str] = Field(default_factory=list, description="Wishes."),  # noqa: B008
    ) -> Any:
        notes.append("seen")
        return dish, covers, least, notes

    made = parameters(order)
    assert made["required"] == ["dish", "least"]
    assert made["properties"] == {
        "dish": {**STRING, "description": "What to cook.", "examples": ["pie"]},
        "covers": {
            **INTEGER,
            "minimum": 1,
            "default": 2,
            "description": "For how many.",
        },
        "least": {**INTEGER, "minimum": 0},
        "notes": {**array(STRING), "description": "Wishes."},
    }
    for _ in range(2):
        assert value(order, {"dish": "pie", "least": 0}) == ("pie", 2, 0, ["seen"]), (
            "the factory runs at every call"
        )
    assert "covers" in send(order, {"dish": "pie", "least": 0, "covers": 0}).content


@pytest.mark.parametrize(
    ("hint", "entry"),
    [
        pytest.param(
            Annotated[int, "How many."],
            {**INTEGER, "description": "How many."},
            id="plain string",
        ),
        pytest.param(
            Annotated[int, Field(description="How many.")],
            {**INTEGER, "description": "How many."},
            id="Field",
        ),
        pytest.param(
            Annotated[Optional[int], "How many, if any."],
            {**either(INTEGER, NULL), "description": "How many, if any."},
            id="Optional",
        ),
        pytest.param(
            Annotated[int, Field(ge=1), Field(le=5, description="Few.")],
            {**INTEGER, "minimum": 1, "maximum": 5, "description": "Few."},
            id="two Fields",
        ),
        pytest.param(
            Annotated[Annotated[int, "Inner."], "Outer."],
            {**INTEGER, "description": "Outer."},
            id="nested",
        ),
        pytest.param(
            Annotated[Berth, "Where."], {**BERTH, "description": "Where."}, id="model"
        ),
    ],
)
def test_an_annotated_description_beats_the_docstring(
    hint: Any, entry: dict[str, Any]
) -> None:
    take = taking(hint)
    take.__doc__ = "Take.\n\nArgs:\n    given: From the docstring.\n"
    assert parameters(take)["properties"]["given"] == entry


def test_a_default_inside_annotated() -> None:
    def leaf(
        book: str,
        page: Annotated[int, Field(default=1, ge=1)],
        mark: Annotated[float, Field(gt=0)] = 1.5,
    ) -> Any:
        return page, mark

    made = parameters(leaf)
    assert made["required"] == ["book"]
    assert made["properties"]["page"] == {**INTEGER, "minimum": 1, "default": 1}
    assert made["properties"]["mark"] == {
        **NUMBER,
        "exclusiveMinimum": 0,
        "default": 1.5,
    }
    assert value(leaf, {"book": "b"}) == (1, 1.5)


@pytest.mark.parametrize(
    ("field", "shown", "sent"),
    [
        pytest.param(Field(alias="from"), "from", ["from"], id="alias"),
        pytest.param(Field(validation_alias="from"), "from", ["from"], id="validation alias"),
        pytest.param(
            Field(validation_alias=AliasChoices("start", "from", "origin")), "start", ["start", "from", "origin"],
            id="choices",
        ),
        pytest.param(Field(serialization_alias="from"), "start", ["start"], id="an alias for output only"),
    ],
)  # fmt: skip
def test_aliases_lead_to_their_parameter(
    field: Any, shown: str, sent: list[str]
) -> None:
    def ride(start):  # type: ignore[no-untyped-def]
        return start

    ride.__annotations__ = {"start": Annotated[str, field]}
    assert parameters(ride) == {
        "type": "object",
        "properties": {shown: STRING},
        "required": [shown],
    }
    assert [value(ride, {name: "Cork"}) for name in sent] == ["Cork"] * len(sent)


def test_what_a_field_says_for_models_only_does_no_harm() -> None:
    def leaf(
        page: Annotated[
            int, Field(deprecated=True, repr=False, exclude=True, frozen=True)
        ] = 1,
        mark: Annotated[int, Field(validate_default=True, ge=1)] = 2,
    ) -> Any:
        return page, mark

    assert parameters(leaf)["properties"]["mark"] == {
        **INTEGER,
        "minimum": 1,
        "default": 2,
    }
    assert value(leaf, {"page": 3}) == (3, 2)


def test_a_lone_parameter_keeps_what_is_said_of_it() -> None:
    def collect(notes=Field(default_factory=list, max_length=2)):  # type: ignore[no-untyped-def]  # noqa: B008
        return notes

    def pick(**given: Any) -> Any:
        return given

    pick.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("number", inspect.Parameter.KEYWORD_ONLY, annotation=int)]
    )
    assert value(collect, {}) == []
    assert parameters(pick)["properties"] == {"number": INTEGER}
    assert send(pick, {"number": "x"}).reason == "malformed"


# Kinds of parameters


def test_keyword_only_parameters_are_parameters() -> None:
    def drive(*, speed: int = 3, target: str) -> Any:
        return speed, target

    assert parameters(drive)["required"] == ["target"]
    assert value(drive, {"target": "t"}) == (3, "t")


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        pytest.param({"a": 1, "b": 2}, (1, 2, 10), id="without the default"),
        pytest.param({"c": 0, "b": 2, "a": 1}, (1, 2, 0), id="in any order"),
    ],
)
def test_positional_only_parameters_are_passed_by_position(
    sent: dict[str, Any], wanted: Any
) -> None:
    def add(a: int, /, b: int, c: int = 10) -> Any:
        return a, b, c

    made = parameters(add)
    assert (list(made["properties"]), made["required"]) == (["a", "b", "c"], ["a", "b"])
    assert value(add, sent) == wanted


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        pytest.param({}, (1, 5, ()), id="nothing"),
        pytest.param({"second": 2}, (1, 2, ()), id="only the second"),
        pytest.param({"rest": [7, 8]}, (1, 5, (7, 8)), id="only the rest"),
        pytest.param({"first": 0, "rest": [7]}, (0, 5, (7,)), id="a gap in the middle"),
    ],
)
def test_defaults_fill_the_gaps_between_positions(
    sent: dict[str, Any], wanted: Any
) -> None:
    def pick(
        first: int = 1, second: int = Field(default_factory=lambda: 5), /, *rest: int
    ) -> Any:
        return first, second, rest

    assert value(pick, sent) == wanted


def test_any_number_of_values() -> None:
    def total(*values: int) -> int:
        return sum(values)

    assert parameters(total) == {
        "type": "object",
        "properties": {"values": array(INTEGER)},
    }
    assert value(total, {"values": [1, 2, 3]}) == 6
    assert value(total, {}) == 0
    assert "values" in send(total, {"values": ["x"]}).content


def test_further_keywords_have_any_name() -> None:
    def note(topic: str, **facts: float) -> Any:
        return topic, facts

    made = parameters(note)
    assert made["additionalProperties"] == NUMBER
    assert (list(made["properties"]), made["required"]) == (["topic"], ["topic"])
    assert value(note, {"topic": "t", "height": 2}) == ("t", {"height": 2.0})
    assert "height" in send(note, {"topic": "t", "height": "tall"}).content


def test_all_kinds_at_once() -> None:
    def mix(
        base: int, /, other: int = 5, *rest: int, sharp: bool = False, **more: str
    ) -> Any:
        return base, other, rest, sharp, more

    assert value(mix, {"base": 1, "rest": [2], "sharp": True, "x": "y"}) == (
        1,
        5,
        (2,),
        True,
        {"x": "y"},
    )
    assert value(mix, {"base": 1}) == (1, 5, (), False, {})


def test_a_function_may_take_no_parameters() -> None:
    def chime() -> str:
        return "bong"

    assert parameters(chime) == {"type": "object", "properties": {}}
    registry = ToolRegistry([chime])
    assert [
        registry.call("chime", sent).content
        for sent in ("", "{}", "null", None, {}, [])
    ] == ["bong"] * 6
    assert "strike" in registry.call("chime", {"strike": 3}).content


def test_no_hint_means_any_value() -> None:
    def jot(note, times=5):  # type: ignore[no-untyped-def]
        return note, times

    made = parameters(jot)
    assert made == {
        "type": "object",
        "properties": {"note": {}, "times": {"default": 5}},
        "required": ["note"],
    }
    assert value(jot, {"note": [1, {"a": None}]}) == ([1, {"a": None}], 5)


def test_extra_keys_are_refused() -> None:
    def measure(river: str) -> str:
        return river

    told = send(measure, {"river": "Lee", "bank": "left"}).content
    assert "bank" in told
    assert "river" in told


def test_arguments_are_a_copy() -> None:
    def sort(rows: list[int]) -> list[int]:
        rows.sort()
        return rows

    sent = {"rows": [2, 1]}
    assert ToolRegistry([sort]).call("sort", sent).value == [1, 2]
    assert sent == {"rows": [2, 1]}


# Names


def test_names_that_others_reserve() -> None:
    def query(
        model_config: str, model_fields_set: int, _limit: int, schema: str, json: str, copy: int, dict: str,
        validate: bool = True, model_extra: str = "m", self: int = 1, cls: int = 2, args: int = 3, kwargs: int = 4,
        class_: str = "c", context: int = 5, values: int = 6, größe: int = 7,
    ) -> Any:  # fmt: skip
        return locals()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = parameters(query)
    assert list(made["properties"]) == list(inspect.signature(query).parameters)
    assert made["required"] == [
        "model_config",
        "model_fields_set",
        "_limit",
        "schema",
        "json",
        "copy",
        "dict",
    ]
    sent = {name: entry.get("default", {"string": "s", "integer": 9}[entry["type"]]) for name, entry in
            made["properties"].items() if name != "validate"}  # fmt: skip
    assert value(query, sent) == {**sent, "validate": True}


def test_names_that_schemas_use() -> None:
    class Article(BaseModel):
        title: str
        description: Berth
        type: str = "news"
        default: int = 0
        required: bool = True
        properties: dict[str, str] = {}

    def publish(
        title: str,
        type: str,
        default: int,
        items: list[str],
        enum: bool,
        properties: Any,
    ) -> str:
        return title

    publish.__annotations__["properties"] = Article
    made = parameters(publish)
    names = ["title", "type", "default", "items", "enum", "properties"]
    assert (list(made["properties"]), made["required"]) == (names, names)
    assert list(made["properties"]["properties"]["properties"]) == list(
        Article.model_fields
    )
    assert made["properties"]["properties"]["required"] == ["title", "description"]


# Docstrings

DOCSTRINGS = [
    # Google
    pytest.param(
        """Look up a tide.

        Args:
            port: Where.
            unit (str, optional): Feet or metres.

        Returns:
            float: The height.
        """,
        ("Look up a tide.", {"port": "Where.", "unit": "Feet or metres."}),
        id="Google",
    ),
    pytest.param(
        """Look up a tide.
        Args:
            port: Where.
        Returns:
            The height.
        """,
        ("Look up a tide.", {"port": "Where."}),
        id="Google without blank lines",
    ),
    pytest.param(
        """Args:
            port: Where.
            day: When.
        """,
        ("", {"port": "Where.", "day": "When."}),
        id="Google from the first line on",
    ),
    pytest.param(
        """
        Args:
            port: Where.
        """,
        ("", {"port": "Where."}),
        id="Google from the second line on",
    ),
    pytest.param(
        """Think.

        Args:
            a: First line.

            b: Second line that goes on
                over several lines
                and stops.
        """,
        (
            "Think.",
            {
                "a": "First line.",
                "b": "Second line that goes on over several lines and stops.",
            },
        ),
        id="Google over several lines",
    ),
    pytest.param(
        """Sail.

        Takes two hours, so ask first.

        Args:
            to: Where.
        """,
        ("Sail.\n\nTakes two hours, so ask first.", {"to": "Where."}),
        id="two paragraphs",
    ),
    pytest.param(
        """Carry a heavy
        load upstairs.

        Args:
            kg: Its mass.
        """,
        ("Carry a heavy\nload upstairs.", {"kg": "Its mass."}),
        id="summary over two lines",
    ),
    pytest.param(
        """Cut.

        Raises:
            ValueError: When blunt.

        Args:
            at: Where.
        """,
        ("Cut.", {"at": "Where."}),
        id="another section first",
    ),
    pytest.param(
        """Convert.

        Args:
            src: What is read.
            dst: What is written.

        Annotations:
            author: somebody
        """,
        ("Convert.", {"src": "What is read.", "dst": "What is written."}),
        id="an unknown section after",
    ),
    pytest.param(
        """Go.

        Arguments:
            to (dict[str, int], optional): Where: a map {"x": 1} or "3:5".
        """,
        ("Go.", {"to": 'Where: a map {"x": 1} or "3:5".'}),
        id="Arguments, brackets and colons",
    ),
    pytest.param(
        """Récupère.

        Args:
            titre (str) : Titre (« Exode »)
            größe: 都市名：例 東京
        Returns:
            str : Le texte.
        """,
        ("Récupère.", {"titre": "Titre (« Exode »)", "größe": "都市名：例 東京"}),
        id="letters of every script, a space before the colon",
    ),
    pytest.param(
        """Pile.

        Args:
            base: Where to begin.
            *rest: What to add.
            **more: Names.
        """,
        (
            "Pile.",
            {"base": "Where to begin.", "rest": "What to add.", "more": "Names."},
        ),
        id="stars",
    ),
    pytest.param(
        r"""Pile.

        Args:
            \*rest: What to add.
            \**more: Names.
        """,
        ("Pile.", {"rest": "What to add.", "more": "Names."}),
        id="stars behind a backslash, as Sphinx wants them",
    ),
    pytest.param(
        """Open.

        Args:
            door: Which.

        Keyword Args:
            slowly: Whether.
        """,
        ("Open.", {"door": "Which.", "slowly": "Whether."}),
        id="Keyword Args",
    ),
    pytest.param(
        """Choose.

        Args:
            mode: One of
                - fast: at once
                - slow: at night
            dry: Whether.
        """,
        (
            "Choose.",
            {"mode": "One of - fast: at once - slow: at night", "dry": "Whether."},
        ),
        id="a list in an entry",
    ),
    pytest.param(
        """Explain the words Args and Returns.

        Args:
            returns: A word: Args.
        """,
        ("Explain the words Args and Returns.", {"returns": "A word: Args."}),
        id="names of sections elsewhere",
    ),
    # NumPy
    pytest.param(
        """Mix.

        Parameters
        ----------
        first : str
            Paint to start from,
            well stirred.
        second : str, optional
            Paint to add, default: white.

        Returns
        -------
        str
            The mixture.
        """,
        (
            "Mix.",
            {
                "first": "Paint to start from, well stirred.",
                "second": "Paint to add, default: white.",
            },
        ),
        id="NumPy",
    ),
    pytest.param(
        """Mix.

        Parameters
        ----------
        first, second : str
            Paints.
        *others
            More paints.
        """,
        ("Mix.", {"first": "Paints.", "second": "Paints.", "others": "More paints."}),
        id="NumPy, two names in one entry",
    ),
    # reST
    pytest.param(
        """Toll.

        :param str bell: Bell to toll,
            slowly.
        :param hours: How often.
        :type hours: int
        :raises ValueError: Never.
        :rtype: str
        """,
        ("Toll.", {"bell": "Bell to toll, slowly.", "hours": "How often."}),
        id="reST",
    ),
    pytest.param(
        """Toll.

        :param dict[str, int] bells: Bells to toll.
        :param hours: How often.
        """,
        ("Toll.", {"bells": "Bells to toll.", "hours": "How often."}),
        id="reST, a type of two words",
    ),
    pytest.param(
        """Toll :class:`Bell`.

        Args:
            bell: See :func:`ring`.
        """,
        ("Toll :class:`Bell`.", {"bell": "See :func:`ring`."}),
        id="roles are no reST fields",
    ),
    # Epytext
    pytest.param(
        """Fold.

        @param text: Text to fold,
            twice.
        @type text: str
        @param edge: Where.
        @return: The rest.
        """,
        ("Fold.", {"text": "Text to fold, twice.", "edge": "Where."}),
        id="Epytext",
    ),
    # none of these
    pytest.param("Blow a whistle.", ("Blow a whistle.", {}), id="one line"),
    pytest.param(
        "Blow: loud, to a@b.example.",
        ("Blow: loud, to a@b.example.", {}),
        id="one line with a colon",
    ),
    pytest.param("", ("", {}), id="empty"),
    pytest.param(
        """Describe.

        #Args:
            a: First.
        """,
        ("Describe.\n\n#Args:\n    a: First.", {}),
        id="a section of nobody's style stays in the text",
    ),
]


@pytest.mark.parametrize(("text", "read"), DOCSTRINGS)
def test_docstrings_of_each_style_are_read(text: str, read: Any) -> None:
    description, about = read_docstring(inspect.cleandoc(text))
    assert (
        description,
        {name: words for name, words in about.items() if words},
    ) == read


def test_the_docstring_of_a_function_reaches_the_model() -> None:
    def temperature(
        place: Annotated[str, Field(description="City and country.")], unit: str = "C"
    ) -> str:
        """Tell the temperature.

        Args:
            place: Some place.
            unit: C or F.

        Returns:
            A sentence.
        """
        return place

    entry = ToolRegistry([temperature]).schemas()[0]["function"]
    assert entry["description"] == "Tell the temperature."
    shown = {
        name: one["description"]
        for name, one in entry["parameters"]["properties"].items()
    }
    assert shown == {"place": "City and country.", "unit": "C or F."}


def test_a_long_docstring_is_read_in_no_time() -> None:
    text = "Do.\n\nArgs:\n" + "".join(
        f"    p{number}: words : of {number}\n" for number in range(1_000)
    )
    assert len(read_docstring(text)[1]) == 1_000


# Postponed hints: those of this module all are


def test_hints_resolve_where_the_function_was_written() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        inner.__module__ = "functools"
        return inner

    @logged
    def find(
        term: Annotated[str, Field(description="What.")], season: Season = Season.SPRING
    ) -> Any:
        return term, season

    made = parameters(find)
    assert made["properties"]["term"] == {**STRING, "description": "What."}
    assert made["required"] == ["term"]
    assert value(find, {"term": "t", "season": "autumn"}) == ("t", Season.AUTUMN)


def test_a_hint_may_name_what_comes_later() -> None:
    module = _module(
        """
        from __future__ import annotations
        from pydantic import BaseModel

        class Crate(BaseModel):
            rows: list["Row"] = []

        @tool(registry=registry)
        def store(crate: Crate, row: Row) -> str:
            return f"{crate.rows} {row.number}"

        def define():
            class Row(BaseModel):
                number: int
            globals()["Row"] = Row
            Row.__module__ = __name__
        """
    )
    with pytest.raises(ToolDefinitionError, match=r"'store'.*'Row'.*not defined"):
        module.registry.schemas()
    module.define()
    assert module.store.tool_schema["function"]["parameters"]["required"] == [
        "crate",
        "row",
    ]
    assert (
        module.registry.call(
            "store", {"crate": {"rows": []}, "row": {"number": 3}}
        ).value
        == "[] 3"
    )


def test_a_model_may_name_what_comes_later() -> None:
    module = _module(
        """
        from pydantic import BaseModel

        class Crate(BaseModel):
            rows: list["Row"] = []

        @tool(registry=registry)
        def store(label: str, crate: Crate) -> str:
            return f"{label} {crate.rows[0].number}"

        def define():
            class Row(BaseModel):
                number: int
            globals()["Row"] = Row
        """
    )
    with pytest.raises(
        ToolDefinitionError, match=r"'Crate'.*'crate'.*'store'.*not defined"
    ):
        module.registry.schemas()
    module.define()
    assert module.registry.schemas()[0]["function"]["parameters"]["required"] == [
        "label",
        "crate",
    ]
    assert (
        module.registry.call(
            "store", {"label": "l", "crate": {"rows": [{"number": 1}]}}
        ).value
        == "l 1"
    )


def test_what_is_returned_does_not_matter() -> None:
    def make(size: int) -> NotDefinedAnywhere:  # type: ignore[name-defined]  # noqa: F821
        return size

    assert parameters(make)["properties"] == {"size": INTEGER}


def _module(source: str) -> Any:
    """A module of its own, for hints look into the module of their function."""
    made = types.ModuleType(f"written_{len(sys.modules)}")
    sys.modules[made.__name__] = made
    made.__dict__.update(tool=tool, registry=ToolRegistry(), ToolContext=ToolContext)
    exec(
        compile(inspect.cleandoc(source), made.__name__, "exec", dont_inherit=True),
        made.__dict__,
    )
    return made


# Refused at decoration


class Engine:
    """A class that pydantic knows nothing of."""


def refuse(**hints: Any) -> Callable[..., Any]:
    def start(given, other=None):  # type: ignore[no-untyped-def]
        return given

    start.__annotations__ = hints
    return start


@pytest.mark.parametrize(
    "hint",
    [
        pytest.param(Engine, id="a class"),
        pytest.param(list[Engine], id="a class in a list"),
        pytest.param(Optional[Engine], id="a class or nothing"),
        pytest.param(Berth | Engine, id="a class beside a model"),
        pytest.param(Callable[[int], str], id="Callable"),
        pytest.param(threading.Event, id="event"),
        pytest.param(type[int], id="a type"),
        pytest.param(range, id="range"),
        pytest.param(3, id="a number"),
        pytest.param({"type": int}, id="a dictionary"),
        pytest.param([int], id="a list literal"),
        pytest.param(len, id="a function"),
        pytest.param(list[P.args], id="ParamSpec"),
        pytest.param(
            Annotated[int | str, Field(discriminator="kind")],
            id="a union with nothing to tell it apart",
        ),
        pytest.param(Annotated[str, Field(pattern="(")], id="a pattern that is none"),
        pytest.param("the name of a town", id="prose"),
        pytest.param("int |", id="half a hint"),
        pytest.param("'int' | None", id="a string or None"),
    ],
)
def test_what_has_no_json_form_is_refused_by_name(hint: Any) -> None:
    registry = ToolRegistry()
    with pytest.raises(ToolDefinitionError) as caught:
        tool(registry=registry)(refuse(given=hint, other=int))
    assert "'given'" in str(caught.value)
    assert "'start'" in str(caught.value)
    assert "'other'" not in str(caught.value)
    assert len(registry) == 0


def test_an_attribute_that_is_not_there_is_told_of_at_first_use_at_the_latest() -> None:
    with pytest.raises(ToolDefinitionError, match="'start'"):
        ToolRegistry([refuse(given="dt.NotYet")]).schemas()


def test_a_refusal_tells_the_way_out() -> None:
    with pytest.raises(
        ToolDefinitionError, match=r"'Engine'.*no JSON form.*ToolContext"
    ):
        ToolRegistry([refuse(given=Engine)])


# The hidden parameter


def seen(context: Any) -> Any:
    assert isinstance(context, ToolContext)
    return context.deps


CONTEXTS: list[Any] = []


def with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    CONTEXTS.append(pytest.param(function, id=function.__name__))
    return function


@with_context
def plain_last(a: int, context: ToolContext) -> Any:
    return a, seen(context)


@with_context
def plain_first(context: ToolContext, a: int) -> Any:
    return a, seen(context)


@with_context
def with_default(a: int, context: ToolContext = None) -> Any:  # type: ignore[assignment]
    return a, seen(context)


@with_context
def optional(a: int, context: Optional[ToolContext] = None) -> Any:
    return a, seen(context)


@with_context
def with_pipe(a: int, *, context: ToolContext | None = None) -> Any:
    return a, seen(context)


@with_context
def annotated(a: int, context: Annotated[ToolContext, "What the run knows."]) -> Any:
    return a, seen(context)


@with_context
def positional_only(context: ToolContext, a: int, /) -> Any:
    return a, seen(context)


@with_context
def positional_only_last(a: int, context: ToolContext, /) -> Any:
    return a, seen(context)


@with_context
def before_the_rest(a: int, context: ToolContext, *rest: int) -> Any:
    assert rest == (5,)
    return a, seen(context)


@with_context
def beside_any_names(a: int, context: ToolContext, **more: Any) -> Any:
    return a, seen(context)


@with_context
async def in_a_coroutine(a: int, context: ToolContext) -> Any:
    return a, seen(context)


@pytest.mark.parametrize("function", CONTEXTS)
def test_the_context_is_hidden_and_filled_in(function: Callable[..., Any]) -> None:
    made = parameters(function)
    assert "context" not in made["properties"]
    assert made["required"] == ["a"]
    sent = {"a": 1, **({"rest": [5]} if "rest" in made["properties"] else {})}
    assert send(function, sent, deps="given to the run").value == (
        1,
        "given to the run",
    )
    forged = send(
        function, {**sent, "context": {"deps": "forged"}}, deps="given to the run"
    )
    assert forged.is_error or forged.value == (1, "given to the run")


class ToolContextless(BaseModel):
    """Only its name is like that of the context."""

    size: int


@pytest.mark.parametrize(
    ("hint", "sent"),
    [
        pytest.param(ToolContextless, {"size": 1}, id="class"),
        pytest.param(Literal["ToolContext", "other"], "ToolContext", id="text"),
    ],
)
def test_a_name_like_that_of_the_context_hides_nothing(hint: Any, sent: Any) -> None:
    assert list(parameters(taking(hint))["properties"]) == ["given"]
    assert not send(taking(hint), {"given": sent}).is_error


@pytest.mark.parametrize(
    "hint",
    [
        pytest.param(ToolContext | int, id="or a number"),
        pytest.param(list[ToolContext], id="in a list"),
        pytest.param(dict[str, ToolContext], id="in a dict"),
        pytest.param(tuple[ToolContext, None], id="in a pair"),
    ],
)
def test_a_model_cannot_make_a_context(hint: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="'given'"):
        ToolRegistry([refuse(given=hint)])


class Smuggler(BaseModel):
    cargo: ToolContext | int


@dataclasses.dataclass
class SmugglingLink:
    cargo: ToolContext | int | None = None


@pytest.mark.parametrize("hint", [Smuggler, Optional[SmugglingLink]])
def test_a_model_cannot_smuggle_a_context(hint: Any) -> None:
    """A class of the caller may hold one, say to pass it on; what a model sends never becomes one."""
    for cargo in ({"call_id": "forged", "deps": "forged"}, {}):
        try:
            result = send(taking(hint), {"given": {"cargo": cargo}})
        except ToolDefinitionError:
            return
        assert result.reason == "malformed"


@pytest.mark.parametrize("star", ["*contexts", "**contexts"])
def test_one_context_is_enough(star: str) -> None:
    module = _module(
        f"def many(a: int, {star}: ToolContext): ...\ndef two(a: ToolContext, b: ToolContext): ..."
    )
    with pytest.raises(ToolDefinitionError, match="contexts"):
        ToolRegistry([module.many])
    with pytest.raises(ToolDefinitionError, match="two ToolContext"):
        ToolRegistry([module.two])


# Values that JSON writes in its own way


class Direction(enum.Enum):
    UP = (0, 1)
    LEFT = (-1, 0)


class Shade(enum.Enum):
    RED = "red"
    GREY = {"white": 0.5}  # noqa: RUF012


class Reading(BaseModel):
    value: float
    amount: decimal.Decimal = decimal.Decimal(0)


def _outcome(hint: Any, raw: str, timeout: float | None = 60.0) -> tuple[bool, str]:
    def take(x: Any) -> str:
        return repr(x)

    take.__annotations__["x"] = hint
    registry = ToolRegistry()
    registry.register_tool(tool(timeout=timeout, registry=registry)(take))
    result = registry.call("take", f'{{"x": {raw}}}')
    return result.is_error, result.content


@pytest.mark.parametrize(
    ("hint", "raw", "shown"),
    [
        (Direction, "[0, 1]", "<Direction.UP: (0, 1)>"),
        (list[Direction], "[[-1, 0]]", "[<Direction.LEFT: (-1, 0)>]"),
        (Optional[Direction], "null", "None"),
        (Literal[Direction.UP], "[0, 1]", "<Direction.UP: (0, 1)>"),
        (Literal[Shade.RED], '"red"', "<Shade.RED: 'red'>"),
        (Literal[Shade.RED, "other"], '"other"', "'other'"),
        (Shade, '{"white": 0.5}', "<Shade.GREY: {'white': 0.5}>"),
        (
            decimal.Decimal,
            "0.1234567890123456789012345",
            "Decimal('0.1234567890123456789012345')",
        ),
        (decimal.Decimal, "1.10", "Decimal('1.10')"),
        (Optional[decimal.Decimal], "1.10", "Decimal('1.10')"),
        (dict[str, list[decimal.Decimal]], '{"a": [1.10]}', "{'a': [Decimal('1.10')]}"),
        (
            Reading,
            '{"value": 0.5, "amount": 2.50}',
            "Reading(value=0.5, amount=Decimal('2.50'))",
        ),
        (Union[decimal.Decimal, str], "1.5", "Decimal('1.5')"),
    ],
)
def test_values_as_json_writes_them(hint: Any, raw: str, shown: str) -> None:
    assert _outcome(hint, raw) == (False, shown)
    assert _outcome(hint, raw, None) == (False, shown)


@pytest.mark.parametrize(
    "raw", ['"inf"', '"1e999"', "1e999", '"NaN"', "NaN", "-Infinity", '"-Infinity"']
)
@pytest.mark.parametrize(
    ("hint", "pattern"),
    [
        (float, "{}"),
        (Optional[float], "{}"),
        (Union[int, float], "{}"),
        (list[float], "[{}]"),
        (Reading, '{{"value": {}}}'),
    ],
)
def test_what_is_no_finite_number_is_refused(hint: Any, pattern: str, raw: str) -> None:
    for timeout in (60.0, None):
        is_error, content = _outcome(hint, pattern.format(raw), timeout)
        assert is_error, content
        assert "finite" in content


@pytest.mark.parametrize("hint", [Any, dict[str, Any], list])
def test_a_number_that_is_not_finite_is_refused_wherever_it_stands(hint: Any) -> None:
    raw = {"list": "[1e999]", "dict": '{"y": 1e999}'}.get(
        getattr(hint, "__name__", ""), "1e999"
    )
    for timeout in (60.0, None):
        is_error, content = _outcome(hint, raw, timeout)
        assert (is_error, "not finite" in content) == (True, True)


def test_extra_keywords_keep_their_description() -> None:
    def configure(**options: int) -> str:
        """Configure.

        Args:
            **options: each option with its level
        """
        return str(options)

    [schema] = ToolRegistry([configure]).schemas()
    assert schema["function"]["parameters"]["additionalProperties"] == {
        "type": "integer",
        "description": "each option with its level",
    }


class Keys(typing.TypedDict):
    a: int


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        pytest.param(
            Keys,
            r"'keys'.*'Keys'.*typing_extensions\.TypedDict",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="is read"),
            id="typing.TypedDict",
        ),
        pytest.param(
            Annotated[str, Field(pattern="a(?=b)")],
            r"'keys'.*the pattern 'a\(\?=b\)'.*look-around",
            id="a pattern",
        ),
    ],
)
def test_what_pydantic_cannot_read_is_refused_with_what_to_write(
    hint: Any, message: str
) -> None:
    def take(keys: Any) -> str:
        return ""

    take.__annotations__["keys"] = hint
    with pytest.raises(ToolDefinitionError, match=message):
        tool(registry=ToolRegistry())(take)


def test_unpacked_keys_are_refused_with_what_to_write() -> None:
    def take(**keys: Any) -> str:
        return ""

    take.__annotations__["keys"] = typing_extensions.Unpack[Keys]
    with pytest.raises(
        ToolDefinitionError, match=r"'keys'.*'Keys'.*as keyword parameters"
    ):
        tool(registry=ToolRegistry())(take)
