"""`ranking`: which tools fit a text best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit import ToolRegistry
from toolkit.retrieval.ranking import Index, rank, words


@dataclass(frozen=True)
class Entry:
    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()


def with_parameters(name: str, **properties: Any) -> Entry:
    return Entry(name, parameters={"type": "object", "properties": properties})


WEATHER = Entry("get_weather", "Current weather for a city: temperature, rain, wind.")
MAIL = Entry("send_mail", "Send a message to somebody.")
TABLE = Entry("bookTable", "Reserves seats at a restaurant.")
TOOLS = (WEATHER, MAIL, TABLE)


def names(text: str, tools: tuple[Entry, ...] = TOOLS) -> list[str]:
    return [tool.name for tool, _ in rank(text, tools)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("getHTTPStatus", ["http", "status"], id="humps"),
        pytest.param(
            "files.read_line-now",
            ["fil", "read", "lin", "now"],
            id="dots, underscores, hyphens",
        ),
        pytest.param("3days in 2024", ["3", "day", "2024"], id="digits before letters"),
        pytest.param("Málaga naïve CAFÉS", ["malaga", "naiv", "caf"], id="accents"),
        pytest.param("where is the user", ["user"], id="stop words"),
        pytest.param(
            "天気予報", ["天気", "気予", "予報"], id="Chinese characters in pairs"
        ),
        pytest.param("서울 날씨", ["서울", "날씨"], id="Korean"),
        pytest.param("がぎ", ["がぎ"], id="the marks of Japanese letters stay"),
        pytest.param("雨", ["雨"], id="a single character"),
        pytest.param("東京weather", ["東京", "weath"], id="two scripts in one word"),
        pytest.param("ﬁle ２０", ["fil", "20"], id="ligatures and wide digits"),
        pytest.param("Погода в Москве", ["погода", "в", "москве"], id="Cyrillic"),
        pytest.param(" ,;!_\n", [], id="nothing"),
    ],
)
def test_a_text_is_split_into_words(text: str, found: list[str]) -> None:
    assert list(words(text)) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("city", "cities"), ("calculate", "calculation"), ("calculate", "calculating"), ("calculates", "calculator"),
        ("book", "booking"), ("booked", "books"), ("message", "messages"), ("address", "addresses"), ("fly", "flies"),
        ("price", "prices"), ("convert", "converter"), ("quick", "quickly"),
    ],
)  # fmt: skip
def test_forms_of_a_word_are_equal(one: str, other: str) -> None:
    assert list(words(one)) == list(words(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bus", "bush"),
        ("red", "reed"),
        ("sing", "song"),
        ("status", "state"),
        ("address", "add"),
    ],
)
def test_other_words_stay_apart(one: str, other: str) -> None:
    assert list(words(one)) != list(words(other))


@pytest.mark.parametrize(
    ("text", "best"),
    [
        pytest.param(
            "Will it rain in Oslo? How are temperatures?",
            "get_weather",
            id="description",
        ),
        pytest.param("Mail Bob that I am late", "send_mail", id="name"),
        pytest.param("book a table for two", "bookTable", id="name in humps"),
        pytest.param("I want to reserve", "bookTable", id="another form"),
    ],
)
def test_the_best_comes_first(text: str, best: str) -> None:
    assert names(text)[0] == best


def test_a_tool_without_a_common_word_is_left_out() -> None:
    assert names("weather") == ["get_weather"]
    assert names("what is the square root of nine") == []
    assert names("") == []
    assert rank("weather", []) == []


def test_scores_fall_and_equal_ones_keep_their_order() -> None:
    tools = (
        Entry("y", "cold soup"),
        Entry("x", "cold soup"),
        Entry("z", "cold soup, cold soup and cold milk"),
    )
    ranked = rank("cold milk", tools)
    assert [tool.name for tool, _ in ranked] == ["z", "y", "x"]
    scores = [score for _, score in ranked]
    assert scores[0] > scores[1] == scores[2] > 0


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    tools = (
        *(Entry(f"t{i}", "search in documents") for i in range(9)),
        Entry("invoices", "search in invoices"),
    )
    assert names("search my invoices", tools)[0] == "invoices"


def test_a_name_weighs_more_than_a_description_and_that_more_than_a_parameter() -> None:
    tools = (
        with_parameters("alpha", city={"type": "string"}),
        Entry("beta", "city"),
        Entry("city"),
    )
    assert names("city", tools) == ["city", "beta", "alpha"]


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param(with_parameters("t", zip_code={}), id="parameter's name"),
        pytest.param(
            with_parameters("t", p={"description": "The ZIP of the town."}),
            id="parameter's description",
        ),
        pytest.param(
            with_parameters("t", p={"enum": ["zip", "tar", None, 3]}),
            id="permitted value",
        ),
        pytest.param(
            with_parameters("t", p={"type": "object", "properties": {"zip": {}}}),
            id="nested name",
        ),
        pytest.param(
            with_parameters("t", p={"items": {"anyOf": [{"description": "zip"}]}}),
            id="in a list",
        ),
        pytest.param(
            Entry("t", parameters={"$defs": {"A": {"description": "zip"}}}),
            id="definition",
        ),
        pytest.param(Entry("t", tags=("zip",)), id="tag"),
        pytest.param(Entry("t", keywords=("zip file",)), id="keyword"),
    ],
)
def test_every_field_is_read(tool: Entry) -> None:
    assert [found for found, _ in rank("zip", [WEATHER, tool])] == [tool]


def test_a_parameter_may_have_the_name_of_a_keyword_of_json_schema() -> None:
    tool = with_parameters(
        "t",
        description={"type": "string"},
        properties={"type": "array"},
        enum={"type": "string"},
    )
    assert names("the enum", (tool,)) == ["t"]


def test_a_deeply_nested_schema_is_read_to_its_end() -> None:
    schema: dict[str, Any] = {"description": "bottom"}
    for _ in range(5_000):
        schema = {"items": schema}
    assert names("bottom", (Entry("t", parameters=schema),)) == ["t"]


def test_an_index_ranks_like_rank() -> None:
    index = Index(iter(TOOLS))
    for text in ("weather", "mail the restaurant about the rain", "", "weather"):
        assert index.rank(text) == rank(text, TOOLS)


def test_words_may_count_unequally() -> None:
    index = Index(TOOLS)
    assert index.rank({"mail": 1.0, "weath": 1.0}) == index.rank("mail, weather")
    assert [
        tool.name for tool, _ in index.rank({"mail": 0.1, "weath": 1.0, "unknown": 9.0})
    ] == [
        "get_weather",
        "send_mail",
    ]
    ((_, whole),), ((_, half),) = index.rank("mail"), index.rank({"mail": 0.5})
    assert half == pytest.approx(whole / 2)


def test_the_tools_of_the_index_are_those_given() -> None:
    assert Index(TOOLS).rank("mail")[0][0] is MAIL


texts = st.text(max_size=40) | st.sampled_from(
    ["weather in a city", "send MAIL", "天気を教えて"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "enum", "items", "description", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(
    texts,
    st.lists(
        st.builds(Entry, texts, texts, st.dictionaries(texts, json_values, max_size=2)),
        max_size=5,
    ),
)
def test_any_text_and_any_tools(text: str, tools: list[Entry]) -> None:
    ranked = rank(text, tools)
    scores = [score for _, score in ranked]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    common = [
        tool
        for tool in tools
        if set(words(text)) & set(words(f"{tool.name} . {tool.description}"))
    ]
    assert all(any(tool is found for found, _ in ranked) for tool in common)


# (keywords, a request) as people write them; the first tool has the keywords
WITHOUT_SPACES = {
    "one Chinese letter": (["冷"], "北京今天冷吗"),
    "a verb of one letter": (["记"], "帮我记一下"),
    "rain": (["雨"], "明天下雨吗"),
    "three letters": (["天气好"], "今天天气好不好"),
    "Chinese with English": (["api"], "请调用 API 查询"),
    "English in Chinese without spaces": (["查api"], "请查api的状态"),
    "Japanese": (["雪"], "明日は雪が降りますか"),
    "Thai": (["ฝน"], "พรุ่งนี้ฝนตกไหม"),
    "Korean": (["비"], "내일비와?"),
    "a word elsewhere": (["rain"], "will it rain?"),
}


@pytest.mark.parametrize(
    ("keywords", "request_"), WITHOUT_SPACES.values(), ids=WITHOUT_SPACES
)
def test_a_keyword_is_found_as_it_was_written(
    keywords: list[str], request_: str
) -> None:
    tools = ToolRegistry()
    tools.register_function("first", "It.", lambda: None, keywords=keywords)
    tools.register_function("second", "Other.", lambda: None, keywords=["币"])
    assert [tool.name for tool, _ in rank(request_, tools)] == ["first"]


def test_a_word_elsewhere_is_no_part_of_another() -> None:
    tools = ToolRegistry()
    tools.register_function("first", "It.", lambda: None, keywords=["rain"])
    assert rank("a training plan", tools) == []
