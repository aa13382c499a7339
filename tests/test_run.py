"""Whole runs through both drivers: histories, limits, pauses, and what a caller can make of a result."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pydantic
import pytest

import toolkit
from helpers import Runner, Till, ask, of
from server import ChatServer
from toolkit import (
    Limits,
    Message,
    ModelError,
    Reply,
    RunResult,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolContext,
    ToolRegistry,
    Usage,
    Verdict,
    tool,
)
from toolkit.errors import ApprovalError, RunIncomplete

ROOT = Path(__file__).parents[1]


def look(key: int = 0) -> str:
    """Look something up."""
    return f"seen {key}"


def roles(result: RunResult) -> list[str]:
    return [message.role for message in result.messages]


# Answers


def test_a_question_and_its_answer(run: Runner) -> None:
    result = run("q", model=ScriptedModel(["so"]), tools=[])
    assert (result.text, str(result), result.stop_reason) == ("so", "so", "answered")
    assert result.messages == (Message("user", "q"), Message("assistant", "so"))
    assert (result.calls, result.waiting) == ([], ())


def test_calls_on_the_way(run: Runner) -> None:
    replies = [
        Reply(
            Message(
                "assistant",
                "one moment",
                (ask("look", "a", key=1), ask("look", "b", key=2)),
            ),
            Usage(9, 5),
        ),
        Reply(Message("assistant", "so"), Usage(20, 3, 8, 1)),
    ]
    result = run("q", model=ScriptedModel(replies), tools=[look])
    assert [
        (c.id, c.name, c.arguments, c.content, c.value, c.is_error)
        for c in result.calls
    ] == [
        ("a", "look", {"key": 1}, "seen 1", "seen 1", False),
        ("b", "look", {"key": 2}, "seen 2", "seen 2", False),
    ]
    assert roles(result) == ["user", "assistant", "tool", "assistant"]
    assert result.usage == Usage(29, 8, 8, 1)
    assert result.usage.total_tokens == 37
    assert result.run.turns == 2
    assert all(call.seconds >= 0 for call in result.calls)


def test_what_a_refusing_and_a_truncated_model_said(run: Runner) -> None:
    for finish, reason in (("refusal", "refused"), ("length", "truncated")):
        reply = Reply(Message("assistant", "so f"), finish=finish)
        result = run("q", model=ScriptedModel([reply]), tools=[look])
        assert (result.text, result.stop_reason) == ("so f", reason)


CUT_CALLS = ['{"key": 1', '{"key": 1}, {"ke', '{"arguments": {"key": 1}', "nul"]


@pytest.mark.parametrize("raw", CUT_CALLS)
def test_a_call_that_was_cut_off_does_not_run(run: Runner, raw: str) -> None:
    whole, cut = ToolCall("a", "look", raw='{"key": 7}'), ToolCall("b", "look", raw=raw)
    reply = Reply(Message("assistant", "", (whole, cut)), finish="length")
    result = run("q", model=ScriptedModel([reply, "done"]), tools=[look])
    assert [(call.is_error, call.content[:6]) for call in result.calls] == [
        (False, "seen 7"),
        (True, "Invali"),
    ]
    assert "cut off" in result.calls[1].content


def test_the_global_registry_is_the_default(run: Runner) -> None:
    @tool(name="look_around_here")
    def look_around() -> str:
        return "seen"

    result = run("q", model=ScriptedModel([ask("look_around_here"), "so"]))
    assert result.calls[0].content == "seen"


def test_a_tool_that_is_registered_meanwhile_waits_for_the_next_run(
    run: Runner,
) -> None:
    registry = ToolRegistry()

    def register() -> str:
        registry.register_tool(look)
        return "registered"

    registry.register_tool(register)
    model = ScriptedModel([ask("register"), ask("look"), "so"])
    result = run("q", model=model, tools=registry)
    assert [call.is_error for call in result.calls] == [False, True]


NO_TOOLS: dict[str, Any] = {
    "a text": "look",
    "a function": look,
    "a number": 3,
    "a list of names": ["look"],
}


@pytest.mark.parametrize("tools", NO_TOOLS.values(), ids=NO_TOOLS)
def test_what_is_no_list_of_tools_is_refused_at_once(run: Runner, tools: Any) -> None:
    model = ScriptedModel(["so"])
    with pytest.raises((TypeError, ImportError)):
        run("q", model=model, tools=tools)
    assert not model.requests


async def later(*_: Any) -> None: ...


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no turns": ({"max_turns": 0}, ValueError, "not 0"),
    "turns below none": ({"max_turns": -1}, ValueError, "not -1"),
    "half a turn": ({"max_turns": 2.5}, ValueError, r"not 2\.5"),
    "turns that are none": ({"max_turns": None}, ValueError, "not None"),
    "a true turn": ({"max_turns": True}, ValueError, "not True"),
    "a choice of no tool": ({"tool_choice": "lok"}, ValueError, "'lok'"),
    "a choice of another kind": (
        {"tool_choice": {"name": "look"}},
        (ValueError, TypeError),
        "tool_choice",
    ),
    "required without tools": (
        {"tool_choice": "required", "tools": []},
        ValueError,
        "no tools",
    ),
    "a history of text": ({"history": "before"}, TypeError, "history"),
    "a history of one message": (
        {"history": {"role": "user", "content": "x"}},
        TypeError,
        "history",
    ),
    "limits of another kind": ({"limits": {"tool_calls": 3}}, TypeError, "limits"),
    "an approver that is none": ({"approve": "approve"}, TypeError, "approve"),
    "a sink that is none": ({"on_event": "events.jsonl"}, TypeError, "on_event"),
    "a sink that is awaited": (
        {"on_event": later},
        TypeError,
        "on_event must be a plain function",
    ),
    "a store that is none": (
        {"store": True},
        TypeError,
        "store must be a RunStore .* extra_body",
    ),
    "a flag that is none": (
        {"cancel": True},
        TypeError,
        "cancel must be a threading.Event",
    ),
    "a retriever that is awaited": (
        {"retrieve": later},
        TypeError,
        "retrieve must be a plain function",
    ),
    "instructions of another kind": (
        {"instructions": ["be brief"]},
        TypeError,
        "instructions",
    ),
}


@pytest.mark.parametrize(("options", "kind", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_asked(
    run: Runner, options: Any, kind: Any, said: str
) -> None:
    model = ScriptedModel(["so"])
    with pytest.raises(kind, match=said):
        run("q", **{"model": model, "tools": [look], **options})
    assert not model.requests


@pytest.mark.parametrize("prompt", [None, 3, b"q", ["q"]], ids=str)
def test_a_prompt_is_a_text(run: Runner, prompt: Any) -> None:
    with pytest.raises(TypeError, match="prompt"):
        run(prompt, model=ScriptedModel(["so"]), tools=[])


def test_half_a_character_in_what_the_caller_says(run: Runner) -> None:
    parts = [{"type": "text", "text": "a\ud83d"}]
    history = [
        {"role": "user", "content": parts},
        {"role": "user", "content": "a\ud83d"},
        Message("assistant", "a\ud83d"),
    ]
    with ChatServer("so") as server:
        asked: dict[str, Any] = {
            "model": "m",
            "base_url": server.base_url,
            "tools": [],
            "instructions": "a\ud83d",
        }
        run("a\ud83d", **asked, history=history)
        contents = [message["content"] for message in server.bodies[0]["messages"]]
    assert contents == [
        "a\ufffd",
        [{"type": "text", "text": "a\ufffd"}],
        *["a\ufffd"] * 3,
    ]


# History

CALL = {
    "id": "h1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"key": 9}'},
}
BEFORE: list[Any] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "h1", "content": "seen 9"},
    {"role": "assistant", "content": "nine"},
]


def test_a_result_is_a_history(run: Runner) -> None:
    first = run(
        "first", model=ScriptedModel([ask("look", "a", key=1), "one"]), tools=[look]
    )
    kept = copy.deepcopy(first.messages)
    model = ScriptedModel([ask("look", "a", key=2), "two"])
    second = run("second", model=model, tools=[look], history=first)
    assert model.requests[0].messages == (*first.messages, Message("user", "second"))
    assert (second.text, [call.content for call in second.calls]) == ("two", ["seen 2"])
    assert second.messages[:4] == first.messages == kept
    ids = [call.id for message in second.messages for call in message.tool_calls]
    assert len(set(ids)) == 2
    assert second.run.turns == 2


def test_the_text_of_a_run_is_its_own(run: Runner) -> None:
    first = run("first", model=ScriptedModel(["one"]), tools=[])
    second = run(
        "second",
        model=ScriptedModel([ask("pay")]),
        tools=of(pay, permission="sensitive"),
        history=first,
    )
    assert second.stop_reason == "awaiting_approval"
    assert second.text == ""


def pay(sum: int = 1) -> str:
    """Pay."""
    return f"paid {sum}"


def test_messages_of_the_chat_form_are_a_history_and_stay_as_they_are(
    run: Runner,
) -> None:
    """NousResearch/hermes-agent#228"""
    given, model = copy.deepcopy(BEFORE), ScriptedModel(["so", "so"])
    for _ in range(2):
        result = run("second", model=model, tools=[look], history=given)
    assert given == BEFORE
    assert roles(result) == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert result.calls == []
    assert model.requests[0].messages == model.requests[1].messages


