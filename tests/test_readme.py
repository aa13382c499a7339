"""The Python of README.md, really run, and what its comments promise."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from server import ChatServer, answer, call
from toolkit.lint import lint_tools
from toolkit.registry import REGISTRY
from toolkit.tools import as_tool

README = Path(__file__).parents[1] / "README.md"


@dataclass(frozen=True)
class Block:
    """A block of code that was run."""

    code: str
    names: dict[str, Any]
    printed: list[str]


@dataclass(frozen=True)
class Played:
    """All blocks, and the server that was the model where none is named."""

    blocks: list[Block]
    server: ChatServer

    def block(self, part: str) -> Block:
        """The one block with this in its code."""
        (found,) = (block for block in self.blocks if part in block.code)
        return found


def find_blocks(text: str) -> Iterator[str]:
    """Each block of Python, on the line of the text that it stands on, so that an error shows where it is."""
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield "\n" * text[: match.start(1)].count("\n") + match[1]


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Every block was run, in its order, each by itself, as somebody with a server would run it."""
    weather = answer(None, call("get_weather", {"city": "Tokyo"}))
    with ChatServer(weather, "It is dry in Tokyo.") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLKIT_MODEL", "some-model")
        patch.setenv("OPENAI_BASE_URL", server.base_url)
        patch.setenv("OPENAI_API_KEY", "some-key")
        patch.chdir(tmp_path_factory.mktemp("readme"))  # some write files
        patch.setattr(REGISTRY, "_tools", {})  # the tools of other tests would be shown to the model as well
        played = [run_block(code) for code in find_blocks(README.read_text(encoding="utf-8"))]
        yield Played(played, server)


def run_block(code: str) -> Block:
    names: dict[str, Any] = {"__name__": "readme"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, README, "exec", dont_inherit=True), names)
    return Block(code, names, printed.getvalue().splitlines())


def test_the_ten_lines_answer(readme: Played) -> None:
    assert readme.blocks[0].printed == ["It is dry in Tokyo."]
    first, second = readme.server.bodies
    (tool,) = first["tools"]
    assert tool["function"]["parameters"]["properties"]["unit"]["enum"] == ["celsius", "fahrenheit"]
    assert second["messages"][-1]["content"] == '{"city":"Tokyo","temp":22,"unit":"celsius"}'


def test_a_run_is_traced(readme: Played) -> None:
    assert str(readme.block("from toolkit.otel").names["result"]) == "Three."


def test_tools_are_functions_methods_and_classes(readme: Played) -> None:
    block = readme.block("class Counter(Tool)")
    registry = block.names["registry"]
    assert block.printed[0].split() == [
        "find_order",
        "read",
        "number",
        *["Look", "up", "an", "order.", "Use", "it", "before", "you", "say", "anything", "of", "one."],
    ]
    assert block.printed[3:] == ["2", '{"article":"lamp"}']
    assert [tool.name for tool in registry] == ["find_order", "add_item", "count_up"]
    assert list(registry["find_order"].parameters["properties"]) == ["number"], "the context is hidden"
    found = registry.call("find_order", '{"number": 7}', deps={7: {"article": "lamp"}})
    assert found.value == {"article": "lamp"}
    missing = registry.call("find_order", '{"number": 8}', deps={})
    assert missing.content == "There is no such order. Ask for the number again."
    assert registry.call("add_item", '{"name": "bread"}').content == "1 items"


@pytest.mark.skipif(sys.platform == "win32", reason="refused there")
def test_a_function_runs_in_a_child(readme: Played) -> None:
    assert readme.block("@isolated").printed == ["168"]


def test_a_run_pauses_and_goes_on(readme: Played) -> None:
    block = readme.block("resume(saved")
    paused, answered, told = block.printed
    (promised,) = re.findall(r"print\(result\)  # (Paused: .*?) …", block.code)
    assert paused.startswith(promised)
    assert answered.startswith("Done. answered ")
    assert told == "delete_file {'path': 'notes.txt'} notes.txt is gone approve"


def test_many_tools_are_narrowed(readme: Played) -> None:
    assert readme.block("recall_at(").printed == [
        "[['get_weather', 'find_tools'], ['get_weather', 'list_files', 'find_tools']]",
        "Recall(rate=0.5, missed={'Tell Ann!': ['send_mail']})",
    ]


def test_an_evaluation_tells_what_it_found(readme: Played) -> None:
    block = readme.block("evaluate(cases")
    assert [outcome.label for outcome in block.names["report"].outcomes] == ["right", "missing_call", "right"]
    assert block.printed[-1] == "0"
    assert "About 4 pounds." in "".join(block.printed)


def test_tools_are_checked(readme: Played) -> None:
    block = readme.block("lint_tools")
    printed = block.printed
    found = re.findall(r"^(\w+) (delete_note\S*): .*\[(\S+)\]$", "\n".join(printed), re.MULTILINE)
    assert found == [
        ("error", "delete_note", "destructive-read"),
        ("error", "delete_note.titel", "parameter-unknown"),
        ("warning", "delete_note", "description-repeats-name"),
        ("warning", "delete_note.title", "parameter-undescribed"),
        ("warning", "delete_note.mode", "values-in-text"),
    ]
    (total,) = (line for line in printed if "tokens in each request" in line)
    (promised,) = re.findall(r"print\(cost\)  # (about .*?) …", block.code)
    assert total.startswith(f"{promised} 0.000039 USD")
    assert "Anthropic Messages" in printed


def test_the_tools_shown_are_good_ones(readme: Played) -> None:
    tools = [thing for block in readme.blocks for thing in block.names.values() if hasattr(thing, "tool_schema")]
    registry = readme.block("register_methods(Cart").names["registry"]
    shown = {tool.name: tool for tool in (*map(as_tool, tools), *registry) if tool.name != "delete_note"}
    assert shown.keys() >= {"get_weather", "find_order", "add_item", "count_up", "delete_file"}
    assert [str(finding) for finding in lint_tools(shown.values())] == []


def test_a_policy_decides(readme: Played) -> None:
    paid, denied = readme.block("import allow, ask_in_terminal").printed
    assert paid == "Ada has 9 euros"
    assert denied == "Not run: the policy denied this call (Too much to pay without a person.)."


def test_no_block_is_passed_over(readme: Played) -> None:
    assert len(readme.blocks) == README.read_text(encoding="utf-8").count("```python") >= 3
