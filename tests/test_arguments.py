"""What models send, from clean to hopeless: what is read, what is mended, what is answered."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic_core import to_json
from typing_extensions import NotRequired, TypedDict

from toolkit import (
    Message,
    RunResult,
    ToolCall,
    run_agent_with_tools,
)
from toolkit.calls.complaints import complain, unknown_tool
from toolkit.calls.mending import mend
from toolkit.calls.parsing import Parsed, expand_parallel, parse, resolve_name, unwrap
from toolkit.models import ScriptedModel

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)
JSON_OBJECTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=3)
BROKEN_TEXTS = st.text(
    st.sampled_from(list("{}[]\"'\\,: \n`x1eE-.uTrueNonefalsjd8\ud83d\x00é")),
    max_size=40,
)


# Reading


@pytest.mark.parametrize(
    ("raw", "arguments", "repair"),
    [
        ('{"city": "Bonn"} I will look that up.', {"city": "Bonn"}, "surrounding_text"),
        ('Arguments: {"city": "Bonn"}', {"city": "Bonn"}, "surrounding_text"),
        ('parameters = {"city": "Bonn"}', {"city": "Bonn"}, "surrounding_text"),
        ('{"city": "Bonn"}</tool_call>', {"city": "Bonn"}, "surrounding_text"),
        ('{"city": "Bonn"}<|im_end|>', {"city": "Bonn"}, "surrounding_text"),
        ("{'city': 'Bonn'} I'll look.", {"city": "Bonn"}, "surrounding_text"),
        ("{'at': (1, 2)}", {"at": [1, 2]}, "python_literal"),
        ("{'at': ((1, 'a (b)'), (3,), ())}", {"at": [[1, "a (b)"], [3], []]}, None),
        ('{"n": 0x1F}', {"n": 31}, "python_literal"),
        ('{"n": 1_000_000}', {"n": 1000000}, "python_literal"),
        ('{"n": "0x1F (1, 2) 1_000",}', {"n": "0x1F (1, 2) 1_000"}, None),
    ],
)
def test_one_reading_is_mended_and_named(
    raw: str, arguments: dict[str, Any], repair: str | None
) -> None:
    parsed = parse(raw)
    assert (parsed.arguments, parsed.problem) == (arguments, "")
    assert repair is None or repair in parsed.repairs


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "",
        " \n\t",
        b"",
        "null",
        b"null",
        "[]",
        " [ ] ",
        {},
        "{}",
        [],
        '""',
        '"{}"',
        "None",
    ],
    ids=repr,
)
def test_nothing_means_no_arguments(raw: object) -> None:
    parsed = parse(raw)
    assert (parsed.arguments, parsed.problem) == ({}, "")


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        pytest.param('{"town": "Graz"}', {"town": "Graz"}, id="plain"),
        pytest.param('\n  {"town": "Graz"}\t', {"town": "Graz"}, id="spaces around"),
        pytest.param('{"town": "Žilina"}'.encode(), {"town": "Žilina"}, id="bytes"),
        pytest.param(
            '{"town": "na\\u00efve \\ud83c\\udf38"}',
            {"town": "naïve 🌸"},
            id="escapes, a pair of surrogates",
        ),
        pytest.param(
            '{"town": "Val-d\'Oise \\"old\\" town"}',
            {"town": 'Val-d\'Oise "old" town'},
            id="apostrophe",
        ),
        pytest.param(
            '{"code": "f(x[0]) { \']\' }", "n": 1}',
            {"code": "f(x[0]) { ']' }", "n": 1},
            id="brackets",
        ),
        pytest.param(
            '{"text": "`a`\\n```json\\n{}\\n```"}',
            {"text": "`a`\n```json\n{}\n```"},
            id="a fence inside",
        ),
        pytest.param(
            '{"text": "{\\"a\\": 1}"}', {"text": '{"a": 1}'}, id="JSON inside a string"
        ),
        pytest.param(
            '{"text": "1, 2,]"}',
            {"text": "1, 2,]"},
            id="a trailing comma inside a string",
        ),
        pytest.param(
            '{"word": "null", "mode": "none"}',
            {"word": "null", "mode": "none"},
            id="words for nothing",
        ),
        pytest.param(
            '{"word": "True, key: x"}',
            {"word": "True, key: x"},
            id="words of Python and JavaScript",
        ),
        pytest.param(
            '{"n": 9007199254740993}', {"n": 9007199254740993}, id="beyond 53 bits"
        ),
        pytest.param(
            '{"n": 1234567890123456789012}',
            {"n": 1234567890123456789012},
            id="beyond 64 bits",
        ),
        pytest.param('{"n": 1, "n": 2}', {"n": 2}, id="the last of equal keys"),
        pytest.param(
            {"town": "Graz", "more": (1, 2)},
            {"town": "Graz", "more": [1, 2]},
            id="an object",
        ),
        pytest.param(
            MappingProxyType({"town": "Graz"}), {"town": "Graz"}, id="a mapping"
        ),
        pytest.param({1: "one"}, {"1": "one"}, id="keys become strings"),
        pytest.param('\ufeff{"n": 1}'.encode(), {"n": 1}, id="byte order mark"),
    ],
)
def test_what_is_sound_is_left_alone(raw: object, arguments: dict[str, Any]) -> None:
    assert parse(raw) == Parsed(arguments)
    assert type(parse(raw).arguments) is dict


@pytest.mark.parametrize(
    ("raw", "arguments", "repairs"),
    [
        pytest.param(
            '{"text": "one\ntwo\tthree"}',
            {"text": "one\ntwo\tthree"},
            ["escapes"],
            id="raw newline",
        ),
        pytest.param('```json\n{"n": 1}\n```', {"n": 1}, ["code_fence"], id="fence"),
        pytest.param(
            '```{"n": 1}```', {"n": 1}, ["code_fence"], id="fence on one line"
        ),
        pytest.param(
            json.dumps('{"n": 1}'), {"n": 1}, ["double_encoded"], id="encoded twice"
        ),
        pytest.param(
            json.dumps(json.dumps('{"n": 1}')),
            {"n": 1},
            ["double_encoded"],
            id="encoded three times",
        ),
        pytest.param(
            "{'n': 1, 'ok': True, 'no': None}",
            {"n": 1, "ok": True, "no": None},
            ["python_literal"],
            id="Python",
        ),
        pytest.param(
            """{'a': "it's", 'b': 'say "so"'}""",
            {"a": "it's", "b": 'say "so"'},
            ["python_literal"],
            id="repr",
        ),
        pytest.param(
            "{'a': 'it\\'s \\x41'}",
            {"a": "it's A"},
            ["python_literal"],
            id="escapes of Python",
        ),
        pytest.param(
            '{"ok": True, "no": null}',
            {"ok": True, "no": None},
            ["python_literal"],
            id="half Python",
        ),
        pytest.param(
            '{"a": "it\\\'s"}',
            {"a": "it's"},
            ["escapes"],
            id="an apostrophe escaped in vain",
        ),
        pytest.param(
            '{"xs": [1, 2, ], "n": 1,\n}',
            {"xs": [1, 2], "n": 1},
            ["trailing_comma"],
            id="trailing commas",
        ),
        pytest.param(
            "{'town': \"Lima\",}",
            {"town": "Lima"},
            ["python_literal", "trailing_comma"],
            id="two repairs",
        ),
        pytest.param(
            '{"a": \\"foo\\"}',
            {"a": "foo"},
            ["escaped_quotes"],
            id="quotes escaped once too often",
        ),
        pytest.param(
            '{"n": 1} {"n": 1}',
            {"n": 1},
            ["concatenated_duplicate"],
            id="the same object twice",
        ),
        pytest.param(
            '{"t": "ok \\ud83d"}',
            {"t": "ok \ufffd"},
            ["surrogate"],
            id="an escaped lone surrogate",
        ),
        pytest.param(
            '{"t": "ok \udce9"}',
            {"t": "ok \ufffd"},
            ["surrogate"],
            id="a raw lone surrogate",
        ),
        pytest.param(
            '{"t": "\ud83d\ude00"}',
            {"t": "😀"},
            ["surrogate"],
            id="a raw pair of surrogates",
        ),
        pytest.param(
            {"t": ["\ud83d"]},
            {"t": ["\ufffd"]},
            ["surrogate"],
            id="a lone surrogate in an object",
        ),
    ],
)
def test_what_has_one_reading_is_mended(
    raw: object, arguments: dict[str, Any], repairs: list[str]
) -> None:
    parsed = parse(raw)
    assert (parsed.arguments, list(parsed.repairs), parsed.problem) == (
        arguments,
        repairs,
        "",
    )
    json.dumps(parsed.arguments, ensure_ascii=False).encode()


CYCLE: dict[str, Any] = {}
CYCLE["again"] = CYCLE


class Unruly(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise KeyError("no items today")

    keys = __iter__ = items


@pytest.mark.parametrize(
    ("raw", "mentions"),
    [
        pytest.param('{"do": lis_windows"}', "line 1 column 8", id="half a string"),
        pytest.param('{"n": 12', "line 1 column 9", id="not closed"),
        pytest.param(
            '{"text": "rm -rf /tmp/x', "column 10", id="not closed, in a string"
        ),
        pytest.param('{"n": 1,\n "m": }', "line 2 column 7", id="a value is missing"),
        pytest.param('{"town": Rome, (}', "column 10", id="neither JSON nor Python"),
        pytest.param('{"n": 1} and {"n": 2}', "one JSON object", id="words, an object"),
        pytest.param('{"n": 1}}', "one JSON object", id="a brace too many"),
        pytest.param('{"n": 1}, "m": 2', "one JSON object", id="more keys behind"),
        pytest.param('I send {"n": 1}', "one JSON object", id="words before"),
        pytest.param('{"n": {"m": 1}', "incomplete", id="a brace missing"),
        pytest.param('{"n": "so it', "incomplete", id="half a text"),
        pytest.param('{"n": 1e999}', "not finite", id="beyond a float"),
        pytest.param('{"n": [-12.5E+400]}', "not finite", id="beyond a float, below"),
        pytest.param('{"n": 1' + "0" * 400 + ".5}", "not finite", id="many digits"),
        pytest.param("{'n': (1)}", "column", id="brackets that are no tuple"),
        pytest.param('{"n": 010}', "column", id="a number that is none"),
        pytest.param("run it", "column 1", id="words"),
        pytest.param('{"n": 1}{"n": 2}', "differ", id="two different objects"),
        pytest.param(
            '{"n": 1}{"n": true}',
            "differ",
            id="two objects that Python holds for equal",
        ),
        pytest.param('{}{"n": 1}', "differ", id="an empty object and another"),
        pytest.param('{"x": NaN}', "JSON compliant", id="NaN"),
        pytest.param('{"x": [-Infinity,]}', "JSON compliant", id="infinity"),
        pytest.param("{'x': {1, 2}}", "column", id="a set of Python"),
        pytest.param("{'x': b'1'}", "column", id="bytes of Python"),
        pytest.param("{'x': __import__('os')}", "column", id="a call"),
        pytest.param("{'a': 'it's'}", "column", id="an apostrophe in apostrophes"),
        pytest.param('{"dir": "C:\\projects"}', "escape", id="an escape that is none"),
        pytest.param("{a: 1, b: c}", "column", id="a bare word as value"),
        pytest.param("{a b: 1}", "column", id="two bare words"),
        pytest.param('{"xs": [1,,]}', "column", id="two commas"),
        pytest.param('{"xs": [,]}', "column", id="only a comma"),
        pytest.param('{"n": ' + "9" * 5000 + "}", "digits", id="5,000 digits"),
        pytest.param("[" * 100_000, "recursion", id="deep"),
        pytest.param(
            '{"a":' * 100_000 + "1" + "}" * 100_000, "recursion", id="deep and whole"
        ),
        pytest.param(
            '{"a":' * 300 + "1" + "}" * 300,
            "recursion",
            id="deeper than the validator goes",
        ),
        pytest.param("['" * 100_000, "column", id="deep Python"),
        pytest.param(b'{"a": "\xff"}', "utf-8", id="not UTF-8"),
        pytest.param({"a": object()}, "object", id="an object of no kind"),
        pytest.param({"a": {1}}, "set", id="an object with a set"),
        pytest.param({"a": float("nan")}, "JSON compliant", id="an object with NaN"),
        pytest.param(CYCLE, "Circular", id="an object in itself"),
        pytest.param(Unruly(a=1), "items", id="an object that raises"),
    ],
)
def test_what_has_no_one_reading_is_told(raw: object, mentions: str) -> None:
    parsed = parse(raw)
    assert parsed.arguments == {}
    assert parsed.problem.startswith("The arguments are not valid JSON: ")
    assert mentions in parsed.problem
    assert "cut off" not in parsed.problem
    assert "length" not in parsed.problem


@pytest.mark.parametrize(
    ("raw", "other"),
    [
        ('["Rome"]', ["Rome"]),
        ('"Rome"', "Rome"),
        ("42", 42),
        ("true", True),
        ([1], [1]),
        ("1.5", 1.5),
    ],
    ids=repr,
)
def test_another_value_than_an_object_is_kept_apart(raw: object, other: Any) -> None:
    parsed = parse(raw)
    assert (parsed.arguments, parsed.other) == ({}, other)
    assert "JSON object" in parsed.problem
    assert json.dumps(other) in parsed.problem


@pytest.mark.parametrize(
    "raw",
    ['{"path": "/etc/hosts", "text": "127.0', "", None, "4", '{"n": 1}{"n": 2}', "{,"],
    ids=repr,
)
def test_what_the_limit_cut_off_is_told_so(raw: object) -> None:
    parsed = parse(raw, truncated=True)
    assert parsed.arguments == {}
    assert all(word in parsed.problem for word in ("cut off", "length", "shorter"))


def test_a_whole_object_survives_a_reply_that_was_cut_off() -> None:
    assert parse('{"n": 1}', truncated=True) == Parsed({"n": 1})


def test_arguments_are_a_copy_of_the_object_sent() -> None:
    sent = {"xs": [1]}
    parse(sent).arguments["xs"].append(2)
    assert sent == {"xs": [1]}


def test_a_quote_that_is_never_closed_costs_one_look() -> None:
    # Looking for its end again from each quote inside would take minutes.
    assert "Unterminated string" in parse('{"a": "' + r"\"\n" * 500_000).problem


def test_long_text_is_read() -> None:
    text = "a line\n" * 50_000
    assert parse(json.dumps({"text": text})).arguments == {"text": text}
    assert parse(f'{{"text": "{text}"}}') == Parsed({"text": text}, ("escapes",))


@given(
    st.text()
    | st.binary()
    | BROKEN_TEXTS
    | JSON_VALUES
    | st.floats()
    | st.complex_numbers()
)
def test_reading_never_raises(raw: object) -> None:
    for parsed in (parse(raw), parse(raw, truncated=True)):
        assert type(parsed.arguments) is dict
        assert not (parsed.arguments and parsed.problem)
        to_json(parsed.arguments)


@given(JSON_OBJECTS, st.booleans())
def test_json_comes_through_unchanged(sent: dict[str, Any], escaped: bool) -> None:
    assert parse(json.dumps(sent, ensure_ascii=escaped)) == Parsed(sent)
    assert parse(sent) == Parsed(sent)


@given(JSON_OBJECTS)
def test_python_comes_through_unchanged_or_not_at_all(sent: dict[str, Any]) -> None:
    parsed = parse(repr(sent))
    assert parsed.problem or parsed.arguments == sent


@given(
    JSON_OBJECTS,
    st.data(),
    st.sampled_from([json.dumps, repr, lambda sent: json.dumps(json.dumps(sent))]),
)
def test_a_beginning_is_never_completed(
    sent: dict[str, Any], data: st.DataObject, write: Any
) -> None:
    text = write(sent)
    parsed = parse(text[: data.draw(st.integers(0, len(text) - 1))])
    assert parsed.arguments == {}


# Envelopes

FORECAST = {
    "type": "object",
    "properties": {
        "town": {"type": "string"},
        "days": {"type": "integer"},
        "filters": {"type": "object"},
    },
    "required": ["town"],
}
EDIT = {
    "type": "object",
    "properties": {"edits": {"$ref": "#/$defs/Edits"}, "dry": {"type": "boolean"}},
    "required": ["edits"],
    "$defs": {
        "Edits": {
            "anyOf": [{"type": "array", "items": {"type": "object"}}, {"type": "null"}]
        }
    },
}


@pytest.mark.parametrize(
    "raw",
    [
        '{"arguments": {"town": "Rome"}}',
        '{"parameters": {"town": "Rome"}}',
        '{"properties": {"town": "Rome"}}',
        '{"args": {"town": "Rome"}}',
        '{"kwargs": {"town": "Rome"}}',
        '{"params": {"town": "Rome"}}',
        '{"input": {"town": "Rome"}}',
        '{"forecast": {"town": "Rome"}}',
        '{"type": "object", "properties": {"town": "Rome"}, "required": ["town"]}',
        '{"name": "forecast", "arguments": {"town": "Rome"}}',
        '{"function": "forecast", "args": {"town": "Rome"}}',
        '{"id": "call_1", "tool": "forecast", "args": {"town": "Rome"}}',
        '{"$schema": "x", "tool_name": "forecast", "args": {"town": "Rome"}}',
        '{"function_name": "forecast", "args": {"town": "Rome"}, "additionalProperties": false}',
        '{"type": "function", "function": {"name": "forecast", "arguments": "{\\"town\\": \\"Rome\\"}"}}',
        '{"arguments": "{\\"town\\": \\"Rome\\"}"}',
        '{"arguments": {"properties": {"town": "Rome"}}}',
    ],
)
def test_an_envelope_is_taken_off(raw: str) -> None:
    parsed = unwrap(parse(raw), "forecast", FORECAST)
    assert (parsed.arguments, parsed.problem) == ({"town": "Rome"}, "")
    assert set(parsed.repairs) == {"wrapper"}


def test_an_envelope_may_be_empty() -> None:
    assert unwrap(parse('{"name": "now", "arguments": ""}'), "now", {}) == Parsed(
        {}, ("wrapper",)
    )


def test_the_repairs_inside_an_envelope_are_named() -> None:
    parsed = unwrap(parse("{'arguments': \"{'town': 'Rome'}\"}"), "forecast", FORECAST)
    assert set(parsed.repairs) == {"python_literal", "wrapper"}
    assert parsed.arguments == {"town": "Rome"}


@pytest.mark.parametrize(
    ("raw", "parameters"),
    [
        pytest.param('{"town": "Rome", "days": 2}', FORECAST, id="no envelope"),
        pytest.param(
            '{"arguments": {"n": 1}}',
            {"properties": {"arguments": {}}},
            id="a parameter of that name",
        ),
        pytest.param(
            '{"arguments": {"n": 1}, "more": 2}',
            FORECAST,
            id="something else beside it",
        ),
        pytest.param(
            '{"arguments": {"n": 1}, "town": "Rome"}',
            FORECAST,
            id="a parameter beside it",
        ),
        pytest.param(
            '{"arguments": {"n": 1}, "input": {"n": 1}}', FORECAST, id="two of them"
        ),
        pytest.param(
            '{"name": "delete", "arguments": {"n": 1}}',
            FORECAST,
            id="the name of another tool",
        ),
        pytest.param(
            '{"name": "forecast", "input": {}}',
            {"properties": {"name": {}}},
            id="a parameter called name",
        ),
        pytest.param('{"input": "Rome"}', FORECAST, id="not an object inside"),
        pytest.param(
            '{"input": {"n": 1}}',
            {"additionalProperties": {"type": "object"}},
            id="every name is a parameter",
        ),
        pytest.param(
            '{"properties": {"filters": {"type": "object"}}}',
            FORECAST,
            id="the schema itself",
        ),
        pytest.param('["Rome"]', FORECAST, id="an array where none is wanted"),
        pytest.param(
            '[{"a": 1}]',
            {"properties": {"a": {"type": "array"}, "b": {}}},
            id="an array for one of two",
        ),
        pytest.param('{"n": ', FORECAST, id="a problem"),
    ],
)
def test_what_may_be_meant_so_is_no_envelope(
    raw: str, parameters: dict[str, Any]
) -> None:
    parsed = parse(raw)
    assert unwrap(parsed, "forecast", parameters) == parsed


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param(EDIT, id="the one required"),
        pytest.param({"properties": {"edits": {"type": "array"}}}, id="the only one"),
        pytest.param(
            {"properties": {"edits": {"type": ["array", "null"]}}}, id="nullable"
        ),
        pytest.param(
            {
                "properties": {"edits": {"$ref": "#/definitions/E"}},
                "definitions": {"E": {"type": "array"}},
            },
            id="defined in the older way",
        ),
    ],
)
def test_a_bare_array_is_the_one_parameter(parameters: dict[str, Any]) -> None:
    assert unwrap(parse('[{"a": "b"}]'), "edit", parameters) == Parsed(
        {"edits": [{"a": "b"}]}, ("bare_array",)
    )


# Mending after validation


class Step(TypedDict):
    title: str
    tags: NotRequired[list[str]]
    level: NotRequired[int]


class Card(BaseModel):
    kind: Literal["card"]
    digits: str
    card: str | None = None


class Cash(BaseModel):
    kind: Literal["cash"]
    amount: int


class Closed(BaseModel, extra="forbid"):
    code: int


@dataclass
class Box:
    width: float


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@with_config(ConfigDict(extra="forbid"))
class Everything(TypedDict, total=False):
    text: str
    n: int
    steps: list[Step]
    ids: set[int]
    pair: tuple[int, str]
    ends: tuple[Step, Step]
    closed: Closed
    prices: dict[str, float]
    box: Box
    either: int | list[int]
    mixed: dict[str, int] | list[int] | int
    text_or_list: str | list[int]
    code_or_list: Annotated[str, Field(pattern="^[A-Z]+$")] | list[int]
    paid: Annotated[Card | Cash, Field(discriminator="kind")]
    anyhow: Card | Cash
    side: Literal["buy", "sell"]
    colour: Colour


ADAPTER = TypeAdapter(Everything)
PARAMETERS = ADAPTER.json_schema()
OPTIONAL = frozenset(PARAMETERS["properties"])


def find_errors(arguments: dict[str, Any]) -> list[Any]:
    try:
        ADAPTER.validate_json(to_json(arguments))
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def mend_fully(arguments: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """As a call does: at most three rounds; what could not be mended wholly comes back as it was."""
    tried, names = arguments, []
    for _ in range(3):
        mended = mend(tried, find_errors(tried), OPTIONAL, PARAMETERS)
        if mended is None:
            break
        tried = mended[0]
        names += mended[1]
    return (arguments, []) if find_errors(tried) else (tried, names)


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        pytest.param({"ids": "[1, 2]"}, {"ids": [1, 2]}, id="set"),
        pytest.param({"ids": "[]"}, {"ids": []}, id="empty"),
        pytest.param({"pair": '[1, "x"]'}, {"pair": [1, "x"]}, id="tuple"),
        pytest.param({"pair": "[1, 'x',]"}, {"pair": [1, "x"]}, id="tuple as Python"),
        pytest.param({"prices": '{"tea": 2}'}, {"prices": {"tea": 2}}, id="map"),
        pytest.param({"box": '{"width": 2}'}, {"box": {"width": 2}}, id="dataclass"),
        pytest.param({"either": "[1]"}, {"either": [1]}, id="member of a union"),
        pytest.param({"mixed": "[1]"}, {"mixed": [1]}, id="one of two containers"),
        pytest.param(
            {"mixed": '{"a": 1}'}, {"mixed": {"a": 1}}, id="the other of two containers"
        ),
        pytest.param(
            {"anyhow": '{"kind": "cash", "amount": 1}'},
            {"anyhow": {"kind": "cash", "amount": 1}},
            id="models",
        ),
        pytest.param(
            {"paid": '{"kind": "cash", "amount": 1}'},
            {"paid": {"kind": "cash", "amount": 1}},
            id="tagged models",
        ),
        pytest.param(
            {"steps": '[{"title": "a\nb"}]'},
            {"steps": [{"title": "a\nb"}]},
            id="raw newline inside",
        ),
        pytest.param(
            {"text": "[1", "ids": "[1]"},
            {"text": "[1", "ids": [1]},
            id="a text beside it",
        ),
        pytest.param(
            {
                "steps": json.dumps(
                    [json.dumps({"title": "a", "tags": json.dumps(["x"])})]
                )
            },
            {"steps": [{"title": "a", "tags": ["x"]}]},
            id="text in text in text",
        ),
    ],
)
def test_json_text_becomes_what_was_wanted(
    sent: dict[str, Any], meant: dict[str, Any]
) -> None:
    mended, names = mend_fully(sent)
    assert mended == meant
    assert set(names) == {"json_text"}


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        pytest.param(
            {"n": None, "text": "a"}, {"text": "a"}, id="a parameter with a default"
        ),
        pytest.param({"text": None}, {}, id="a string"),
        pytest.param({"either": None}, {}, id="a union"),
        pytest.param(
            {"ends": [{"title": "a"}, {"title": "b", "level": None}]},
            {"ends": [{"title": "a"}, {"title": "b"}]},
            id="in a tuple",
        ),
        pytest.param(
            {"steps": [{"title": "a", "level": None}]},
            {"steps": [{"title": "a"}]},
            id="a key that may be missing",
        ),
    ],
)
def test_null_means_the_default(sent: dict[str, Any], meant: dict[str, Any]) -> None:
    assert mend_fully(sent) == (meant, ["null_default"])


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"text_or_list": "[1]"}, id="a string was allowed"),
        pytest.param(
            {"code_or_list": "[1]"}, id="a string was allowed, though not this one"
        ),
        pytest.param({"either": '{"a": 1}'}, id="an object where an array was wanted"),
        pytest.param({"ids": "1, 2"}, id="no JSON"),
        pytest.param({"ids": ""}, id="an empty text"),
        pytest.param({"box": "null"}, id="nothing as text"),
        pytest.param({"ids": "[1, 2"}, id="cut off"),
        pytest.param({"ids": '["x"]'}, id="JSON that does not fit either"),
        pytest.param({"prices": {"tea": 1, "milk": None}}, id="an entry of a map"),
        pytest.param(
            {"prices": {"tea": 1, "level": None}},
            id="an entry of a map called as a key that may be missing",
        ),
        pytest.param({"ids": [1, None]}, id="an item of an array"),
        pytest.param({"steps": [{"title": None}]}, id="a key that must be there"),
        pytest.param({"n": "seven", "text": "[1]"}, id="another kind of error"),
    ],
)
def test_what_cannot_be_mended_stays(sent: dict[str, Any]) -> None:
    assert mend_fully(sent) == (sent, [])


def test_null_of_a_required_parameter_stays() -> None:
    assert mend({"n": None}, find_errors({"n": None}), (), PARAMETERS) is None


@pytest.mark.parametrize(
    "sent",
    [{"steps": [{"title": None}]}, {"ids": '{"a": 1}'}, {"prices": "[1]"}],
    ids=repr,
)
def test_what_cannot_help_is_not_tried(sent: dict[str, Any]) -> None:
    assert mend(sent, find_errors(sent), OPTIONAL, PARAMETERS) is None


def test_what_a_validator_made_of_a_value_is_not_the_value() -> None:
    error = {
        "type": "int_type",
        "loc": ("n",),
        "msg": "Input should be a valid integer",
        "input": None,
    }
    assert mend({"n": "none"}, [error], OPTIONAL) is None


@pytest.mark.parametrize("kind", ["string_too_short", "value_error", "assertion_error"])
def test_a_text_whose_type_was_welcome_is_not_read(kind: str) -> None:
    refusal = {"type": kind, "loc": ("x", "str"), "msg": "", "input": "[1]"}
    other = {"type": "list_type", "loc": ("x", "list[int]"), "msg": "", "input": "[1]"}
    assert mend({"x": "[1]"}, [other], ()) == ({"x": [1]}, ("json_text",))
    assert mend({"x": "[1]"}, [refusal, other], ()) is None


@pytest.mark.parametrize(
    ("kinds", "text", "value"),
    [
        (
            "list_type tuple_type set_type frozen_set_type deque_type sequence_str named_tuple_type",
            "[1]",
            [1],
        ),
        (
            "dict_type model_type model_attributes_type dataclass_type ordered_dict_type counter_type",
            '{"a": 1}',
            {"a": 1},
        ),
    ],
    ids=["arrays", "objects"],
)
def test_each_kind_of_container_is_known(kinds: str, text: str, value: Any) -> None:
    for kind in kinds.split():
        error = {"type": kind, "loc": ("x",), "msg": "", "input": text}
        assert mend({"x": text}, [error], ()) == ({"x": value}, ("json_text",)), kind


def test_null_deeper_down_needs_the_schema() -> None:
    sent = {"steps": [{"title": "a", "level": None}]}
    assert mend(sent, find_errors(sent), OPTIONAL) is None


def test_a_label_of_a_union_is_no_key() -> None:
    # pydantic's location is (paid, card, digits): the label of the member, which is also a key of it.
    sent = {"paid": {"kind": "card", "digits": ["1"], "card": None}}
    assert [error["loc"] for error in find_errors(sent)] == [("paid", "card", "digits")]
    assert mend(sent, find_errors(sent), OPTIONAL, PARAMETERS) is None
    assert "- paid.card.digits: expected a valid string" in complain(
        "pay", find_errors(sent), PARAMETERS
    )


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from(sorted(OPTIONAL)),
        JSON_VALUES | st.sampled_from(["[1]", '{"a": 1}', "{'kind':"]),
    )
)
def test_mending_leaves_the_arguments_alone(sent: dict[str, Any]) -> None:
    before = deepcopy(sent)
    mended = mend(sent, find_errors(sent), OPTIONAL, PARAMETERS)
    assert sent == before
    if mended is not None:
        assert mended[1]
        assert all(
            mended[0].get(key) == value
            for key, value in sent.items()
            if isinstance(value, (int, float))
        )


# Answers to the model


def complain_of(sent: dict[str, Any], attempts_left: int | None = None) -> str:
    return complain("work", find_errors(sent), PARAMETERS, attempts_left)


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        pytest.param(
            {"n": "seven"}, '- n: expected a valid integer; got "seven"', id="scalar"
        ),
        pytest.param(
            {"n": 1.5},
            "- n: expected a valid integer; got 1.5",
            id="scalar of another kind",
        ),
        pytest.param({"ids": 1}, "- ids: expected an array; got 1", id="array"),
        pytest.param({"box": [1]}, "- box: expected an object; got [1]", id="object"),
        pytest.param(
            {"ids": [1, "x"]}, '- ids.1: expected a valid integer; got "x"', id="item"
        ),
        pytest.param(
            {"prices": {"tea": "x"}},
            '- prices.tea: expected a valid number; got "x"',
            id="entry",
        ),
        pytest.param(
            {"steps": [{}]},
            "- steps.0.title: required, but missing",
            id="missing below",
        ),
        pytest.param(
            {"side": "hold"},
            "- side: expected 'buy' or 'sell'; got \"hold\"",
            id="literal",
        ),
        pytest.param(
            {"colour": "RED"},
            "- colour: expected 'red' or 'blue'; got \"RED\"",
            id="enum",
        ),
        pytest.param(
            {"either": "x"},
            '- either: expected a valid integer or an array; got "x"',
            id="union",
        ),
        pytest.param(
            {"mixed": "x"},
            '- mixed: expected an object or an array or a valid integer; got "x"',
            id="wide union",
        ),
        pytest.param(
            {"mixed": {"a": "x"}},
            '- mixed.a: expected a valid integer; got "x"',
            id="entry in a union",
        ),
        pytest.param(
            {"closed": {"code": 1, "x": 2}},
            "- closed.x: unexpected\n",
            id="unexpected below",
        ),
        pytest.param(
            {"anyhow": {"kind": "cash"}},
            "- anyhow.amount: required, but missing",
            id="union of models",
        ),
        pytest.param({"paid": {"kind": "iou"}}, "'card', 'cash'", id="unknown tag"),
        pytest.param(
            {"txet": "x"},
            "- txet: unexpected; did you mean text?",
            id="a slip in a name",
        ),
        pytest.param({"zzz": 1}, "- zzz: unexpected\n", id="an unknown name"),
        pytest.param(
            {"text": ["x" * 100]},
            '- text: expected a valid string; got ["' + "x" * 57 + "…",
            id="long value",
        ),
    ],
)
def test_an_error_names_field_and_expectation_and_value(
    sent: dict[str, Any], line: str
) -> None:
    told = complain_of(sent)
    assert told.startswith("Invalid arguments for work:\n- ")
    assert line in told
    assert not any(
        noise in told
        for noise in ("pydantic", "http", "Card", "Cash", "list[", "function-")
    )


def test_a_wrong_name_leads_to_the_missing_one() -> None:
    class Query(TypedDict):
        cypher: str
        limit: NotRequired[int]

    adapter = TypeAdapter(with_config(ConfigDict(extra="forbid"))(Query))
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python({"query": "MATCH (n) RETURN n"})
    told = complain(
        "run_query", caught.value.errors(include_url=False), adapter.json_schema(), 2
    )
    assert told == (
        "Invalid arguments for run_query:\n"
        "- cypher: required, but missing\n"
        "- query: unexpected; did you mean cypher?\n"
        "Parameters: cypher (string, required), limit (integer).\n"
        "Attempts left: 2."
    )


def test_a_label_of_a_union_may_be_the_name_of_a_parameter() -> None:
    parameters = {
        "properties": {
            "v": {"anyOf": [{"type": "integer"}, {"type": "array"}]},
            "int": {"type": "string"},
        }
    }
    error = {
        "type": "int_parsing",
        "loc": ("v", "int"),
        "msg": "Input should be a valid integer",
        "input": "x",
    }
    assert '- v: expected a valid integer; got "x"\n' in complain(
        "work", [error], parameters
    )


def test_what_a_validator_says_is_passed_on() -> None:
    error = {
        "type": "value_error",
        "loc": ("n",),
        "msg": "Value error, must be even, got a 3",
        "input": 3,
    }
    assert "- n: Value error, must be even, got a 3; got 3\n" in complain(
        "work", [error], {}
    )


def test_a_problem_of_reading_is_told_with_the_parameters() -> None:
    told = complain("forecast", [{"msg": parse("42").problem}], FORECAST)
    assert "- The arguments are 42, which is no JSON object." in told
    assert "town (string, required), days (integer), filters (object)." in told


def test_the_types_of_parameters_are_told_briefly() -> None:
    told = complain(
        "work",
        [],
        {
            **EDIT,
            "properties": {
                **EDIT["properties"],
                "x": {},
                "y": {"type": ["string", "null"]},
            },
        },
    )
    assert (
        "Parameters: edits (array|null, required), dry (boolean), x (any), y (string|null)."
        in told
    )
    assert "Parameters: none." in complain("now", [], {})


@settings(max_examples=50)
@given(
    st.dictionaries(TEXTS | st.sampled_from(sorted(OPTIONAL)), JSON_VALUES),
    st.integers(0, 9),
)
def test_complaints_are_bounded(sent: dict[str, Any], left: int) -> None:
    told = complain_of(sent, left)
    assert len(told) <= 2000
    assert told.endswith(f"\nAttempts left: {left}.")


def test_many_long_errors_are_bounded() -> None:
    told = complain_of(
        {f"{number}{'x' * 500}": ["y" * 500] for number in range(200)}, 1
    )
    assert len(told) <= 2000
    assert told.count("\n- ") == 8
    errors = [
        {"type": "enum", "loc": (f"p{number}",), "msg": "m" * 900, "input": "v" * 900}
        for number in range(20)
    ]
    told = complain(
        "work",
        errors,
        {"properties": {f"p{number}": {"type": "string"} for number in range(200)}},
        1,
    )
    assert len(told) <= 2000
    assert "- p0: " in told
    assert told.endswith("\nAttempts left: 1.")


# Names


def test_an_unknown_tool_is_answered_with_the_nearest() -> None:
    assert unknown_tool("get_wether", ["now", "weather"], 1) == (
        'There is no tool "get_wether". Did you mean weather? Tools: weather, now.\nAttempts left: 1.'
    )
    assert unknown_tool("", []) == 'There is no tool "". Tools: none.'


def test_an_unknown_name_is_cleaned_and_the_list_bounded() -> None:
    told = unknown_tool(
        "x\n\ud83d" * 1000, [f"tool_{number:03}" for number in range(500)]
    )
    told.encode()
    assert len(told) < 750
    assert "\n" not in told
    assert told.endswith("….")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("add", "add"),
        ("functions.add", "add"),
        ("function.add", "add"),
        ("tools.add", "add"),
        ("tool.add", "add"),
        ("functions.add:0", "add"),
        (' "add"\n', "add"),
        ("add<|channel|>commentary", "add"),
        ("functions.exact", "functions.exact"),
        ("Add", None),
        ("add_all", None),
        ("other.add", None),
        ("functions.", None),
        ("", None),
    ],
)
def test_a_name_is_found_without_its_ornaments(name: str, found: str | None) -> None:
    assert resolve_name(name, {"add", "functions.exact"}) == found


@given(st.text())
def test_any_name_is_answered(name: str) -> None:
    assert resolve_name(name, ("add",)) in ("add", None)
    unknown_tool(name, ("add",)).encode()


def test_parallel_calls_are_taken_apart() -> None:
    sent = {
        "tool_uses": [
            {"recipient_name": "functions.add", "parameters": {"n": 1}},
            {"recipient_name": "now", "parameters": '{"zone": "UTC"}'},
            {"recipient_name": "now"},
            {"recipient_name": "now", "parameters": [1]},
        ]
    }
    assert expand_parallel(sent) == [
        ("functions.add", {"n": 1}),
        ("now", '{"zone": "UTC"}'),
        ("now", "null"),
        ("now", "[1]"),
    ]


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"tool_uses": []},
        {"tool_uses": "x"},
        {"tool_uses": 5},
        {"tool_uses": [1]},
        {"n": 1},
    ],
    ids=repr,
)
def test_other_forms_are_not_parallel_calls(sent: dict[str, Any]) -> None:
    assert expand_parallel(sent) is None


def test_a_run_with_a_number_that_is_not_finite_is_saved_as_json() -> None:
    def scale(x: float) -> float:
        """Scale."""
        return x

    call = ToolCall("a", "scale", raw={"x": float("inf")})
    model = ScriptedModel([Message("assistant", tool_calls=(call,)), "done"])
    result = run_agent_with_tools("?", model=model, tools=[scale])
    assert "not finite" in result.calls[0].content
    saved = json.loads(result.to_json(), parse_constant=pytest.fail)
    assert saved["run"]
    assert RunResult.from_json(result.to_json()).text == "done"