@pytest.mark.parametrize("kind", [list, tuple, iter], ids=["list", "tuple", "iterator"])
def test_neutral_and_chat_messages_mix(run: Runner, kind: Any) -> None:
    given = kind(
        [BEFORE[1], Message("assistant", "so"), {"role": "developer", "content": "x"}]
    )
    assert roles(run("q", model=ScriptedModel(["a"]), tools=[], history=given))[:3] == [
        "user",
        "assistant",
        "system",
    ]


def results(request: Any) -> list[tuple[str, str, bool]]:
    return [
        (r.call_id, r.content, r.is_error)
        for message in request.messages
        for r in message.tool_results
    ]


TWO = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "h2"}]}
H1, H2 = (
    {"role": "tool", "tool_call_id": f"h{number}", "content": f"seen {number}"}
    for number in (1, 2)
)
UNPAIRED: dict[str, tuple[list[Any], list[tuple[str, bool]]]] = {
    "all answered": ([TWO, H1, H2], [("h1", False), ("h2", False)]),
    "in another order": ([TWO, H2, H1], [("h1", False), ("h2", False)]),
    "none answered": ([TWO], [("h1", True), ("h2", True)]),
    "one answered": ([TWO, H2], [("h1", True), ("h2", False)]),
    "none, and the talk goes on": (
        [TWO, {"role": "user", "content": "well?"}],
        [("h1", True), ("h2", True)],
    ),
}


@pytest.mark.parametrize(("given", "expected"), UNPAIRED.values(), ids=UNPAIRED)
def test_each_call_of_a_history_is_answered_once(
    run: Runner, given: Any, expected: Any
) -> None:
    model = ScriptedModel(["so"])
    run("q", model=model, tools=[look], history=given)
    assert [
        (call_id, is_error) for call_id, _, is_error in results(model.requests[0])
    ] == expected


def test_a_paused_run_that_is_talked_past_is_answered_as_not_run(run: Runner) -> None:
    paused = run(
        "q", model=ScriptedModel([ask("pay")]), tools=of(pay, permission="sensitive")
    )
    model = ScriptedModel(["so"])
    run("never mind", model=model, tools=of(pay), history=paused)
    assert [
        (call_id, is_error) for call_id, _, is_error in results(model.requests[0])
    ] == [("pay", True)]


ORPHANS = {
    "at the beginning": [H1],
    "after a text": [{"role": "assistant", "content": "so"}, H1],
    "a second time": [TWO, H1, H2, H2],
    "of another call": [
        TWO,
        H1,
        H2,
        {"role": "tool", "tool_call_id": "h3", "content": "x"},
    ],
    "of nothing named": [
        {"role": "user", "content": "x"},
        {"role": "tool", "content": "x"},
    ],
}


@pytest.mark.parametrize("given", ORPHANS.values(), ids=ORPHANS)
def test_an_answer_to_no_call_is_refused_at_once(run: Runner, given: Any) -> None:
    model = ScriptedModel(["so"])
    with pytest.raises(ValueError, match=rf"history\[{len(given) - 1}\] answers"):
        run("q", model=model, tools=[look], history=given)
    assert not model.requests


