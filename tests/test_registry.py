"""Tools by name: what is taken, under which name it goes over a wire, and how it comes back."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from toolkit import Tool, ToolContext, ToolParameter, ToolRegistry, Verdict, tool
from toolkit.errors import ToolDefinitionError

STRING = {"type": "string"}


def saying(word: str) -> Callable[..., str]:
    """A function of its own for every word."""

    def say(given: str = "") -> str:
        return word

    say.__qualname__ = f"say_{word}"
    return say


# Looking up


def test_tools_by_name(registry: ToolRegistry) -> None:
    first, second = (
        registry.register_tool(saying(word), name=word) for word in ("b", "a")
    )
    assert ([*registry], len(registry), bool(registry)) == ([first, second], 2, True)
    assert (registry["b"], registry.get("a"), registry.get("c")) == (
        first,
        second,
        None,
    )
    assert ("a" in registry, "c" in registry, 5 in registry) == (True, False, False)
    assert [entry["function"]["name"] for entry in registry.schemas()] == ["b", "a"]
    assert "b, a" in repr(registry)
    with pytest.raises(KeyError, match=r"'c'.*\['b', 'a'\]"):
        registry["c"]


def test_a_registry_may_be_changed_while_it_is_walked(registry: ToolRegistry) -> None:
    registry.register_tool(saying("a"), name="a")
    for one in registry:
        registry.register_tool(saying("b"), name=one.name + "b")
    assert [one.name for one in registry] == ["a", "ab"]


def test_a_registry_may_be_made_of_tools() -> None:
    @tool(registry=ToolRegistry(), name="renamed", permission="read")
    def decorated() -> None: ...

    registry = ToolRegistry([decorated, len])
    assert [(one.name, one.permission) for one in registry] == [
        ("renamed", "read"),
        ("len", "write"),
    ]


# Registering


def test_register_function_takes_a_bare_one(registry: ToolRegistry) -> None:
    made = registry.register_function(
        "shell.run", "Runs a command.", lambda command: f"ran {command!r}", tags="os"
    )
    parameters = {
        "type": "object",
        "properties": {"command": STRING},
        "required": ["command"],
    }
    assert registry.schemas()[0]["function"] == {
        "name": "shell_run", "description": "Runs a command.", "parameters": parameters,
    }  # fmt: skip
    assert (made.name, made.tags) == ("shell.run", ("os",))
    assert registry.call("shell.run", {"command": "ls"}).content == "ran 'ls'"
    assert "command" in registry.call("shell.run", {"command": 5}).content


def one_hinted(number: int) -> int:
    """Not this."""
    return number


def one_defaulted(word="none"):  # type: ignore[no-untyped-def]
    return word


def one_documented(word):  # type: ignore[no-untyped-def]
    """Not this.

    Args:
        word: What is said.
    """
    return word


def one_beside_the_context(word, context: ToolContext):  # type: ignore[no-untyped-def]
    return f"{word} {context.deps}"


def one_of_any_kind(value: Any) -> Any:
    return value


def two_bare(left, right):  # type: ignore[no-untyped-def]
    return [left, right]


def any_names(**facts):  # type: ignore[no-untyped-def]
    return facts


def any_number(*words):  # type: ignore[no-untyped-def]
    return list(words)


@pytest.mark.parametrize(
    ("function", "properties", "sent", "wanted"),
    [
        pytest.param(
            one_hinted,
            {"number": {"type": "integer"}},
            {"number": 3},
            3,
            id="a hint stays",
        ),
        pytest.param(
            one_defaulted,
            {"word": {**STRING, "default": "none"}},
            {},
            "none",
            id="a default stays",
        ),
        pytest.param(
            one_documented,
            {"word": {**STRING, "description": "What is said."}},
            {"word": "w"},
            "w",
            id="a docstring",
        ),
        pytest.param(
            one_beside_the_context,
            {"word": STRING},
            {"word": "w"},
            "w deps",
            id="beside the context",
        ),
        pytest.param(
            one_of_any_kind,
            {"value": {}},
            {"value": [1]},
            [1],
            id="any value, if so hinted",
        ),
        pytest.param(
            two_bare,
            {"left": {}, "right": {}},
            {"left": 1, "right": []},
            [1, []],
            id="two are any values",
        ),
        pytest.param(any_names, {}, {"a": 1}, {"a": 1}, id="any names"),
        pytest.param(
            any_number,
            {"words": {"type": "array", "items": {}}},
            {"words": [1, "a"]},
            [1, "a"],
            id="any number",
        ),
        pytest.param(lambda: "done", {}, {}, "done", id="nothing"),
    ],
)
def test_a_function_is_registered_under_another_name(
    registry: ToolRegistry,
    function: Callable[..., Any],
    properties: dict[str, Any],
    sent: Any,
    wanted: Any,
) -> None:
    made = registry.register_function("given", "Given.", function)
    assert (made.name, made.description) == ("given", "Given.")
    assert registry.schemas()[0]["function"]["parameters"]["properties"] == properties
    assert registry.call("given", sent, deps="deps").value == wanted


def test_register_tool_takes_options_as_the_decorator_does(
    registry: ToolRegistry,
) -> None:
    options: dict[str, Any] = {
        "permission": "read",
        "timeout": None,
        "tags": "web",
        "keywords": ["page"],
    }
    by_hand = registry.register_tool(saying("a"), name="a", **options)
    tool(registry=registry, name="b", **options)(saying("b"))
    by_name = registry.register_function("c", "C.", saying("c"), **options)
    for made in (by_hand, registry["b"], by_name):
        assert (made.permission, made.timeout, made.tags, made.keywords) == (
            "read",
            None,
            ("web",),
            ("page",),
        )
    assert len(registry.subset(tags=["web"])) == 3


def test_new_options_change_only_what_they_name() -> None:
    """Above all a sensitive tool must not become a free one because its timeout was changed."""

    @tool(registry=ToolRegistry(), name="erase", permission="sensitive", tags=["disk"])
    def clear() -> None: ...

    class Disk:
        @tool(name="erase", permission="sensitive", tags=["disk"])
        def clear(self) -> None: ...

    wrapped = functools.wraps(clear)(lambda: clear())
    for thing in (
        clear,
        Disk().clear,
        wrapped,
        functools.partial(clear),
        functools.partial(wrapped),
    ):
        [unchanged] = ToolRegistry([thing])
        assert (unchanged.name, unchanged.permission, unchanged.tags) == (
            "erase",
            "sensitive",
            ("disk",),
        )
        made = ToolRegistry().register_tool(thing, timeout=5)
        assert (made.name, made.permission, made.tags, made.timeout) == (
            "erase",
            "sensitive",
            ("disk",),
            5,
        )
        named = ToolRegistry().register_function("wipe", "Wipes.", thing)
        assert (named.name, named.description, named.permission) == (
            "wipe",
            "Wipes.",
            "sensitive",
        )


class Echo(Tool):
    name = "echo"
    description = "Says it again."

    def __init__(self, word: str = "") -> None:
        self.word = word

    def get_parameters(self) -> list[ToolParameter]:
        return []

    def run(self, parameters: dict[str, Any]) -> str:
        return self.word


def test_options_for_a_tool_are_not_lost_silently(registry: ToolRegistry) -> None:
    """Either they hold or they are refused."""
    try:
        made = registry.register_tool(Echo(), permission="sensitive")
    except TypeError:
        return
    assert made.permission == "sensitive"
    assert registry.call("echo", {}).reason == "denied"


# Two of one name


def again() -> str:
    return "first"


FIRST = again


def again() -> str:  # type: ignore[no-redef]  # as after a reload, or in a notebook cell that is run twice
    return "second"


class Store:
    def __init__(self, word: str) -> None:
        self.word = word

    @tool
    def tell(self) -> str:
        return self.word


class Shelf(list[str]):
    """Empty, and equal to every other empty one."""

    @tool
    def tell(self) -> str:
        return f"{len(self)} on {id(self)}"


class Told:
    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self) -> str:
        return self.word


def add(left: int, right: int = 0) -> int:
    return left + right


STORE, TOLD, ADD_ONE, ECHO = Store("s"), Told("t"), functools.partial(add, 1), Echo("e")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(saying("a"), saying("b"), id="two functions"),
        pytest.param(lambda: "a", lambda: "b", id="two lambdas"),
        pytest.param(Store("a").tell, Store("b").tell, id="methods of two objects"),
        pytest.param(
            Shelf().tell,
            Shelf().tell,
            id="methods of two objects that are empty and equal",
        ),
        pytest.param(Told("a"), Told("b"), id="two callable objects"),
        pytest.param(
            functools.partial(add, 1), functools.partial(add, 2), id="two partials"
        ),
        pytest.param(saying("a"), Echo("b"), id="a function and a class tool"),
    ],
)
def test_another_tool_under_a_taken_name(
    first: Any, second: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fill(registry: ToolRegistry) -> Tool:
        for one in (first, second):
            registry.register_tool(one) if isinstance(
                one, Tool
            ) else registry.register_tool(one, name="echo")
        return registry["echo"]

    strict = ToolRegistry()
    with pytest.raises(
        ToolDefinitionError, match=r"'echo' is taken.*another name.*on_duplicate"
    ):
        fill(strict)
    assert getattr(strict["echo"], "function", None) in (first, None), (
        "the first one stays"
    )
    assert fill(ToolRegistry(on_duplicate="replace")) is not strict["echo"]
    assert caplog.records == []
    kept = fill(ToolRegistry(on_duplicate="warn"))
    assert (kept is second) or kept.function is second  # type: ignore[attr-defined]
    assert [
        (record.levelno, "'echo'" in record.getMessage()) for record in caplog.records
    ] == [(logging.WARNING, True)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(FIRST, again, id="a function that was written again"),
        pytest.param(add, add, id="the same function"),
        pytest.param(
            add,
            functools.wraps(add)(lambda *args, **kwargs: add(*args, **kwargs)),
            id="a wrapped one",
        ),
        pytest.param(STORE.tell, STORE.tell, id="a method of one object"),
        pytest.param(TOLD, TOLD, id="a callable object"),
        pytest.param(ADD_ONE, ADD_ONE, id="a partial"),
        pytest.param(ECHO, ECHO, id="a class tool"),
        pytest.param(len, len, id="a builtin"),
    ],
)
@pytest.mark.parametrize("on_duplicate", ["error", "warn", "replace"])
def test_the_same_tool_again(
    first: Any, second: Any, on_duplicate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    registry = ToolRegistry([first, second], on_duplicate=on_duplicate)
    [made] = registry
    assert made is second or made.function is second  # type: ignore[attr-defined]
    assert caplog.records == []


def test_one_function_may_have_two_names(registry: ToolRegistry) -> None:
    registry.register_tool(add, name="plus")
    registry.register_tool(add, name="sum")
    assert [registry.call(name, {"left": 1}).value for name in ("plus", "sum")] == [
        1,
        1,
    ]


# A part of the tools


@pytest.fixture
def library(registry: ToolRegistry) -> ToolRegistry:
    for name, permission, tags in (
        ("search", "read", ["books", "web"]),
        ("lend", "write", ["books"]),
        ("burn", "sensitive", []),
    ):
        registry.register_tool(
            saying(name), name=name, permission=permission, tags=tags
        )
    return registry


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        pytest.param({}, ["search", "lend", "burn"], id="none"),
        pytest.param(
            {"names": ["burn", "search"]},
            ["search", "burn"],
            id="names, in the registry's order",
        ),
        pytest.param({"tags": ["books"]}, ["search", "lend"], id="a tag"),
        pytest.param({"tags": {"web", "art"}}, ["search"], id="any of the tags"),
        pytest.param({"tiers": {"read"}}, ["search"], id="a tier"),
        pytest.param({"tiers": ["read", "sensitive"]}, ["search", "burn"], id="tiers"),
        pytest.param(
            {"tags": ["books"], "tiers": {"write"}}, ["lend"], id="a tag and a tier"
        ),
        pytest.param({"names": []}, [], id="no names"),
        pytest.param({"tags": []}, [], id="no tags"),
        pytest.param({"tiers": ()}, [], id="no tiers"),
    ],
)
def test_a_subset_has_the_tools_that_are_named(
    library: ToolRegistry, conditions: dict[str, Any], wanted: list[str]
) -> None:
    assert [one.name for one in library.subset(**conditions)] == wanted


def test_a_subset_is_a_registry_of_its_own(library: ToolRegistry) -> None:
    part = library.subset(tiers={"read"})
    part.register_tool(saying("other"), name="other")
    assert ("other" in library, part["search"] is library["search"]) == (False, True)
    assert "burn" in part.call("burn", {}).content
    assert part.call("burn", {}).reason == "malformed"
    with pytest.raises(KeyError, match=r"lent.*search"):
        library.subset(names=["search", "lent"])


# Names on a wire

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONG = "x" * 64


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            ["plain", "with_under", "with-dash", "a1", "_", "1"], id="legal ones"
        ),
        pytest.param(
            ["Docker problem scanner", "hosting.getNode.js", "größe/abc"],
            id="signs of every kind",
        ),
        pytest.param(
            ["город", "名前", "\N{GRINNING FACE}", "a\nb", "\ud800"],
            id="letters of every script",
        ),
        pytest.param(
            [LONG, LONG + "x", LONG + "y", LONG + ".", "é" * 80], id="long ones"
        ),
        pytest.param(["a b", "a.b", "a/b", "aéb"], id="alike once cleaned"),
        pytest.param(["a b", "a_b"], id="one that looks like another's alias, later"),
        pytest.param(["a_b", "a b"], id="one that looks like another's alias, earlier"),
        pytest.param(["a b", "a.b", "a_b", "a_b_c"], id="all of these"),
        pytest.param(
            ["functions.x", "x", "functions_x"], id="a prefix that models add"
        ),
    ],
)
def test_every_tool_has_a_name_of_its_own_on_the_wire(names: list[str]) -> None:
    registry = ToolRegistry()
    for number, name in enumerate(names):
        registry.register_function(name, "D.", saying(f"w{number}"))
    wired = [entry["function"]["name"] for entry in registry.schemas()]
    assert all(LEGAL.fullmatch(name) for name in wired)
    assert len(set(wired)) == len(names)
    assert [
        name
        for name, own in zip(wired, names, strict=True)
        if LEGAL.fullmatch(own) and name != own
    ] == []
    wanted = [f"w{number}" for number in range(len(names))]
    assert [registry.call(name, {}).value for name in wired] == wanted, (
        "each alias leads back to its own tool"
    )
    assert [registry.call(name, {}).value for name in names] == wanted, (
        "and so does each name"
    )
    assert [
        entry["function"]["name"] for entry in registry.subset(names=names).schemas()
    ] == wired


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        pytest.param("Docker problem scanner", "Docker_problem_scanner", id="spaces"),
        pytest.param("hosting.getNode.js", "hosting_getNode_js", id="dots"),
        pytest.param("größe/abc", "gr__e_abc", id="letters"),
    ],
)
def test_an_alias_can_be_read(registry: ToolRegistry, name: str, alias: str) -> None:
    registry.register_function(name, "D.", saying("w"))
    assert registry.schemas()[0]["function"]["name"] == alias


def test_an_alias_is_stable() -> None:
    """The same in every process, and whatever was registered elsewhere: a saved run may name it."""
    long = LONG + " and more"
    first, second = ToolRegistry(), ToolRegistry()
    for registry in (first, second):
        registry.register_function(long, "D.", saying("w"))
    [alias] = {
        registry.schemas()[0]["function"]["name"] for registry in (first, second)
    }
    assert re.fullmatch(r"x{55}_[0-9a-f]{8}", alias)


def test_a_tool_in_two_registries_has_its_alias_in_each() -> None:
    shared = Echo("shared")
    shared.name = "a b"
    first = ToolRegistry([shared])
    before = first.schemas()
    second = ToolRegistry()
    second.register_function("a_b", "D.", saying("own"))
    second.register_tool(shared)
    assert first.schemas() == before
    wired = [entry["function"]["name"] for entry in second.schemas()]
    assert [second.call(name, {}).value for name in wired] == ["own", "shared"]
    assert first.call(before[0]["function"]["name"], {}).value == "shared"


def test_a_tool_with_an_alias_keeps_its_state(registry: ToolRegistry) -> None:
    class Counter(Echo):
        name = "a.b"
        count = 0

        def run(self, parameters: dict[str, Any]) -> int:
            self.count += 1
            return self.count

    registry.register_function("a b", "D.", saying("w"))
    counter = registry.register_tool(Counter())
    alias = registry.schemas()[1]["function"]["name"]
    assert [registry.call(name, {}).value for name in ("a.b", alias, "a.b")] == [
        1,
        2,
        3,
    ]
    assert counter.count == 3  # type: ignore[attr-defined]


def test_a_name_that_is_replaced_keeps_its_alias(registry: ToolRegistry) -> None:
    registry.on_duplicate = "replace"
    for word in ("old", "new"):
        registry.register_function("a b", "D.", saying(word))
    assert [entry["function"]["name"] for entry in registry.schemas()] == ["a_b"]
    assert registry.call("a_b", {}).value == "new"


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_an_empty_name_is_refused(registry: ToolRegistry, name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="no name"):
        registry.register_function(name, "D.", saying("w"))


# One call


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param('{"left": 1, "right": 2}', id="text"),
        pytest.param({"left": 1, "right": 2}, id="an object"),
        pytest.param(b'{"left": 1, "right": 2}', id="bytes"),
    ],
)
def test_a_registry_calls_a_tool_as_a_model_does(
    registry: ToolRegistry, sent: Any
) -> None:
    registry.register_tool(add)
    for result in (
        registry.call("add", sent),
        asyncio.run(registry.acall("add", sent)),
    ):
        assert (result.value, result.content, result.is_error) == (3, "3", False)


@pytest.mark.parametrize(
    ("name", "sent", "reason", "words"),
    [
        pytest.param(
            "add",
            '{"left": 1',
            "malformed",
            ["not valid JSON"],
            id="text that is cut off",
        ),
        pytest.param(
            "add", "[1, 2]", "malformed", ["no JSON object", "left"], id="no object"
        ),
        pytest.param(
            "add",
            {"left": "one"},
            "malformed",
            ["left", "integer", "one"],
            id="a wrong value",
        ),
        pytest.param(
            "add",
            {"left": "\ud83d"},
            "malformed",
            ["left", "integer"],
            id="half a character",
        ),
        pytest.param(
            "add",
            {"left": object()},
            "malformed",
            ["not valid JSON"],
            id="no JSON at all",
        ),
        pytest.param(
            "add",
            {"left": 1, "middle": 2},
            "malformed",
            ["middle", "right"],
            id="an unknown key",
        ),
        pytest.param(
            "ad", {"left": 1}, "malformed", ['"ad"', "add"], id="an unknown tool"
        ),
        pytest.param("fail", {}, "failed", ["'fail'"], id="a tool that fails"),
        pytest.param("erase", {}, "denied", ["approval"], id="a sensitive tool"),
    ],
)
def test_what_goes_wrong_comes_back_as_a_result(
    registry: ToolRegistry, name: str, sent: Any, reason: str, words: list[str]
) -> None:
    def fail() -> None:
        raise OSError("no")

    registry.register_tool(add)
    registry.register_tool(fail)
    registry.register_tool(saying("erased"), name="erase", permission="sensitive")
    for result in (registry.call(name, sent), asyncio.run(registry.acall(name, sent))):
        assert (result.is_error, result.reason) == (True, reason)
        assert [word for word in words if word not in result.content] == []


@pytest.mark.parametrize(
    ("verdict", "wanted"),
    [
        pytest.param(Verdict("approve"), "erased", id="approved"),
        pytest.param(Verdict("deny", "no wish"), "no wish", id="denied"),
        pytest.param("approve", "approval", id="no verdict"),
        pytest.param(None, "approval", id="nothing"),
    ],
)
def test_a_sensitive_tool_wants_a_verdict(
    registry: ToolRegistry, verdict: Any, wanted: str
) -> None:
    registry.register_tool(saying("erased"), name="erase", permission="sensitive")
    result = registry.call("erase", {}, verdict=verdict)
    assert wanted in result.content
    assert result.is_error is (wanted != "erased")


def test_a_call_carries_what_the_caller_gives_it(registry: ToolRegistry) -> None:
    @tool(registry=registry)
    def whoami(context: ToolContext) -> Any:
        return context.deps

    assert registry.call("whoami", "{}", deps={"user": "ann"}).value == {"user": "ann"}
    assert asyncio.run(registry.acall("whoami", "{}", deps=7)).value == 7


def test_schemas_are_json_and_fresh(library: ToolRegistry) -> None:
    first = library.schemas()
    written = json.dumps(first)
    for entry in first:
        entry["function"]["parameters"]["properties"]["given"]["type"] = "integer"
        entry["function"]["name"] = "other"
    assert json.dumps(library.schemas()) == written


def test_a_registry_has_defaults_for_tier_and_timeout() -> None:
    registry = ToolRegistry(permission="sensitive", timeout=3)

    def plain() -> None: ...

    @tool(registry=registry)
    def decorated() -> None: ...

    @tool(registry=registry, permission="read", timeout=9)
    def chosen() -> None: ...

    registry.register_tool(plain)
    registry.register_function("named", "It.", lambda text: text)
    found = {each.name: (each.permission, each.timeout) for each in registry}
    assert found == {
        "decorated": ("sensitive", 3),
        "chosen": ("read", 9),
        "plain": ("sensitive", 3),
        "named": ("sensitive", 3),
    }
    assert registry.call("plain", "{}").reason == "denied"
