"""The Python of README.md, really run, and what its comments promise."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from server import ChatServer, answer, call
from toolkit import __main__ as cli
from toolkit.evals import load_cases
from toolkit.lint import lint_tools
from toolkit.tools.registry import REGISTRY
from toolkit.tools.tool import as_tool

README = Path(__file__).parents[1] / "README.md"


@dataclass(frozen=True)
class Block:
    """A block of code that was run."""

    code: str
    names: dict[str, Any]
    printed: list[str]


@dataclass(frozen=True)
class Played:
    """All blocks that start no process, and the server that was the model where none is named."""

    blocks: list[Block]
    server: ChatServer
    folder: Path

    def block(self, part: str) -> Block:
        """The one block with this in its code."""
        (found,) = (block for block in self.blocks if part in block.code)
        return found


def find_blocks(text: str) -> Iterator[str]:
    """Each block of Python, on the line of the text that it stands on, so that an error shows where it is."""
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield "\n" * text[: match.start(1)].count("\n") + match[1]


# What stands in the blocks that start a process, and the last line that they print.
PROCESSES = {"@isolated": "168"}


def starts_process(code: str) -> bool:
    return any(part in code for part in PROCESSES)


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Every block was run, in its order, each by itself, as somebody with a server would run it."""
    weather = answer(None, call("get_weather", {"city": "Tokyo"}))
    with (
        ChatServer(weather, "It is dry in Tokyo.") as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TOOLKIT_MODEL", "some-model")
        patch.setenv("OPENAI_BASE_URL", server.base_url)
        patch.setenv("OPENAI_API_KEY", "some-key")
        folder = tmp_path_factory.mktemp("readme")
        patch.chdir(folder)  # some write files
        patch.setattr(
            REGISTRY, "_tools", {}
        )  # the tools of other tests would be shown to the model as well
        text = README.read_text(encoding="utf-8")
        played = [
            run_block(code) for code in find_blocks(text) if not starts_process(code)
        ]
        yield Played(played, server, folder)


def run_block(code: str) -> Block:
    names: dict[str, Any] = {"__name__": "readme"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, README, "exec", dont_inherit=True), names)
    return Block(code, names, printed.getvalue().splitlines())


def test_the_ten_lines_answer(readme: Played) -> None:
    assert readme.blocks[0].printed == ["It is dry in Tokyo."]
    first, second = readme.server.bodies
    (tool,) = first["tools"]
    assert tool["function"]["parameters"]["properties"]["unit"]["enum"] == [
        "celsius",
        "fahrenheit",
    ]
    assert (
        second["messages"][-1]["content"]
        == '{"city":"Tokyo","temp":22,"unit":"celsius"}'
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="refused there")
@pytest.mark.parametrize(("part", "printed"), PROCESSES.items(), ids=PROCESSES)
def test_a_block_with_a_process_of_its_own_runs(part: str, printed: str) -> None:
    text = README.read_text(encoding="utf-8")
    (code,) = (code for code in find_blocks(text) if part in code)
    block = run_block(code)
    assert block.printed[-1] == printed
    registry = block.names.get("registry", ())
    assert [str(finding) for finding in lint_tools(registry)] == []


def test_a_run_pauses_and_goes_on(readme: Played) -> None:
    block = readme.block("resume(saved")
    paused, answered, told = block.printed
    (promised,) = re.findall(r"print\(result\)  # (Paused: .*?) …", block.code)
    assert paused.startswith(promised)
    assert answered.startswith("Done. answered ")
    assert told == "delete_file {'path': 'notes.txt'} notes.txt is gone approve"


def test_tools_are_functions_and_methods(readme: Played) -> None:
    block = readme.block("register_methods(Cart")
    registry = block.names["registry"]
    assert block.printed[-1] == '{"article":"lamp"}'
    assert [tool.name for tool in registry] == ["find_order", "add_item"]
    parameters = registry["find_order"].parameters["properties"]
    assert list(parameters) == ["number"], "the context is hidden"
    missing = registry.call("find_order", '{"number": 8}', deps={})
    assert missing.content == "There is no such order. Ask for the number again."
    assert registry.call("add_item", '{"name": "bread"}').content == "1 items"


def test_a_policy_decides(readme: Played) -> None:
    reason = "Too much to pay without a person."
    assert readme.block("import allow, ask_in_terminal").printed == [
        "Ada has 9 euros",
        f"Not run: the policy denied this call ({reason}).",
    ]