BAD_IDS: dict[str, list[Any]] = {
    "the same in every turn": [
        {**TWO, "tool_calls": [CALL]},
        H1,
        {**TWO, "tool_calls": [CALL]},
        {**H1, "content": "seen 2"},
    ],
    "twice in a reply": [
        {**TWO, "tool_calls": [CALL, CALL]},
        H1,
        {**H1, "content": "seen 2"},
    ],
    "missing": [
        {**TWO, "tool_calls": [{**CALL, "id": None}, {**CALL, "id": ""}]},
        {"role": "tool", "content": "seen 1"},
        {"role": "tool", "tool_call_id": "", "content": "seen 2"},
    ],
}


@pytest.mark.parametrize("given", BAD_IDS.values(), ids=BAD_IDS)
def test_ids_of_a_history_are_made_unique(run: Runner, given: Any) -> None:
    model = ScriptedModel(["so"])
    run("q", model=model, tools=[look], history=given)
    asked = [
        call.id for message in model.requests[0].messages for call in message.tool_calls
    ]
    answered = results(model.requests[0])
    assert "" not in asked
    assert len(set(asked)) == 2
    assert asked == [call_id for call_id, _, _ in answered]
    assert [content for _, content, _ in answered] == ["seen 1", "seen 2"]


def test_what_is_no_message_is_named_by_its_place(run: Runner) -> None:
    with pytest.raises(ValueError, match=r"history\[5\]"):
        run(
            "q",
            model=ScriptedModel(["so"]),
            tools=[],
            history=[*BEFORE, {"role": "bot", "content": "x"}],
        )


def test_a_history_whose_arguments_nobody_can_read(run: Runner) -> None:
    """MoonshotAI/kimi-cli#1580: one bad message, and the session is dead."""
    first = run(
        "q",
        model=ScriptedModel([ToolCall("a", "look", raw='{"key": "a\nb')]),
        tools=[look],
        max_turns=1,
    )
    second = run(
        "and?", model=ScriptedModel(["so"]), tools=[look], history=first.messages
    )
    again = RunResult.from_json(second.to_json())
    assert again == second
    assert [
        dict(call.arguments)
        for message in again.messages
        for call in message.tool_calls
    ] == [{}]


def test_instructions_stand_first(run: Runner) -> None:
    model = ScriptedModel(["so"])
    run("q", model=model, tools=[], instructions="be kind")
    assert model.requests[0].messages == (
        Message("system", "be kind"),
        Message("user", "q"),
    )


def test_instructions_replace_those_of_the_history(run: Runner) -> None:
    model = ScriptedModel(["so"])
    run(
        "q",
        model=model,
        tools=[],
        instructions="be kind",
        history=[*BEFORE, {"role": "developer", "content": "be bold"}],
    )
    texts = [
        message.text
        for message in model.requests[0].messages
        if message.role == "system"
    ]
    assert texts == ["be kind"]
    assert model.requests[0].messages[0].role == "system"


def test_without_instructions_those_of_the_history_stay(run: Runner) -> None:
    model = ScriptedModel(["so"])
    run("q", model=model, tools=[], history=BEFORE)
    assert model.requests[0].messages[0].text == "be brief"


# Tool choice and turns


def obedient(request: Any) -> Any:
    """Calls a tool whenever it must."""
    return "so" if request.tool_choice in ("auto", "none") else ToolCall("", "look")


@pytest.mark.parametrize("choice", ["required", "look"])
def test_a_forced_choice_falls_back_to_auto(run: Runner, choice: str) -> None:
    """openai/openai-agents-python#263"""
    model = ScriptedModel(obedient)
    assert (
        run("q", model=model, tools=[look], tool_choice=choice, max_turns=5).text
        == "so"
    )
    assert [request.tool_choice for request in model.requests] == [choice, "auto"]


def test_tools_that_are_switched_off_do_not_run(run: Runner) -> None:
    model = ScriptedModel([[ask("look")]])
    result = run("q", model=model, tools=[look], tool_choice="none")
    assert result.stop_reason == "answered"
    assert [call.is_error for call in result.calls] == [True]
    assert [tool.name for tool in model.requests[0].tools] == ["look"]


def restless(request: Any) -> Any:
    """Calls a tool whenever it may."""
    return (
        "so"
        if request.tool_choice == "none"
        else ToolCall("", "look", {"key": len(request.messages)})
    )


@pytest.mark.parametrize("max_turns", [2, 3, 6])
def test_the_last_turn_is_an_answer(run: Runner, max_turns: int) -> None:
    """deepset-ai/haystack#10001, NousResearch/hermes-agent#92552"""
    model = ScriptedModel(restless)
    result = run("q", model=model, tools=[look], max_turns=max_turns)
    assert (result.stop_reason, result.text) == ("max_turns", "so")
    assert [request.tool_choice for request in model.requests] == [
        *["auto"] * (max_turns - 1),
        "none",
    ]
    assert all(
        request.tools for request in model.requests
    )  # kept, so that the prompt's cache survives
    assert len(result.calls) == max_turns - 1
    assert not any(call.is_error for call in result.calls)


@pytest.mark.parametrize("max_turns", [1, 3])
def test_calls_of_the_last_turn_are_answered_unexecuted(
    run: Runner, max_turns: int
) -> None:
    ran: list[int] = []

    def note(n: int) -> None:
        ran.append(n)

    model = ScriptedModel(
        lambda request: ToolCall("", "note", {"n": len(request.messages)})
    )
    result = run("q", model=model, tools=[note], max_turns=max_turns)
    assert result.stop_reason == "max_turns"
    assert len(model.requests) == max_turns
    assert len(ran) == max_turns - 1
    assert [call.is_error for call in result.calls] == [False] * (max_turns - 1) + [
        True
    ]
    assert (
        run("and?", model=ScriptedModel(["so"]), tools=[note], history=result).text
        == "so"
    )


def test_a_run_that_ran_out_of_turns_can_get_more(run: Runner, resume: Runner) -> None:
    result = run("q", model=ScriptedModel([ask("look")]), tools=[look], max_turns=1)
    more = resume(
        result, model=ScriptedModel([ask("look"), "so"]), tools=[look], max_turns=5
    )
    assert (more.text, more.stop_reason, more.run.turns) == ("so", "answered", 3)


