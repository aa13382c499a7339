"""What stands in a request that could be a value."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.local.answers import _is_held, verbatim
from toolkit.local.extraction import find_numbers, find_values
from toolkit.local.spans import find_spans


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("3 apples and 4 pears", [3, 4], id="digits"),
        pytest.param("pay $1,250.50 now", [1250.5], id="separators"),
        pytest.param("minus -4.0 degrees", [-4], id="sign"),
        pytest.param("from 2019-2021", [2019, 2021], id="a range has no sign"),
        pytest.param(
            "about 2.5 million people, 10k of them here",
            [2_500_000, 10_000],
            id="scales",
        ),
        pytest.param("two cups, a dozen eggs", [2, 12], id="words"),
        pytest.param("a mass of 3e-9", [3e-9], id="exponent"),
        pytest.param("gene ABC12 and x9", [], id="within a name"),
        pytest.param("5km at 10mph", [5, 10], id="before a unit"),
        pytest.param("at 12.5 N, 70.25 W", [12.5, -70.25], id="points of the compass"),
        pytest.param("买10个，20杯", [10, 20], id="another script"),
        pytest.param(
            "id 12345678901234567890",
            [12345678901234567890],
            id="more digits than a float has",
        ),
        pytest.param("1e999", [], id="beyond all floats"),
    ],
)
def test_numbers_are_found(text: str, values: list[float]) -> None:
    assert [number.value for number in find_numbers(text)] == values


@pytest.mark.parametrize(
    ("values", "text", "found"),
    [
        pytest.param(["red", "green"], "a green car", ["green"], id="a word"),
        pytest.param(
            ["TEA", "SOUP"],
            "tea, no, SOUP",
            ["SOUP"],
            id="as written before in other case",
        ),
        pytest.param(
            ["AIR_CLEAN", "AIR_DRY"],
            "air dry mode",
            ["AIR_DRY"],
            id="most of its words",
        ),
        pytest.param(["L", "M"], "in size M", ["M"], id="a letter"),
        pytest.param(["L", "M"], "l'amour", [], id="not a letter in other case"),
        pytest.param(["asc", "desc"], "describe it", [], id="not within a word"),
        pytest.param([1, None, True], "1 true None", [], id="only texts"),
        pytest.param(["天气", "新闻"], "查天气", ["天气"], id="another script"),
    ],
)
def test_values_of_an_enum_are_found(
    values: list[Any], text: str, found: list[Any]
) -> None:
    assert find_values(values, text) == found


@given(st.text(max_size=80))
def test_the_pieces_of_any_text_are_in_it(text: str) -> None:
    if spans := find_spans(text):
        re.compile(spans)
    assert all(
        0 <= number.start < number.end <= len(text) for number in find_numbers(text)
    )


def test_what_stands_in_the_request_is_given_as_it_stands_there() -> None:
    text = {"type": "string"}
    properties = {
        "a": {"items": text},
        "b": {"properties": {"c": text}},
        "d": {"type": "string", "enum": ["RED"]},
    }
    arguments = {"a": ["Red Car", "blue"], "b": {"c": "A"}, "d": "RED", "e": "RED"}
    assert verbatim(arguments, {"properties": properties}, "a red car") == {
        "a": ["red car", "blue"],
        "b": {"c": "a"},
        "d": "RED",
        "e": "RED",
    }


@pytest.mark.parametrize(
    ("value", "others", "twice"),
    [
        pytest.param("Lee", ["Ann Lee"], True, id="a part"),
        pytest.param("4", [4], True, id="a number as text"),
        pytest.param(4, [4], True, id="a number"),
        pytest.param(True, [1], False, id="a flag"),
        pytest.param("red", ["blue", ["red"]], False, id="another"),
        pytest.param("", ["blue"], False, id="nothing"),
    ],
)
def test_what_another_argument_holds_is_seen(
    value: Any, others: list[Any], twice: bool
) -> None:
    assert _is_held(value, others) is twice
