"""How a function, a method or a class becomes a tool."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
import inspect
import json
import math
import operator
import pickle
import random
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NewType, ParamSpec, TypeVar

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from toolkit import Tool, ToolContext, ToolParameter, ToolRegistry, tool
from toolkit.errors import ToolDefinitionError
from toolkit.tools.tool import ToolOptions, as_tool

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


Rows = NewType("Rows", str)


class Position(BaseModel):
    """Where a piece stands."""

    square: str


# The decorator


def test_the_function_stays_itself(registry: ToolRegistry) -> None:
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    decorated = tool(registry=registry)(double)
    assert decorated is double
    assert decorated(3) == 6
    assert decorated.__doc__ == "Double a number."
    assert registry["double"].function is double  # type: ignore[attr-defined]


def test_without_options_it_goes_to_the_global_registry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from toolkit.tools.registry import REGISTRY

    monkeypatch.setattr(
        REGISTRY, "_tools", {}
    )  # what a test registers there must not outlive it

    @tool
    def chime(hour: int) -> str:
        return "bong" * hour

    assert REGISTRY.call("chime", {"hour": 2}).content == "bongbong"
    assert chime(1) == "bong"


def test_a_decorated_function_can_be_copied_and_pickled() -> None:
    assert copy.deepcopy(pawn)("e4") == "e4"
    assert pickle.loads(pickle.dumps(pawn)) is pawn


OWN = ToolRegistry()


@tool(registry=OWN)
def pawn(to: str) -> str:
    """Move a pawn."""
    return to


def test_tool_schema_is_the_chat_entry() -> None:
    parameters = {"type": "object", "properties": {"to": STRING}, "required": ["to"]}
    entry = {
        "type": "function",
        "function": {
            "name": "pawn",
            "description": "Move a pawn.",
            "parameters": parameters,
        },
    }
    schema = pawn.tool_schema  # type: ignore[attr-defined]  # which no type checker can see on a function
    assert isinstance(schema, Mapping)
    assert schema == entry == OWN.schemas()[0]
    assert json.loads(json.dumps(dict(schema))) == entry
    assert (len(schema), list(schema), repr(schema)) == (
        2,
        ["type", "function"],
        repr(entry),
    )


def test_tool_schema_is_read_only(registry: ToolRegistry) -> None:
    @tool(registry=registry)
    def move(to: Annotated[str, "Where."]) -> None: ...

    schema = move.tool_schema
    with pytest.raises((TypeError, AttributeError)):
        schema["type"] = "other"
    before = json.dumps(dict(schema))
    schema["function"]["parameters"]["properties"]["to"]["type"] = "integer"
    schema["function"]["name"] = "queen"
    assert json.dumps(dict(schema)) == before


def test_tools_of_equal_hints_do_not_share_what_may_be_changed() -> None:
    class Piece(BaseModel):
        letter: str

    def first(rows: list[Rows], at: list[Piece]) -> None: ...

    def second(rows: list[Rows], at: list[Piece]) -> None: ...

    for function in (first, second):
        function.__annotations__["at"] = list[Piece]
    one, other = ToolRegistry([first]), ToolRegistry([second])
    shown = one.schemas()[0]["function"]["parameters"]
    shown["properties"]["rows"]["items"]["type"] = "integer"
    shown["$defs"]["Piece"]["properties"]["letter"]["type"] = "integer"
    for registry in (one, other):
        parameters = registry.schemas()[0]["function"]["parameters"]
        assert parameters["properties"]["rows"]["items"] == STRING
        assert parameters["$defs"]["Piece"]["properties"] == {"letter": STRING}


def test_a_schema_is_built_when_it_is_first_looked_at(registry: ToolRegistry) -> None:
    @tool(registry=registry)
    def late(number: int) -> int:
        return number

    signature = registry["late"].signature
    assert "json_schema" not in vars(signature), "decorating is cheap"
    assert late.tool_schema["type"] == "function"
    assert "json_schema" in vars(signature)


def test_decorators_around_a_tool_stay_in_force() -> None:
    registry = ToolRegistry()

    def loud(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> str:
            return function(*args, **kwargs).upper()

        return inner

    @loud
    @tool(registry=registry, name="below")
    @loud
    @tool(registry=registry, name="lowest")
    def say(word: str) -> str:
        return word

    assert say("a") == "A"
    assert [
        registry.call(name, {"word": "a"}).content for name in ("below", "lowest")
    ] == ["A", "a"]
    assert registry["below"].parameters["properties"] == {"word": STRING}
    outermost = ToolRegistry()
    outermost.register_tool(say, name="top")
    assert outermost.call("top", {"word": "a"}).content == "A"


def test_a_tool_has_the_options_of_its_decorator(registry: ToolRegistry) -> None:
    @tool(
        registry=registry, name="wipe", description="Clears all.", permission="sensitive", timeout=5, tags=["disk"],
        keywords="erase", parallel=False, repeat_ok=True, strict=True,
    )  # fmt: skip
    def clear() -> None:
        """Not this."""

    made = registry["wipe"]
    got = (
        made.description,
        made.permission,
        made.timeout,
        made.tags,
        made.keywords,
        made.parallel,
        made.repeat_ok,
    )
    assert got == ("Clears all.", "sensitive", 5, ("disk",), ("erase",), False, True)
    assert clear.tool_schema["function"]["strict"] is True
    assert clear.tool_schema["function"]["description"] == "Clears all."


def test_what_holds_without_options(registry: ToolRegistry) -> None:
    made = registry.register_tool(math.sqrt)
    got = (
        made.permission,
        made.timeout,
        made.tags,
        made.keywords,
        made.parallel,
        made.repeat_ok,
        made.strict,
    )
    assert got == ("write", 60.0, (), (), True, False, None)


def test_no_description_is_sent_where_there_is_none(registry: ToolRegistry) -> None:
    @tool(registry=registry)
    def bare() -> None: ...

    assert "description" not in bare.tool_schema["function"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        pytest.param(
            {"permission": "root"},
            "permission='root' of 'move'.*'read', 'write', 'sensitive'",
            id="tier",
        ),
        pytest.param({"timeout": 0}, "timeout=0 of 'move'", id="no time"),
        pytest.param({"timeout": -1.0}, "timeout=-1.0 of 'move'", id="time backwards"),
        pytest.param(
            {"timeout": float("nan")}, "timeout=nan of 'move'", id="time that is none"
        ),
        pytest.param({"timeout": "5"}, "timeout='5' of 'move'", id="time as text"),
        pytest.param({"name": ""}, "no name", id="empty name"),
        pytest.param({"name": "  "}, "no name", id="blank name"),
        pytest.param({"name": 5}, "no name", id="a number as name"),
        pytest.param({"colour": "red"}, "colour", id="no such option"),
    ],
)
def test_wrong_options_are_refused_at_decoration(
    options: dict[str, Any], complaint: str
) -> None:
    def move(to: str) -> str:
        return to

    registry = ToolRegistry()
    with pytest.raises(TypeError, match=complaint):
        tool(registry=registry, **options)(move)
    with pytest.raises(TypeError, match=complaint):
        registry.register_tool(move, **options)
    assert len(registry) == 0


# Callables of every kind


class Rook:
    """A piece."""

    def __init__(self, name: str = "R") -> None:
        self.name = name

    def go(self, to: Position, fast: bool = False) -> str:
        """Go somewhere.

        Args:
            to: Where.
        """
        return f"{self.name}{to.square}"

    async def go_later(self, to: Position) -> str:
        """Go later."""
        return f"{self.name}{to.square}"

    @classmethod
    def kind(cls, long: bool = False) -> str:
        """Tell its kind."""
        return cls.__name__ if long else cls.__name__[0]

    @staticmethod
    def value(of: Position) -> int:
        """Tell its value."""
        return 5

    def steps(self, count: int) -> Any:
        """Count steps."""
        yield from range(count)


class Castle(Rook):
    def go(self, to: Position, fast: bool = False) -> str:
        return "castled"


class Judge:
    """Judges moves."""

    def __init__(self, strictness: int) -> None:
        self.strictness = strictness

    def __call__(self, to: Position, *, factor: int = 2) -> int:
        """Judge a move.

        Args:
            to: The move.
        """
        return self.strictness * factor


class StricterJudge(Judge):
    """Judges the same way."""


class QuietJudge:
    """Says nothing of its call."""

    async def __call__(self, to: Position) -> str:
        return to.square


def send_note(sender: str, to: Position, body: str, copies: int = 2) -> str:
    """Send a note.

    Args:
        sender: From whom.
        body: What.
    """
    return f"{sender}>{to.square}:{body}*{copies}"


@functools.cache
def cached(to: str) -> str:
    """Remember."""
    return to


async def coroutine(to: Position) -> str:
    """Wait."""
    await asyncio.sleep(0)
    return to.square


def injected(function: Callable[..., str]) -> Callable[..., str]:
    """Fills in one parameter, and says so in the signature."""

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> str:
        return function(*args, board="B", **kwargs)

    signature = inspect.signature(function)
    kept = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.name != "board"
    ]
    inner.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return inner


@injected
def place(to: Position, board: ModuleNotThere) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Place a piece."""
    return board + to.square