@pytest.mark.parametrize("max_turns", [0, -1, True, 2.5, "5"], ids=repr)
def test_a_number_of_turns_that_is_none_is_refused_at_resume_too(
    resume: Runner, max_turns: Any
) -> None:
    result = toolkit.run_agent_with_tools(
        "q", model=ScriptedModel([ask("look")]), tools=[look], max_turns=1
    )
    with pytest.raises(ValueError, match="max_turns"):
        resume(result, model=ScriptedModel([]), tools=[look], max_turns=max_turns)


@pytest.mark.parametrize("paused", [None, {}, 3, Message("user", "q")], ids=repr)
def test_what_is_no_run_cannot_be_resumed(resume: Runner, paused: Any) -> None:
    with pytest.raises(TypeError, match="resume"):
        resume(paused, model=ScriptedModel([]), tools=[])


# Limits


def test_the_number_of_calls_is_limited(run: Runner) -> None:
    model = ScriptedModel(
        [[ask("look", "a", key=1), ask("look", "b", key=2)], [ask("look", "c", key=3)]]
    )
    result = run("q", model=model, tools=[look], limits=Limits(tool_calls=2))
    assert result.stop_reason == "limit_reached"
    assert [call.is_error for call in result.calls] == [False, False, True]


def test_the_number_of_tokens_is_limited(run: Runner) -> None:
    model = ScriptedModel(
        lambda request: Reply(
            Message("assistant", "", (ToolCall("", "look"),)), Usage(8, 2)
        )
    )
    result = run(
        "q", model=model, tools=[look], limits=Limits(total_tokens=15, repeats=100)
    )
    assert result.stop_reason == "limit_reached"
    assert (len(model.requests), result.usage.total_tokens) == (2, 20)
    assert [call.is_error for call in result.calls] == [False, True]


def test_an_answer_that_reaches_a_limit_is_an_answer(run: Runner) -> None:
    reply = Reply(Message("assistant", "so"), Usage(8, 2))
    assert (
        run(
            "q", model=ScriptedModel([reply]), tools=[], limits=Limits(total_tokens=5)
        ).stop_reason
        == "answered"
    )


def test_the_time_is_limited(run: Runner) -> None:
    def rest() -> None:
        time.sleep(0.06)

    model = ScriptedModel(lambda request: ToolCall("", "rest"))
    result = run("q", model=model, tools=[rest], limits=Limits(seconds=0.05))
    assert result.stop_reason == "limit_reached"
    assert len(model.requests) == 1
    assert result.run.seconds >= 0.05


def test_time_that_nobody_works_is_not_counted(run: Runner, resume: Runner) -> None:
    registry = of(pay, permission="sensitive")
    paused = run(
        "q",
        model=ScriptedModel([ask("pay")]),
        tools=registry,
        limits=Limits(seconds=30),
    )
    time.sleep(0.1)
    result = resume(
        paused, {"pay": "approve"}, model=ScriptedModel(["so"]), tools=registry
    )
    assert result.run.seconds < 0.1


@pytest.mark.parametrize("batch", [2, 3])
def test_results_are_cut_for_the_model_only(run: Runner, batch: int) -> None:
    def long() -> str:
        return "x" * 1000

    model = ScriptedModel([[ask("long", str(number)) for number in range(batch)], "so"])
    result = run("q", model=model, tools=[long], limits=Limits(result_chars=200))
    assert all(
        len(call.content) <= 200 and call.value == "x" * 1000 for call in result.calls
    )


# Guards


def test_a_model_that_never_gets_it_right_ends_the_run(run: Runner) -> None:
    model = ScriptedModel(lambda request: ToolCall("", "look", raw='{"key": 1'))
    result = run("q", model=model, tools=[look])
    assert result.stop_reason == "malformed_arguments"
    assert len(model.requests) == 3
    left = [call.content.rpartition("Attempts left: ")[2] for call in result.calls]
    assert left == ["2.", "1.", "0."]
    assert [call.raw for call in result.calls] == ['{"key": 1'] * 3
    assert (
        run("and?", model=ScriptedModel(["so"]), tools=[look], history=result).text
        == "so"
    )


def test_unknown_tools_count_against_the_same_budget(run: Runner) -> None:
    names = iter(["lok", "look", "loook"])
    model = ScriptedModel(lambda request: ToolCall("", next(names), raw='{"key": "x"}'))
    assert run("q", model=model, tools=[look]).stop_reason == "malformed_arguments"


def test_a_repeated_call_runs_and_is_pointed_out_and_ends_the_run(run: Runner) -> None:
    """bytedance/deer-flow#1055"""
    ran: list[str] = []

    def read(path: str) -> str:
        ran.append(path)
        return "same"

    model = ScriptedModel(lambda request: ToolCall("", "read", {"path": "a"}))
    result = run("q", model=model, tools=[read], max_turns=20)
    assert result.stop_reason == "repeated_call"
    assert ran == ["a"] * 6
    assert ["times in a row" in call.content for call in result.calls][:5] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_a_result_that_changes_is_no_repetition(run: Runner) -> None:
    count = iter(range(100))

    def poll() -> int:
        return next(count)

    model = ScriptedModel(restless_on("poll"))
    assert run("q", model=model, tools=[poll], max_turns=12).stop_reason == "max_turns"


def restless_on(name: str) -> Any:
    return lambda request: "so" if request.tool_choice == "none" else ToolCall("", name)


def test_a_tool_may_be_exempt(run: Runner) -> None:
    def poll() -> str:
        return "pending"

    model = ScriptedModel(restless_on("poll"))
    result = run("q", model=model, tools=of(poll, repeat_ok=True), max_turns=12)
    assert result.stop_reason == "max_turns"
    assert {call.content for call in result.calls} == {"pending"}


# Pauses


BATCH = [ask("look", "c0", what="1"), ask("pay", "c1", sum=5), ask("pay", "c2", sum=6)]


def paused(run: Runner, till: Till, **options: Any) -> RunResult:
    return run("q", model=ScriptedModel([BATCH]), tools=till.tools, **options)


def test_a_sensitive_call_pauses_the_run_and_nothing_of_its_batch_starts(
    run: Runner,
) -> None:
    till = Till()
    result = paused(run, till)
    assert result.stop_reason == "awaiting_approval"
    assert [(call.id, call.name, call.arguments) for call in result.waiting] == [
        ("c1", "pay", {"sum": 5}),
        ("c2", "pay", {"sum": 6}),
    ]
    assert (till.paid, till.looked, result.calls) == ([], [], [])


