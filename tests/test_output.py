"""A typed answer: `output_type` and `extract`; and the way on where a server takes no tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from helpers import Runner
from server import ChatServer, Fault
from toolkit import (
    Limits,
    Message,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
    aextract,
    extract,
    resume,
    run_agent_with_tools,
)
from toolkit.errors import ModelError, RunIncomplete


class Bill(BaseModel):
    total: float
    items: list[str]


def answer(value: Any, call_id: str = "a") -> ToolCall:
    return ToolCall(call_id, "final_answer", {"answer": value})


GOOD = answer({"total": "3", "items": ["tea"]})


def test_the_answer_has_the_type(run: Runner) -> None:
    with ScriptedModel([GOOD]) as model:
        result = run("q", model=model, tools=[], output_type=Bill)
    assert result.output == Bill(total=3, items=["tea"])
    assert (result.stop_reason, str(result)) == (
        "answered",
        '{"total":3.0,"items":["tea"]}',
    )
    assert model.requests[0].tool_choice == "final_answer"
    assert RunResult.from_json(result.to_json()).text == result.text


def test_tools_come_before_the_answer(run: Runner) -> None:
    def price(item: str) -> float:
        return 1.5

    script = [
        ToolCall("p", "price", {"item": "tea"}),
        answer({"total": 1.5, "items": ["tea"]}),
    ]
    with ScriptedModel(script) as model:
        result = run("q", model=model, tools=[price], output_type=Bill)
    assert result.output.total == 1.5
    assert [request.tool_choice for request in model.requests] == ["auto", "auto"]


def test_a_wrong_answer_is_corrected(run: Runner) -> None:
    with ScriptedModel([answer({"total": "much"}), GOOD]) as model:
        result = run("q", model=model, tools=[], output_type=Bill)
    assert result.output == Bill(total=3, items=["tea"])
    assert "answer.total" in result.calls[0].content


def test_an_answer_in_words_is_asked_for_again(run: Runner) -> None:
    with ScriptedModel(["Three.", GOOD]) as model:
        result = run("q", model=model, tools=[lambda_free], output_type=Bill)
    assert result.output == Bill(total=3, items=["tea"])
    assert model.requests[1].tool_choice == "final_answer"
    assert [message.role for message in result.messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
    ]


def lambda_free() -> str:
    """Some other tool."""
    return ""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(["no", "no", "no"], id="words"),
        pytest.param(
            [answer("no", "a"), answer("no", "b"), answer("no", "c")],
            id="wrong answers",
        ),
    ],
)
def test_corrections_are_bounded(run: Runner, script: list[Any]) -> None:
    with ScriptedModel(script) as model:
        result = run("q", model=model, tools=[], output_type=Bill)
    assert (result.stop_reason, result.output) == ("malformed_arguments", None)


def test_the_last_turn_is_for_the_answer(run: Runner) -> None:
    with ScriptedModel([ToolCall("x", "lambda_free"), GOOD]) as model:
        result = run(
            "q", model=model, tools=[lambda_free], output_type=Bill, max_turns=2
        )
    assert model.requests[1].tool_choice == "final_answer"
    assert (result.stop_reason, result.output) == (
        "answered",
        Bill(total=3, items=["tea"]),
    )


def test_a_refusal_ends_it(run: Runner) -> None:
    model = ScriptedModel([Reply(Message("assistant", "No."), finish="refusal")])
    assert run("q", model=model, tools=[], output_type=Bill).stop_reason == "refused"


def test_a_tool_of_that_name_keeps_it(run: Runner) -> None:
    def final_answer(answer: str) -> str:
        return "not this one"

    model = ScriptedModel([ToolCall("a", "final_answer1", {"answer": 5})])
    assert run("q", model=model, tools=[final_answer], output_type=int).output == 5


@pytest.mark.parametrize(
    ("kind", "sent", "value"),
    [(int, "3", 3), (list[int], [1, "2"], [1, 2]), (str, "so", "so")],
)
def test_a_value_is_read_out_of_a_text(kind: Any, sent: Any, value: Any) -> None:
    assert extract("q", kind, model=ScriptedModel([answer(sent)])) == value
    assert (
        asyncio.run(aextract("q", kind, model=ScriptedModel([answer(sent)]))) == value
    )


def test_extract_raises_without_a_value() -> None:
    with pytest.raises(RunIncomplete, match="malformed_arguments"):
        extract("q", int, model=ScriptedModel(["no", "no", "no"]))


# A server that takes no tools

NO_TOOLS = Fault(400, "m does not support tools")
ASKED = 'Thought: I look.\nAction: look\nAction Input: {"key": 9}'


def look(key: int) -> str:
    """Look something up."""
    return f"seen {key}"


def test_the_tools_move_into_the_prompt(run: Runner) -> None:
    events: list[Any] = []
    with ChatServer(NO_TOOLS, ASKED, "Final Answer: nine") as server:
        result = run(
            "q",
            model="m",
            base_url=server.base_url,
            tools=[look],
            on_event=events.append,
        )
    assert (result.text, result.run.route, result.run.turns) == ("nine", "prompted", 2)
    assert [call.content for call in result.calls] == ["seen 9"]
    assert [("tools" in body) for body in server.bodies] == [True, False, False]
    assert "look" in server.bodies[1]["messages"][0]["content"]
    assert [event.name for event in events].count("route_switch") == 1


def test_another_refusal_is_an_error(run: Runner) -> None:
    with (
        ChatServer(Fault(400, "the key is wrong")) as server,
        pytest.raises(ModelError, match="the key is wrong"),
    ):
        run("q", model="m", base_url=server.base_url, tools=[look])


@pytest.mark.parametrize(
    "text",
    [
        "tool_choice 'required' is not supported",
        "Thinking mode does not support this tool_choice",
        "the model does not support parallel function calls",
        "strict is not supported for function tools",
    ],
)
def test_a_refused_field_is_no_refusal_of_tools(run: Runner, text: str) -> None:
    with ChatServer(Fault(400, text)) as server, pytest.raises(ModelError):
        run("q", model="m", base_url=server.base_url, tools=[look])


@pytest.mark.parametrize(
    "text",
    [
        "m does not support tools",
        "`tools` is not supported for this model",
        "Function calling is not supported",
        "No endpoints found that support tool use.",
    ],
)
def test_servers_refuse_tools_in_many_words(run: Runner, text: str) -> None:
    with ChatServer(Fault(400, text), "Final Answer: so") as server:
        assert (
            run("q", model="m", base_url=server.base_url, tools=[look]).run.route
            == "prompted"
        )


def test_the_answer_falls_under_no_limit(run: Runner) -> None:
    script = [ToolCall("x", "lambda_free"), GOOD]
    result = run(
        "q",
        model=ScriptedModel(script),
        tools=[lambda_free],
        output_type=Bill,
        limits=Limits(tool_calls=1),
    )
    assert (result.stop_reason, result.output) == (
        "answered",
        Bill(total=3, items=["tea"]),
    )


def test_a_complaint_is_no_answer(run: Runner) -> None:
    result = run(
        "q",
        model=ScriptedModel([answer("no", str(n)) for n in range(3)]),
        tools=[],
        output_type=Bill,
    )
    assert result.text == ""


def test_an_answer_that_cannot_be_given_is_refused_at_once(run: Runner) -> None:
    with pytest.raises(ValueError, match="tool_choice"):
        run(
            "q",
            model=ScriptedModel([]),
            tools=[look],
            output_type=int,
            tool_choice="none",
        )


def test_a_typed_run_is_resumed_as_one() -> None:
    def pay(amount: int) -> str:
        return "paid"

    registry = ToolRegistry()
    registry.register_tool(pay, permission="sensitive")
    given: dict[str, Any] = {"tools": registry, "output_type": int}
    model = ScriptedModel([ToolCall("p", "pay", {"amount": 1}), answer(1)])
    paused = run_agent_with_tools("q", model=model, **given)
    with pytest.raises(ValueError, match="output_type"):
        resume(paused, {"p": "approve"}, model=model, tools=registry)
    assert resume(paused.to_json(), {"p": "approve"}, model=model, **given).output == 1
