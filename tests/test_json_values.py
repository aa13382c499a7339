"""Validated arguments as JSON: what approvers, rules, digests, plans and the audit log see of a call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    Field,
    Json,
    PlainSerializer,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    computed_field,
)
from typing_extensions import TypedDict

from toolkit import Tool, ToolContext, ToolParameter
from toolkit.tools.signatures import read_signature
from toolkit.tools.tool import as_tool

UID = "12345678-1234-5678-1234-567812345678"
SECRET = "<SecretStr sha256:f52fbd32b2b3b86f>"


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Address(BaseModel):
    street: str = Field(alias="Street")
    number: int = Field(3, validation_alias=AliasChoices("no", "nr"))


class Login(BaseModel):
    name: str
    password: SecretStr


class Hidden(BaseModel):
    amount: int = Field(exclude=True)
    friends: set[int] = set()

    @computed_field
    def twice(self) -> int:
        return self.amount * 2


class Open(BaseModel, extra="allow"):
    at: date


class Tags(RootModel[set[str]]):
    pass


@dataclass
class Point:
    x: float
    seen: set[str] = field(default_factory=set)


class Range(TypedDict, total=False):
    low: int
    days: set[date]


class Pair(NamedTuple):
    left: int
    right: date


class Money:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Money at {id(self)}: {self.text}"


Cash = Annotated[Any, BeforeValidator(Money)]
Written = Annotated[Any, BeforeValidator(Money), PlainSerializer(lambda m: m.text)]


def of(hint: Any) -> Callable[..., Any]:
    """A function with one parameter."""

    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": hint}
    return function


def json_arguments(
    function: Callable[..., Any], sent: dict[str, Any]
) -> dict[str, Any]:
    signature = read_signature(function, name="f")
    values, _ = signature.validate(sent)
    before = repr(values)
    found = signature.json_arguments(values)[0]
    assert repr(values) == before
    json.dumps(found, allow_nan=False)
    assert found == json.loads(json.dumps(found))
    return found


@pytest.mark.parametrize(
    ("hint", "sent", "form"),
    [
        (int, "666", 666),
        (bool, "yes", True),
        (str, "é\x00", "é\x00"),
        (int, 2**70, 2**70),
        (Annotated[float, Field(allow_inf_nan=True)], "inf", "Infinity"),
        (date, 86400, "1970-01-02"),
        (datetime, "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        (timedelta, 90, "PT1M30S"),
        (set[int], [10, "9", 9, 8], [10, 8, 9]),
        (set[str], ["b", "a", "b"], ["a", "b"]),
        (frozenset[tuple[int, str]], [[2, "b"], [1, "a"]], [[1, "a"], [2, "b"]]),
        (list[set[int]], [[2, 1]], [[1, 2]]),
        (deque[int], ["1"], [1]),
        (tuple[int, date], [1, "2026-01-02"], [1, "2026-01-02"]),
        (Iterable[int], ["1", "2"], [1, 2]),
        (Pair, [1, "2026-01-02"], [1, "2026-01-02"]),
        (dict[int, date], {"1": "2026-01-02"}, {"1": "2026-01-02"}),
        (dict[date, set[int]], {"2026-01-02": [2, 1]}, {"2026-01-02": [1, 2]}),
        (dict[int, set[int]], {"1": [2, 1]}, {"1": [1, 2]}),
        (Color, "red", "red"),
        (Level, 3, 3),
        (Decimal, "1.10", "1.10"),
        (UUID, UID.replace("-", ""), UID),
        (Path, "a/../b", str(Path("a/../b"))),
        (AnyUrl, "http://a.example", "http://a.example/"),
        (Json[dict[str, int]], '{"a": "1"}', {"a": 1}),
        (bytes, "é", "é"),
        (Any, {"a": [1, None, 2.5]}, {"a": [1, None, 2.5]}),
        (Address, {"Street": "A", "nr": "7"}, {"street": "A", "number": 7}),
        (list[Address], [{"Street": "A"}], [{"street": "A", "number": 3}]),
        (Open, {"at": "2026-01-02", "b": 1}, {"at": "2026-01-02", "b": 1}),
        (Tags, ["b", "a"], ["a", "b"]),
        (Hidden, {"amount": 1, "friends": [2, 1]}, {"amount": 1, "friends": [1, 2]}),
        (Point, {"x": "1", "seen": ["b", "a"]}, {"x": 1.0, "seen": ["a", "b"]}),
        (Range, {"low": "1"}, {"low": 1}),
        (Range, {"days": ["2026-01-02"]}, {"days": ["2026-01-02"]}),
        (int | None, None, None),
        (Annotated[Any, AfterValidator(set)], ["b", "a"], ["a", "b"]),
        (SecretStr, "hunter2", SECRET),
        (SecretBytes, "hunter2", "<SecretBytes sha256:f52fbd32b2b3b86f>"),
        (Secret[date], "2026-01-02", "<Secret sha256:5dfe28dc54020181>"),
        (dict[str, Login], {"a": {"name": "b", "password": "hunter2"}},
         {"a": {"name": "b", "password": SECRET}}),
        (Annotated[bytes, AfterValidator(lambda b: b + b"\xff")], "a",
         "<bytes sha256:8dd06b5ab6b59425>"),
        (Cash, "5", "<Money>"),
        (list[Cash], ["5"], ["<Money>"]),
        (Written, "5", "5"),
    ],
)  # fmt: skip
def test_values_as_json(hint: Any, sent: Any, form: Any) -> None:
    assert json_arguments(of(hint), {"value": sent}) == {"value": form}


def test_defaults_are_filled_in_in_the_order_of_the_parameters() -> None:
    def function(
        a: int,
        recursive: bool = True,
        since: date = date(2026, 1, 2),
        sizes: list[int] = [1],  # noqa: B006
        made: list[int] = Field(default_factory=lambda: [7]),  # noqa: B008
        limit: int = Field(5, alias="top"),
        tags: frozenset[str] = frozenset({"b", "a"}),
        colour: Color = Color.RED,
    ) -> None: ...

    assert list(json_arguments(function, {"a": "1"}).items()) == [
        ("a", 1),
        ("recursive", True),
        ("since", "2026-01-02"),
        ("sizes", [1]),
        ("made", [7]),
        ("limit", 5),
        ("tags", ["a", "b"]),
        ("colour", "red"),
    ]
    assert json_arguments(function, {"a": 1, "top": "6", "recursive": "false"}) | {
        "a": 1,
        "limit": 6,
        "recursive": False,
    } == json_arguments(function, {"a": 1, "top": "6", "recursive": "false"})


def test_each_kind_of_parameter_appears_under_its_own_name() -> None:
    def function(
        first: Annotated[int, Field(validation_alias=AliasChoices("one", "eins"))],
        /,
        context: ToolContext,
        *rest: date,
        key: str = "k",
        **more: int,
    ) -> None: ...

    assert json_arguments(function, {"one": "1", "rest": ["2026-01-02"], "x": "2"}) == {
        "first": 1,
        "rest": ["2026-01-02"],
        "key": "k",
        "x": 2,
    }
    assert json_arguments(function, {"one": 1}) == {"first": 1, "key": "k"}


def test_what_cannot_be_told_apart_is_named() -> None:
    def function(
        name: str,
        cash: Cash,
        many: dict[str, list[Cash]],
        secret: SecretStr,
        written: Written,
        client: Any = object(),  # noqa: B008
    ) -> None: ...

    signature = read_signature(function, name="f")
    sent = {"name": "n", "cash": "1", "many": {}, "secret": "s", "written": "w"}
    values, _ = signature.validate(sent)
    assert signature.json_arguments(values)[1] == ["cash", "client"]
    values, _ = signature.validate({**sent, "many": {"a": ["1"]}})
    shown, unfaithful = signature.json_arguments(values)
    assert unfaithful == ["cash", "many", "client"]
    assert shown["client"] == "<object>"
    given = {**values, "client": "plain", "cash": 3, "many": {}}
    assert signature.json_arguments(given)[1] == []


def test_no_value_makes_it_raise() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            if name == "__class__":
                return Hostile
            raise SystemError(name)

    cyclic: list[Any] = []
    cyclic.append(cyclic)

    def function(
        hostile: Any = Hostile(),  # noqa: B008
        cyclic: Any = cyclic,
        numbers: Any = iter([1, 2]),  # noqa: B008
        kind: Any = Color,
        secret: Any = Secret(object()),  # noqa: B008
    ) -> None: ...

    signature = read_signature(function, name="f")
    shown, unfaithful = signature.json_arguments({})
    assert shown == {
        "hostile": "<Hostile>",
        "cyclic": "<list>",
        "numbers": "<list_iterator>",
        "kind": f"<{type(Color).__name__}>",
        "secret": "<Secret>",
    }
    assert unfaithful == list(shown)
    assert list(function.__defaults__[2]) == [1, 2]  # type: ignore[index]


def test_a_class_tool_shows_what_run_gets() -> None:
    class Search(Tool):
        name = "search"

        def get_parameters(self) -> list[ToolParameter]:
            return [
                ToolParameter("query", str, "What."),
                ToolParameter("since", date, "From when.", False),
                ToolParameter("limit", int, "How many.", False, 5),
                ToolParameter("fields", list[str], "Which.", False, ["a"]),
            ]

        def run(self, parameters: dict[str, Any]) -> Any:
            parameters["fields"].append("changed")
            return parameters

    tool = Search()
    values, _ = tool.signature.validate({"query": "q"})
    shown = {"query": "q", "since": None, "limit": 5, "fields": ["a"]}
    assert tool.signature.json_arguments(values) == (shown, [])
    assert tool.call(values, None) == {**shown, "fields": ["a", "changed"]}
    assert tool.signature.json_arguments(values) == (shown, [])


def test_values_under_a_hand_written_schema_stay_as_they_are() -> None:
    def function(when: date, recursive: bool = True) -> None: ...

    schema = {"properties": {"when": {}, "recursive": {}}, "required": ["when"]}
    signature = as_tool(function, {"schema": schema}).signature
    values, _ = signature.validate({"when": ["x", 1]})
    assert signature.json_arguments(values)[0] == {"when": ["x", 1], "recursive": True}


@pytest.mark.slow
def test_the_form_is_the_same_in_every_process() -> None:
    program = (
        "from typing import Any; from toolkit.tools.signatures import read_signature\n"
        "def f(a: set[str], b: Any = frozenset({'x', 'y', 'z'})): ...\n"
        "s = read_signature(f, name='f')\n"
        "print(s.json_arguments(s.validate({'a': list('abcdef')})[0]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
