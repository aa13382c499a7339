"""`lint`: what to mend in tools, and what to write instead."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from toolkit import Tool, ToolParameter, ToolRegistry
from toolkit.lint import RULES, Finding, lint_tools
from toolkit.tools.registry import REGISTRY


def look_up(key: str) -> str:
    """Look up a word. Use it for questions on meanings.

    Args:
        key: The word, in the singular.
    """
    return key


def written(name: str = "look_up", description: str = "", /, **properties: Any) -> Tool:
    """A tool as somebody would write it by hand, all right but for what is given."""
    described = {
        key: {"description": "The thing itself.", **entry}
        for key, entry in properties.items()
    }
    return ToolRegistry().register_tool(
        lambda **_: None,
        name=name,
        description=description or "Look up a word. Use it for questions on meanings.",
        schema={"type": "object", "properties": described, "required": list(described)},
    )


def rules(*tools: Any, **options: Any) -> list[str]:
    return [finding.rule for finding in lint_tools(tools, **options)]


def only(*tools: Any) -> Finding:
    (finding,) = lint_tools(tools)
    return finding


def test_a_good_tool_is_left_alone() -> None:
    assert lint_tools([look_up, written(word={"type": "string"})][:1]) == []
    assert lint_tools([written(word={"type": "string"})]) == []
    assert lint_tools([]) == []


# Names


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("get_weather", [], id="a verb"),
        pytest.param("weatherGet", [], id="a verb behind, in humps"),
        pytest.param("HTTPFetch2", [], id="behind an abbreviation"),
        pytest.param("reindex_files", [], id="a prefix before a verb"),
        pytest.param("tokenize", [], id="made a verb by its ending"),
        pytest.param("is_open", [], id="a predicate"),
        pytest.param("weather", ["name-without-verb"], id="a noun"),
        pytest.param("stock-data", ["name-without-verb"], id="two nouns"),
        pytest.param("widget.fetch", ["name-illegal"], id="a dot"),
        pytest.param("get_größe", ["name-illegal"], id="not ASCII"),
        pytest.param("天気", ["name-illegal"], id="not Latin: told once"),
        pytest.param("get_" + "x" * 61, ["name-illegal"], id="too long"),
        pytest.param("user.info", ["name-illegal", "name-without-verb"], id="both"),
    ],
)
def test_names_that_say_little_are_found(name: str, found: list[str]) -> None:
    assert rules(written(name)) == found


def test_a_better_name_is_told() -> None:
    by_rule = {
        each.rule: each
        for each in lint_tools(
            [written("User.infoPage", "Fetches what is known. Use it first.")]
        )
    }
    assert "name='user_info_page'" in by_rule["name-illegal"].fix
    assert "'User_infoPage'" in by_rule["name-illegal"].message
    assert "name='fetch_user_info_page'" in by_rule["name-without-verb"].fix


def test_a_verb_that_the_list_lacks_is_known_by_the_description() -> None:
    assert rules(written("yodel_song", "Yodels a song. Use it on mountains.")) == []
    assert rules(written("yodel_song", "Yodel a song. Use it on mountains.")) == []
    assert rules(written("yodel_song", "Song of the mountains. Use it there.")) == [
        "name-without-verb"
    ]


# Descriptions


@pytest.mark.parametrize(
    ("description", "found"),
    [
        pytest.param("Look up.", ["description-repeats-name"], id="the name again"),
        pytest.param("Looks it up", ["description-repeats-name"], id="in another form"),
        pytest.param(
            "Look up the meaning of a word.",
            ["description-without-when"],
            id="no occasion",
        ),
        pytest.param(
            "Look up the meaning of a word. Not for names.", [], id="a second sentence"
        ),
        pytest.param("Look up a word when its meaning is asked for.", [], id="when"),
        pytest.param(
            "Nimmt ein Wort an und schlägt es nach", [], id="no English: not judged"
        ),
        pytest.param("単語を調べる", [], id="no Latin: not judged"),
    ],
)
def test_descriptions_that_say_little_are_found(
    description: str, found: list[str]
) -> None:
    assert rules(written("look_up", description)) == found


def test_a_missing_description_is_found() -> None:
    def look_up(word: Annotated[str, "In the singular."]) -> None: ...

    finding = only(look_up)
    assert (finding.rule, finding.severity) == ("description-missing", "error")
    assert "docstring" in finding.fix


@pytest.mark.parametrize(
    ("name", "description", "permission", "found"),
    [
        pytest.param(
            "delete_file",
            "Forget a file. Use it to tidy up.",
            "read",
            True,
            id="by its name",
        ),
        pytest.param(
            "tidy_up",
            "Deletes old files. Use it at the end.",
            "read",
            True,
            id="by its description",
        ),
        pytest.param(
            "delete_file",
            "Forget a file. Use it to tidy up.",
            "write",
            False,
            id="which it may",
        ),
        pytest.param(
            "list_deleted_files",
            "Names of files. Use it first.",
            "read",
            False,
            id="only about it",
        ),
        pytest.param(
            "get_delete_permission",
            "Whether one may. Use it first.",
            "read",
            False,
            id="another verb first",
        ),
    ],
)
def test_a_tool_that_destroys_is_no_reader(
    name: str, description: str, permission: Any, found: bool
) -> None:
    tool = written(name, description)
    tool.permission = permission
    findings = [each for each in lint_tools([tool]) if each.rule == "destructive-read"]
    assert [each.severity for each in findings] == ["error"] * found


EFFECTS = {
    "delete_file": ("Remove it.", "delete"),
    "sendMail": ("To Ann.", "send"),
    "handle_invoice": ("Pays the invoice. Use it when it is due.", "pay"),
    "删除文件": ("用户要求时使用。", "删除"),
    "tool_1": ("发送一条消息给用户。", "发送"),
}


@pytest.mark.parametrize(("name", "found"), EFFECTS.items(), ids=EFFECTS)
def test_an_effect_needs_a_tier_of_its_own(name: str, found: tuple[str, str]) -> None:
    description, act = found

    def function() -> None: ...

    registry = ToolRegistry()
    registry.register_function(name, description, function)
    problems = [each for each in lint_tools(registry) if "effect" in each.rule]
    assert [each.rule for each in problems] == ["effect-without-tier"]
    assert repr(act) in problems[0].message
    chosen = ToolRegistry()
    chosen.register_function(name, description, function, permission="write")
    assert not [each for each in lint_tools(chosen) if "effect" in each.rule]


@pytest.mark.parametrize("name", ["get_weather", "find_sender", "list_payments"])
def test_a_tool_without_effects_needs_no_tier(name: str) -> None:
    registry = ToolRegistry()
    registry.register_function(name, "Look it up. Use it when asked.", lambda: None)
    assert not [each for each in lint_tools(registry) if "effect" in each.rule]


# Docstrings


def find_city(citty: str) -> None:
    """Look up a city. Use it first.

    Args:
        city: Its name.
    """


def find_all(**words: Any) -> None:
    """Look up words. Use it first.

    Args:
        first: One of them.
    """


def test_what_the_docstring_describes_must_be_there() -> None:
    unknown, undescribed = lint_tools([find_city])
    assert (unknown.rule, unknown.parameter, unknown.severity) == (
        "parameter-unknown",
        "city",
        "error",
    )
    assert "'citty'" in unknown.fix
    assert (undescribed.rule, undescribed.parameter) == (
        "parameter-undescribed",
        "citty",
    )


class Shop:
    def find(self, name: str) -> None:
        """Find an article. Use it first.

        Args:
            name: As on the label.
        """


@functools.wraps(look_up)
def wrapped(*args: Any, **kwargs: Any) -> str:
    return look_up(*args, **kwargs)


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param(find_all, id="any keyword"),
        pytest.param(Shop().find, id="a method"),
        pytest.param(wrapped, id="wrapped"),
        pytest.param(functools.partial(wrapped, key="house"), id="partial"),
    ],
)
def test_what_is_there_is_found(tool: Callable[..., Any]) -> None:
    assert rules(tool, ignore=["not-strict"]) == []  # any keyword cannot be


# Parameters


class Place(BaseModel):
    """A place on the map."""

    street: Annotated[str, Field(description="With its number.")]
    zip_code: str


class Side(Enum):
    LEFT = "l"
    RIGHT = "r"


def test_parameters_are_described_to_any_depth() -> None:
    def visit(
        places: list[Place], day: str, note: Annotated[str, "For the door."] = ""
    ) -> None:
        """Visit places. Use it on request."""

    found = {(each.rule, each.parameter) for each in lint_tools([visit])}
    assert found == {
        ("parameter-undescribed", "Place.zip_code"),
        ("parameter-undescribed", "day"),
    }


def test_what_several_branches_say_is_told_once() -> None:
    branch = {"type": "object", "properties": {"zip": {"type": "string"}}}
    found = lint_tools(
        [written(place={"anyOf": [branch, {**branch, "required": ["zip"]}]})]
    )
    assert [(each.rule, each.parameter) for each in found] == [
        ("parameter-undescribed", "place.zip")
    ]


def test_a_recursive_schema_has_an_end() -> None:
    node: dict[str, Any] = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}},
    }
    schema = {
        "type": "object",
        "properties": {"first": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": node},
    }
    tool = ToolRegistry().register_tool(
        lambda **_: None,
        name="walk_list",
        description="Walk from one to the next. Use it first.",
        schema=schema,
    )
    found = [(each.rule, each.parameter) for each in lint_tools([tool])]
    assert found == [
        ("parameter-undescribed", "first"),
        ("parameter-undescribed", "Node.next"),
    ]


def test_a_parameter_without_a_type() -> None:
    def keep(thing, name: Annotated[str, "Of the thing."]) -> None:  # type: ignore[no-untyped-def]
        """Keep a thing. Use it on request.

        Args:
            thing: What to keep.
        """

    by_rule = {each.rule: each for each in lint_tools([keep])}
    assert by_rule.keys() == {"parameter-untyped", "not-strict"}
    assert (
        by_rule["parameter-untyped"].parameter
        == by_rule["not-strict"].parameter
        == "thing"
    )
    assert "thing: str" in by_rule["parameter-untyped"].fix


@pytest.mark.parametrize(
    ("hint", "about", "silent"),
    [
        pytest.param(
            Literal["fast", "slow"], "The mode.", "", id="words speak for themselves"
        ),
        pytest.param(Literal["r", "w"], "The mode.", '"r", "w"', id="letters"),
        pytest.param(
            Literal["r", "w"], "r to read, w to write.", "", id="explained letters"
        ),
        pytest.param(
            Optional[Literal["r", "w"]],  # noqa: UP045
            "The mode.",
            '"r", "w"',
            id="optional",
        ),
        pytest.param(Side, "The side.", '"l", "r"', id="an enum"),
        pytest.param(
            list[Literal[10, 20]], "The kinds.", "10, 20", id="numbers, in a list"
        ),
        pytest.param(Literal[1, 2, 3, 4], "How many.", "", id="a scale"),
        pytest.param(Literal["<", ">"], "How to compare.", "", id="signs"),
        pytest.param(Literal[0, 1], "1 to leave it out.", "", id="the other of two"),
    ],
)
def test_enums_are_explained(hint: Any, about: str, silent: str) -> None:
    def look_up(kind: Any) -> None:
        """Look up a word. Use it for questions on meanings."""

    look_up.__annotations__["kind"] = Annotated[hint, about]
    told = (
        [("enum-unexplained", f"Nothing says what {silent} stands for.")]
        if silent
        else []
    )
    assert [(each.rule, each.message) for each in lint_tools([look_up])] == told


@pytest.mark.parametrize(
    ("about", "literal"),
    [
        pytest.param("Either 'asc' or 'desc'.", '"asc", "desc"', id="quoted"),
        pytest.param(
            "The order (asc or desc). Options: asc, desc", '"asc", "desc"', id="named"
        ),
        pytest.param(
            "One of: red, green or dark-blue. Red by default.",
            '"red", "green", "dark-blue"',
            id="one of",
        ),
        pytest.param(
            'The colour, "red", "green", or "blue".',
            '"red", "green", "blue"',
            id="a list",
        ),
        pytest.param(
            "One of the following: red, blue",
            '"red", "blue"',
            id="one of the following",
        ),
        pytest.param(
            "Options are `a` and `b`.", '"a", "b"', id="and, where it is named"
        ),
        pytest.param(
            "For 'add' and 'edit' the text of it.", "", id="and, where it is not"
        ),
        pytest.param("The city, e.g. 'Paris' or 'Rome'.", "", id="examples"),
        pytest.param("The city, such as 'Paris', 'Rome'.", "", id="examples, in words"),
        pytest.param(
            "Some text, either short or of any length you like.", "", id="no list"
        ),
        pytest.param("The name 'or' title.", "", id="one quoted word"),
    ],
)
@pytest.mark.parametrize("hint", [str, Optional[str]], ids=["text", "optional"])  # noqa: UP045
def test_values_belong_into_the_type(about: str, literal: str, hint: Any) -> None:
    def look_up(kind: Any) -> None:
        """Look up a word. Use it for questions on meanings."""

    look_up.__annotations__["kind"] = Annotated[hint, about]
    told = (
        [("values-in-text", f"Write the type Literal[{literal}].")] if literal else []
    )
    assert [(each.rule, each.fix) for each in lint_tools([look_up])] == told


def test_a_default_is_one_of_the_values() -> None:
    for default, literal in (
        ("all", '"men", "women", "all"'),
        ("men", '"men", "women"'),
        ("", '"men", "women"'),
    ):
        entry = {
            "type": "string",
            "description": "Either 'men' or 'women'.",
            "default": default,
        }
        assert only(written(group=entry)).fix == f"Write the type Literal[{literal}]."


def test_values_are_in_the_type_already() -> None:
    listed = "Either 'asc' or 'desc'."
    for entry in (
        {"enum": ["asc", "desc"]},
        {"pattern": "asc|desc"},
        {"type": "array", "items": {"enum": ["asc"]}},
    ):
        assert (
            rules(written(order={"type": "string", "description": listed, **entry}))
            == []
        )


# Wires


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        pytest.param({"type": "array"}, True, id="an array of what"),
        pytest.param(
            {"type": "array", "items": {"type": "array"}}, True, id="inside another"
        ),
        pytest.param({"type": ["array", "null"]}, True, id="or none"),
        pytest.param({"type": "array", "items": {}}, False, id="of anything"),
    ],
)
def test_arrays_say_of_what(entry: dict[str, Any], refused: bool) -> None:
    found = lint_tools([written(words=entry)], ignore=["not-strict"])
    assert [(each.rule, each.severity, each.parameter) for each in found] == [
        ("refused", "error", "words")
    ] * refused


def test_parameter_names_that_a_wire_refuses() -> None:
    finding = only(
        written(
            **{"filter[name]": {"type": "string"}, "filter.name": {"type": "string"}}
        )
    )
    assert (finding.rule, finding.parameter) == ("refused", "filter[name]")
    assert "Anthropic" in finding.message


@pytest.mark.parametrize(
    ("strict", "severities"), [(None, ["hint"]), (True, ["error"]), (False, [])]
)
def test_what_cannot_be_strict(strict: bool | None, severities: list[str]) -> None:
    tool = written(word={"type": "string"}, rest={"type": "object"})
    tool.strict = strict
    found = [(each.rule, each.severity, each.parameter) for each in lint_tools([tool])]
    assert found == [("not-strict", severity, "rest") for severity in severities]


def test_a_large_schema() -> None:
    assert rules(written(word={"type": "string", "description": "x " * 1900})) == []
    assert rules(written(word={"type": "string", "description": "x " * 2000})) == [
        "too-large"
    ]


# Side by side


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        pytest.param(
            ("find_customer", "Find a customer by email address. Use it first."),
            (
                "search_customer",
                "Search for a customer by email address. Use it first.",
            ),
            False,
            id="each name has a word of its own",
        ),
        pytest.param(
            ("find_customer", "Find a customer by email address. Use it first."),
            (
                "customer_find",
                "Finds the customer by their email address. Use it first.",
            ),
            True,
            id="the same in other words",
        ),
        pytest.param(
            ("read_file", "Read a file. Use it first."),
            ("write_file", "Write a file. Use it last."),
            False,
            id="verbs",
        ),
        pytest.param(
            (
                "convert_to_celsius",
                "Convert Fahrenheit to Celsius. Use it for America.",
            ),
            ("celsius_convert", "Convert Celsius to Fahrenheit. Use it for America."),
            False,
            id="the reverse",
        ),
    ],
)
def test_tools_that_read_alike(
    one: tuple[str, str], other: tuple[str, str], alike: bool
) -> None:
    filler = [
        written(f"get_{noun}", f"Get the {noun} of a day. Use it first.")
        for noun in ("weather", "news", "moon")
    ]
    findings = lint_tools([written(*one), *filler, written(*other)])
    assert [(each.rule, each.tool) for each in findings] == [
        ("reads-alike", other[0])
    ] * alike
    assert all(repr(one[0]) in each.message for each in findings)


def test_many_tools_are_read_in_no_time() -> None:
    """Five hundred tools, of which each has a twin."""
    nouns = [f"{a}{b}{c}ox" for a in "bdfgklmnpr" for b in "aeiou" for c in "bdfgk"]
    tools = [
        written(name, f"Get the {noun} of a day. Use it for questions on {noun}.")
        for noun in nouns
        for name in (f"get_{noun}", f"{noun}_get")
    ]
    assert rules(*tools) == ["reads-alike"] * len(nouns)


# The list as a whole


def test_findings_come_tool_by_tool_the_worst_first() -> None:
    class Eraser(Tool):
        name, description, permission = (
            "eraser",
            "Wipes the board of all that is on it.",
            "read",
        )

        def get_parameters(self) -> list[ToolParameter]:
            return [ToolParameter("part", "string", "", required=False)]

        def run(self, parameters: dict[str, Any]) -> None: ...

    findings = lint_tools([find_city, Eraser()])
    assert [(each.tool, each.severity) for each in findings] == [
        *(("find_city", severity) for severity in ("error", "warning")),
        *(("eraser", severity) for severity in ("error", "warning", "hint", "hint")),
    ]
    assert {each.severity for each in findings} == {"error", "warning", "hint"}


def test_a_finding_is_a_plain_value() -> None:
    finding = lint_tools([find_city])[0]
    assert Finding(**json.loads(json.dumps(dataclasses.asdict(finding)))) == finding
    assert str(finding).startswith("error find_city.city: The docstring describes it")
    assert str(finding).endswith("[parameter-unknown]")


def test_rules_can_be_ignored() -> None:
    tools = [find_city, written("weather")]
    assert rules(*tools) == [
        "parameter-unknown",
        "parameter-undescribed",
        "name-without-verb",
    ]
    assert rules(*tools, ignore=["parameter-unknown", "name-without-verb"]) == [
        "parameter-undescribed"
    ]
    assert rules(*tools, ignore="weather:name-without-verb") == [
        "parameter-unknown",
        "parameter-undescribed",
    ]
    assert rules(*tools, ignore={"find_city:name-without-verb"}) == rules(*tools)


@pytest.mark.parametrize("unknown", ["names", "find_city:names", "find_city"])
def test_a_rule_that_does_not_exist(unknown: str) -> None:
    with pytest.raises(
        ValueError, match=f"Unknown rule '{unknown}'.*description-missing"
    ):
        lint_tools([find_city], ignore=[unknown])


def later(thing: NotYet) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Look at it. Use it first."""


def test_a_tool_without_a_schema_spoils_only_itself() -> None:
    broken, *rest = lint_tools([later, find_city])
    assert (broken.tool, broken.rule) == ("later", "broken")
    assert "NotYet" in broken.message
    assert [each.tool for each in rest] == ["find_city", "find_city"]


def test_the_global_registry_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY, "_tools", {"weather": written("weather")})
    assert [each.tool for each in lint_tools()] == ["weather"]


def test_every_rule_is_tested_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [rule for rule in RULES if f'"{rule}"' not in text] == []


def test_a_pattern_out_of_an_argument_is_found() -> None:
    def search_notes(pattern: str, text: str) -> bool:
        """Search notes. Use it to find a note by a regular expression."""
        return bool(re.search(pattern, text))

    def find_notes(word: str, text: str) -> bool:
        """Find notes. Use it to find a note by a word."""
        return bool(re.search(re.escape(word), text))

    registry = ToolRegistry()
    registry.register_tool(search_notes)
    registry.register_tool(find_notes)
    rules = [
        (each.tool, each.parameter)
        for each in lint_tools(registry)
        if each.rule == "pattern-from-argument"
    ]
    assert rules == [("search_notes", "pattern")]