TO = {"to": {"square": "e4"}}
CALLABLES = [
    pytest.param(Rook().go, "go", "Go somewhere.", ["to", "fast"], ["to"], TO, "Re4", id="bound method"),
    pytest.param(Castle().go, "go", "Go somewhere.", ["to", "fast"], ["to"], TO, "castled", id="overriding method"),
    pytest.param(Rook().go_later, "go_later", "Go later.", ["to"], ["to"], TO, "Re4", id="async method"),
    pytest.param(Rook.kind, "kind", "Tell its kind.", ["long"], [], {}, "R", id="class method"),
    pytest.param(Castle.kind, "kind", "Tell its kind.", ["long"], [], {}, "C", id="class method of a subclass"),
    pytest.param(Rook.value, "value", "Tell its value.", ["of"], ["of"], {"of": TO["to"]}, 5, id="static method"),
    pytest.param(Rook().steps, "steps", "Count steps.", ["count"], ["count"], {"count": 2}, [0, 1], id="generator"),
    pytest.param(
        functools.partial(send_note, "ann", copies=5), "send_note", "Send a note.", ["to", "body", "copies"],
        ["to", "body"], {**TO, "body": "b"}, "ann>e4:b*5", id="partial",
    ),
    pytest.param(
        functools.partial(functools.partial(send_note, "ann"), body="b"), "send_note", "Send a note.",
        ["to", "body", "copies"], ["to"], TO, "ann>e4:b*2", id="partial of a partial",
    ),
    pytest.param(
        functools.partial(Rook("Q").go, fast=True), "go", "Go somewhere.", ["to", "fast"], ["to"], TO, "Qe4",
        id="partial of a method",
    ),
    pytest.param(functools.partial(coroutine), "coroutine", "Wait.", ["to"], ["to"], TO, "e4", id="async partial"),
    pytest.param(Judge(3), "Judge", "Judge a move.", ["to", "factor"], ["to"], TO, 6, id="callable object"),
    pytest.param(
        StricterJudge(4), "StricterJudge", "Judge a move.", ["to", "factor"], ["to"], TO, 8,
        id="callable object that inherits its call",
    ),
    pytest.param(
        QuietJudge(), "QuietJudge", "Says nothing of its call.", ["to"], ["to"], TO, "e4",
        id="callable object, async, told of by its class",
    ),
    pytest.param(
        functools.partial(QuietJudge()), "QuietJudge", "Says nothing of its call.", ["to"], ["to"], TO, "e4",
        id="partial of a callable object, told of by its class",
    ),
    pytest.param(
        functools.partial(Judge(3), factor=1), "Judge", "Judge a move.", ["to", "factor"], ["to"], TO, 3,
        id="partial of a callable object",
    ),
    pytest.param(coroutine, "coroutine", "Wait.", ["to"], ["to"], TO, "e4", id="coroutine function"),
    pytest.param(cached, "cached", "Remember.", ["to"], ["to"], {"to": "a"}, "a", id="cached function"),
    pytest.param(place, "place", "Place a piece.", ["to"], ["to"], TO, "Be4", id="a wrapper that tells its signature"),
    pytest.param(
        len, "len", "Return the number of items in a container.", ["obj"], ["obj"], {"obj": [1, 2]}, 2, id="builtin"
    ),
    pytest.param(operator.add, "add", "Same as a + b.", ["a", "b"], ["a", "b"], {"a": 1, "b": 2}, 3, id="operator"),
    pytest.param(
        "ab-c".split, "split", None, ["sep", "maxsplit"], [], {"sep": "-"}, ["ab", "c"], id="method of a builtin"
    ),
    pytest.param(random.Random(1).randint, "randint", None, ["a", "b"], ["a", "b"], {"a": 3, "b": 3}, 3, id="library"),
    pytest.param(
        Position, "Position", "Where a piece stands.", ["square"], ["square"], {"square": "e4"}, Position(square="e4"),
        id="class",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "name", "description", "shown", "required", "sent", "wanted"),
    CALLABLES,
)
def test_any_callable_becomes_a_tool(
    function: Any,
    name: str,
    description: str | None,
    shown: list[str],
    required: list[str],
    sent: Any,
    wanted: Any,
) -> None:
    registry = ToolRegistry([function])
    [entry] = registry.schemas()
    Draft202012Validator.check_schema(entry["function"]["parameters"])
    assert entry["function"]["name"] == name
    assert description in (None, entry["function"].get("description"))
    assert list(entry["function"]["parameters"]["properties"]) == shown
    assert entry["function"]["parameters"].get("required", []) == required
    for result in (registry.call(name, sent), asyncio.run(registry.acall(name, sent))):
        assert (result.content if result.is_error else result.value) == wanted


