"""MCP: servers of every kind as tools, and a registry as a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import wait_until
from toolkit import (
    RunResult,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolkitError,
    ToolRegistry,
    run_agent_with_tools,
)
from toolkit.errors import ToolDefinitionError, ToolError

mcp = pytest.importorskip(
    "toolkit.mcp", reason="needs the extra `mcp`", exc_type=ImportError
)
sdk = pytest.importorskip("mcp", reason="is the SDK")

ROOT = Path(__file__).parents[1]
PEER = str(Path(__file__).with_name("mcp_peer.py"))
ANYTHING: dict[str, Any] = {"type": "object", "additionalProperties": True}


def named(*names: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "inputSchema": ANYTHING, **more} for name in names]


def peer(
    tools: list[Any],
    does: dict[str, Any] | None = None,
    log: Path | None = None,
    **told: Any,
) -> list[str]:
    """The command of a server that lists these tools, and does what it is told when one is called."""
    what = json.dumps({"tools": tools, "does": does or {}, **told})
    return [sys.executable, "-I", PEER, what, *([str(log)] if log else [])]


def received(log: Path, method: str) -> list[dict[str, Any]]:
    messages = [
        json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()
    ]
    return [
        message.get("params", {})
        for message in messages
        if message.get("method") == method
    ]


def wire_names(tools: list[Tool]) -> list[str]:
    return [entry["function"]["name"] for entry in ToolRegistry(tools).schemas()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "names", "wire"),
    [
        pytest.param(
            "time",
            ["get", "convert"],
            ["time_get", "time_convert"],
            id="the server's name goes before",
        ),
        pytest.param(
            "git", ["git_status", "log"], ["git_status", "git_log"], id="but not twice"
        ),
        pytest.param(
            "git",
            ["git_log", "log"],
            ["git_git_log", "git_log"],
            id="twice where it would be mistaken",
        ),
        pytest.param(
            "git",
            ["gitk", "git_"],
            ["git_gitk", "git_git_"],
            id="only where it is the server's name",
        ),
        pytest.param(
            "github",
            ["github.get_file"],
            ["github_get_file"],
            id="a dot is no letter of a wire",
        ),
        pytest.param(
            "", ["github.get_file"], ["github_get_file"], id="without a name before"
        ),
        pytest.param(
            "s",
            ["a.b", "a/b"],
            ["s_a_b", r"s_a_b_[0-9a-f]{8}"],
            id="two that would be one",
        ),
        pytest.param("s", ["ask", "ask"], ["s_ask"], id="one told twice"),
        pytest.param("s", ["größe"], ["s_gr__e"], id="letters of elsewhere"),
        pytest.param(
            "s" * 50,
            ["create_issue_comment_draft_a", "create_issue_comment_draft_b"],
            [r"s{50}_crea_[0-9a-f]{8}"] * 2,
            id="long ones keep what tells them apart",
        ),
    ],
)
def test_tools_get_names_that_wires_accept(
    server: str, names: list[str], wire: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with mcp.connect(peer(named(*names), log=log), name=server) as first:
        found = wire_names(first.tools)
        registry = ToolRegistry(first.tools)
        for name in found:
            assert not registry.call(name, "{}").is_error
        first.refresh()
        assert wire_names(first.tools) == found, "the same in each run"
    assert len(found) == len(wire) == len(set(found))
    assert [
        name
        for pattern, name in zip(wire, found, strict=True)
        if not re.fullmatch(pattern, name)
    ] == []
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in found)
    assert [call["name"] for call in received(log, "tools/call")] == list(
        dict.fromkeys(names)
    )


@pytest.mark.slow
def test_several_servers_stand_beside_each_other(run: Callable[..., RunResult]) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    with (
        mcp.connect(peer(named("get")), name="a") as a,
        mcp.connect(peer(named("get")), name="b") as b,
    ):
        asked = [ToolCall(name, name, {}) for name in ("a_get", "b_get")]
        script = ScriptedModel(
            [[*asked, ToolCall("c", "add", {"a": 1, "b": 2})], "Done."]
        )
        result = run("Go.", model=script, tools=[*a.tools, *b.tools, add])
        pids = [json.loads(call.content)["pid"] for call in result.calls[:2]]
        assert len(set(pids)) == 2
        assert result.calls[2].content == "3"
        with (
            mcp.connect(peer(named("get")), name="a") as other,
            pytest.raises(ToolDefinitionError, match="'a_get' is"),
        ):
            ToolRegistry([*a.tools, *other.tools])
    assert not any(map(is_alive, pids))


# Lists of tools


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({}, id="empty"),
        pytest.param({"type": "object"}, id="type only"),
        pytest.param({"type": "object", "properties": None}, id="null"),
        pytest.param({"type": ["object"], "properties": {}}, id="a list of one type"),
        pytest.param(
            {"type": "object", "properties": {}, "required": None},
            id="nothing required",
        ),
    ],
)
def test_tools_without_parameters(schema: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with mcp.connect(
        peer([{"name": "now", "inputSchema": schema}], log=log), name="s"
    ) as server:
        registry = ToolRegistry(server.tools)
        assert registry.schemas()[0]["function"]["parameters"] == {
            "type": "object",
            "properties": {},
        }
        for arguments in ("", "{}", "null", {}):
            assert not registry.call("s_now", arguments).is_error
    assert [call.get("arguments") for call in received(log, "tools/call")] == [{}] * 4


@pytest.mark.slow
@pytest.mark.parametrize("page", [1, 3, 100])
def test_bad_tools_are_left_out(page: int, caplog: pytest.LogCaptureFixture) -> None:
    listed = [
        *named("", "  ", None),
        {"name": "odd", "inputSchema": True},
        "no tool",
        *named("ok"),
    ]
    listed.append(
        {
            "name": "wrong",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "nothing"}}},
        }
    )
    listed.append({"name": "no_object", "inputSchema": {"type": "string"}})
    with mcp.connect(peer(listed, page=page), name="s") as server:
        assert [tool.name for tool in server.tools] == ["s_ok"]
        assert not ToolRegistry(server.tools).call("s_ok", {}).is_error
    assert (
        len([r for r in caplog.records if "is left out" in r.message])
        == len(listed) - 1
    )


@pytest.mark.slow
def test_odd_extras_of_a_tool_are_no_reason_to_lose_it() -> None:
    extras = {
        "description": 7,
        "annotations": {"title": 3, "readOnlyHint": "yes"},
        "outputSchema": {"type": "array"},
    }
    with mcp.connect(
        peer(named("ok", **extras, icons="none", title=[])), name="s"
    ) as server:
        assert [
            (tool.name, tool.description, tool.permission) for tool in server.tools
        ] == [("s_ok", "", "write")]


@pytest.mark.slow
def test_pages_without_end(caplog: pytest.LogCaptureFixture) -> None:
    with mcp.connect(
        peer(named(*(f"t{n}" for n in range(230))), page=2), name="s"
    ) as server:
        assert len(server.tools) == 200
    assert "more than 100 pages" in caplog.text


@pytest.mark.slow
def test_what_a_server_says_has_an_end(caplog: pytest.LogCaptureFixture) -> None:
    huge = {"type": "object", "properties": {"a": {"description": "x" * 51_000}}}
    listed = [
        *named("long", description="y" * 20_000),
        {"name": "huge", "inputSchema": huge},
    ]
    with mcp.connect(peer(listed, {"long": text("z" * 40_000)}), name="s") as server:
        assert [tool.name for tool in server.tools] == ["s_long"]
        assert len(server.tools[0].description) < 10_000
        assert len(ToolRegistry(server.tools).call("s_long", {}).content) <= 32_000
    assert "characters" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hints", "trusted", "tier"),
    [
        pytest.param(None, False, "write", id="none"),
        pytest.param({"readOnlyHint": True}, False, "write", id="read-only, it says"),
        pytest.param(
            {"readOnlyHint": True}, True, "read", id="read-only, and it is believed"
        ),
        pytest.param({"readOnlyHint": False}, True, "write", id="not read-only"),
        pytest.param({"destructiveHint": True}, False, "sensitive", id="destructive"),
        pytest.param(
            {"destructiveHint": True}, True, "sensitive", id="destructive, trusted"
        ),
        pytest.param(
            {"readOnlyHint": True, "destructiveHint": True},
            True,
            "sensitive",
            id="both",
        ),
        pytest.param({"destructiveHint": False}, False, "write", id="not destructive"),
    ],
)
def test_hints_of_a_server_become_tiers(hints: Any, trusted: bool, tier: str) -> None:
    with mcp.connect(
        peer(named("do", annotations=hints)), name="s", trusted=trusted
    ) as server:
        assert [tool.permission for tool in server.tools] == [tier]


@pytest.mark.slow
def test_a_list_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolkit")
    with mcp.connect(
        peer(named("a", "b"), later=named("b", "c", "d"), page=2), name="s"
    ) as server:
        before = server.tools
        wait_until(lambda: "has other tools now" in caplog.text)
        assert [tool.name for tool in server.tools] == ["s_a", "s_b"], (
            "until it is asked for"
        )
        assert [tool.name for tool in server.refresh()] == ["s_b", "s_c", "s_d"]
        assert [tool.name for tool in asyncio.run(server.arefresh())] == [
            "s_b",
            "s_c",
            "s_d",
        ]
        assert not ToolRegistry(server.tools).call("s_d", {}).is_error
        assert not ToolRegistry(before).call("s_b", {}).is_error
    assert "has other tools now" in caplog.text


# Calls and their results


def text(*texts: str, **more: Any) -> dict[str, Any]:
    return {
        "result": {
            "content": [{"type": "text", "text": each} for each in texts],
            **more,
        }
    }


MIXED = [
    {"type": "text", "text": "日本"},
    {"type": "image", "data": "aGVsbG8gd29ybGQh", "mimeType": "image/png"},
    {"type": "audio", "data": "aGVsbG8gd29ybGQh", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "body"}},
    {
        "type": "resource",
        "resource": {"uri": "file:///a.bin", "blob": "aGVsbG8gd29ybGQh"},
    },
    {
        "type": "resource_link",
        "uri": "file:///b.txt",
        "name": "b",
        "description": "the other",
    },
]
SLOW = {"type": "string", "pattern": r"^(a+)+\p{L}$"}
OUTPUT = {
    "outputSchema": {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "s": SLOW},
        "required": ["n"],
    }
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "is_error", "parts", "value"),
    [
        pytest.param(text("a", "b"), False, ["a\nb"], "a\nb", id="text"),
        pytest.param(text(), False, [""], "", id="nothing"),
        pytest.param(
            text("5 apples", structuredContent={"n": 5}),
            False,
            ["5 apples"],
            {"n": 5},
            id="structured",
        ),
        pytest.param(
            text(structuredContent={"n": 5}),
            False,
            ['{"n":5}'],
            {"n": 5},
            id="structured only",
        ),
        pytest.param(
            text("no such city", isError=True),
            True,
            ["no such city"],
            None,
            id="isError",
        ),
        pytest.param(
            text(isError=True), True, ["failed"], None, id="isError without a word"
        ),
        pytest.param(
            {"error": {"code": -32602, "message": "no city given"}},
            True,
            ["no city given"],
            None,
            id="error",
        ),
        pytest.param(
            {"error": {"code": -32000, "message": "odd"}},
            True,
            ["refused", "odd"],
            None,
            id="failed within",
        ),
        pytest.param(
            {"result": {"content": "none"}},
            True,
            ["no valid result"],
            None,
            id="no result",
        ),
        pytest.param(
            {"print": "oh, hello", **text("a")},
            False,
            ["a"],
            "a",
            id="a line that is no message",
        ),
        pytest.param(
            {"bytes": "ff fe 0a", **text("a")},
            False,
            ["a"],
            "a",
            id="a line that is no text",
        ),
        pytest.param(
            {"print": '{"jsonrpc": "2.0"}', **text("a")},
            False,
            ["a"],
            "a",
            id="a message that is none",
        ),
        pytest.param(
            {"result": {"content": MIXED}},
            False,
            [
                "日本",
                "body",
                "file:///b.txt",
                "image/png, 12 bytes",
                "audio/wav, 12 bytes",
                "file:///a.bin",
                "the other",
            ],
            ...,
            id="images and resources",
        ),
    ],
)
def test_a_result_becomes_a_text_and_a_value(
    run: Callable[..., RunResult],
    does: dict[str, Any],
    is_error: bool,
    parts: list[str],
    value: Any,
) -> None:
    with mcp.connect(peer(named("get"), {"get": does}), name="s", timeout=60) as server:
        for _ in range(2):
            script = ScriptedModel([ToolCall("c", "s_get", {}), "Done."])
            result = run("Go.", model=script, tools=server.tools)
            (call,) = result.calls
            assert call.is_error is is_error
            assert [part for part in parts if part not in call.content] == []
            assert "aGVsbG8" not in call.content
            assert value is ... or call.value == value
            assert result.text == "Done."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("structured", "is_error"),
    [
        pytest.param({"n": 5}, False, id="as promised"),
        pytest.param({"n": "five"}, True, id="not as promised"),
        pytest.param(
            {"n": 5, "s": "a" * 40 + "!"}, False, id="an expression without end"
        ),
    ],
)
def test_structured_content_is_checked(structured: Any, is_error: bool) -> None:
    does = {"get": text("5", structuredContent=structured)}
    with mcp.connect(peer(named("get", **OUTPUT), does), name="s") as server:
        assert ToolRegistry(server.tools).call("s_get", {}).is_error is is_error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "got"),
    [
        pytest.param(
            {"values": "[1, 2, 3]"}, {"values": [1, 2, 3]}, id="a list as its text"
        ),
        pytest.param('{"values": [1, 2,]}', {"values": [1, 2]}, id="a comma too many"),
        pytest.param({"arguments": {"values": [1]}}, {"values": [1]}, id="wrapped"),
        pytest.param({"values": "many"}, None, id="no list"),
        pytest.param({"values": [1], "more": 1}, None, id="one that is not known"),
        pytest.param({}, None, id="one is missing"),
    ],
)
def test_arguments_are_mended_or_answered(sent: Any, got: Any, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"values": {"type": "array", "items": {"type": "integer"}}},
    }
    listed = [{"name": "total", "inputSchema": {**schema, "required": ["values"]}}]
    with mcp.connect(peer(listed, log=tmp_path / "log"), name="s") as server:
        result = ToolRegistry(server.tools).call("s_total", sent)
    assert [call["arguments"] for call in received(tmp_path / "log", "tools/call")] == (
        [got] if got else []
    )
    assert result.reason == ("" if got else "malformed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "sent", "told"),
    [
        pytest.param(
            {"pattern": r"^\p{L}+$"},
            "Ann",
            r"(pattern: ^\p{L}+$)",
            id="an expression of JavaScript",
        ),
        pytest.param(
            {"pattern": r"^(a+)+$", "description": "A word."},
            "a" * 40 + "!",
            "A word. (pat",
            id="without end",
        ),
        pytest.param(
            {"items": {"pattern": "["}}, ["Ann"], "(pattern: [)", id="inside a list"
        ),
        pytest.param(
            {"$ref": "#/$defs/pattern"}, "Ann", "(pattern: [)", id="a definition"
        ),
        pytest.param(
            {"patternProperties": {"[": {}}},
            {"Ann": 1},
            '"additionalProperties":true',
            id="names",
        ),
        pytest.param(
            {"properties": {"pattern": {"enum": ["["]}}},
            {"pattern": "["},
            '"enum":["["]',
            id="a name only",
        ),
        pytest.param(
            {"default": {"pattern": "["}},
            "Ann",
            '"default":{"pattern":"["}',
            id="a value only",
        ),
    ],
)
def test_expressions_of_a_server_are_told_and_not_run(
    schema: dict[str, Any], sent: Any, told: str
) -> None:
    root = {
        "type": "object",
        "properties": {"a": schema},
        "$defs": {"pattern": {"pattern": "["}},
    }
    with mcp.connect(peer([{"name": "t", "inputSchema": root}]), name="s") as server:
        registry = ToolRegistry(server.tools)
        assert told in json.dumps(registry.schemas(), separators=(",", ":")).replace(
            r"\\", "\\"
        )
        result = registry.call("s_t", {"a": sent})
    assert json.loads(result.content)["arguments"] == {"a": sent}


@pytest.mark.slow
def test_parameters_of_any_name_arrive(tmp_path: Path) -> None:
    names = (
        "self",
        "arguments",
        "cls",
        "class",
        "a-b",
        "ähre",
        "tool",
        "_private",
        "model_config",
    )
    listed = [
        {
            "name": "t",
            "inputSchema": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in names},
            },
        }
    ]
    with mcp.connect(peer(listed, log=tmp_path / "log"), name="s") as server:
        result = ToolRegistry(server.tools).call("s_t", dict.fromkeys(names, "x"))
    assert not result.is_error, result.content
    assert received(tmp_path / "log", "tools/call")[0]["arguments"] == dict.fromkeys(
        names, "x"
    )


# Servers that die, hang, or never were


@pytest.mark.slow
def test_a_line_that_is_no_message_is_told_of_in_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with mcp.connect(
        peer(named("get"), {"get": {"print": "Listening!", **text("a")}}), name="s"
    ) as server:
        assert ToolRegistry(server.tools).call("s_get", {}).content == "a"
    (record,) = [
        record for record in caplog.records if record.levelno >= logging.WARNING
    ]
    assert "'s' sent something that is not a message" in record.getMessage()
    assert "Listening!" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.slow
def test_a_server_that_ends_amid_a_call(
    run: Callable[..., RunResult], caplog: pytest.LogCaptureFixture
) -> None:
    with mcp.connect(
        peer(named("go", "stay"), {"go": {"exit": 3}}), name="s", timeout=30
    ) as server:
        asked = [
            ToolCall("1", "s_stay", {}),
            ToolCall("2", "s_go", {}),
            ToolCall("3", "s_stay", {}),
        ]
        result = run("Go.", model=ScriptedModel([*asked, "Done."]), tools=server.tools)
    first, dead, again = result.calls
    assert dead.is_error
    assert "ended during the call" in dead.content
    assert "unknown" in dead.content
    assert not again.is_error
    assert json.loads(first.content)["pid"] != json.loads(again.content)["pid"], (
        "a new process"
    )
    assert result.stop_reason == "answered"
    assert "connecting again" in caplog.text


@pytest.mark.slow
def test_a_server_killed_amid_a_call(
    run: Callable[..., RunResult], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = peer(named("pid", "wait"), {"wait": {"hang": True}}, log)
    with mcp.connect(command, name="s", timeout=30) as server:
        pid = json.loads(ToolRegistry(server.tools).call("s_pid", {}).content)["pid"]

        def kill() -> None:
            wait_until(
                lambda: "wait" in [call["name"] for call in received(log, "tools/call")]
            )
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        script = ScriptedModel(
            [ToolCall("1", "s_wait", {}), ToolCall("2", "s_pid", {}), "Done."]
        )
        result = run("Go.", model=script, tools=server.tools)
        killer.join()
    assert [call.is_error for call in result.calls] == [True, False]
    assert result.calls[0].seconds < 20
    assert result.text == "Done."


@pytest.mark.slow
def test_a_server_killed_between_calls_is_started_anew() -> None:
    with mcp.connect(peer(named("pid")), name="s") as server:
        registry = ToolRegistry(server.tools)
        pid = json.loads(registry.call("s_pid", {}).content)["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server._session.lost)
        assert json.loads(registry.call("s_pid", {}).content)["pid"] != pid


@pytest.mark.slow
def test_a_server_that_cannot_be_started_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "server.py"
    script.write_text(Path(PEER).read_text(encoding="utf-8"), encoding="utf-8")
    command = [
        arg if arg != PEER else str(script)
        for arg in peer(named("go"), {"go": {"exit": 1}})
    ]
    with mcp.connect(command, name="s", timeout=30) as server:
        registry = ToolRegistry(server.tools)
        assert "ended during the call" in registry.call("s_go", {}).content
        script.unlink()
        result = registry.call("s_go", {})
        assert result.is_error
        assert "cannot be reached" in result.content
        assert str(tmp_path) not in result.content
        assert str(tmp_path) in caplog.text, "for people"


@pytest.mark.slow
def test_a_call_that_hangs_is_cancelled(
    run: Callable[..., RunResult], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = peer(named("wait", "stay"), {"wait": {"hang": True}}, log)
    with mcp.connect(command, name="s", timeout=0.3) as server:
        asked = (ToolCall("1", "s_wait", {}), ToolCall("2", "s_stay", {}))
        result = run(
            "Go.", model=ScriptedModel([list(asked), "Done."]), tools=server.tools
        )
        assert [call.is_error for call in result.calls] == [True, False], (
            "one call does not harm another"
        )
        assert "within 0.3 seconds" in result.calls[0].content
        wait_until(lambda: received(log, "notifications/cancelled"))
    (cancelled,) = received(log, "notifications/cancelled")
    assert cancelled["requestId"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "told"),
    [
        pytest.param(["/nowhere/at-all"], "FileNotFoundError", id="no such command"),
        pytest.param(
            [sys.executable, "-c", "import sys; sys.exit('I need a key')"],
            "I need a key",
            id="ends at once",
        ),
        pytest.param(peer([], refuse=2), "cannot be used", id="ends with a status"),
        pytest.param(
            [sys.executable, "-c", "print('hello')"], "cannot be used", id="no server"
        ),
        pytest.param("http://127.0.0.1:9/mcp", "cannot be used", id="nobody listens"),
    ],
)
def test_a_server_that_is_none(target: Any, told: str) -> None:
    server = mcp.connect(target, name="s")
    for _ in range(2):
        with pytest.raises(ToolkitError, match="The MCP server 's'") as caught:
            server.open()
        assert told in str(caught.value)
    server.close()

    async def use() -> None:
        async with server:
            pass

    with pytest.raises(ToolkitError, match="The MCP server 's'"):
        asyncio.run(use())


@pytest.mark.slow
def test_a_server_that_says_nothing() -> None:
    server = mcp.connect(
        [sys.executable, "-c", "input(); input(); print(2)"],
        name="s",
        connect_timeout=0.3,
    )
    with pytest.raises(ToolkitError, match=r"connect_timeout=0\.3 seconds"):
        server.open()


@pytest.mark.parametrize(
    ("target", "options", "error"),
    [
        pytest.param("", {}, "neither a command nor an address", id="nothing"),
        pytest.param([], {}, "neither a command nor an address", id="an empty command"),
        pytest.param(
            ["python", 3], {}, "neither a command nor an address", id="no texts"
        ),
        pytest.param(
            "http://x/mcp",
            {"env": {"A": "b"}},
            "env is for a command",
            id="env for an address",
        ),
        pytest.param(
            "python x.py",
            {"headers": {"A": "b"}},
            "headers are for an address",
            id="headers for a command",
        ),
        pytest.param("python x.py", {"timeout": 0}, "timeout=0", id="no time"),
        pytest.param(
            "python x.py", {"name": None}, "name must be a text", id="no name"
        ),
    ],
)
def test_wrong_ways_to_connect(
    target: Any, options: dict[str, Any], error: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        mcp.connect(target, **{"name": "s", **options})


@pytest.mark.slow
def test_without_the_sdk() -> None:
    code = "import sys; sys.modules['mcp'] = None; from toolkit import mcp"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "pip install 'toolkit-agent[mcp]'" in done.stderr.splitlines()[-1]


def test_a_connection_stays_in_its_process() -> None:
    with pytest.raises(
        TypeError,
        match=r"<MCP server 'x'> is connected to this process\. Connect in the other one",
    ):
        pickle.dumps(mcp.connect("some command", name="x"))


@pytest.mark.slow
def test_what_is_not_open_says_so() -> None:
    server = mcp.connect(peer(named("get")), name="s")
    server.close()
    for use in (lambda: server.tools, server.refresh):
        with pytest.raises(ToolkitError, match="is not open"):
            use()
    with server:
        tools = server.tools
        with pytest.raises(ToolkitError, match="open already"):
            server.open()
        assert not ToolRegistry(tools).call("s_get", {}).is_error
    server.close()
    result = ToolRegistry(tools).call("s_get", {})
    assert result.is_error
    assert "cannot be reached" in result.content
    with server:
        assert not ToolRegistry(server.tools).call("s_get", {}).is_error, (
            "opened a second time"
        )


# Tasks and threads


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupted_call_is_cancelled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with mcp.connect(
        peer(named("wait"), {"wait": {"hang": True}}, log), name="s"
    ) as server:

        def interrupt() -> None:
            wait_until(lambda: received(log, "tools/call"))
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        model = ScriptedModel([ToolCall("1", "s_wait", {}), "Done."])
        with pytest.raises(KeyboardInterrupt):
            run_agent_with_tools("Wait.", model=model, tools=server.tools)
        thread.join()
        wait_until(lambda: received(log, "notifications/cancelled"))
    assert len(received(log, "notifications/cancelled")) == 1


@pytest.mark.slow
def test_opening_that_is_given_up() -> None:
    """The process is ended at once, not when the time for connecting is over."""
    server = mcp.connect(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        name="s",
        connect_timeout=60,
    )

    async def use() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(server.aopen(), 0.2)
        await server.aclose()

    started = time.monotonic()
    asyncio.run(use())
    assert time.monotonic() - started < 20
    with pytest.raises(ToolkitError, match="not open"):
        _ = server.tools


@pytest.mark.slow
def test_a_program_that_never_closes_ends_all_the_same(tmp_path: Path) -> None:
    command = peer(named("pid"), {}, tmp_path / "log")
    code = (
        "import json, sys; from toolkit import ToolRegistry, mcp\n"
        f"server = mcp.connect({command!r}, name='s').open()\n"
        "print(json.loads(ToolRegistry(server.tools).call('s_pid', {}).content)['pid'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: not is_alive(int(done.stdout)))
    assert not is_alive(int(done.stdout))


@pytest.mark.slow
def test_opened_called_and_closed_in_different_tasks() -> None:
    server = mcp.connect(peer(named("pid", "wait"), {"wait": {"hang": True}}), name="s")

    async def use() -> int:
        await asyncio.create_task(server.aopen())
        registry = ToolRegistry(server.tools)
        results = await asyncio.gather(*(registry.acall("s_pid", {}) for _ in range(8)))
        results.append(await asyncio.wait_for(registry.acall("s_pid", {}), 20))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(registry.acall("s_wait", {}), 0.1)
        results.append(await registry.acall("s_pid", {}))
        await asyncio.create_task(server.aclose())
        (pid,) = {json.loads(result.content)["pid"] for result in results}
        return int(pid)

    assert not is_alive(asyncio.run(use()))


@pytest.mark.slow
def test_opened_called_and_closed_in_different_threads() -> None:
    server = mcp.connect(peer(named("pid")), name="s")
    seen: list[int] = []

    def in_thread(work: Callable[[], Any]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    in_thread(server.open)
    registry = ToolRegistry(server.tools)
    in_thread(
        lambda: seen.append(json.loads(registry.call("s_pid", {}).content)["pid"])
    )
    in_thread(server.close)
    assert len(seen) == 1
    assert not is_alive(seen[0])


@pytest.mark.slow
def test_opened_in_one_event_loop_and_used_in_another() -> None:
    server = mcp.connect(peer(named("pid")), name="s")
    asyncio.run(server.aopen())
    assert not asyncio.run(ToolRegistry(server.tools).acall("s_pid", {})).is_error
    assert not ToolRegistry(server.tools).call("s_pid", {}).is_error
    asyncio.run(server.aclose())


@pytest.mark.slow
def test_a_server_inside_a_tool(run: Callable[..., RunResult]) -> None:
    """The private loop, on which coroutine functions run in a plain run, is not the one that the server needs."""

    async def outer() -> str:
        with mcp.connect(peer(named("get")), name="s") as server:
            return str(ToolRegistry(server.tools).call("s_get", {}).is_error)

    result = run(
        "Go.", model=ScriptedModel([ToolCall("1", "outer", {}), "Done."]), tools=[outer]
    )
    assert result.calls[0].content == "False"


@pytest.mark.slow
def test_close_ends_calls_under_way() -> None:
    with mcp.connect(
        peer(named("wait"), {"wait": {"hang": True}}), name="s", timeout=30
    ) as server:
        results: list[Any] = []
        registry = ToolRegistry(server.tools)
        thread = threading.Thread(
            target=lambda: results.append(registry.call("s_wait", {}))
        )
        thread.start()
        time.sleep(0.2)
        server.close()
        thread.join(20)
    assert [result.is_error for result in results] == [True]


@pytest.mark.slow
def test_the_environment_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "abc")
    code = 'import os, sys; sys.exit(f\'secret {os.environ.get("SOME_SECRET")}, given {os.environ.get("GIVEN")}\')'
    with pytest.raises(ToolkitError, match="secret None, given yes"):
        mcp.connect([sys.executable, "-c", code], name="s", env={"GIVEN": "yes"}).open()


# A registry of ours, served

SERVED = str(Path(__file__).with_name("mcp_served.py"))
HERE = {"PYTHONPATH": str(ROOT)}


def free_port() -> int:
    """A port that no client is given: one of those, asked for while nobody listens, may connect to itself."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def listens(port: int) -> bool:
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=1),
    ):
        return True
    return False