SAVED: dict[str, Callable[[RunResult], Any]] = {
    "the result": lambda result: result,
    "its run": lambda result: result.run,
    "its JSON": lambda result: result.to_json(),
    "read back": lambda result: RunResult.from_json(result.to_json()),
    "read back from bytes": lambda result: RunResult.from_json(
        result.to_json().encode()
    ),
}


@pytest.mark.parametrize("saved", SAVED.values(), ids=SAVED)
def test_a_paused_run_goes_on(run: Runner, resume: Runner, saved: Any) -> None:
    till = Till()
    verdicts = {"c1": "approve", "c2": Verdict("deny", "too dear")}
    model = ScriptedModel(["so"])
    result = resume(saved(paused(run, till)), verdicts, model=model, tools=till.tools)
    assert (result.text, result.stop_reason, result.waiting) == ("so", "answered", ())
    assert (till.paid, till.looked) == ([5], ["1"])
    assert [(call.content, call.verdict) for call in result.calls[:2]] == [
        ("seen 1", ""),
        ("paid 5", "approve"),
    ]
    assert "too dear" in result.calls[2].content
    assert result.calls[2].verdict == "deny"
    assert [message.role for message in model.requests[0].messages] == [
        "user",
        "assistant",
        "tool",
    ]
    assert result.run.id == RunResult.from_json(result.to_json()).run.id


OTHER_PROCESS = """
import sys, toolkit
from toolkit import ScriptedModel, ToolRegistry
registry = ToolRegistry()
def pay(sum: int) -> str:
    return f"paid {sum}"
def look(what: str = "") -> str:
    return f"seen {what}"
registry.register_tool(pay, permission="sensitive")
registry.register_tool(look)
verdicts = {"c1": "approve", "c2": "deny"}
result = toolkit.resume(sys.stdin.read(), verdicts, model=ScriptedModel(["so"]), tools=registry)
print(result.to_json())
"""


