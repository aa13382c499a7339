"""The command line: what it prints, and how it exits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from server import ChatServer, answer, call
from toolkit import RunResult, ScriptedModel, ToolCall, run_agent_with_tools
from toolkit.__main__ import main
from toolkit.tools.registry import import_tools

TOOLS = '''
from typing import Annotated, Literal
from toolkit import tool
from toolkit.tools.registry import ToolRegistry

MINE = ToolRegistry()

@tool(permission="read", registry=MINE)
def get_weather(city: Annotated[str, "Name of the city."]) -> str:
    """Current weather of a city. Use when somebody asks for the weather."""
    return f"{city} is sunny"

@tool(permission="sensitive", registry=MINE)
def wipe_disk(name: Annotated[str, "Name of the disk."]) -> str:
    """Wipe a disk. Use when somebody wants it empty."""
    return f"{name} is empty"
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "desk_tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setenv("TOOLKIT_MODEL", "m")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    yield tmp_path
    sys.modules.pop("desk_tools", None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    with ChatServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        yield server


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_tools_are_listed(folder: Path, capsys: Any) -> None:
    assert main(["tools", "desk_tools.py"]) == 0
    assert said(capsys).splitlines()[0].split()[:3] == ["get_weather", "read", "city"]
    main(["tools", "desk_tools:MINE", "--json"])
    assert [tool["permission"] for tool in json.loads(said(capsys))] == [
        "read",
        "sensitive",
    ]
    main(["tools", "desk_tools", "--schema"])
    assert json.loads(said(capsys)) == [
        dict(e) for e in import_tools("desk_tools").schemas()
    ]
    main(["tools", "desk_tools", "--explain", "wipe_disk"])
    assert '"input_schema"' in said(capsys)


def test_lint_tells_by_its_exit_code(folder: Path, capsys: Any) -> None:
    assert main(["lint", "desk_tools"]) == 0
    assert said(capsys) == "Nothing to mend.\n"
    (folder / "worse.py").write_text(TOOLS.replace("sensitive", "read"))
    assert main(["lint", "worse.py", "--json"]) == 1
    (finding,) = json.loads(said(capsys))
    assert (finding["tool"], finding["rule"], finding["severity"]) == (
        "wipe_disk",
        "destructive-read",
        "error",
    )
    assert main(["lint", "worse.py", "--ignore", "wipe_disk:destructive-read"]) == 0


@pytest.mark.parametrize(("budget", "code"), [("5", 1), ("5000", 0)])
def test_a_budget_of_tokens_is_held(
    folder: Path, capsys: Any, budget: str, code: int
) -> None:
    assert main(["cost", "desk_tools", "--max-tokens", budget]) == code
    assert "tokens in each request" in said(capsys)
    main(["cost", "desk_tools", "--json"])
    assert set(json.loads(said(capsys))["tools"]) == {"get_weather", "wipe_disk"}


def test_a_run_from_question_to_replay(
    folder: Path, server: ChatServer, capsys: Any
) -> None:
    server.plays += [
        answer(None, call("get_weather", {"city": "Oslo"}, "c1")),
        "It is sunny.",
    ]
    asked = [
        "run",
        "Weather in Oslo?",
        "--tools",
        "desk_tools",
        "--save",
        "run.json",
        "--html",
        "run.html",
        "--live",
    ]
    assert main(asked) == 0
    out, err = capsys.readouterr()
    assert out == "It is sunny.\n"
    assert "✓ get_weather" in err
    assert "Oslo is sunny" in (folder / "run.html").read_text(encoding="utf-8")

    assert main(["trace", "run.json"]) == 0
    assert '✓ get_weather({"city":"Oslo"}) → Oslo is sunny' in said(capsys)
    assert main(["trace", "run.json", "--html", "again.html"]) == 0
    assert (folder / "again.html").read_text(encoding="utf-8") == (
        folder / "run.html"
    ).read_text(encoding="utf-8")

    assert main(["replay", "run.json"]) == 0
    assert "comes out as recorded: 2 turns, 1 calls" in said(capsys)
    saved = json.loads((folder / "run.json").read_text())
    saved["run"]["usage"]["input_tokens"] += 1
    (folder / "run.json").write_text(json.dumps(saved))
    assert main(["replay", "run.json"]) == 1


def test_a_paused_run_goes_on_by_its_id(
    folder: Path, server: ChatServer, capsys: Any
) -> None:
    kept = ["--store", "runs.db", "--audit", "audit.jsonl", "--tools", "desk_tools"]
    server.plays += [
        answer(None, call("wipe_disk", {"name": "sda"}, "c1")),
        "It is empty.",
    ]
    assert main(["run", "Wipe sda.", "--run-id", "one", *kept]) == 3
    assert re.search(r'c1 +wipe_disk\({"name": "sda"}\)', said(capsys))
    assert main(["runs", "runs.db", "--status", "awaiting_approval"]) == 0
    assert "awaiting_approval" in said(capsys)

    assert main(["resume", "one", "--approve", "c1", *kept]) == 0
    assert said(capsys) == "It is empty.\n"
    assert main(["runs", "runs.db", "--json"]) == 0
    assert [run["status"] for run in json.loads(said(capsys))] == ["answered"]
    assert main(["replay", "one", "--store", "runs.db"]) == 0
    assert "1 calls" in said(capsys)

    assert main(["audit", "verify", "audit.jsonl"]) == 0
    assert said(capsys) == "2 lines: intact.\n"
    text = (folder / "audit.jsonl").read_text()
    (folder / "audit.jsonl").write_text(text.replace("sda", "sdb"))
    assert main(["audit", "verify", "audit.jsonl"]) == 1
    assert "Line 1 was edited" in said(capsys)


def test_a_denial_has_its_reason(folder: Path, server: ChatServer, capsys: Any) -> None:
    server.plays += [
        answer(None, call("wipe_disk", {"name": "sda"}, "c1")),
        "I did not.",
    ]
    assert (
        main(["run", "Wipe sda.", "--tools", "desk_tools", "--save", "run.json"]) == 3
    )
    assert (
        main(
            [
                "resume",
                "run.json",
                "--deny",
                "c1=not that one",
                "--tools",
                "desk_tools",
                "--json",
            ]
        )
        == 0
    )
    result = RunResult.from_json(said(capsys).splitlines()[-1])
    assert (
        result.calls[0].content == "Not run: the user denied this call (not that one)."
    )


def test_a_plan_is_shown_and_not_run(
    folder: Path, server: ChatServer, capsys: Any
) -> None:
    server.plays += [answer(None, call("wipe_disk", {"name": "sda"}, "c1")), "Planned."]
    assert main(["run", "Wipe sda.", "--tools", "desk_tools", "--plan"]) == 0
    assert said(capsys).endswith(
        'Planned, and not run:\n1. wipe_disk({"name":"sda"})\n'
    )


def test_a_run_without_an_answer_is_told(
    folder: Path, server: ChatServer, capsys: Any
) -> None:
    server.plays += [
        answer(None, call("get_weather", {"city": f"{n}"}, f"c{n}")) for n in range(2)
    ]
    assert main(["run", "q", "--tools", "desk_tools", "--max-turns", "2"]) == 1
    assert "ended with max_turns" in capsys.readouterr().err


def test_a_model_is_measured_against_a_baseline(
    folder: Path, server: ChatServer, capsys: Any
) -> None:
    (folder / "cases.jsonl").write_text(
        json.dumps(
            {
                "input": "Weather in Oslo?",
                "tool": "get_weather",
                "arguments": {"city": "Oslo"},
            }
        )
        + "\n"
    )
    asked = [
        "eval",
        "cases.jsonl",
        "--tools",
        "desk_tools",
        "--save",
        "report.json",
        "--html",
        "report.html",
    ]
    server.plays += [answer(None, call("get_weather", {"city": "Oslo"}, "c1"))]
    assert main([*asked, "--min-rate", "1"]) == 0
    server.plays += ["Sunny."]
    assert main([*asked[:4], "--baseline", "report.json", "--min-rate", "1"]) == 1
    assert "get_weather" in said(capsys)
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_report_may_take_the_place_of_its_baseline(
    folder: Path, server: ChatServer, capsys: Any
) -> None:
    (folder / "cases.jsonl").write_text(
        "".join(
            json.dumps({"input": f"Weather {n}?", "tool": "get_weather"}) + "\n"
            for n in range(12)
        )
    )
    asked = ["eval", "cases.jsonl", "--tools", "desk_tools", "--save", "last.json"]
    server.plays += [answer(None, call("get_weather", {"city": "Oslo"}, "c1"))] * 12
    assert main(asked) == 0
    server.plays += ["Sunny."] * 12
    assert main([*asked, "--baseline", "last.json"]) == 1
    assert "REGRESSION" in said(capsys)


def test_an_answer_is_shown_where_it_cannot_be_saved(
    folder: Path, server: ChatServer, capsys: Any
) -> None:
    server.plays += ["It is late."]
    assert main(["run", "q", "--save", "nowhere/run.json"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "It is late.\n",
        "toolkit: There is no file 'nowhere/run.json'.\n",
    )


WRONG: dict[str, tuple[list[str], str]] = {
    "a module that is none": (
        ["tools", "no_such_module"],
        "There is no module 'no_such_module'",
    ),
    "a file that is none": (
        ["replay", "nothing.json"],
        "There is no file 'nothing.json'.",
    ),
    "a file that is no run": (["trace", "desk_tools.py"], "not a saved run"),
    "a file that is no text": (["trace", "bytes.json"], "not a saved run"),
    "a file that is no Python": (
        ["lint", "broken_tools.py"],
        "'broken_tools.py' failed while it was imported: SyntaxError",
    ),
    "a module that ends the process": (
        ["tools", "ending_tools"],
        "'ending_tools' failed while it was imported: SystemExit",
    ),
    "a baseline that is none": (
        ["eval", "q.jsonl", "--model", "none", "--baseline", "x.json"],
        "no file 'x.json'",
    ),
    "a store that is none": (["runs", "nothing.db"], "There is no file 'nothing.db'."),
    "a store to resume from that is none": (
        ["resume", "r", "--store", "nothing.db"],
        "There is no file 'nothing.db'.",
    ),
    "a tool that is none": (
        ["tools", "desk_tools", "--explain", "fly"],
        "No tool is named 'fly'",
    ),
    "a rule that is none": (
        ["lint", "desk_tools", "--ignore", "pretty"],
        "Unknown rule 'pretty'",
    ),
    "both verdicts": (
        ["resume", "r", "--store", "s.db", "--approve", "a", "--deny", "a=no"],
        "both approved and denied",
    ),
}


@pytest.mark.parametrize(("arguments", "told"), WRONG.values(), ids=WRONG)
def test_what_goes_wrong_is_one_line(
    folder: Path, capsys: Any, arguments: list[str], told: str
) -> None:
    (folder / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (folder / "broken_tools.py").write_text("def look(:\n")
    (folder / "ending_tools.py").write_text("raise SystemExit(5)\n")
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("toolkit: ")
    assert told in line


COMMANDS = [
    "tools",
    "lint",
    "cost",
    "run",
    "resume",
    "runs",
    "replay",
    "trace",
    "audit verify",
    "eval",
    "mcp serve",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(command: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    assert f"example: toolkit {command} " in said(capsys)


@pytest.mark.slow
def test_the_command_is_light_and_stops_at_a_closed_pipe(folder: Path) -> None:
    code = (
        "import sys; from toolkit.__main__ import main; "
        "main(['tools', 'desk_tools']); sys.exit('openai' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    shell = f"{sys.executable} -m toolkit tools desk_tools --schema | head -n 1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("[\n", "")


def test_a_run_of_a_program_is_traced_by_the_command(folder: Path, capsys: Any) -> None:
    model = ScriptedModel([ToolCall("c", "get_weather", {"city": "Rome"}), "so"])
    result = run_agent_with_tools("q", model=model, tools="desk_tools")
    (folder / "mine.json").write_text(result.to_json())
    assert main(["trace", "mine.json"]) == 0
    assert "Rome is sunny" in said(capsys)
