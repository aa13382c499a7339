"""What models read of values and of errors: tables of both sides, and properties over odd values."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import json
import math
import pathlib
import random
import re
import sys
import threading
import types
import urllib.request
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, TypedDict

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, SecretStr, field_serializer
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import PydanticCustomError

from toolkit.calls.explaining import explain
from toolkit.calls.redaction import redact
from toolkit.calls.rendering import render
from toolkit.errors import ToolError
from toolkit.tools import ToolRegistry


class Colour(enum.Enum):
    RED = "red"


class Level(str, enum.Enum):
    HIGH = "high"


class Size(enum.IntEnum):
    BIG = 3


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


class Odd(int):
    def __repr__(self) -> str:
        return "odd"


class Place(NamedTuple):
    name: str
    height: float


class Route(TypedDict):
    start: str
    stops: list[Place]


@dataclasses.dataclass
class Point:
    x: int
    y: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    x: int


@pydantic_dataclass
class Checked:
    x: int

    @field_serializer("x")
    def spell(self, x: int) -> str:
        return f"no. {x}"


@pydantic_dataclass(slots=True)
class CheckedSlots:
    x: int


class Item(BaseModel):
    name: str
    price: decimal.Decimal | None = Field(default=None, alias="cost")
    extra: Any = None


class Account:
    def __init__(self) -> None:
        self.owner = "Ann"
        self._password = "hunter2"


class Bare:
    pass


class Spoken:
    __slots__ = ()

    def __str__(self) -> str:
        return "a word"


class Default:
    __slots__ = ("inner",)

    def __init__(self, inner: object) -> None:
        self.inner = inner

    __repr__ = object.__repr__

    def __str__(self) -> str:
        return f"Default({object.__repr__(self)})"


class Holder:
    """Tells of what it holds by repr alone."""

    def __init__(self, held: object) -> None:
        self._held = held

    def __repr__(self) -> str:
        return f"Holder({self._held!r})"


class Bag:
    def __init__(self, *things: object) -> None:
        self.things = things

    def __iter__(self) -> Iterator[object]:
        return iter(self.things)


class Record:
    def to_dict(self) -> dict[str, int]:
        return {"id": 7}


class Table(Record):
    """As a table of pandas: `to_dict` with a form."""

    iterrows = None

    def to_dict(self, form: str = "dict") -> dict[str, Any]:
        return {form: 1}


class Array:
    """As an array or a number of numpy."""

    def __init__(self, content: object) -> None:
        self.content = content

    def tolist(self) -> object:
        return self.content


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no text")

    def __iter__(self) -> Iterator[object]:
        raise ValueError("no items")


class Mute:
    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError("no text")


class Liar:
    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise ValueError("no class")


class Locked:
    def __getattribute__(self, name: str) -> object:
        raise ValueError("no attributes")


class NamelessMeta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ValueError("no name")


class Nameless(metaclass=NamelessMeta):
    def __str__(self) -> str:
        raise ValueError("no text")


class BrokenList(list[int]):
    def __iter__(self) -> Iterator[int]:
        raise ValueError("no items")


class BrokenDict(dict[str, int]):
    def items(self) -> Any:
        raise ValueError("no items")


NOT_JSON = (
    "JSONDecodeError: Expecting property name enclosed in double quotes: "
    "line 1 column 2 (char 1)"
)


def count_to(end: int) -> Iterator[int]:
    yield from range(end)


def give_up() -> Iterator[int]:
    yield 1
    raise ValueError("enough")


async def wait() -> int:
    return 1


async def stream() -> Any:
    yield 1


UTC = datetime.timezone.utc

PLAIN = [
    pytest.param(None, "null", id="None"),
    pytest.param("", "", id="empty text"),
    pytest.param('say "hi"\nline2', 'say "hi"\nline2', id="text as is"),
    pytest.param(Loud("quiet"), "quiet", id="a str subclass by its value"),
    pytest.param(Level.HIGH, "high", id="str Enum"),
    pytest.param([Level.HIGH, Loud("quiet")], '["high","quiet"]', id="both inside"),
    pytest.param(True, "true", id="bool"),
    pytest.param(5, "5", id="int"),
    pytest.param(2**80, "1208925819614629174706176", id="int over 64 bits"),
    pytest.param(Odd(3), "3", id="int subclass"),
    pytest.param(1.5, "1.5", id="float"),
    pytest.param([], "[]", id="empty list"),
    pytest.param({}, "{}", id="empty dict"),
    pytest.param({"a": 1, "b": [1, "x"]}, '{"a":1,"b":[1,"x"]}', id="compact"),
    pytest.param(
        {"名前": "東京 😀", "x": "ü"}, '{"名前":"東京 😀","x":"ü"}', id="every script"
    ),
    pytest.param(
        {"a": math.nan, "b": [math.inf, -math.inf], "c": 1.5},
        '{"a":null,"b":[null,null],"c":1.5}',
        id="NaN",
    ),
    pytest.param((1, (2,)), "[1,[2]]", id="tuple"),
    pytest.param({3, 1, 2}, "[1,2,3]", id="set"),
    pytest.param(frozenset("cab"), '["a","b","c"]', id="frozenset"),
    pytest.param(
        {"b", 1, "a", None}, '[1,"a","b",null]', id="mixed set, always in one order"
    ),
    pytest.param({10, 9, 0.5}, "[0.5,9,10]", id="set by value, not by text"),
    pytest.param(collections.deque([1, {2}]), "[1,[2]]", id="deque"),
    pytest.param(range(3), "[0,1,2]", id="range"),
    pytest.param({"b": 1, "a": 2}.keys(), '["b","a"]', id="keys in their order"),
    pytest.param({"a": 1}.items(), '[["a",1]]', id="items"),
    pytest.param(collections.Counter("aab"), '{"a":2,"b":1}', id="Counter"),
    pytest.param(types.MappingProxyType({"a": 1}), '{"a":1}', id="mappingproxy"),
    pytest.param(collections.ChainMap({"a": 1}), '{"a":1}', id="ChainMap"),
    pytest.param(
        datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        '"2024-01-02T03:04:05Z"',
        id="datetime",
    ),
    pytest.param(datetime.date(2024, 1, 2), '"2024-01-02"', id="date"),
    pytest.param(datetime.time(1, 2, 3), '"01:02:03"', id="time"),
    pytest.param(datetime.timedelta(hours=1), '"PT1H"', id="timedelta"),
    pytest.param(uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"', id="UUID"),
    pytest.param(decimal.Decimal("1.10"), '"1.10"', id="Decimal keeps its digits"),
    pytest.param(fractions.Fraction(1, 2), '"1/2"', id="Fraction"),
    pytest.param(pathlib.PurePosixPath("a/b"), '"a/b"', id="Path"),
    pytest.param(re.compile("a+"), '"a+"', id="Pattern"),
    pytest.param(Colour.RED, '"red"', id="Enum"),
    pytest.param(Size.BIG, "3", id="IntEnum"),
    pytest.param(b"caf\xc3\xa9\n", '"café\\n"', id="bytes that are text"),
    pytest.param(b"\xff\xfe" * 6, '"<12 bytes>"', id="bytes that are none"),
    pytest.param(b"\x00\x01", '"<2 bytes>"', id="bytes of control characters"),
    pytest.param(
        [bytearray(b"x"), memoryview(b"y")], '["x","y"]', id="bytearray, memoryview"
    ),
    pytest.param(Place("Top", 1.5), '["Top",1.5]', id="NamedTuple"),
    pytest.param(
        Route(start="a", stops=[Place("b", 1)]),
        '{"start":"a","stops":[["b",1]]}',
        id="TypedDict",
    ),
    pytest.param(Point(1, {2, 1}), '{"x":1,"y":[1,2]}', id="dataclass"),
    pytest.param(Slotted(1), '{"x":1}', id="slotted dataclass"),
    pytest.param(Checked(1), '{"x":"no. 1"}', id="pydantic dataclass"),
    pytest.param(CheckedSlots(1), '{"x":1}', id="slotted pydantic dataclass"),
    pytest.param(
        Item(name="x", extra=b"\xff"),
        '{"name":"x","price":null,"extra":"<1 bytes>"}',
        id="bytes in a model",
    ),
    pytest.param(
        Item(name="x", cost=decimal.Decimal("1.10"), extra=[math.nan, Point(1)]),
        '{"name":"x","price":"1.10","extra":[null,{"x":1,"y":null}]}',
        id="model",
    ),
    pytest.param(
        Item(name="x", extra=Account()),
        '{"name":"x","price":null,"extra":{"owner":"Ann"}}',
        id="in a model",
    ),
    pytest.param(SecretStr("hunter2"), '"**********"', id="SecretStr"),
    pytest.param(
        {1: "a", None: "b", False: "c"},
        '{"1":"a","null":"b","false":"c"}',
        id="keys of JSON",
    ),
    pytest.param(
        {1: "a", "1": "b"}, '{"1":"a","1 (2)":"b"}', id="keys that JSON holds equal"
    ),
    pytest.param(
        {
            (1, 2): 1,
            Colour.RED: 2,
            datetime.date(2024, 1, 2): 3,
            b"k": 4,
            1.5: 5,
            frozenset([1]): 6,
        },
        '{"[1,2]":1,"red":2,"2024-01-02":3,"k":4,"1.5":5,"[1]":6}',
        id="keys of any type",
    ),
    pytest.param(count_to(3), "[0,1,2]", id="generator"),
    pytest.param({"a": [map(str, [1, 2])]}, '{"a":[["1","2"]]}', id="map inside"),
    pytest.param(iter([1]), "[1]", id="iterator"),
    pytest.param(io.StringIO("a\nb"), '["a\\n","b"]', id="an open file by its lines"),
    pytest.param(
        [give_up(), 1], '["<generator: ValueError>",1]', id="generator that raises"
    ),
    pytest.param(Bag(1, {2}), "[1,[2]]", id="iterable"),
    pytest.param(Account(), '{"owner":"Ann"}', id="object by its public attributes"),
    pytest.param(types.SimpleNamespace(a={1}), '{"a":[1]}', id="namespace"),
    pytest.param(Spoken(), '"a word"', id="object by its text"),
    pytest.param(object(), '"<object object>"', id="object without anything"),
    pytest.param(Bare(), f'"<{__name__}.Bare object>"', id="empty object"),
    pytest.param(
        {Spoken(): 1, Spoken(): 2}, '{"a word":1,"a word (2)":2}', id="objects as keys"
    ),
    pytest.param(Record(), '{"id":7}', id="to_dict"),
    pytest.param(Table(), '{"split":1}', id="table of pandas"),
    pytest.param(
        [Array(5), Array([1.5, math.nan])],
        "[5,[1.5,null]]",
        id="number, array of numpy",
    ),
    pytest.param(Holder(Bare()), None, id="address in a repr"),
    pytest.param(Holder(count_to(1)), '"Holder(<count_to>)"', id="generator in a repr"),
    pytest.param(
        ValueError("no host db at /srv/app/x"),
        '"ValueError: no host db at [path]"',
        id="exception",
    ),
    pytest.param(wait, '"<function wait>"', id="function"),
    pytest.param(len, '"<builtin_function_or_method len>"', id="builtin"),
    pytest.param(Point, '"<type Point>"', id="class"),
    pytest.param(
        Colour,
        '"<EnumType Colour>"' if sys.version_info >= (3, 11) else '"<EnumMeta Colour>"',
        id="Enum class",
    ),
    pytest.param(json, '"<module json>"', id="module"),
    pytest.param(stream(), '"<async_generator stream>"', id="async generator"),
    pytest.param(
        functools.partial(len, "a"),
        "\"functools.partial(<built-in function len>, 'a')\"",
        id="partial",
    ),
    pytest.param(threading.Lock(), '"<unlocked _thread.lock object>"', id="lock"),
    pytest.param([Broken(), 1], '["<Broken: ValueError>",1]', id="broken __iter__"),
    pytest.param([Mute(), 1], '["<Mute: ValueError>",1]', id="broken __str__"),
    pytest.param([Liar(), 1], f'["<{__name__}.Liar object>",1]', id="broken __class__"),
    pytest.param([Locked(), 1], '["<Locked: ValueError>",1]', id="broken attributes"),
    pytest.param(Nameless(), '"<unreadable>"', id="broken everything"),
    pytest.param(BrokenList([1]), '"<BrokenList: ValueError>"', id="broken list"),
    pytest.param(BrokenDict(a=1), '"<BrokenDict: ValueError>"', id="broken dict"),
    pytest.param("lone \ud83d.", "lone \ufffd.", id="lone surrogate"),
    pytest.param(
        {"\udce9": ["\ud83d\ude00"]},
        '{"\ufffd":["😀"]}',
        id="surrogate inside, and a pair",
    ),
    pytest.param(10**4_000, "1" + "0" * 4_000, id="an integer as long as Python reads"),
    pytest.param([10**5_000], '["<integer of 16,610 bits>"]', id="a longer one"),
]


@pytest.mark.parametrize(("value", "text"), PLAIN)
def test_a_value_becomes_a_text(value: object, text: str | None) -> None:
    got = render(value)
    if text is not None:
        assert got == text
    for never in (" at 0x", "<coroutine", "<generator object"):
        assert never not in got


def test_a_coroutine_is_named_not_shown() -> None:
    coroutine = wait()
    assert render([coroutine]) == '["<never awaited: wait>"]'
    coroutine.close()


def test_an_endless_iterator_is_cut() -> None:
    numbers = itertools.count()
    items = json.loads(render({"all": numbers}))["all"]
    assert items == [*range(1_000), "… [cut after 1,000 items] …"]
    assert next(numbers) == 1_001  # one more was read, to know that there is more


@pytest.mark.parametrize(
    "value",
    [
        Item(name="x", extra=itertools.count()),
        Point(1, itertools.count()),
        Bag(itertools.count()),
    ],
    ids=type,
)
def test_an_endless_iterator_inside_is_cut(value: object) -> None:
    assert '999,"… [cut after 1,000 items] …"]' in render(value)


def test_a_list_is_not_cut_like_an_iterator() -> None:
    assert json.loads(render(list(range(5_000)))) == list(range(5_000))


def test_what_holds_itself_is_written_once() -> None:
    circle: list[object] = [1]
    circle.append(circle)
    assert render(circle) == '[1,"<circular reference>"]'
    point = Point(1)
    point.y = {"back": point}
    assert render(point) == '{"x":1,"y":{"back":"<circular reference>"}}'
    item = Item(name="x")
    item.extra = [item]
    assert json.loads(render(item))["name"] == "x"


def test_what_is_shared_is_written_each_time() -> None:
    shared = [1]
    assert render([shared, shared]) == "[[1],[1]]"


def test_depth_is_bounded() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert render(deep) == "[" * 100 + '"… [the rest is left out] …"' + "]" * 100
    while deep:  # taken apart by hand: freeing it whole is deep too
        deep = deep.pop()  # type: ignore[assignment]


def test_shared_parts_do_not_multiply_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolkit.calls.rendering._MAX_NODES", 10_000)
    bomb: list[object] = ["lol"]
    for _ in range(60):
        bomb = [bomb] * 10
    text = render({"bomb": bomb, "z": 1}, limit=10_000_000)
    assert len(text) < 1_000_000
    assert json.loads(text)["…"] == "… [the rest is left out] …"


def test_a_long_text_held_often_does_not_multiply_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolkit.calls.rendering._MAX_NODES", 10_000)
    assert len(render(["x" * 10_000] * 9_000, limit=10**9)) < 1_000_000


def test_exit_and_interrupt_pass() -> None:
    class Stop:
        __slots__ = ()

        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        render([Stop()])


# Length


@pytest.mark.parametrize("size", [101, 1_000, 44_345])
def test_a_long_text_keeps_head_and_tail(size: int) -> None:
    text = "".join(random.Random(size).choices("abcdefgh東😀", k=size))
    got = render(text, limit=100)
    head, line, tail = got.split("\n")
    assert len(got) <= 100
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) > len(tail) > 0
    assert line == f"… [{size - len(head) - len(tail):,} of {size:,} characters cut] …"


@pytest.mark.parametrize("limit", [-1, 0, 1, 5, 40, 45, 60])
def test_every_limit_is_kept(limit: int) -> None:
    assert len(render("x" * 1_000, limit)) <= max(limit, 0)


def test_what_fits_is_whole() -> None:
    assert render("x" * 100, limit=100) == "x" * 100
    assert len(render("x" * 50_000)) <= 32_000


# Properties

SCALARS = st.one_of(
    *(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.decimals(),
        st.datetimes(),
        st.timedeltas(),
        st.uuids(),
    ),
    *(
        st.text(st.characters()),
        st.text("\ud83d\ude00\udce9a"),
        st.binary(max_size=8),
        st.complex_numbers(),
    ),
    st.sampled_from(
        [
            Colour.RED,
            Level.HIGH,
            Size.BIG,
            Loud("x"),
            Odd(1),
            ...,
            NotImplemented,
            int,
            len,
            json,
        ]
    ),
    st.sampled_from(["Bare", "Broken", "Mute", "Account", "Table"]).map(
        lambda name: globals()[
            name
        ]()  # by name, since hypothesis prints what it samples; it cannot hold Liar and Locked at all
    ),
    st.builds(ValueError, st.text()),
)
HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.just(Colour.RED),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(HASHABLE, st.tuples(HASHABLE)), inner, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
        st.builds(Point, st.just(1), inner),
        st.builds(Item, name=st.just("x"), extra=inner),
        st.builds(Bag, inner),
        st.builds(Holder, inner),
        st.builds(Default, inner),
        st.builds(lambda items: iter(items), st.lists(inner, max_size=3)),
        st.builds(lambda part: types.SimpleNamespace(part=part), inner),
    ),
    max_leaves=12,
)


@given(value=VALUES, limit=st.integers(0, 300))
@settings(max_examples=100)
def test_render_never_raises(value: object, limit: int) -> None:
    text = render(value, 1_000_000)
    text.encode()
    assert not re.search(" at 0x[0-9a-f]{6}", text)
    if not isinstance(value, str):
        json.loads(text, parse_constant=pytest.fail)
    assert len(render(value, limit)) <= limit


# Errors


def connect() -> None:
    raise RuntimeError(
        "connect postgres://app:HUNTER2@10.0.0.5/db failed at /srv/app/x.py"
    )


def lift() -> None:
    raise ValueError("90 kg is too much")


def refuse() -> None:
    raise ToolError("City unknown, try Oslo. See /docs/cities/all")


def divide() -> float:
    return 1 / 0


def find() -> int:
    return {"a": 1}["b"]


def read() -> str:
    return pathlib.Path("/nowhere/at/all.txt").read_text()


def parse() -> object:
    return json.loads("{")


def check() -> object:
    return Item.model_validate({"name": 5})


def say_nothing() -> None:
    raise ValueError


def say_air() -> None:
    raise ToolError(" ")


def say_half() -> None:
    raise ToolError("half \ud83d")


def mumble() -> None:
    class Mumble(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    raise Mumble


def call_lift() -> None:
    lift()


def raised_by(function: Callable[..., object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (any)
        function()
    return caught.value


@functools.wraps(lift)
def wrapped_lift() -> None:
    lift()


class Scale:
    def lift(self) -> None:
        lift()

    def __call__(self) -> None:
        lift()


SPOKEN = [
    pytest.param(
        connect,
        "The tool 't' failed: RuntimeError",
        id="redacted",
    ),
    pytest.param(
        lift, "The tool 't' failed: ValueError: 90 kg is too much", id="own message"
    ),
    pytest.param(
        refuse, "City unknown, try Oslo. See /docs/cities/all", id="ToolError as is"
    ),
    pytest.param(divide, None, id="operator"),
    pytest.param(find, "The tool 't' failed: KeyError: 'b'", id="lookup"),
    pytest.param(
        read, "The tool 't' failed: FileNotFoundError", id="deeper down: a file"
    ),
    pytest.param(
        parse,
        f"The tool 't' failed: {NOT_JSON}",
        id="deeper down: a parser",
    ),
    pytest.param(
        check, "The tool 't' failed: ValidationError", id="deeper down: pydantic"
    ),
    pytest.param(say_nothing, "The tool 't' failed: ValueError", id="no message"),
    pytest.param(
        say_air, "The tool 't' failed: ToolError", id="ToolError without text"
    ),
    pytest.param(say_half, "half \ufffd", id="ToolError with a lone surrogate"),
    pytest.param(mumble, "The tool 't' failed: Mumble", id="broken message"),
    pytest.param(
        call_lift, "The tool 't' failed: ValueError: 90 kg is too much", id="own helper"
    ),
    pytest.param(
        wrapped_lift, "The tool 't' failed: ValueError: 90 kg is too much", id="wrapped"
    ),
    pytest.param(
        functools.partial(lift),
        "The tool 't' failed: ValueError: 90 kg is too much",
        id="partial",
    ),
    pytest.param(
        Scale().lift, "The tool 't' failed: ValueError: 90 kg is too much", id="method"
    ),
    pytest.param(
        Scale(),
        "The tool 't' failed: ValueError: 90 kg is too much",
        id="callable object",
    ),
]


@pytest.mark.parametrize(("function", "text"), SPOKEN)
def test_an_error_becomes_a_text_for_the_model(
    function: Callable[..., object], text: str | None
) -> None:
    got = explain(raised_by(function), "t", function)
    assert got == (text or "The tool 't' failed: ZeroDivisionError: division by zero")


def test_a_reference_stands_at_the_end() -> None:
    assert explain(raised_by(lift), "t", lift, reference="3f2a") == (
        "The tool 't' failed: ValueError: 90 kg is too much (log reference 3f2a)"
    )
    assert explain(raised_by(parse), "t", parse, reference="3f2a").endswith(
        "(char 1) (log reference 3f2a)"
    )
    assert "3f2a" not in explain(raised_by(refuse), "t", refuse, reference="3f2a")


def strptime() -> Any:
    return datetime.datetime.strptime("7月18日", "%Y-%m-%d")


def look_up_zone() -> Any:
    return zoneinfo.ZoneInfo("Mars/Base")


def read_uuid() -> Any:
    return uuid.UUID("no uuid")


def open_address() -> Any:
    return urllib.request.urlopen("HUNTER2")


def query() -> Any:
    raise ValueError("near: SELECT name FROM users WHERE id = 7;")


def in_a_driver() -> Any:
    space: dict[str, Any] = {"__name__": "driver", "__file__": pydantic.__file__}
    exec("def connect():\n    raise ValueError('HUNTER2')", space)
    space["connect"]()


# (a function, what the model reads of its exception)
WRONG_VALUES = {
    "a date": (strptime, "ValueError: time data '7月18日' does not match format"),
    "a zone": (look_up_zone, "ZoneInfoNotFoundError: 'No time zone found"),
    "a UUID": (read_uuid, "ValueError: badly formed hexadecimal UUID string"),
    "JSON": (parse, "JSONDecodeError: Expecting property name"),
    "an address": (open_address, None),
    "SQL": (query, None),
    "a driver": (in_a_driver, None),
}


@pytest.mark.parametrize(
    ("function", "speech"), WRONG_VALUES.values(), ids=WRONG_VALUES
)
def test_a_wrong_value_is_explained_and_a_driver_is_not(
    function: Any, speech: str | None
) -> None:
    text = explain(raised_by(function), "t", function)
    if speech is None:
        assert text == "The tool 't' failed: ValueError"
    else:
        assert text.startswith(f"The tool 't' failed: {speech}")


def test_code_of_the_users_own_speaks_in_every_tool() -> None:
    error = raised_by(lift)
    speech = "The tool 't' failed: ValueError: 90 kg is too much"
    assert explain(error, "t", json.loads) == speech
    assert explain(error, "t", None) == speech
    assert (
        explain(ValueError("never raised"), "t", lift)
        == "The tool 't' failed: ValueError"
    )


@pytest.mark.parametrize(
    "name", ["__main__", None], ids=["notebook", "module without a name"]
)
def test_a_function_of_a_notebook_speaks(name: str | None) -> None:
    space: dict[str, Any] = {"__name__": name} if name else {}
    exec("def heat():\n    raise ValueError('too hot')", space)
    assert (
        explain(raised_by(space["heat"]), "t", space["heat"])
        == "The tool 't' failed: ValueError: too hot"
    )
    speech = "The tool 't' failed: ValueError: too hot"
    assert explain(raised_by(space["heat"]), "t", lift) == speech


def test_a_wrapper_from_elsewhere_is_taken_off() -> None:
    space: dict[str, Any] = {"__name__": "elsewhere", "functools": functools}
    exec("def wrap(f): return functools.wraps(f, assigned=())(lambda: f())", space)
    wrapped = space["wrap"](lift)
    assert wrapped.__module__ == "elsewhere"
    assert explain(raised_by(wrapped), "t", functools.partial(wrapped)).endswith(
        "ValueError: 90 kg is too much"
    )


def test_wrappers_in_a_circle_end() -> None:
    def first() -> None: ...

    first.__wrapped__ = first  # type: ignore[attr-defined]
    assert explain(raised_by(lift), "t", first) == "The tool 't' failed: ValueError"


class Group(Exception):
    """As an ExceptionGroup, which Python 3.10 does not have."""

    def __init__(self, *exceptions: BaseException) -> None:
        super().__init__("unhandled errors")
        self.exceptions = exceptions


def test_a_group_tells_of_its_members() -> None:
    group = Group(
        raised_by(lift), raised_by(parse), Group(raised_by(connect)), raised_by(refuse)
    )
    assert explain(group, "t", lift) == (
        f"The tool 't' failed: Group (ValueError: 90 kg is too much; {NOT_JSON}; "
        "Group (RuntimeError); City unknown, try Oslo. See /docs/cities/all)"
    )


def test_a_group_is_bounded() -> None:
    wide = Group(*[ValueError()] * 9)
    assert (
        explain(wide, "t", lift)
        == f"The tool 't' failed: Group ({'ValueError; ' * 5}…)"
    )
    deep: BaseException = ValueError()
    for _ in range(10_000):
        deep = Group(deep)
    assert (
        explain(deep, "t", lift) == "The tool 't' failed: Group (Group (Group (Group)))"
    )


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="no ExceptionGroup before Python 3.11"
)
def test_a_group_of_python_tells_of_its_members() -> None:
    group = ExceptionGroup("two", [raised_by(lift), raised_by(parse)])  # noqa: F821
    got = explain(group, "t", lift)
    assert (
        got
        == f"The tool 't' failed: ExceptionGroup (ValueError: 90 kg is too much; {NOT_JSON})"
    )


def test_explanations_are_short() -> None:
    def shout() -> None:
        raise ValueError("a " * 100_000)

    def speak() -> None:
        raise ToolError("a " * 100_000)

    assert len(explain(raised_by(shout), "t", shout)) < 3_000
    assert len(explain(raised_by(speak), "t", speak)) <= 32_000


@given(
    message=st.one_of(st.text(), st.text("\ud83d\ude00\udce9 =:/'\"")),
    kind=st.sampled_from([ValueError, ToolError]),
)
def test_explain_never_raises(message: str, kind: type[Exception]) -> None:
    def fail() -> None:
        raise kind(message)

    explain(raised_by(fail), message, fail, reference=message).encode()


def test_explain_survives_odd_errors() -> None:
    class Odd(Exception):
        @property
        def exceptions(self) -> object:
            raise ValueError("no members")

        @property
        def __traceback__(self) -> object:  # type: ignore[override]
            raise ValueError("no traceback")

    assert explain(Odd("x"), "t", lift) == "The tool 't' failed: Odd"
    assert (
        explain(KeyboardInterrupt(), "t", lift)
        == "The tool 't' failed: KeyboardInterrupt"
    )


# Redaction: each of these holds the word HUNTER2 (or an address), and what is left of it.

SECRETS = [
    (
        "connect postgres://app:HUNTER2@10.0.0.5/db failed at /srv/app/x.py",
        "connect [connection] failed at [path]",
    ),
    ("postgresql+psycopg2://u:p@HUNTER2@h/db", "[connection]"),
    ("mongodb+srv://u:HUNTER2@c.mongodb.net/?retryWrites=true", "[connection]"),
    (
        "mysql://u:HUNTER2@h, redis://:HUNTER2@cache:6379/0 amqp://guest:HUNTER2@mq//",
        "[connection] [connection] [connection]",
    ),
    ("https://bob:HUNTER2@example.com/x down", "[connection] down"),
    ("https://HUNTER2@github.com/a/b.git", "[connection]"),
    ("jdbc:oracle:thin:u/HUNTER2@h:1521:db", "[connection]"),
    (
        '{"dsn":"postgres://u:HUNTER2@h","city":"Oslo"}',
        '{"dsn":"[connection]","city":"Oslo"}',
    ),
    ("Server=tcp:HUNTER2,1433;Database=x;User Id=sa;Password=HUNTER2;", "[connection]"),
    ("Driver={ODBC};Server=HUNTER2;UID=x;PWD=HUNTER2", "[connection]"),
    (
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=HUNTER2==",
        "[connection]",
    ),
    (
        "host=db user=app password=HUNTER2 dbname=x",
        "host=db user=app password=[redacted] dbname=x",
    ),
    ("password = 'HUNTER2 x' here", "password = [redacted] here"),
    ("DB_PASSWORD=HUNTER2", "DB_PASSWORD=[redacted]"),
    ("password=HUNTER2&city=Oslo", "password=[redacted]&city=Oslo"),
    (
        "https://x.org/a?city=Oslo&token=HUNTER2&x=1",
        "https://x.org/a?city=Oslo&token=[redacted]&x=1",
    ),
    (
        "https://hooks.slack.com/services/T0/B0/HUNTER2",
        "https://hooks.slack.com/services/[redacted]",
    ),
    (
        '{"password": "HUNTER2", "city": "Oslo"}',
        '{"password": [redacted], "city": "Oslo"}',
    ),
    (
        r'{"password":"a\"HUNTER2","city":"Oslo"}',
        '{"password":[redacted],"city":"Oslo"}',
    ),
    (
        r'{"a":"{\"api_key\": \"HUNTER2\", \"b\": 1}"}',
        r'{"a":"{\"api_key\": [redacted], \"b\": 1}"}',
    ),
    ('{"accessToken":12HUNTER2,"city":"Oslo"}', '{"accessToken":[redacted]'),
    (
        '{"credentials": {"user": "x", "key": "HUNTER2"}, "b": 1}',
        '{"credentials": [redacted], "b": 1}',
    ),
    ("{'apiKey': 'HUNTER2', 'city': 'Oslo'}", "{'apiKey': [redacted], 'city': 'Oslo'}"),
    ("User(password='HUNTER2', city='Oslo')", "User(password=[redacted], city='Oslo')"),
    ('{"password": "HUNTER2', '{"password": [redacted]'),
    ("pwd: HUNTER2 for bob", "pwd: [redacted] for bob"),
    ('the password is "HUNTER2"', "the password is [redacted]"),
    ("API key: HUNTER2", "API key: [redacted]"),
    ("aws_secret_access_key = HUNTER2", "aws_secret_access_key = [redacted]"),
    ("x-api-key: HUNTER2", "x-api-key: [redacted]"),
    ("Authorization: Basic HUNTER2==", "Authorization: [redacted]"),
    ("Cookie: a=HUNTER2; b=HUNTER2", "Cookie: [redacted]"),
    ("Bearer HUNTER2abc", "Bearer [redacted]"),
    ("session_id=HUNTER2", "session_id=[redacted]"),
    ("token 3fHUNTER2abc is bad", "token [redacted] is bad"),
    ("token: HUNTER2", "token: [redacted]"),
    ("Bearer HUNTER.TWO.HUNTER", "Bearer [redacted]"),
    ("user <User object at 0x7f3a20> is gone", "user <User object> is gone"),
    ("key sk-HUNTER2abcdef", "key [redacted]"),
    ("sk-proj-abcdefHUNTER2 sk-ant-api03-HUNTER2", "[redacted] [redacted]"),
    (
        "ghp_HUNTER2 github_pat_HUNTER2 glpat-HUNTER2abc",
        "[redacted] [redacted] [redacted]",
    ),
    (
        "xoxb-HUNTER2-12 AKIAHUNTER2ABCDEFG AIzaHUNTER2abcdefghijklmnop",
        "[redacted] [redacted] [redacted]",
    ),
    ("eyJhbGciOiJ9.HUNTER2.HUNTER2", "[redacted]"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nHUNTER2\n-----END RSA PRIVATE KEY----- end",
        "[redacted] end",
    ),
    ("-----BEGIN PRIVATE KEY-----\nHUNTER2", "[redacted]"),
    (
        "No such file or directory: '/srv/HUNTER2/my file.txt'",
        "No such file or directory: '[path]'",
    ),
    ("cannot open /HUNTER2/x, really", "cannot open [path], really"),
    ("open:/home/HUNTER2. Then (/var/HUNTER2)", "open:[path]. Then ([path])"),
    ("/srv/app/HUNTER2.py:12 and /HUNTER2.json", "[path] and [path]"),
    ("~/HUNTER2/id_rsa ~bob/HUNTER2", "[path] [path]"),
    (r"C:\Users\HUNTER2\x.txt is locked", "[path] is locked"),
    (r"C:\Program Files\HUNTER2\x.txt", "[path]"),
    ("D:/HUNTER2/x", "[path]"),
    (r"\\server\HUNTER2\x gone", "[path] gone"),
    ("file:///srv/HUNTER2", "[connection]"),
    ('File "/srv/HUNTER2.py", line 3, in f', 'File "[path]", line 3, in f'),
    ("app/HUNTER2.py:12:3 failed", "[path] failed"),
    (
        'Traceback (most recent call last):\n  File "HUNTER2", line 1\n    HUNTER2\nValueError: x',
        "ValueError: x",
    ),
    ("bad: SELECT a,\n b\nFROM t\nWHERE x = 'a;HUNTER2'; go on", "bad: [sql]; go on"),
    ("INSERT INTO HUNTER2 (a) VALUES ('it''s')", "[sql]"),
    ("UPDATE HUNTER2 SET a = 1", "[sql]"),
    ("DELETE FROM HUNTER2", "[sql]"),
    ("CREATE TABLE IF NOT EXISTS HUNTER2 (a int)", "[sql]"),
    (
        "DROP TABLE HUNTER2; ALTER TABLE HUNTER2 ADD x; CREATE UNIQUE INDEX HUNTER2 ON x",
        "[sql]; [sql]; [sql]",
    ),
    (
        "no such table\n[SQL: PRAGMA HUNTER2]\n[parameters: ('HUNTER2',)]",
        "no such table\n[sql]",
    ),
    ("select * from HUNTER2", "[sql]"),
    ("select a, b from HUNTER2", "[sql]"),
    ("select a from HUNTER2 where x = 1", "[sql]"),
    ("insert into HUNTER2 (a) values (1); update HUNTER2 set a = 1", "[sql]; [sql]"),
    ("delete from HUNTER2 where a = 1; drop table HUNTER2", "[sql]; [sql]"),
    ("at 10.0.0.5 or 192.168.1.12:5432.", "at [address] or [address]."),
    ("http://10.0.0.5:8080/x", "http://[address]/x"),
    ("in 10.0.0.0/8", "in [address]"),
    ("2001:db8::ff00:42:8329 [2001:db8::1]:443 ::1", "[address] [address] [address]"),
    ("2001:0db8:85a3:0000:0000:8a2e:0370:7334 fe80::1%eth0", "[address] [address]"),
]


# What names a secret without "=" or ":", other databases, commands, and tokens by their beginning.
FURTHER_SECRETS = [
    ("mysql --password HUNTER2 -h x", "mysql --password [redacted] -h x"),
    ("run --api-key HUNTER2", "run --api-key [redacted]"),
    ("['x', '--token', 'HUNTER2', '-v']", "['x', '--token', [redacted], '-v']"),
    ("mysql -u root -pHUNTER2 db", "mysql -u root -p[redacted] db"),
    ("tool -pHUNTER2", "tool -p[redacted]"),
    ("['mysql', '-uroot', '-pHUNTER2']", "['mysql', '-uroot', '-p[redacted]']"),
    ("curl -u a:HUNTER2 https://x.org", "curl -u a:[redacted] https://x.org"),
    ("curl --user ann:HUNTER2 x", "curl --user ann:[redacted] x"),
    ("['curl', '-u', 'a:HUNTER2', 'x']", "['curl', '-u', 'a:[redacted]', 'x']"),
    ("<password>HUNTER2</password>", "<password>[redacted]</password>"),
    (
        "<db:apiKey enc='x'>HUNTER2</db:apiKey>",
        "<db:apiKey enc='x'>[redacted]</db:apiKey>",
    ),
    ("bad <password>HUNTER2", "bad <password>[redacted]"),
    ("('login','password','HUNTER2')", "('login','password',[redacted])"),
    ("(b'x-api-key', b'HUNTER2')", "(b'x-api-key', [redacted])"),
    ("[('Authorization', 'Bearer HUNTER2')]", "[('Authorization', [redacted])]"),
    ('["password", "hunter HUNTER2"]', '["password", [redacted]]'),
    (
        "Key (api_token)=(HUNTER2) already exists.",
        "Key (api_token)=([redacted]) already exists.",
    ),
    (
        "DETAIL:  Key (email, api_token)=(a@b.c, HUNTER2) already exists.",
        "DETAIL:  Key (email, api_token)=([redacted]) already exists.",
    ),
    ("MERGE (u:User {id: 1}) SET u.pw='HUNTER2'", "[sql]"),
    ("MERGE INTO t USING s ON (1) WHEN MATCHED THEN UPDATE SET pw='HUNTER2'", "[sql]"),
    ("CALL f('HUNTER2')", "[sql]"),
    ("EXEC login @p='HUNTER2'", "[sql]"),
    ("pw='HUNTER2'", "pw=[redacted]"),
    ("no file /srv/My Files/HUNTER2/x.txt", "no file [path]"),
    ("/srv/a/my HUNTER2.txt is", "[path] is"),
    ("Permission denied: '/HUNTER2'", "Permission denied: '[path]'"),
    ("cannot open /HUNTER2", "cannot open [path]"),
    ("denied: /HUNTER2", "denied: [path]"),
    ("Passwort: HUNTER2", "Passwort: [redacted]"),
    ("Kennwort=HUNTER2", "Kennwort=[redacted]"),
    (
        "Command '['mysql', '-pHUNTER2', 'x']' returned non-zero exit status 1.",
        "Command [redacted] returned non-zero exit status 1.",
    ),
    (
        "Command 'psql HUNTER2 it''s' timed out after 3 seconds",
        "Command [redacted] timed out after 3 seconds",
    ),
    (
        '{"name": "password", "value": "HUNTER2"}',
        '{"name": "password", "value": [redacted]}',
    ),
    ('<add key="apiKey" value="HUNTER2"/>', '<add key="apiKey" value=[redacted]/>'),
    ("jwt=HUNTER2", "jwt=[redacted]"),
    ("sessionid=HUNTER2", "sessionid=[redacted]"),
    ("ALTER USER x IDENTIFIED BY 'HUNTER2'", "[sql]"),
    ("{'pass': 'HUNTER2'}", "{'pass': [redacted]}"),
    ("bad hvs.HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad hvb.HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad xai-HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad pplx-HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad pypi-HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad shpat_HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad dop_v1_HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad ATATT3HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad NRAK-HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad PMAK-HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad figd_HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad sbp_HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad lin_api_HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad r8_HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad ntn_HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad glsa_HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad xapp-1-HUNTER2abcdefgh here", "bad [redacted] here"),
    ("bad GOCSPX-HUNTER2abcdefgh here", "bad [redacted] here"),
    ("dapi0123456789abcdef0123456789abcdefHUNTER2", "[redacted]"),
    ("SK0123456789abcdef0123456789abcdefHUNTER2", "[redacted]"),
    ("bot 123456789:AAHUNTER2abcdefghijklmnopqrstuvwxyz012 x", "bot [redacted] x"),
]


@pytest.mark.parametrize(("text", "left"), [*SECRETS, *FURTHER_SECRETS])
def test_secrets_are_cut_out_of_texts(text: str, left: str) -> None:
    assert "HUNTER2" not in left
    assert redact(text) == left
    assert redact(left) == left


HARMLESS = [
    *(
        "90 kg is too much",
        "cannot divide by zero",
        "City unknown, try Oslo",
        "Error 404: not found",
        "",
    ),
    *(
        "the date 2024/01/02 is past",
        "at 12:30:45 on 2024-01-02T03:04:05Z",
        "10:30, 11:45:00, 1:2:3:4",
        "24/7",
    ),
    *(
        "use <token> to sign in, then call login(<password>) again",
        "fields: 'username', 'password', 'email'",
        "--token is required; --password must be given",
        "docker run -u 1000:1000 -p8080:80, then mkdir -p new",
        "the command returned 3 rows in Oslo",
        "JWT\n=====",
        "10 km/h / 5 €/kg, and 3 /month",
        "pypi-urllib3, name: Ada, key: value",
        "Call me at 10, merge the two and set a date",
    ),
    *(
        "and/or",
        "he/she/they",
        "1/2 cup, 3/4",
        "1.5 / 2.5",
        "ratio 4:3",
        "A/B",
        "TCP/IP, N/A, w/ cheese",
        "~5/10",
    ),
    *(
        "$1,234.56 or 12 €/kg, 5 km/h",
        "unit must be €/kg or $/lb",
        "50% off; 20 °C",
        "x = (a + b) / c * d // 2",
    ),
    *(
        "f(x) = x^2 / (1 + x)",
        "5 < 6 > 4",
        "-5..10",
        "3.14.15",
        "version 1.2.3",
        "v1.2.3.4 and version 1.2.3.4",
    ),
    *(
        "https://example.com/a/b/c.html?x=1&y=2#z",
        "see http://localhost:8080/docs.",
        "https://medium.com/@user/post",
    ),
    *(
        "text/html and application/json",
        "Europe/Oslo",
        "</div> <br/>",
        "std::vector, a::b, x[::2]",
    ),
    *(
        "invalid token: expected a number",
        "unexpected token ')'",
        "Unexpected token: '<'",
        "tokens: 300",
    ),
    *(
        "max_tokens=100, total_tokens: 200",
        '{"token_count": 5, "session": null}',
        "token_usage=12",
        "cookies: 3 left",
    ),
    *(
        "the secret of life",
        "Secretary: Bob Smith",
        "author: Ann",
        "Authors=3",
        "passport: valid",
        "compass: north",
    ),
    *(
        "password is required",
        "password: must be 8 characters",
        "Password must be at least 8 characters",
    ),
    *(
        "Authorization: required",
        "signature required",
        "access key is needed",
        "authentication failed",
    ),
    *(
        "the session starts at 10:30",
        "session: 2024-01-02",
        "session: morning",
        "session: 10:30am",
        "session: 2024-01-02T10",
        "The bearer of bad news",
    ),
    *(
        "KeyError: 'API_KEY'",
        "missing environment variable OPENAI_API_KEY",
        "api_key is missing",
        "settings.py is missing",
    ),
    *(
        "select a city from the list",
        "Please select one from below",
        "select red, green from the palette",
    ),
    *(
        "insert into the slot",
        "update the record and set it",
        "delete from the cart",
        "drop table reservations for two",
    ),
    *("Press SELECT to continue", "created a table in the view", "FROM Oslo TO Bergen"),
    *(
        "São Paulo, 東京, Zürich",
        "bob@example.com is unknown",
        "use \"quotes\" and 'single'",
        "don't / can't",
    ),
    *(
        "auth method oauth2",
        '{"signature_required": true, "token_type": "bearer"}',
        "token expired yesterday",
    ),
    *(
        "aa:bb:cc:dd:ee:ff",
        "task-management-something-long",
        "risk-based-approach-to-something",
        "Section 3.2.1",
    ),
    *(
        "550e8400-e29b-41d4-a716-446655440000",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ),
    *(
        "a:b:c, key: value, name=Bob",
        "Tel: +47 22 33 44 55",
        '"a" and "b/c"',
        r"\alpha + \\ \beta",
    ),
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_harmless_stays(text: str) -> None:
    assert redact(text) == text


def test_a_very_long_text_loses_its_end() -> None:
    assert (
        redact("https://app:HUNTER2@host" + "x" * 100_000)
        == " … [the rest is left out] …"
    )
    assert (
        redact("word " * 9_998 + "https://app:HUNTER2@host")
        == f"{'word ' * 9_997}word … [the rest is left out] …"
    )


@pytest.mark.parametrize(
    "part",
    [
        *(
            "a",
            "SELECT ",
            "SELECT x FROM ",
            "select a,",
            "/a",
            "/a ",
            "'",
            "'/",
            '"/a ',
            "a.",
            "a:",
            "1:",
            "::1",
            "\\",
            "C:\\a",
        ),
        *(
            "password ",
            'password="',
            "password:'\\",
            "Command '",
            "--password ",
            "-u a",
            "mysql ",
            "<password>",
            "('password',",
            "name='token',",
            "Key (token",
            "MERGE ",
            "/a b/c ",
            "a-",
            "token",
            "token=&",
            '"token":[',
            "-----BEGIN A-----",
            "cookie:",
        ),
        *(
            "http://",
            "http://a:",
            "a+b.",
            "server=a;",
            "server=",
            'File "',
            "insert into a (",
            "create table if exists ",
        ),
        *(
            "=",
            "~a",
            "sk-",
            "eyJaaaaaa.",
            ".py",
            "1.",
            " ",
            "\n",
            '"',
            "DELETE FROM '",
            "Traceback (most recent call last):\n ",
        ),
    ],
)
def test_redaction_ends_on_repetition(part: str) -> None:
    """Any pattern that backtracks without bound would take minutes here, and the timeout of the run would end it."""
    redact(part * (10_000 // len(part)))


def test_errors_of_a_type_of_the_users_own_are_redacted() -> None:
    def check(value: str) -> str:
        raise PydanticCustomError("no_database", "postgres://app:HUNTER2@db is away")

    def look(value: str) -> str:
        """Look something up."""
        return value

    look.__annotations__["value"] = Annotated[str, AfterValidator(check)]
    registry = ToolRegistry()
    registry.register_tool(look)
    content = registry.call("look", {"value": "x"}).content
    assert "[connection] is away" in content
