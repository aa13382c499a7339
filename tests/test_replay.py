"""A run again from its record."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers import Runner
from toolkit import (
    Limits,
    Message,
    ModelError,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    Usage,
    resume,
)
from toolkit.errors import ReplayError
from toolkit.replay import as_model, replay
from toolkit.store import SQLiteStore
from toolkit.tools.registry import ToolRegistry


def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_tool(
        lambda key: f"{key} is there",
        name="look",
        description="Look.",
        permission="read",
    )
    registry.register_tool(
        lambda key: f"{key} is gone",
        name="drop",
        description="Drop.",
        permission="sensitive",
    )
    return registry


def looking(*keys: str) -> list[ToolCall]:
    return [ToolCall(f"c-{key}", "look", {"key": key}) for key in keys]


def reply(*calls: ToolCall, tokens: int = 0, finish: Any = "stop") -> Reply:
    return Reply(Message("assistant", tool_calls=calls), Usage(tokens, tokens), finish)


DROP = ToolCall("d", "drop", {"key": "x"})
RUNS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "an answer": (["hello"], {}),
    "calls": ([looking("a", "b"), looking("c"), "done"], {}),
    "tokens": (
        [
            reply(*looking("a"), tokens=5),
            Reply(Message("assistant", "done"), Usage(7, 1, 2, 3)),
        ],
        {},
    ),
    "malformed calls": ([ToolCall("m", "look", raw='{"key": ')] * 3, {}),
    "an unknown tool": ([ToolCall("m", "lok", raw="{}"), "done"], {}),
    "the same call over and over": (
        [*[[call] for call in looking("a")] * 6, "done"],
        {"max_turns": 20},
    ),
    "the same call, pointed out": (
        [*[[call] for call in looking("a")] * 4, "done"],
        {"max_turns": 20},
    ),
    "no answer": ([looking("a"), looking("b")], {"max_turns": 2}),
    "a limit": (
        [looking("a"), looking("b", "c"), "done"],
        {"limits": Limits(tool_calls=2)},
    ),
    "a refusal": ([reply(*looking("a"), finish="refusal")], {}),
    "cut off": ([reply(finish="length")], {}),
    "approved": ([[DROP, *looking("a")], "done"], {"approve": lambda call: "approve"}),
    "denied": ([[DROP, *looking("a")], "done"], {"approve": lambda call: "deny"}),
    "paused": ([[DROP, *looking("a")]], {}),
    "planned": ([[DROP, *looking("a")], "done"], {"mode": "plan"}),
    "a value": (
        ["no", ToolCall("f", "final_answer", {"answer": 3})],
        {"output_type": int},
    ),
    "a history": (
        ["done"],
        {
            "history": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "a"},
            ]
        },
    ),
}


@pytest.mark.parametrize(("script", "options"), RUNS.values(), ids=RUNS)
def test_a_run_comes_out_again(
    run: Runner, script: list[Any], options: dict[str, Any]
) -> None:
    options = {"tools": tools(), **options}
    result = run("q", model=ScriptedModel(script), **options)
    again = replay(result)
    times = {"seconds": 0.0, "log": ()}
    assert replace(again, **times) == replace(result.run, **times)
    assert replay(result.to_json()).messages == result.messages


def test_a_resumed_run_comes_out_again() -> None:
    paused = resume_of("approve")
    assert replay(paused).messages == paused.messages
    denied = resume_of("deny")
    assert replay(denied).decided["d"].decision == "deny"


def resume_of(verdict: Any) -> RunResult:
    from toolkit import run_agent_with_tools

    model = ScriptedModel([[DROP], "done"])
    return resume(
        run_agent_with_tools("q", model=model, tools=tools()),
        {"d": verdict},
        model=model,
        tools=tools(),
    )


def test_a_run_that_was_broken_off_comes_out_again(run: Runner) -> None:
    cancel = threading.Event()
    registry = tools()
    registry.register_tool(
        lambda: cancel.set(), name="stop", description="Stop.", permission="read"
    )
    cancelled = run(
        "q",
        model=ScriptedModel([ToolCall("s", "stop"), "never"]),
        tools=registry,
        cancel=cancel,
    )
    assert cancelled.stop_reason == "cancelled"
    assert replay(cancelled).messages == cancelled.messages

    with pytest.raises(ModelError) as caught:
        run("q", model=ScriptedModel([looking("a"), ModelError("gone")]), tools=tools())
    assert replay(caught.value.run).messages == caught.value.run.messages


def test_a_stored_run_comes_out_again(run: Runner, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    result = run(
        "q",
        model=ScriptedModel([looking("a"), "done"]),
        tools=tools(),
        store=store,
        run_id="one",
    )
    assert replay(store.load("one")).messages == result.messages


def _drop_a_result(saved: Any) -> None:
    saved["run"]["messages"][2]["tool_results"].pop()


def _change_an_id(saved: Any) -> None:
    saved["run"]["messages"][2]["tool_results"][0]["call_id"] = "another"


def _change_the_end(saved: Any) -> None:
    saved["run"]["stopped"] = "max_turns"


def _drop_a_turn(saved: Any) -> None:
    saved["run"]["log"].pop()


def _drop_the_prompt(saved: Any) -> None:
    saved["run"]["messages"].pop(0)


def _count_more_tokens(saved: Any) -> None:
    saved["run"]["usage"]["input_tokens"] = 99


ALTERATIONS = [
    _drop_a_result,
    _change_an_id,
    _change_the_end,
    _drop_a_turn,
    _drop_the_prompt,
    _count_more_tokens,
]


@pytest.mark.parametrize("alter", ALTERATIONS)
def test_an_altered_record_does_not_come_out_again(
    run: Runner, alter: Callable[[Any], None]
) -> None:
    result = run("q", model=ScriptedModel([looking("a", "b"), "done"]), tools=tools())
    saved = json.loads(result.to_json())
    replay(json.dumps(saved))
    alter(saved)
    with pytest.raises((ReplayError, ValueError)):
        replay(json.dumps(saved))


def test_a_run_becomes_a_model(run: Runner) -> None:
    script = [looking("a"), [ToolCall("m", "lok", raw='{"key": "b",}')], "done"]
    result = run("q", model=ScriptedModel(script), tools=tools())
    with as_model(result) as model:
        again = run("q", model=model, tools=tools())
    assert [message.text for message in again.messages] == [
        message.text for message in result.messages
    ]
    assert [call.content for call in again.calls] == [
        call.content for call in result.calls
    ]

    changed = ToolRegistry()
    changed.register_tool(
        lambda key: "changed", name="look", description="Look.", permission="read"
    )
    assert run("q", model=as_model(result), tools=changed).calls[0].content == "changed"
