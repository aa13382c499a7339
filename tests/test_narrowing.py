"""A tool's schema narrowed to the values that a request speaks of."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.local.narrowing import count_named, narrow
from toolkit.local.spans import SPANS

TEXT, INTEGER, NUMBER, FLAG = (
    {"type": kind} for kind in ("string", "integer", "number", "boolean")
)


def narrowed(
    text: str, key: str, value: dict[str, Any], *, needed: bool = False
) -> Any:
    """The one property narrowed, None where it is left out; its being required is checked apart."""
    schema = {
        "type": "object",
        "properties": {key: value},
        "required": [key] if needed else [],
    }
    return narrow(schema, text)["properties"].get(key)


def is_asked(text: str, key: str, value: dict[str, Any]) -> bool:
    return (
        key in narrow({"type": "object", "properties": {key: value}}, text)["required"]
    )


# Numbers


@pytest.mark.parametrize(
    ("text", "schema", "values"),
    [
        pytest.param("at 7% for 3 years", NUMBER, [0.07, 3], id="a fraction"),
        pytest.param(
            "at 7 percent",
            {**NUMBER, "description": "Rate as a percentage"},
            [7],
            id="a percentage",
        ),
        pytest.param(
            "at 7%",
            {**NUMBER, "description": "As decimal, 5% is 0.05"},
            [0.07],
            id="a sign in the text",
        ),
        pytest.param("at 7%", INTEGER, [7], id="a whole number"),
        pytest.param("2.5 or 3", INTEGER, [3], id="whole numbers only"),
        pytest.param(
            "2 or 30",
            {**INTEGER, "minimum": 5, "exclusiveMaximum": 31},
            [30],
            id="limits",
        ),
        pytest.param("on 2024-05-01 for 3 nights", INTEGER, [3], id="not of a date"),
    ],
)
def test_a_needed_number_is_one_of_the_request(
    text: str, schema: dict[str, Any], values: list[float]
) -> None:
    assert narrowed(text, "amount", schema, needed=True)["enum"] == values


@pytest.mark.parametrize(
    ("key", "description", "values"),
    [
        pytest.param(
            "duration", "How long, in minutes.", [30], id="a unit of the description"
        ),
        pytest.param("num_guests", "", [4], id="what is counted, by its name"),
        pytest.param(
            "speed", "Speed in kilometers per hour.", [30, 4, 7], id="no unit said"
        ),
    ],
)
def test_a_unit_tells_which_number_is_meant(
    key: str, description: str, values: list[int]
) -> None:
    text = "dinner for 30 minutes with 4 guests at table 7"
    assert (
        narrowed(text, key, {**INTEGER, "description": description}, needed=True)[
            "enum"
        ]
        == values
    )


def test_numbers_that_the_request_does_not_spell_out_are_free() -> None:
    assert narrowed("a deck of cards", "amount", INTEGER, needed=True) == INTEGER
    two = {
        "type": "object",
        "properties": {"drawn": INTEGER, "total": INTEGER},
        "required": ["drawn", "total"],
    }
    assert narrow(two, "draw 3 from a deck")["properties"] == two["properties"]


@pytest.mark.parametrize(
    ("text", "key", "kept"),
    [
        pytest.param(
            "show at most 20 rows per page",
            "rows",
            {**INTEGER, "enum": [20]},
            id="beside its name",
        ),
        pytest.param(
            "the rows of the year 2020", "rows", INTEGER, id="not beside its name"
        ),
        pytest.param("show some rows", "rows", None, id="no number"),
    ],
)
def test_an_optional_number_is_asked_by_its_name(
    text: str, key: str, kept: Any
) -> None:
    assert narrowed(text, key, INTEGER) == kept
    assert is_asked(text, key, INTEGER) == bool(kept and "enum" in kept)


# One of several, yes or no


def test_an_enum_is_what_the_request_names() -> None:
    size = {**TEXT, "enum": ["small", "large"]}
    assert narrowed("a large box", "size", size) == {**TEXT, "enum": ["large"]}
    assert is_asked("a large box", "size", size)
    assert narrowed("a box", "size", size) is None
    assert narrowed("a box", "size", size, needed=True) == size


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("the report with footnotes", True, id="named"),
        pytest.param("the report without footnotes", False, id="denied"),
        pytest.param("the report", None, id="not named"),
        pytest.param("non-footnotes reports", False, id="denied in a word"),
    ],
)
def test_a_flag_is_named_or_left_out(text: str, value: bool | None) -> None:
    kept = narrowed(text, "include_footnotes", FLAG)
    assert kept == (None if value is None else {**FLAG, "enum": [value]})


def test_a_flag_is_named_by_most_of_its_words_but_not_by_what_others_have_too() -> None:
    schema = {"properties": {"private_view": FLAG, "tax_free": FLAG, "tax_added": FLAG}}
    kept = narrow(schema, "a private sale with tax")
    assert kept["properties"] == {"private_view": {**FLAG, "enum": [True]}}


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        pytest.param(
            "with parking, please",
            ["True", "False", "any"],
            ["True"],
            id="a flag in words",
        ),
        pytest.param(
            "no parking, please", ["True", "False", "any"], ["False"], id="denied"
        ),
        pytest.param(
            "for 3 days, parking 2", [1, 2, 3], [2], id="a number beside the name"
        ),
        pytest.param("for 3 days, parking 2", ["1", "2", "3"], ["2"], id="digits"),
        pytest.param(
            "songs of 2014", ["2013", "2014"], ["2014"], id="a number that is no count"
        ),
        pytest.param("for 3 days", [1, 2, 3], None, id="another number"),
    ],
)
def test_values_that_are_no_words(
    text: str, values: list[Any], found: list[Any] | None
) -> None:
    kept = narrowed(text, "parking", {"enum": values})
    assert kept == (None if found is None else {"enum": found})


# Dates


@pytest.mark.parametrize(
    ("text", "description", "dates"),
    [
        pytest.param("on 2024-05-01", "Format MM-DD-YYYY.", ["05-01-2024"], id="ISO"),
        pytest.param(
            "on May 1st, 2024", "Format YYYY-MM-DD.", ["2024-05-01"], id="month first"
        ),
        pytest.param(
            "on the 1st of May 2024",
            "such as '2022-12-31'",
            ["2024-05-01"],
            id="day first, by a sample",
        ),
        pytest.param("Sep.9,2024", "dd/mm/yyyy", ["09/09/2024"], id="short"),
        pytest.param(
            "on 13/05/2024", "YYYY-MM-DD", ["2024-05-13"], id="only one reading"
        ),
        pytest.param(
            "on 03/04/2024",
            "YYYY-MM-DD",
            ["2024-03-04", "2024-04-03"],
            id="two readings",
        ),
        pytest.param("2024年5月1日", "YYYY-MM-DD", ["2024-05-01"], id="another script"),
        pytest.param(
            "May 1 2024 at 4:30 PM",
            "dd/mm/yyyy HH:MM",
            ["01/05/2024 16:30"],
            id="with a time",
        ),
        pytest.param(
            "May 1 2024, 5 in the afternoon",
            "ISO 8601 time",
            ["2024-05-01T17:00:00Z"],
            id="a time in words",
        ),
        pytest.param(
            "May 1 2024 at 12 am",
            "like '2023-04-15T13:45:00'",
            ["2024-05-01T00:00:00"],
            id="midnight",
        ),
        pytest.param(
            "at 4:30 pm and at 5:15", "HH:MM", ["16:30", "05:15"], id="only times"
        ),
        pytest.param("on 2024-02-30", "YYYY-MM-DD", None, id="no such day"),
        pytest.param("tomorrow", "YYYY-MM-DD", None, id="no date"),
    ],
)
def test_a_date_has_the_form_that_is_asked_for(
    text: str, description: str, dates: list[str] | None
) -> None:
    kept = narrowed(text, "day", {**TEXT, "description": description})
    assert kept is None if dates is None else kept["enum"] == dates


def test_the_first_of_two_dates_is_the_start() -> None:
    day = {**TEXT, "format": "date"}
    text = "from 2024-05-01 to 2024-05-09"
    assert narrowed(text, "start_date", day)["enum"] == ["2024-05-01"]
    assert narrowed(text, "end_date", day)["enum"] == ["2024-05-09"]
    assert narrowed(text, "day", day)["enum"] == ["2024-05-01", "2024-05-09"]


# Pieces of the request


@pytest.mark.parametrize(
    ("text", "piece", "fits"),
    [
        pytest.param("a flight to New York, please", "New York", True, id="words"),
        pytest.param(
            "a flight to New York, please",
            "new YORK",
            False,
            id="but the first letters, as written",
        ),
        pytest.param("jazz in town", "Jazz", True, id="a capital"),
        pytest.param("a flight to New York, please", "Boston", False, id="not said"),
        pytest.param(
            "a flight to New York, please", "ew York", False, id="not within a word"
        ),
        pytest.param(
            "a flight to New York, please",
            "to New York",
            False,
            id="not from a small word",
        ),
        pytest.param("Ann's book", "Ann", True, id="an owner"),
        pytest.param(
            "open ~/notes/a.txt.",
            "~/notes/a.txt",
            True,
            id="a path, without the full stop",
        ),
        pytest.param(
            "plot f(x) = 3x^2 + 1 now", "f(x) = 3x^2 + 1", True, id="a formula"
        ),
        pytest.param(
            "Ask it: Where are you? Then go.", "Where are you?", True, id="a sentence"
        ),
        pytest.param("call 'the big one' now", "the big one", True, id="quoted"),
        pytest.param("call 'the big one' now", "big", False, id="not within quotes"),
        pytest.param("我想去东京", "东京", True, id="another script"),
        pytest.param('say "a\\b" and C:\\x', "C:\\x", True, id="a backslash"),
    ],
)
def test_a_text_is_a_piece_of_the_request(text: str, piece: str, fits: bool) -> None:
    spans = narrowed(text, "value", TEXT, needed=True)[SPANS]
    assert bool(re.search(spans, piece)) is fits


def test_a_value_is_not_its_own_name() -> None:
    spans = narrowed("a film directed by Ann Lee", "directed_by", TEXT)[SPANS]
    assert re.search(spans, "Ann Lee")
    assert not re.search(spans, "directed by Ann Lee")


@pytest.mark.parametrize(
    ("text", "place", "fits"),
    [
        pytest.param(
            "weather in Bonn", "Bonn, NW", True, id="the part that the form wants"
        ),
        pytest.param("weather in Bonn", "Bonn", False, id="not without"),
        pytest.param("weather in Reno, NV", "Reno, NV", True, id="said as a whole"),
    ],
)
def test_a_place_has_the_form_that_is_asked_for(
    text: str, place: str, fits: bool
) -> None:
    where = {**TEXT, "description": "City and state, such as San Francisco, CA."}
    assert (
        bool(re.search(narrowed(text, "place", where, needed=True)[SPANS], place))
        is fits
    )


def test_what_is_quoted_after_the_name_is_the_value() -> None:
    text = "The title should be 'Blue', the subject 'Colours'."
    assert narrowed(text, "title", TEXT)["enum"] == ["Blue"]
    assert narrowed(text, "subject", TEXT)["enum"] == ["Colours"]
    assert narrowed(text, "author", TEXT) == TEXT
    assert narrowed("user 'ann' and password 'x y'", "password", TEXT)["enum"] == [
        "x y"
    ]


@pytest.mark.parametrize(
    ("schema", "needed"),
    [
        pytest.param(TEXT, False, id="optional"),
        pytest.param(
            {**TEXT, "description": "Code of the state, such as 'CA'."},
            True,
            id="a code",
        ),
        pytest.param({**TEXT, "minLength": 3}, True, id="of a given length"),
        pytest.param({**TEXT, "format": "uuid"}, True, id="of a given form"),
    ],
)
def test_other_texts_are_free(schema: dict[str, Any], needed: bool) -> None:
    assert narrowed("somewhere in California", "state", schema, needed=needed) == schema


# Lists


@pytest.mark.parametrize(
    ("text", "items", "lists"),
    [
        pytest.param(
            "of 1, 2 and 3, in 5 steps", INTEGER, [[1, 2, 3]], id="enumerated"
        ),
        pytest.param(
            "of [1.5, 2] and [3, 4]", NUMBER, [[1.5, 2], [3, 4]], id="written as lists"
        ),
        pytest.param("at 5%, 7%", NUMBER, [[0.05, 0.07]], id="fractions"),
    ],
)
def test_a_list_of_the_request_is_taken_whole(
    text: str, items: dict[str, Any], lists: list[Any]
) -> None:
    kept = narrowed(text, "values", {"type": "array", "items": items}, needed=True)
    assert kept["enum"] == lists


@pytest.mark.parametrize(
    "items",
    [INTEGER, TEXT, {**TEXT, "enum": ["red", "blue"]}],
    ids=["numbers", "texts", "enum"],
)
@pytest.mark.parametrize(
    "bounds",
    [{"minItems": 9}, {"minItems": 9, "maxItems": 9}],
    ids=["at least", "exactly"],
)
def test_a_list_keeps_its_least_length(
    items: dict[str, Any], bounds: dict[str, int]
) -> None:
    kept = narrowed(
        "1, 2 and red, blue things",
        "things",
        {"type": "array", "items": items, **bounds},
        needed=True,
    )
    assert kept["minItems"] == 9 <= kept.get("maxItems", 9)
    assert "enum" not in kept


def test_single_numbers_may_be_in_a_list() -> None:
    kept = narrowed("ids 7 for a, 9 for b", "ids", {"type": "array", "items": INTEGER})
    assert (kept["items"]["enum"], kept["maxItems"]) == ([7, 9], 2)
    assert narrowed("ids", "ids", {"type": "array", "items": INTEGER}) is None


def test_the_texts_of_a_list_end_at_commas() -> None:
    kept = narrowed(
        "buy ripe tomatoes, salt and oil",
        "things",
        {"type": "array", "items": TEXT},
        needed=True,
    )
    assert all(
        re.search(kept["items"][SPANS], piece)
        for piece in ("ripe tomatoes", "salt", "oil")
    )
    assert not any(
        re.search(kept["items"][SPANS], piece)
        for piece in ("tomatoes, salt", "salt and oil")
    )
    assert (kept["minItems"], kept["maxItems"]) == (1, 4)
    assert narrowed("buy salt and oil", "things", {"type": "array", "items": TEXT}) == {
        "type": "array",
        "items": TEXT,
    }


def test_an_enum_in_a_list_is_all_that_is_named() -> None:
    what = {
        "type": "array",
        "items": {**TEXT, "enum": ["opening_hours", "ticket_price", "address"]},
    }
    kept = narrowed("opening hours and ticket price", "what", what)
    assert kept["enum"] == [["opening_hours", "ticket_price"]]
    assert narrowed("anything", "what", what) is None


# Schemas of all kinds


def test_objects_references_and_unions_with_null_are_looked_into() -> None:
    color = {"enum": ["red", "blue"], "type": "string"}
    schema = {
        "type": "object",
        "properties": {
            "color": {"$ref": "#/$defs/Color"},
            "copies": {"anyOf": [INTEGER, {"type": "null"}], "default": None},
            "page": {
                "type": "object",
                "properties": {"size": {"type": ["integer", "null"]}},
                "required": ["size"],
            },
        },
        "required": ["page"],
        "$defs": {"Color": color},
    }
    kept = narrow(schema, "print 3 copies in blue")["properties"]
    assert kept["color"]["enum"] == ["blue"]
    assert kept["copies"]["enum"] == [3]
    assert kept["page"]["properties"]["size"]["enum"] == [3]


def test_the_parameters_that_the_request_names_are_counted() -> None:
    properties = {
        "city": {**TEXT, "enum": ["Rome", "Oslo"]},
        "days": INTEGER,
        "note": TEXT,
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": ["city", "days"],
    }
    assert count_named(parameters, "3 days in Oslo") == 2
    assert count_named(parameters, "3 or 4 in Oslo, note milk") == 2
    assert count_named(parameters, "") == 0


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text(max_size=8)
    | st.sampled_from(["string", "array", "object"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "items",
                    "enum",
                    "properties",
                    "required",
                    "description",
                    "anyOf",
                    "$ref",
                    "minimum",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(max_size=5), json_values, max_size=3), st.text(max_size=60)
)
def test_no_schema_and_no_text_is_too_odd(
    properties: dict[str, Any], text: str
) -> None:
    kept = narrow(
        {"type": "object", "properties": properties, "required": list(properties)}, text
    )
    assert set(kept["properties"]) == set(properties)