@contextlib.contextmanager
def served_over_http(port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = port or free_port()
    process = subprocess.Popen(
        [sys.executable, SERVED, "http", str(port)], env={**os.environ, **HERE}
    )

    try:
        wait_until(lambda: process.poll() is not None or listens(port))
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=["stdio", "http"])
def shop(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Our server, as our client sees it."""
    if request.param == "stdio":
        with mcp.connect(
            [sys.executable, SERVED, "stdio"], name="", env=HERE, trusted=True
        ) as server:
            yield server
    else:
        with (
            served_over_http() as (url, _),
            mcp.connect(url, name="", trusted=True) as server,
        ):
            yield server


@pytest.mark.slow
def test_what_is_served(shop: Any) -> None:
    tools = {tool.name: tool for tool in shop.tools}
    assert list(tools) == ["total", "shop_greet", "fail", "wait"], (
        "what is sensitive is not served"
    )
    assert [tool.permission for tool in shop.tools] == [
        "read",
        "write",
        "write",
        "write",
    ]
    assert tools["total"].description == "Add up whole numbers."
    assert tools["total"].parameters["properties"]["values"]["items"] == {
        "type": "integer"
    }
    assert "context" not in tools["shop_greet"].parameters["properties"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "content", "value"),
    [
        pytest.param(
            "total",
            {"values": "[1, 2, 3]"},
            '{"total":6,"of":[1,2,3]}',
            {"total": 6, "of": [1, 2, 3]},
            id="mended",
        ),
        pytest.param(
            "shop_greet",
            {"name": "Ann"},
            "Good day, Ann! 日本",
            "Good day, Ann! 日本",
            id="async, with deps",
        ),
    ],
)
def test_calls_of_what_is_served(
    shop: Any, name: str, arguments: Any, content: str, value: Any
) -> None:
    result = ToolRegistry(shop.tools).call(name, arguments)
    assert (result.content, result.is_error, result.value) == (content, False, value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        pytest.param(
            "fail", {"how": "spoken"}, "there is no such city", id="a ToolError speaks"
        ),
        pytest.param(
            "fail",
            {"how": "else"},
            "cannot read [path]",
            id="another error is redacted",
        ),
        pytest.param(
            "total", {"values": ["one"]}, "values.0", id="arguments that do not fit"
        ),
        pytest.param("totally", {}, "total", id="an unknown name"),
        pytest.param("delete_all", {}, "delete_all", id="one that is not served"),
    ],
)
def test_errors_of_what_is_served(
    shop: Any, name: str, arguments: Any, told: str
) -> None:
    with pytest.raises(ToolError, match=re.escape(told)) as caught:
        asyncio.run(shop.call(name, **arguments))
    assert "secret.txt" not in str(caught.value)
    assert "all is gone" not in str(caught.value)


@pytest.mark.slow
def test_calls_at_once_over_one_connection(
    shop: Any, run: Callable[..., RunResult]
) -> None:
    asked = [ToolCall(str(n), "wait", {"seconds": 0.3}) for n in range(8)]
    started = time.monotonic()
    result = run("Wait.", model=ScriptedModel([asked, "Done."]), tools=shop.tools)
    assert [call.content for call in result.calls] == ["waited"] * 8
    assert time.monotonic() - started < 2.3, "one after the other"


@pytest.mark.slow
def test_sensitive_tools_are_served_where_asked() -> None:
    command = [sys.executable, SERVED, "stdio", "0", "read", "sensitive"]
    with mcp.connect(command, name="shop", env=HERE) as server:
        assert [(tool.name, tool.permission) for tool in server.tools] == [
            ("shop_total", "write"),
            ("shop_delete_all", "sensitive"),
        ]
        script = [ToolCall("1", "shop_delete_all", {}), "Done."]
        paused = run_agent_with_tools(
            "Delete.", model=ScriptedModel(script), tools=server.tools
        )
        assert paused.stop_reason == "awaiting_approval"
        approved: dict[str, Any] = {
            "tools": server.tools,
            "approve": lambda call: "approve",
        }
        done = run_agent_with_tools("Delete.", model=ScriptedModel(script), **approved)
        assert done.calls[0].content == "all is gone"


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["legacy", "auto"]
)  # the handshake of the versions up to 2025, and the one since
def test_a_client_of_others(mode: str) -> None:
    async def use() -> None:
        command = sdk.StdioServerParameters(
            command=sys.executable, args=[SERVED, "stdio"], env=HERE
        )
        with open(os.devnull, "w") as nowhere:
            async with sdk.Client(
                sdk.stdio_client(command, nowhere), mode=mode
            ) as client:
                listed = {tool.name: tool for tool in (await client.list_tools()).tools}
                assert list(listed) == ["total", "shop_greet", "fail", "wait"]
                assert listed["total"].annotations.read_only_hint is True
                assert listed["fail"].annotations.read_only_hint is False
                assert listed["total"].input_schema["required"] == ["values"]
                good = await client.call_tool("total", {"values": [1, 2]})
                assert (good.is_error, good.structured_content) == (
                    False,
                    {"total": 3, "of": [1, 2]},
                )
                assert good.content[0].text == '{"total":3,"of":[1,2]}'
                bad = await client.call_tool("fail", {"how": "spoken"})
                assert (bad.is_error, bad.structured_content) == (True, None)
                assert bad.content[0].text == "there is no such city"

    asyncio.run(use())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(
            {"transport": "sse"}, "transport must be .* not 'sse'", id="transport"
        ),
        pytest.param({"tiers": "read"}, "tiers='read'", id="a tier for a list"),
        pytest.param({"transport": "http", "port": 99_999}, "port=99999", id="no port"),
        pytest.param({"tiers": ["all"]}, r"tiers=\['all'\]", id="no tier"),
    ],
)
def test_wrong_ways_to_serve(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        mcp.serve([], **options)


@pytest.mark.slow
def test_an_address_whose_server_is_started_anew() -> None:
    with (
        served_over_http() as (url, process),
        mcp.connect(url, name="shop", timeout=60) as server,
    ):
        killer = threading.Timer(0.3, process.kill)
        killer.start()
        wait, greet = (
            ToolCall("1", "shop_wait", {"seconds": 30}),
            ToolCall("2", "shop_greet", {"name": "Ann"}),
        )
        result = run_agent_with_tools(
            "Go.", model=ScriptedModel([wait, greet, "Done."]), tools=server.tools
        )
        assert [call.is_error for call in result.calls] == [True, True]
        assert "ended during the call" in result.calls[0].content
        assert "cannot be reached" in result.calls[1].content
        with served_over_http(int(url.split(":")[2].split("/")[0])):
            result = ToolRegistry(server.tools).call("shop_greet", {"name": "Ann"})
        assert not result.is_error, result.content


@pytest.mark.slow
def test_standard_output_is_kept_for_the_protocol() -> None:
    """What is printed before, by tools, and at the end, goes to standard error."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    asked = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "total", "arguments": {"values": [1]}},
        },
    ]
    lines = "".join(
        json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in asked
    )
    environment = {**os.environ, **HERE, "PYTHONUNBUFFERED": ""}
    process = subprocess.Popen(
        [sys.executable, SERVED, "stdio"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(lines)
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        rest, told = process.stdout.read(), process.stderr.read()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert rest == ""
    assert "printed before anybody is there" in told
    assert "a tool that prints" in told


# Servers of others


@pytest.mark.servers
def test_time_conversion_in_a_run() -> None:
    pytest.importorskip("mcp_server_time", reason="is the server")
    with mcp.connect(
        [sys.executable, "-m", "mcp_server_time"], name="time", timeout=60
    ) as server:
        asked = {
            "source_timezone": "Europe/Berlin",
            "time": "16:30",
            "target_timezone": "Asia/Kolkata",
        }
        script = [
            ToolCall("1", "time_convert_time", asked),
            ToolCall("2", "time_convert_time", {**asked, "time": "x"}),
        ]
        result = run_agent_with_tools(
            "When is it 16:30?",
            model=ScriptedModel([script, "Done."]),
            tools=server.tools,
        )
    good, bad = result.calls
    assert re.search(r"T(20:00|21:00|19:00):00\+05:30", good.content)
    assert good.value["target"]["timezone"] == "Asia/Kolkata"
    assert bad.is_error
    assert "Invalid time format" in bad.content


@pytest.mark.local
@pytest.mark.servers
def test_time_conversion_by_the_embedded_model() -> None:
    from toolkit.local import is_installed

    pytest.importorskip("mcp_server_time", reason="is the server")
    if not is_installed():
        pytest.skip("the embedded model is not installed")
    with mcp.connect(
        [sys.executable, "-m", "mcp_server_time"], name="time", timeout=60
    ) as server:
        prompt = "Convert time: source_timezone Europe/London, time 16:30, target_timezone Asia/Tokyo."
        result = run_agent_with_tools(prompt, model="local", tools=server.tools)
    (call,) = result.calls
    assert (call.name, call.is_error) == ("time_convert_time", False)
    assert dict(call.arguments) == {
        "source_timezone": "Europe/London",
        "time": "16:30",
        "target_timezone": "Asia/Tokyo",
    }
    assert call.value["target"]["timezone"] == "Asia/Tokyo"
    assert result.text


@pytest.mark.servers
def test_a_git_server_is_used_in_a_run(tmp_path: Path) -> None:
    pytest.importorskip("mcp_server_git", reason="is the server")
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    with mcp.connect(
        [sys.executable, "-m", "mcp_server_git"], name="git", timeout=60
    ) as server:
        tiers = {tool.name: tool.permission for tool in server.tools}
        assert tiers["git_status"] == "write", (
            "it says that it only reads, which is not believed"
        )
        assert tiers["git_reset"] == "sensitive"
        registry = ToolRegistry(server.tools)
        assert (
            "notes.txt"
            in registry.call("git_status", {"repo_path": str(tmp_path)}).content
        )
        assert registry.call(
            "git_status", {"repo_path": str(tmp_path / "nowhere")}
        ).is_error


@pytest.fixture(scope="module")
def everything() -> list[str]:
    """The command of the reference server that has some of everything, from npm."""
    folder = ROOT / "build" / "mcp-server-everything"
    script = (
        folder
        / "node_modules"
        / "@modelcontextprotocol"
        / "server-everything"
        / "dist"
        / "index.js"
    )
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("npm is not installed")
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "@modelcontextprotocol/server-everything@2026.8.31",
        ]
        done = subprocess.run(
            install, cwd=folder, capture_output=True, text=True, timeout=100
        )
        if done.returncode:
            pytest.skip(
                f"server-everything cannot be installed: {done.stderr.strip()[-300:]}"
            )
    return ["node", str(script)]


EVERYTHING: dict[str, tuple[dict[str, Any], str]] = {
    "echo": ({"message": "日本"}, "日本"),
    "get-annotated-message": (
        {"messageType": "success", "includeImage": True},
        "[image: image/png",
    ),
    "get-env": ({}, "PATH"),
    "get-resource-links": ({"count": 2}, "[link: demo://resource/"),
    "get-resource-reference": ({"resourceType": "Blob", "resourceId": 2}, "not shown]"),
    "get-structured-content": ({"location": "Chicago"}, '"temperature":'),
    "get-sum": ({"a": 2, "b": 3}, "5"),
    "get-tiny-image": ({}, "[image: image/png"),
    "gzip-file-as-resource": (
        {"name": "a.gz", "data": "data:text/plain,a", "outputType": "resource"},
        "not shown]",
    ),
    "toggle-simulated-logging": ({}, "logging"),
    "toggle-subscriber-updates": ({}, "updates"),
    "trigger-long-running-operation": ({"duration": 0.1, "steps": 2}, "completed"),
    "simulate-research-query": (
        {"topic": "tea", "ambiguous": False},
        "",
    ),  # it wants a task, which is asked for by few
}


@contextlib.contextmanager
def everything_over_http(command: list[str], port: int) -> Iterator[str]:
    environment = {**os.environ, "PORT": str(port)}
    process = subprocess.Popen(
        [*command, "streamableHttp"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: process.poll() is not None or listens(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.mark.servers
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_everything_is_listed_and_called(everything: list[str], transport: str) -> None:
    with contextlib.ExitStack() as stack:
        target: Any = [*everything, "stdio"]
        if transport == "http":
            target = stack.enter_context(everything_over_http(everything, free_port()))
        server = stack.enter_context(mcp.connect(target, name="all", timeout=30))
        names = [tool.name.removeprefix("all_") for tool in server.tools]
        assert set(names) == set(EVERYTHING)
        asked = [ToolCall(name, f"all_{name}", EVERYTHING[name][0]) for name in names]
        result = run_agent_with_tools(
            "Call all.", model=ScriptedModel([asked, "Done."]), tools=server.tools
        )
    assert {
        call.name: call.content
        for call in result.calls
        if EVERYTHING[call.id][1] not in call.content
    } == {}
    assert [call.id for call in result.calls if call.is_error] == [
        "simulate-research-query"
    ]
    (weather,) = [
        call.value for call in result.calls if call.id == "get-structured-content"
    ]
    assert set(weather) == {"temperature", "conditions", "humidity"}


@pytest.mark.servers
def test_an_address_that_has_forgotten_the_session(everything: list[str]) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        with everything_over_http(everything, port) as url:
            server = stack.enter_context(mcp.connect(url, name="all", timeout=30))
        with everything_over_http(everything, port):
            registry = ToolRegistry(server.tools)
            first, second = (
                registry.call("all_echo", {"message": "hello"}) for _ in range(2)
            )
            server.close()
    assert first.is_error
    assert "connects again" in first.content
    assert second.content == "Echo: hello"