def test_a_run_continues_by_its_id(readme: Played) -> None:
    block = readme.block("from toolkit.store")
    waiting, answer_, verified = block.printed
    assert waiting == "[('greeting', 'send_mail')]"
    assert answer_ == "It is sent."
    assert f"# {verified}" in block.code


def test_many_tools_and_many_prompts(readme: Played) -> None:
    assert readme.block("recall_at(").printed == [
        "['get_weather', 'find_tools']",
        "Recall(rate=0.5, missed={'Ring Ann!': ['get_phone']})",
        "['TEA', 'TOAST']",
    ]


def test_tools_are_checked_and_measured(readme: Played) -> None:
    block = readme.block("evaluate(cases")
    assert block.printed[0] == "[]"
    (promised,) = re.findall(r"# (about .*?) …", block.code)
    assert any(line.startswith(promised) for line in block.printed)
    assert "Anthropic Messages" in block.printed
    assert [outcome.label for outcome in block.names["report"].outcomes] == [
        "right",
        "missing_call",
        "right",
    ]
    assert block.printed[-1] == "0"


def test_the_cases_in_yaml_can_be_read(tmp_path: Path) -> None:
    text = README.read_text("utf-8")
    (cases,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "cases.yaml").write_text(cases, "utf-8")
    (case,) = load_cases(tmp_path / "cases.yaml")
    assert case.input == "How much is $20 in euros?"


def test_the_tools_shown_are_good_ones(readme: Played) -> None:
    tools = [
        thing
        for block in readme.blocks
        for thing in block.names.values()
        if hasattr(thing, "tool_schema")
    ]
    registry = readme.block("register_methods(Cart").names["registry"]
    shown = {tool.name: tool for tool in (*map(as_tool, tools), *registry)}
    assert shown.keys() >= {"get_weather", "find_order", "add_item", "delete_file"}
    assert [str(finding) for finding in lint_tools(shown.values())] == []


def test_the_manual_stays_short() -> None:
    assert README.stat().st_size <= 15_000


MY_TOOLS = '''
from toolkit import tool

@tool(permission="sensitive")
def delete_file(path: str) -> str:
    """Delete a file for good. Use it only where the user asks for it.

    Args:
        path: Relative to the user's folder.
    """
    return f"{path} is gone"
'''


def test_the_commands_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [
        shlex.split(line)
        for line in re.findall(
            r"\| `toolkit (.*)` \|$", README.read_text("utf-8"), re.MULTILINE
        )
    ]
    assert [words for words, *_ in cli._COMMANDS] == sorted(
        (
            " ".join(command[:2]) if command[0] in ("audit", "mcp") else command[0]
            for command in commands
        ),
        key=[words for words, *_ in cli._COMMANDS].index,
    )
    (tmp_path / "my_tools.py").write_text(MY_TOOLS, "utf-8")
    (tmp_path / "cases.yaml").write_text(
        "- {input: Delete a.txt, tool: delete_file, arguments: {path: a.txt}}\n",
        "utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(REGISTRY, "_tools", {})
    wanted = answer(None, call("delete_file", {"path": "notes.txt"}, id="c1"))
    asked = answer(None, call("delete_file", {"path": "a.txt"}))
    with ChatServer(wanted, "Your notes are gone.", asked) as server:
        for name, value in {
            "TOOLKIT_MODEL": "m",
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "k",
        }.items():
            monkeypatch.setenv(name, value)
        codes = {
            command[0]: cli.main(command) for command in commands if command[0] != "mcp"
        }
    assert codes == {
        command[0]: 3 if command[0] == "run" else 0
        for command in commands
        if command[0] != "mcp"
    }
    printed = capsys.readouterr().out
    assert "Your notes are gone." in printed
    assert "2 lines: intact." in printed
    assert "comes out as recorded: 2 turns, 1 calls" in printed
    (served,) = (command for command in commands if command[0] == "mcp")
    assert cli._parser().parse_args(served).port == 8000


def test_no_link_is_broken() -> None:
    text = README.read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    anchors = {
        re.sub(r"[^a-z -]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^#+ (.*)", text, re.M)
    }
    assert [link for link in links if link[0] == "#" and link[1:] not in anchors] == []
    assert [
        link
        for link in links
        if link[0] != "#" and not (README.parent / link.partition("#")[0]).exists()
    ] == []


def test_no_block_is_passed_over(readme: Played) -> None:
    assert (
        len(readme.blocks) + len(PROCESSES)
        == README.read_text(encoding="utf-8").count("```python")
        >= 3
    )