@pytest.mark.slow
def test_a_paused_run_goes_on_in_another_process(run: Runner) -> None:
    result = paused(run, Till())
    command = [sys.executable, "-W", "error", "-c", OTHER_PROCESS]
    saved = result.to_json()
    done = subprocess.run(
        command, cwd=ROOT, input=saved, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    again = RunResult.from_json(done.stdout)
    assert (again.text, again.run.id) == ("so", result.run.id)
    assert [(call.is_error, call.verdict) for call in again.calls] == [
        (False, ""),
        (False, "approve"),
        (True, "deny"),
    ]


UNDECIDED: list[dict[str, Any]] = [
    {},
    {"c1": "approve"},
    {"c1": "deny"},
    {"c1": "approve", "c2": "defer"},
    {"c2": Verdict("defer")},
]


@pytest.mark.parametrize("first", UNDECIDED, ids=str)
def test_a_partly_decided_batch_stays_paused_and_starts_nothing(
    run: Runner, resume: Runner, first: Any
) -> None:
    till = Till()
    model = ScriptedModel(["so"])
    still = resume(paused(run, till).to_json(), first, model=model, tools=till.tools)
    assert still.stop_reason == "awaiting_approval"
    assert (till.paid, till.looked, model.requests) == ([], [], [])
    decided = {
        call_id for call_id, verdict in first.items() if verdict in ("approve", "deny")
    }
    assert {call.id for call in still.waiting} == {"c1", "c2"} - decided
    rest = {call.id: "approve" for call in still.waiting}
    result = resume(still.to_json(), rest, model=model, tools=till.tools)
    assert result.text == "so"
    assert sorted(till.paid) == ([6] if first.get("c1") == "deny" else [5, 6])
    assert till.looked == ["1"]


@pytest.mark.parametrize(
    "verdicts",
    [{"c3": "approve"}, {"c0": "approve"}, {"pay": "approve", "c1": "approve"}],
    ids=str,
)
def test_a_verdict_on_no_waiting_call_is_refused(
    run: Runner, resume: Runner, verdicts: Any
) -> None:
    till = Till()
    result = paused(run, till)
    with pytest.raises(ApprovalError, match=r"c1.*c2"):
        resume(result, verdicts, model=ScriptedModel(["so"]), tools=till.tools)
    assert not till.paid


def test_a_verdict_on_a_run_that_is_over_is_refused(
    run: Runner, resume: Runner
) -> None:
    result = run("q", model=ScriptedModel(["so"]), tools=[])
    with pytest.raises(ApprovalError):
        resume(result, {"c1": "approve"}, model=ScriptedModel([]), tools=[])


@pytest.mark.parametrize(
    "odd",
    ["yes", "Approve", True, None, 1, object(), Verdict("yes")],
    ids=[
        "a word",
        "a capital",
        "a truth",
        "nothing",
        "a number",
        "an object",
        "a Verdict",
    ],
)
def test_an_odd_verdict_does_not_run_it(run: Runner, resume: Runner, odd: Any) -> None:
    till = Till()
    with pytest.raises(ApprovalError, match=r"not verdicts.*'c1'"):
        resume(
            paused(run, till),
            {"c1": odd, "c2": odd},
            model=ScriptedModel(["so"]),
            tools=till.tools,
        )
    assert not till.paid


def test_an_approver_may_decide_at_resume(run: Runner, resume: Runner) -> None:
    till = Till()
    asked: list[str] = []

    def approve(call: ToolCall) -> str:
        asked.append(call.id)
        return "approve"

    model = ScriptedModel(["so"])
    result = resume(
        paused(run, till),
        {"c1": "deny"},
        model=model,
        tools=till.tools,
        approve=approve,
    )
    assert (result.text, asked, till.paid) == ("so", ["c2"], [6])


def test_an_approver_that_defers_pauses(run: Runner) -> None:
    till = Till()
    result = paused(
        run, till, approve=lambda call: "defer" if call.id == "c2" else "approve"
    )
    assert [call.id for call in result.waiting] == ["c2"]
    assert (till.paid, till.looked) == ([], [])


def test_a_verdict_does_not_outlive_its_batch(run: Runner, resume: Runner) -> None:
    till = Till()
    again = ScriptedModel([[ask("pay", "c1", sum=500)]])
    result = resume(
        paused(run, till),
        {"c1": "approve", "c2": "deny"},
        model=again,
        tools=till.tools,
    )
    assert result.stop_reason == "awaiting_approval"
    assert till.paid == [5]


def test_a_run_that_is_over_stays_as_it_is(run: Runner, resume: Runner) -> None:
    result = run("q", model=ScriptedModel([ask("look"), "so"]), tools=[look])
    assert resume(result, model=ScriptedModel([]), tools=[look]) == result


def test_a_run_can_pause_twice(run: Runner, resume: Runner) -> None:
    till = Till()
    model = ScriptedModel([[ask("pay", "d1", sum=7)], "so"])
    first = resume(
        paused(run, till), {"c1": "deny", "c2": "deny"}, model=model, tools=till.tools
    )
    assert [call.id for call in first.waiting] == ["d1"]
    second = resume(first.to_json(), {"d1": "approve"}, model=model, tools=till.tools)
    assert (second.text, till.paid, len(second.calls)) == ("so", [7], 4)


def test_a_tool_that_is_gone_at_resume_loses_no_call(
    run: Runner, resume: Runner
) -> None:
    with pytest.raises(ValueError, match="pay"):
        resume(paused(run, Till()), model=ScriptedModel(["so"]), tools=[])


# What a result says


def test_a_paused_result_says_how_to_go_on(run: Runner) -> None:
    said = str(paused(run, Till()))
    for part in (
        "2 call(s)",
        "pay (c1)",
        "pay (c2)",
        "resume(",
        "'c1'",
        "approve",
        "deny",
    ):
        assert part in said
    assert "\n" not in said


def test_a_result_without_text_says_why(run: Runner) -> None:
    result = run("q", model=ScriptedModel([ask("look")]), tools=[look], max_turns=1)
    assert "max_turns" in str(result)


def test_raise_for_stop(run: Runner) -> None:
    good = run("q", model=ScriptedModel(["so"]), tools=[])
    assert good.raise_for_stop() is good
    till = Till()
    for bad in (
        paused(run, till),
        run("q", model=ScriptedModel(restless), tools=[look], max_turns=2),
    ):
        with pytest.raises(RunIncomplete, match=bad.stop_reason):
            bad.raise_for_stop()


def test_the_json_of_a_run_has_a_version_and_no_python_in_it(run: Runner) -> None:
    @dataclasses.dataclass
    class Thing:
        x: int = 1

    def make() -> Thing:
        return Thing()

    result = run("q", model=ScriptedModel([ask("make"), "so"]), tools=[make])
    assert isinstance(result.calls[0].value, Thing)
    saved = json.loads(result.to_json())
    assert saved["version"] == 2
    again = RunResult.from_json(result.to_json())
    assert again == result
    assert (again.calls[0].value, again.calls[0].content) == (None, '{"x":1}')


def test_an_id_is_no_saved_run(resume: Runner) -> None:
    with pytest.raises(
        ValueError, match=r"not a saved run, because it is not JSON.* an id with store="
    ):
        resume("run-1", model=ScriptedModel([]), tools=[])


NO_RUNS: dict[str, str] = {
    "no JSON": "so",
    "nothing": "",
    "a list": "[]",
    "null": "null",
    "no version": "{}",
    "another version": '{"version": 2}',
    "a version alone": '{"version": 1}',
    "an empty run": '{"version": 1, "run": {}, "waiting": [], "stop_reason": "answered"}',
    "no waiting": '{"version": 1, "stop_reason": "answered", "run": {"id": "r", "messages": []}}',
    "a reason that is none": '{"version": 1, "stop_reason": "x", "waiting": [], "run": {"id": "r", "messages": []}}',
}


@pytest.mark.parametrize("text", NO_RUNS.values(), ids=NO_RUNS)
def test_what_is_no_saved_run_is_refused(resume: Runner, text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        RunResult.from_json(text)
    with pytest.raises(ValueError, match=r"\w"):
        resume(text, model=ScriptedModel(["so"]), tools=[])


# Where it runs


async def fetch(n: int = 0) -> str:
    """Fetch something."""
    await asyncio.sleep(0.01)
    return f"fetched {n}"


def test_the_sync_function_works_inside_a_running_event_loop() -> None:
    """pydantic/pydantic-ai#114: a notebook cell."""

    async def cell() -> RunResult:
        model = ScriptedModel([[ask("fetch"), ask("look")], [ask("fetch", "f2")], "so"])
        return toolkit.run_agent_with_tools(
            "q", model=model, tools=[fetch, look], max_turns=3
        )

    result = asyncio.run(cell())
    assert [call.content for call in result.calls] == [
        "fetched 0",
        "seen 0",
        "fetched 0",
    ]
    assert result.text == "so"


def test_runs_beside_each_other_in_one_loop() -> None:
    async def main() -> list[RunResult]:
        return await asyncio.gather(*[
            toolkit.arun_agent_with_tools(
                "q", model=ScriptedModel([[ask("fetch", n=n), ask("look", key=n)], f"so {n}"]), tools=[fetch, look]
            )
            for n in range(5)
        ])  # fmt: skip

    for n, result in enumerate(asyncio.run(main())):
        assert ([call.content for call in result.calls], result.text) == (
            [f"fetched {n}", f"seen {n}"],
            f"so {n}",
        )


def test_ctrl_c_while_the_model_thinks_leaves_a_run_that_goes_on(
    run: Runner, resume: Runner
) -> None:
    model = ScriptedModel([ask("look"), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt) as caught:
        run("q", model=model, tools=[look])
    left = getattr(caught.value, "run", None)
    assert left is not None
    assert resume(left, model=ScriptedModel(["so"]), tools=[look]).text == "so"


# An agent as a tool


def inner(question: str, context: ToolContext) -> str:
    """Ask another agent."""
    model = ScriptedModel(restless)
    result = toolkit.run_agent_with_tools(
        question, model=model, tools=[look], max_turns=2, on_event=context.deps
    )
    return f"{question}: {result.text} ({result.stop_reason}, {len(result.messages)})"


async def inner_async(question: str, context: ToolContext) -> str:
    """Ask another agent."""
    model = ScriptedModel(restless)
    result = await toolkit.arun_agent_with_tools(
        question, model=model, tools=[fetch, look], max_turns=2, on_event=context.deps
    )
    return f"{question}: {result.text} ({result.stop_reason}, {len(result.messages)})"


@pytest.mark.parametrize("function", [inner, inner_async])
def test_an_agent_is_a_tool_with_limits_and_history_of_its_own(
    run: Runner, function: Any
) -> None:
    """openai/openai-agents-python#448"""
    seen: list[Any] = []
    outer_calls = [
        ask(function.__name__, "o1", question="a"),
        ask(function.__name__, "o2", question="b"),
    ]
    model = ScriptedModel([outer_calls, "so"])
    result = run(
        "q",
        model=model,
        tools=of(function),
        deps=seen.append,
        limits=Limits(tool_calls=2),
    )
    assert [call.content for call in result.calls] == [
        "a: so (max_turns, 4)",
        "b: so (max_turns, 4)",
    ]
    assert (result.text, len(result.messages), result.run.turns) == ("so", 4, 2)
    starts = [
        event.data["parent_call_id"] for event in seen if event.name == "run_start"
    ]
    assert sorted(starts) == ["o1", "o2"]
    assert result.run.id not in {event.run_id for event in seen}


def test_an_inner_run_that_fails_is_one_failed_call(run: Runner) -> None:
    def ask_another() -> str:
        model = ScriptedModel([ModelError("down", status=503)])
        return toolkit.run_agent_with_tools("q", model=model, tools=[]).text

    result = run(
        "q",
        model=ScriptedModel([[ask("ask_another"), ask("look")], "so"]),
        tools=[ask_another, look],
    )
    assert [call.is_error for call in result.calls] == [True, False]
    assert "ModelError" in result.calls[0].content
    assert result.text == "so"


def test_an_inner_run_that_waits_is_told_to_the_outer(run: Runner) -> None:
    def ask_another() -> str:
        registry = of(pay, permission="sensitive")
        return str(
            toolkit.run_agent_with_tools(
                "q", model=ScriptedModel([ask("pay")]), tools=registry
            )
        )

    result = run(
        "q", model=ScriptedModel([ask("ask_another"), "so"]), tools=[ask_another]
    )
    assert "wait for approval" in result.calls[0].content
    assert not result.waiting


# What reaches the model


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Item(pydantic.BaseModel):
    name: str


MIXED = {
    "at": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc),
    "id": uuid.UUID(int=1),
    "price": decimal.Decimal("1.10"),
    "colour": Colour.RED,
    "set": {3},
    "point": Point(1, 2),
    "item": Item(name="x"),
    "pair": (1, 2),
    1: "a key",
    "path": pathlib.PurePosixPath("a/b"),
}
RENDERED: dict[str, tuple[Any, Any]] = {
    "values of all kinds": (
        MIXED,
        {
            "at": "2024-01-02T03:04:05Z",
            "id": "00000000-0000-0000-0000-000000000001",
            "price": "1.10",
            "colour": "red",
            "set": [3],
            "point": {"x": 1, "y": 2},
            "item": {"name": "x"},
            "pair": [1, 2],
            "1": "a key",
            "path": "a/b",
        },
    ),
    "not a number": (
        {"a": math.nan, "b": [math.inf, -math.inf], "c": 1.5},
        {"a": None, "b": [None, None], "c": 1.5},
    ),
    "None": (None, None),
    "an empty list": ([], []),
    "an empty object": ({}, {}),
}


@pytest.mark.parametrize(("value", "read"), RENDERED.values(), ids=RENDERED)
def test_a_result_reaches_the_model_as_json(run: Runner, value: Any, read: Any) -> None:
    """github/copilot-sdk#2203, apify/apify-client-python#87, PrefectHQ/fastmcp#4263"""
    model = ScriptedModel([ask("give"), "so"])
    run("q", model=model, tools=of(lambda: value, name="give"))
    (result,) = model.requests[1].messages[-1].tool_results
    assert (
        json.loads(
            result.content,
            parse_constant=lambda word: pytest.fail(f"{word} is no JSON"),
        )
        == read
    )
    assert not result.is_error


TEXTS = {
    "quotes": 'say "hi"\nline2',
    "nothing": "",
    "other scripts": "東京 😀 ü",
    "half a character": "a\ud83d",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_reaches_the_model_as_it_is(run: Runner, text: str) -> None:
    """brekkylab/ailoy#138"""
    result = run(
        "q",
        model=ScriptedModel([ask("give"), "so"]),
        tools=of(lambda: text, name="give"),
    )
    assert result.calls[0].content == text.replace("\ud83d", "\ufffd")


def test_other_scripts_are_not_escaped(run: Runner) -> None:
    """unclecode/crawl4ai#1962"""
    value = {"名前": "東京 😀", "x": "ü"}
    result = run(
        "q",
        model=ScriptedModel([ask("give"), "so"]),
        tools=of(lambda: value, name="give"),
    )
    assert result.calls[0].content == '{"名前":"東京 😀","x":"ü"}'


# What a run tells the outside


def test_every_event_is_a_line_of_json(run: Runner) -> None:
    """run-llama/llama_index#22703, microsoft/agent-framework#2219"""
    seen: list[Any] = []
    model = ScriptedModel([ask("give"), "so"])
    result = run(
        "q",
        model=model,
        tools=of(lambda: MIXED | {"n": math.nan}, name="give"),
        on_event=seen.append,
    )
    names = [event.name for event in seen]
    assert names[0] == "run_start"
    assert names[-1] == "run_end"
    assert {"tool_call_request", "tool_exec_result"} < set(names)
    assert seen[-1].data["stop_reason"] == "answered"
    for event in seen:
        read = json.loads(
            event.to_json(),
            parse_constant=lambda word: pytest.fail(f"{word} is no JSON"),
        )
        assert read["run_id"] == result.run.id


def test_a_sink_that_fails_breaks_nothing(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    def sink(event: Any) -> None:
        raise OSError("the disk is full")

    result = run(
        "q", model=ScriptedModel([ask("look"), "so"]), tools=[look], on_event=sink
    )
    assert result.text == "so"
    assert "the disk is full" in caplog.text


def test_the_end_of_the_turns_is_told(run: Runner) -> None:
    seen: list[Any] = []
    run(
        "q",
        model=ScriptedModel(restless),
        tools=[look],
        max_turns=2,
        on_event=seen.append,
    )
    assert (seen[-1].name, seen[-1].data["stop_reason"]) == ("run_end", "max_turns")


def test_an_argument_that_a_tool_changes_is_told_as_it_was(run: Runner) -> None:
    """aiproxer/aiproxer#351"""
    seen: list[Any] = []

    def clear(items: list[int]) -> str:
        items.clear()
        return "ok"

    run(
        "q",
        model=ScriptedModel([ask("clear", items=[1, 2]), "so"]),
        tools=[clear],
        on_event=seen.append,
    )
    (asked,) = [event for event in seen if event.name == "tool_call_request"]
    assert asked.data["arguments"] == {"items": [1, 2]}


# What is shown


def many(count: int = 12) -> ToolRegistry:
    registry = ToolRegistry()
    for number in range(count):
        registry.register_tool(
            lambda: "done", name=f"tool_{number}", description=f"About topic{number}."
        )
    return registry


def shown(model: ScriptedModel) -> list[list[str]]:
    return [[tool.name for tool in request.tools] for request in model.requests]


def test_only_the_tools_that_fit_are_shown_and_those_in_use_stay(run: Runner) -> None:
    model = ScriptedModel([ToolCall("c", "tool_7"), "so"])
    result = run("topic3 and topic9", model=model, tools=many(), retrieve=2)
    assert shown(model) == [["tool_3", "tool_9"], ["tool_3", "tool_7", "tool_9"]]
    assert result.calls[0].content == "done", (
        "what is not in view may be called all the same"
    )


def test_a_function_chooses_what_is_shown(run: Runner) -> None:
    seen: list[tuple[int, int]] = []

    def choose(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Tool]:
        seen.append((len(messages), len(tools)))
        return [tools[5], tools[1]]

    model = ScriptedModel(
        [ToolCall("c", "tool_1"), ToolCall("f", "final_answer", {"answer": 3})]
    )
    result = run("q", model=model, tools=many(), retrieve=choose, output_type=int)
    assert shown(model) == [["tool_1", "tool_5", "final_answer"]] * 2
    assert seen == [(1, 12), (3, 12)]
    assert result.output == 3


def test_nothing_fits_so_nothing_is_shown(run: Runner) -> None:
    model = ScriptedModel(["so"])
    run("hello", model=model, tools=many(), retrieve=3)
    assert shown(model) == [[]]


def test_tools_of_an_earlier_question_stay_in_view(run: Runner) -> None:
    first = run(
        "topic7",
        model=ScriptedModel([ToolCall("c", "tool_7"), "so"]),
        tools=many(),
        retrieve=1,
    )
    model = ScriptedModel(["so"])
    run("topic3", model=model, tools=many(), retrieve=1, history=first)
    assert shown(model) == [["tool_3", "tool_7"]]


def test_a_call_is_wanted_whatever_fits(run: Runner) -> None:
    model = ScriptedModel([ToolCall("c", "tool_2"), "so"])
    run("hello", model=model, tools=many(), retrieve=1, tool_choice="required")
    assert [len(names) for names in shown(model)] == [12, 1]


def test_a_forced_tool_is_shown(run: Runner) -> None:
    model = ScriptedModel([ToolCall("c", "tool_2"), "so"])
    run("topic3", model=model, tools=many(), retrieve=1, tool_choice="tool_2")
    assert shown(model)[0] == ["tool_2", "tool_3"]


@pytest.mark.parametrize("retrieve", [0, -1, 2.5, "three", True])
def test_what_is_no_retriever_is_refused_at_once(run: Runner, retrieve: Any) -> None:
    model = ScriptedModel(["so"])
    with pytest.raises(ValueError, match="retrieve must be"):
        run("q", model=model, tools=many(), retrieve=retrieve)
    assert not model.requests


async def choose_later(messages: Any, tools: Any) -> Any:
    """A retriever that would have to be awaited."""
    return tools


@pytest.mark.parametrize(
    ("retrieve", "told"),
    [
        pytest.param(
            choose_later, "retrieve must be a plain function", id="a coroutine function"
        ),
        pytest.param(
            lambda messages, tools: [tool.name for tool in tools],
            r"retrieve= returned \['tool_0'",
            id="names",
        ),
        pytest.param(
            lambda messages, tools: None, "retrieve= returned None", id="nothing"
        ),
    ],
)
def test_a_retriever_that_is_none_is_told(
    run: Runner, retrieve: Any, told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        run("q", model=ScriptedModel(["so"]), tools=many(), retrieve=retrieve)


# What newcomers write first


@pytest.mark.parametrize(
    ("second", "told"),
    [(5, "max_turns=5"), ([], r"tools=\[\]")],
    ids=["turns", "tools"],
)
def test_more_than_a_prompt_by_position_says_what_to_write(
    run: Runner, second: Any, told: str
) -> None:
    with pytest.raises(TypeError, match=rf"takes only the prompt by position.*{told}"):
        run("hi", second)


class SdkMessage:
    """A message object of an SDK: it knows how to become a dict."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return self.fields


def test_history_takes_message_objects_of_an_sdk(run: Runner) -> None:
    function = {"name": "look", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function}
    history = [
        {"role": "user", "content": "q"},
        SdkMessage(role="assistant", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    ]
    model = ScriptedModel(["so"])
    result = run("And?", model=model, tools=(), history=history)
    assert [message.role for message in result.messages[:3]] == [
        "user",
        "assistant",
        "tool",
    ]
    assert result.messages[2].tool_results[0].content == "seen"


def test_a_run_bounds_the_time_of_every_tool(run: Runner) -> None:
    started = threading.Event()

    def hang() -> None:
        started.set()
        time.sleep(30)

    model = ScriptedModel([ToolCall("c1", "hang", {}), "so"])
    result = run("q", model=model, tools=[hang], limits=Limits(tool_seconds=0.05))
    assert started.is_set()
    assert "did not finish within 0.05 seconds" in result.calls[0].content


def test_a_tool_with_an_effect_and_no_tier_is_logged_once(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    def delete_note(title: str) -> str:
        """Delete a note."""
        return title

    tools = ToolRegistry([delete_note])
    for _ in range(2):
        run("q", model=ScriptedModel(["so"]), tools=tools)
    lines = [each.getMessage() for each in caplog.records if "tier" in each.message]
    assert len(lines) == 1
    assert "'delete_note' speaks of 'delete'" in lines[0]