def test_a_class_without_a_docstring_has_no_description(registry: ToolRegistry) -> None:
    """Neither that of its base, nor the one that Python makes up."""

    class Bare(BaseModel):
        square: str

    @dataclasses.dataclass
    class Pair:
        left: str

    for kind in (Bare, Pair):
        registry.register_tool(kind)
    assert [entry["function"].get("description") for entry in registry.schemas()] == [
        None,
        None,
    ]


P, R = ParamSpec("P"), TypeVar("R")


def unnamed(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator that forgets functools.wraps; its hints can be told to nobody."""

    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return inner


@pytest.mark.parametrize(
    ("thing", "complaint"),
    [
        pytest.param(lambda to: to, r"lambda has no name.*name=", id="lambda"),
        pytest.param(
            functools.partial(lambda to: to),
            r"lambda has no name.*name=",
            id="partial of a lambda",
        ),
        pytest.param(
            dict,
            r"'dict' has no readable signature",
            id="builtin without a signature",
        ),
        pytest.param(
            unnamed(send_note),
            r"'args'.*'inner'|'inner'.*'args'",
            id="wrapper without wraps",
        ),
        pytest.param("go", r"'go'.*cannot be called", id="text"),
        pytest.param(3, r"3.*cannot be called", id="number"),
        pytest.param(property(lambda self: 1), r"cannot be called", id="property"),
        pytest.param(Tool, r"class of tools.*Tool\(\)", id="the class Tool"),
    ],
)
def test_what_cannot_be_a_tool(thing: Any, complaint: str) -> None:
    for take in (
        lambda: ToolRegistry([thing]),
        lambda: tool(registry=ToolRegistry())(thing),
    ):
        with pytest.raises(ToolDefinitionError, match=complaint):
            take()


def test_a_method_without_its_object_is_no_tool() -> None:
    with pytest.raises(ToolDefinitionError, match=r"'self'.*'go'|'go'.*'self'"):
        ToolRegistry([Rook.go])


def test_a_lambda_may_be_given_a_name(registry: ToolRegistry) -> None:
    made = registry.register_tool(lambda to, fast=False: to, name="go")
    assert made.parameters == {
        "type": "object",
        "properties": {"to": {}, "fast": {"default": False}},
        "required": ["to"],
    }
    assert registry.call("go", {"to": "e4"}).value == "e4"


def test_a_tool_is_taken_as_it_is(registry: ToolRegistry) -> None:
    made = registry.register_tool(pawn)
    assert made is OWN["pawn"]
    assert as_tool(made) is made


# Hints that name what stands around a function: those of this module are all postponed


def test_a_function_inside_a_function(registry: ToolRegistry) -> None:
    class Clock(BaseModel):
        minutes: int

    Clocks = list[Clock]

    def waits(function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.wraps(function)(
            lambda *args, **kwargs: function(*args, **kwargs)
        )

    @tool(registry=registry)
    @waits
    def start(clock: Clock, others: Clocks | None = None) -> int:
        return clock.minutes + len(others or [])

    assert (
        registry.call(
            "start", {"clock": {"minutes": 5}, "others": [{"minutes": 1}]}
        ).value
        == 6
    )


def test_a_method_of_a_class_inside_a_function(registry: ToolRegistry) -> None:
    class Clock(BaseModel):
        minutes: int

    class Table:
        @tool
        def start(self, clock: Clock) -> int:
            return clock.minutes

    registry.register_methods(Table())
    assert registry.call("start", {"clock": {"minutes": 5}}).value == 5


class Tournament:
    class Mode(BaseModel):
        rounds: int

    @tool
    def open(self, mode: Mode) -> int:
        return mode.rounds


def test_a_method_may_name_what_its_class_holds(registry: ToolRegistry) -> None:
    registry.register_methods(Tournament())
    assert registry.call("open", {"mode": {"rounds": 3}}).value == 3


class Cellar:
    """Its methods bear names that its hints use as well."""

    @tool
    def list(self) -> str:
        return "all"

    @tool
    def get(self, ids: list[int], kind: set[str] | None = None) -> Any:  # type: ignore[valid-type]
        return ids

    @tool
    def set(self, ids: list[int]) -> Any:  # type: ignore[valid-type]
        return ids


def test_methods_may_be_named_as_types(registry: ToolRegistry) -> None:
    class Attic:
        @tool(name="list_attic")
        def list(self) -> str:
            return "all"

        @tool(name="get_attic")
        def get(self, ids: list[int]) -> Any:  # type: ignore[valid-type]
            return ids

    registry.register_methods(Cellar())
    registry.register_methods(Attic())
    for name in ("get", "set", "get_attic"):
        assert registry[name].parameters["properties"]["ids"] == {
            "type": "array",
            "items": {"type": "integer"},
        }
        assert registry.call(name, {"ids": [1]}).value == [1]


# Methods


class Board:
    """Marks methods in every order of decorators."""

    def __init__(self, name: str = "board") -> None:
        self.name = name

    @tool
    def show(self, turned: bool = False) -> str:
        """Show the board."""
        return self.name

    @tool(name="set_up", permission="sensitive", tags=["start"], timeout=3)
    def prepare(self) -> str:
        return "ready"

    @tool
    @staticmethod
    def size(of: int) -> int:
        return of

    @staticmethod
    @tool
    def width(of: int) -> int:
        return of

    @tool
    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    @classmethod
    @tool
    def family(cls) -> str:
        return cls.__name__

    @tool
    async def later(self, seconds: float = 0) -> str:
        return self.name

    def unmarked(self) -> None: ...

    @property
    def untouched(self) -> Any:
        raise RuntimeError("looking for marks must not run properties")


class SmallBoard(Board):
    @tool(description="Show it smaller.")
    def show(self, turned: bool = False) -> str:
        return self.name[:2]

    @tool
    def fold(self) -> str:
        return "folded"


def test_a_mark_leaves_the_method_as_it_is() -> None:
    board = Board("b")
    assert (board.show(), board.size(8), Board.width(8), board.kind(), SmallBoard.family()) == (
        "b", 8, 8, "Board", "SmallBoard",
    )  # fmt: skip
    assert asyncio.run(board.later()) == "b"


@pytest.mark.parametrize(
    ("board", "wanted"),
    [
        pytest.param(
            Board("bb"),
            {"show": "bb", "size": 8, "width": 8, "kind": "Board", "family": "Board", "later": "bb"},
            id="a class",
        ),
        pytest.param(
            SmallBoard("small"),
            {"show": "sm", "size": 8, "width": 8, "kind": "SmallBoard", "family": "SmallBoard", "later": "small",
             "fold": "folded"},
            id="a subclass, with what it inherits and what it overrides",
        ),
    ],
)  # fmt: skip
def test_the_methods_of_an_object_become_tools(
    registry: ToolRegistry, board: Board, wanted: dict[str, Any]
) -> None:
    made = registry.register_methods(board)
    assert [one.name for one in made] == [one.name for one in registry]
    assert {one.name for one in made} == {*wanted, "set_up"}
    for name, value in wanted.items():
        assert (
            registry.call(name, {"of": 8} if name in ("size", "width") else {}).value
            == value
        )


def test_a_marked_method_keeps_its_options(registry: ToolRegistry) -> None:
    registry.register_methods(SmallBoard())
    made = registry["set_up"]
    assert (made.permission, made.tags, made.timeout) == ("sensitive", ("start",), 3)
    assert registry["show"].description == "Show it smaller."
    assert ToolRegistry([Board().prepare])["set_up"].permission == "sensitive"


def test_a_mark_registers_nothing() -> None:
    from toolkit.tools.registry import REGISTRY

    assert not {
        "show",
        "set_up",
        "prepare",
        "size",
        "width",
        "kind",
        "family",
        "later",
    } & {t.name for t in REGISTRY}


def test_marks_in_classes_of_other_makes(registry: ToolRegistry) -> None:
    @dataclasses.dataclass(frozen=True)
    class Piece:
        name: str

        @tool(name="piece")
        def tell(self) -> str:
            return self.name

    class Square(BaseModel):
        name: str

        @tool(name="square")
        def tell(self) -> str:
            return self.name

    registry.register_methods(Piece("rook"))
    registry.register_methods(Square(name="e4"))
    assert [registry.call(name, {}).value for name in ("piece", "square")] == [
        "rook",
        "e4",
    ]


@pytest.mark.parametrize("thing", [Rook(), Board, 3])
def test_an_object_without_marked_methods(
    registry: ToolRegistry, thing: object
) -> None:
    with pytest.raises(ToolDefinitionError, match="@tool"):
        registry.register_methods(thing)


# Class tools


class Counter(Tool):
    """A tool with state."""

    name = "count"
    description = "Counts on."
    permission = "read"
    tags = ("numbers",)

    def __init__(self, start: int = 0) -> None:
        self.at = start

    def get_parameters(self) -> list[ToolParameter]:
        return [
            ToolParameter("by", "integer", "How far.", required=False, default=1),
            ToolParameter("label", "string", "What for.", required=False),
        ]

    def run(self, parameters: dict[str, Any]) -> Any:
        self.at += parameters["by"]
        return self.at, parameters


class LaterCounter(Counter):
    name = "count_later"

    async def run(self, parameters: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return super().run(parameters)


def listing(*parameters: ToolParameter, **attributes: Any) -> Tool:
    """A class tool that returns what it got."""

    class Listing(Tool):
        name = "listing"

        def get_parameters(self) -> list[ToolParameter]:
            return list(parameters)

        def run(self, parameters: dict[str, Any]) -> Any:
            return parameters

    for name, value in attributes.items():
        setattr(Listing, name, value)
    return Listing()


def test_a_class_tool_has_state(registry: ToolRegistry) -> None:
    counter = Counter(5)
    assert registry.register_tool(counter) is counter
    assert [
        registry.call("count", sent).value[0]
        for sent in ({}, {"by": "3"}, {"by": None})
    ] == [6, 9, 10]
    assert counter.at == 10
    assert ToolRegistry([Counter()]).call("count", {}).value[0] == 1


def test_parameters_are_complete_with_their_defaults(registry: ToolRegistry) -> None:
    registry.register_tool(Counter())
    assert registry.call("count", {}).value[1] == {"by": 1, "label": None}
    assert registry.call("count", {"label": "x"}).value[1] == {"by": 1, "label": "x"}
    assert registry.call("count", {"label": None}).value[1] == {"by": 1, "label": None}


def test_an_async_class_tool(registry: ToolRegistry) -> None:
    registry.register_tool(LaterCounter())
    assert registry.call("count_later", {"by": 2}).value[0] == 2
    assert asyncio.run(registry.acall("count_later", {"by": 2})).value[0] == 4


def test_the_schema_of_a_class_tool_comes_from_its_listing() -> None:
    [entry] = ToolRegistry([Counter()]).schemas()
    by = {**INTEGER, "description": "How far.", "default": 1}
    assert entry["function"]["name"] == "count"
    assert entry["function"]["description"] == "Counts on."
    assert entry["function"]["parameters"]["properties"]["by"] == by
    assert (
        entry["function"]["parameters"]["properties"]["label"]["description"]
        == "What for."
    )
    assert "required" not in entry["function"]["parameters"]


@pytest.mark.parametrize(
    ("kind", "entry", "sent", "wrong"),
    [
        pytest.param("string", STRING, "s", 1, id="string"),
        pytest.param("integer", INTEGER, 1, "x", id="integer"),
        pytest.param("number", {"type": "number"}, 1.5, "x", id="number"),
        pytest.param("boolean", {"type": "boolean"}, True, "x", id="boolean"),
        pytest.param("array", {"type": "array", "items": {}}, [1, "a"], 1, id="array"),
        pytest.param(
            "object",
            {"type": "object", "additionalProperties": True},
            {"k": 1},
            1,
            id="object",
        ),
        pytest.param("any", {}, None, ..., id="any"),
        pytest.param(
            list[int], {"type": "array", "items": INTEGER}, [1], ["x"], id="hint"
        ),
        pytest.param(
            Literal["a", "b"], {**STRING, "enum": ["a", "b"]}, "a", "c", id="Literal"
        ),
        pytest.param(
            Annotated[int, Field(ge=1)], {**INTEGER, "minimum": 1}, 1, 0, id="Annotated"
        ),
        pytest.param(
            int | None,
            {"anyOf": [INTEGER, {"type": "null"}]},
            None,
            "x",
            id="or nothing",
        ),
    ],
)
def test_types_of_class_parameters(
    kind: Any, entry: dict[str, Any], sent: Any, wrong: Any
) -> None:
    registry = ToolRegistry([listing(ToolParameter("it", kind, "What."))])
    parameters = registry.schemas()[0]["function"]["parameters"]
    assert parameters == {
        "type": "object",
        "properties": {"it": {**entry, "description": "What."}},
        "required": ["it"],
    }
    assert registry.call("listing", {"it": sent}).value == {"it": sent}
    assert registry.call("listing", {}).is_error
    assert wrong is ... or "it" in registry.call("listing", {"it": wrong}).content


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        pytest.param(lambda: listing(ToolParameter("it", "text", "")), r"'it' has the type 'text'.*string", id="type"),
        pytest.param(lambda: listing(ToolParameter("it", Rook, "")), r"'it' of 'listing'.*'Rook'", id="class"),
        pytest.param(
            lambda: listing(ToolParameter("it", "string", ""), ToolParameter("it", "integer", "")), r"'it'.*'listing'|"
            r"'listing'.*'it'", id="one name twice",
        ),
        pytest.param(lambda: listing(name=""), "no name", id="no name"),
        pytest.param(lambda: listing(permission="root"), "permission='root' of 'listing'", id="tier"),
        pytest.param(lambda: Counter, r"class of tools.*Counter\(\)", id="class for an instance"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_class_tool(made: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(ToolDefinitionError, match=complaint):
        ToolRegistry([made()])


@pytest.mark.parametrize("thing", [Counter, Counter()])
def test_the_decorator_is_for_functions(registry: ToolRegistry, thing: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        tool(registry=registry)(thing)
    assert len(registry) == 0


def test_any_names_for_class_parameters() -> None:
    names = ["self", "from", "model_config", "with space", "a-b"]
    registry = ToolRegistry(
        [listing(*(ToolParameter(name, "string", "") for name in names))]
    )
    sent = dict.fromkeys(names, "x")
    assert registry.call("listing", sent).value == sent


def test_a_class_tool_may_be_a_dataclass() -> None:
    @dataclasses.dataclass(frozen=True)
    class Fetch(Tool):
        base: str
        name: str = "fetch"
        description: str = "Fetches."

        def get_parameters(self) -> list[ToolParameter]:
            return []

        def run(self, parameters: dict[str, Any]) -> str:
            return self.base

    registry = ToolRegistry([Fetch("a"), Fetch("b", name="fetch.b")])
    assert [registry.call(name, {}).value for name in ("fetch", "fetch.b")] == [
        "a",
        "b",
    ]


def test_the_readable_listing_of_a_function() -> None:
    def order(dish: Annotated[str, "What."], covers: int = 2) -> None: ...

    wanted = [
        ToolParameter("dish", "string", "What."),
        ToolParameter("covers", "integer", "", False, 2),
    ]
    assert as_tool(order).get_parameters() == wanted


# Schemas written by hand

ORDER = {
    "type": "object",
    "properties": {
        "dish": {"type": "string"},
        "rows": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["dish"],
}


SCALARS = {
    "properties": {
        "i": {"type": "integer"},
        "n": {"type": "number"},
        "b": {"type": "boolean"},
        "s": {"type": ["string", "integer"]},
    }
}


def written(schema: Any, function: Callable[..., Any] | None = None) -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_tool(
        function or (lambda **given: given), name="written", schema=schema
    )
    return registry


@pytest.mark.parametrize(
    ("schema", "sent", "wanted"),
    [
        pytest.param(ORDER, {"dish": "pie", "rows": [1]}, {"dish": "pie", "rows": [1]}, id="fits"),
        pytest.param(ORDER, {"dish": "pie", "rows": "[1]"}, {"dish": "pie", "rows": [1]}, id="JSON text for an array"),
        pytest.param(ORDER, {"dish": "pie", "rows": None}, {"dish": "pie"}, id="null for what may be missing"),
        pytest.param(ORDER, {}, "dish", id="missing"),
        pytest.param(ORDER, {"dish": 3}, "dish", id="wrong type"),
        pytest.param(ORDER, {"dish": "pie", "rows": [1, "x"]}, "rows.1", id="wrong type inside"),
        pytest.param(ORDER, {"dish": "pie", "drink": "tea"}, "drink", id="extra key"),
        pytest.param(SCALARS, {"i": "3", "n": "2.5", "b": "true"}, {"i": 3, "n": 2.5, "b": True}, id="scalars as text"),
        pytest.param(SCALARS, {"i": "2.5"}, "integer", id="a fraction for an integer"),
        pytest.param(SCALARS, {"b": "yes"}, "boolean", id="a word for a boolean"),
        pytest.param(SCALARS, {"s": "2"}, {"s": "2"}, id="a text that is welcome stays"),
        pytest.param(ORDER, {"dish": "pie", "rows": '["1"]'}, {"dish": "pie", "rows": [1]}, id="text within text"),
        pytest.param({"properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}}, {"a": 1}, "itself", id="loop"),
        pytest.param({**ORDER, "additionalProperties": False}, {"dish": "p", "x": 1}, "x", id="extra key, closed"),
        pytest.param({**ORDER, "additionalProperties": True}, {"dish": "p", "x": 1}, {"dish": "p", "x": 1}, id="open"),
        pytest.param({**ORDER, "additionalProperties": STRING}, {"dish": "p", "x": 1}, "x", id="extra key's type"),
        pytest.param({"properties": {"a": INTEGER}}, {"a": 1}, {"a": 1}, id="no type at the root"),
        pytest.param({}, {}, {}, id="empty"),
        pytest.param({}, {"a": 1}, "a", id="empty, and a key"),
        pytest.param({"properties": {"a": True}}, {"a": [None]}, {"a": [None]}, id="a property of any value"),
        pytest.param(
            {"properties": {"a": {"anyOf": [INTEGER, STRING]}, "b": {"$ref": "#/properties/a/anyOf/0"}}},
            {"b": 1}, {"b": 1}, id="a reference into a list",
        ),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
             "properties": {"a": {"type": "array", "items": [INTEGER, STRING]}}},
            {"a": [1, "x"]}, {"a": [1, "x"]}, id="an older draft that says so",
        ),
    ],
)  # fmt: skip
def test_hand_written_schemas(schema: dict[str, Any], sent: Any, wanted: Any) -> None:
    result = written(schema).call("written", sent)
    if isinstance(wanted, str):
        assert result.reason == "malformed"
        assert wanted in result.content
    else:
        assert (result.value, result.is_error) == (wanted, False)


EITHER = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"text": STRING, "size": INTEGER},
            "required": ["text", "size"],
        },
        {
            "type": "object",
            "properties": {"link": STRING, "size": INTEGER},
            "required": ["link", "size"],
        },
    ]
}


def test_alternatives_at_the_root_become_one_object_and_still_hold() -> None:
    registry = written(EITHER)
    parameters = registry.schemas()[0]["function"]["parameters"]
    assert parameters["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf"} & parameters.keys()
    assert (set(parameters["properties"]), parameters["required"]) == (
        {"text", "link", "size"},
        ["size"],
    )
    assert registry.call("written", {"link": "l", "size": 1}).value == {
        "link": "l",
        "size": 1,
    }
    for wrong in ({"size": 1}, {"link": "l"}, {"link": 3, "size": 1}, {"other": 1}):
        assert registry.call("written", wrong).reason == "malformed"


def test_a_property_with_a_hand_written_true_is_listed() -> None:
    [listed] = written({"properties": {"a": True}})["written"].get_parameters()
    assert (listed.name, listed.type, listed.required) == ("a", "any", False)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "array", "items": STRING}, id="an array at the root"),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "text"}}},
            id="no type of JSON",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {"minimum": "low"}}},
            id="a limit that is none",
        ),
        pytest.param(
            {"type": "object", "properties": ["a"]}, id="properties in a list"
        ),
        pytest.param({"type": "object", "required": "a"}, id="required as text"),
        pytest.param(
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/B"}}},
            id="a reference to nowhere",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {"$ref": "http://192.0.2.1/s.json"}},
            },
            id="a reference to elsewhere",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {"$dynamicRef": "http://192.0.2.1/s.json"}},
            },
            id="a reference to elsewhere by another word",
        ),
        pytest.param("text", id="text"),
        pytest.param(True, id="true"),
    ],
)
def test_what_is_no_schema_is_refused_at_decoration(schema: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        written(schema)


def test_a_hand_written_schema_is_a_copy() -> None:
    mine = copy.deepcopy(ORDER)
    registry = written(mine)
    mine["properties"]["dish"]["type"] = "integer"  # type: ignore[index]
    mine["required"].append("rows")  # type: ignore[union-attr, attr-defined]
    assert registry.schemas()[0]["function"]["parameters"] == ORDER
    assert registry.call("written", {"dish": "pie"}).value == {"dish": "pie"}


def test_a_hand_written_schema_serves_any_kind_of_function() -> None:
    def order(dish, /, rows=(), *, context: ToolContext):  # type: ignore[no-untyped-def]
        """Order."""
        return dish, rows, context.deps

    registry = written(ORDER, order)
    assert registry.schemas()[0]["function"]["description"] == "Order."
    assert registry.call("written", {"dish": "pie"}, deps="d").value == ("pie", (), "d")


@pytest.mark.parametrize(
    ("function", "name"),
    [
        pytest.param(lambda dish: dish, "rows", id="the function takes less"),
        pytest.param(
            lambda dish, rows, table: dish, "table", id="the function wants more"
        ),
    ],
)
def test_a_hand_written_schema_must_fit_its_function(
    function: Callable[..., Any], name: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=f"'{name}'"):
        written(ORDER, function)


def test_hand_written_schemas_need_a_package(
    monkeypatch: pytest.MonkeyPatch, registry: ToolRegistry
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ToolDefinitionError, match=r"'order'.*jsonschema.*pip install"):

        @tool(registry=registry, schema=ORDER)
        def order(dish: str) -> str:
            return dish

    assert isinstance(registry.register_tool(pawn), Tool), "all others go on without it"


# Copies


def test_every_option_is_an_attribute_of_a_tool() -> None:
    attributes = ToolOptions.__annotations__.keys() - {"schema"}
    assert all(hasattr(Tool, name) for name in attributes)


def test_a_replaced_tool_differs_and_runs_on_the_original() -> None:
    class Count(Tool):
        name = "count"
        total = 0

        def get_parameters(self) -> list[ToolParameter]:
            return []

        def run(self, parameters: dict[str, Any]) -> int:
            self.total += 1
            return self.total

    count = Count()
    reader = count.replace(name="a b", permission="read")
    assert (reader.name, reader.wire_name, reader.permission) == ("a b", "a_b", "read")
    assert (count.name, count.permission) == ("count", "write")
    assert [tool.call({}, None) for tool in (count, reader, reader)] == [1, 2, 3]
    answer = reader.replace(call=lambda values, context: "dry")
    assert answer.call({}, None) == "dry"
    function = as_tool(lambda: "done", {"name": "do", "description": "Does."})
    assert function.replace(timeout=None).call({}, None) == "done"
    assert function.replace(timeout=None).description == "Does."


# Class tools as people write them


class Search(Tool):
    def __init__(self) -> None:
        super().__init__(name="search_web", description="Search the web.", timeout=5)

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("query", "string", "Words to look for.")]

    def run(self, parameters: dict[str, Any]) -> str:
        return f"found {parameters['query']}"


def test_a_class_tool_names_itself_in_its_constructor() -> None:
    registry = ToolRegistry([Search()])
    tool = registry["search_web"]
    assert (tool.description, tool.timeout) == ("Search the web.", 5)
    assert registry.call("search_web", '{"query": "cats"}').content == "found cats"
    listing = "- search_web: Search the web.\n  - query (string, required): Words to look for."
    assert registry.describe() == listing


def test_an_unknown_option_of_a_class_tool_is_refused() -> None:
    with pytest.raises(TypeError, match="timeout_s"):
        Tool.__init__(Search(), name="x", timeout_s=3)


@pytest.mark.parametrize("method", ["run", "get_parameters"])
def test_a_class_tool_without_a_method_is_refused_when_registered(method: str) -> None:
    kind = type("Half", (Search,), {method: getattr(Tool, method)})
    with pytest.raises(ToolDefinitionError, match=rf"Half does not implement {method}"):
        ToolRegistry([kind()])


WRONG_PARAMETERS: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": " "}, "not empty"),
    "a name that is none": ({"name": 5}, "not empty"),
    "a type that is none": ({"type": "text"}, "'text'"),
    "a description that is none": ({"description": None}, "must be a text"),
    "a default of another type": (
        {"type": "integer", "required": False, "default": "ten"},
        "default='ten'",
    ),
    "a default outside of a hint": (
        {"type": Literal["a", "b"], "required": False, "default": "c"},
        "default='c'",
    ),
}


@pytest.mark.parametrize(
    ("fields", "told"), WRONG_PARAMETERS.values(), ids=WRONG_PARAMETERS
)
def test_a_wrong_parameter_is_refused(fields: dict[str, Any], told: str) -> None:
    right = {"name": "n", "type": "string", "description": "It."}
    with pytest.raises(ToolDefinitionError, match=told):
        ToolParameter(**{**right, **fields})


def test_a_parameter_is_exported() -> None:
    parameter = ToolParameter("n", "integer", "It.", required=False, default=3)
    assert parameter.to_dict() == {
        "name": "n",
        "type": "integer",
        "description": "It.",
        "required": False,
        "default": 3,
    }
