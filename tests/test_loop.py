"""The loop as two pure functions, and what must hold for every conversation that the drivers make of them."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit
from helpers import encode as encode_for
from server import find_complaint
from toolkit import (
    Limits,
    Message,
    Reply,
    Run,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolResult,
    Usage,
    Verdict,
)
from toolkit.dialects import chat
from toolkit.runs.loop import (
    AskApproval,
    CallModel,
    CallTools,
    Stop,
    advance,
    close,
    next_step,
)
from toolkit.runs.state import Turn

USER = Message("user", "q")
YES, NO, LATER = Verdict("approve"), Verdict("deny", "too dear"), Verdict("defer")


def held(*calls: ToolCall) -> dict[str, str]:
    """The digests of those calls that need a verdict here."""
    return {call.id: call.digest for call in calls if call.name == "pay"}


def asked(*calls: ToolCall, text: str = "") -> Message:
    return Message("assistant", text, tuple(calls))


def answered(*results: ToolResult) -> Message:
    return Message("tool", tool_results=tuple(results))


def run_of(*messages: Message, **state: Any) -> Run:
    run = Run("r", (USER, *messages), **state)
    return replace(run, held=held(*run.open_calls)) if not run.held else run


LOOK, PAY, PAY2 = (
    ToolCall("a", "look", {"key": 1}),
    ToolCall("p", "pay", {"sum": 5}),
    ToolCall("p2", "pay", {"sum": 6}),
)
SEEN = ToolResult("a", "seen")
TURN_DONE = (asked(LOOK), answered(SEEN))


# What must happen next

ASKS = {
    "first turn": (run_of(), "auto"),
    "forced": (run_of(tool_choice="required"), "required"),
    "forced by name": (run_of(tool_choice="look"), "look"),
    "forced in the one turn there is": (
        run_of(tool_choice="required", max_turns=1),
        "required",
    ),
    "a forced choice holds once": (
        run_of(*TURN_DONE, turns=1, tool_choice="required"),
        "auto",
    ),
    "a forced name holds once": (
        run_of(*TURN_DONE, turns=1, tool_choice="look"),
        "auto",
    ),
    "none stays none": (run_of(*TURN_DONE, turns=1, tool_choice="none"), "none"),
    "the one turn keeps its tools": (run_of(max_turns=1), "auto"),
    "one before the last keeps its tools": (
        run_of(*TURN_DONE, turns=1, max_turns=3),
        "auto",
    ),
    "the last of several has none": (run_of(*TURN_DONE, turns=2, max_turns=3), "none"),
    "the last, though forced": (
        run_of(*TURN_DONE, turns=1, max_turns=2, tool_choice="required"),
        "none",
    ),
    "one token below its limit": (
        run_of(usage=Usage(6, 3), limits=Limits(total_tokens=10)),
        "auto",
    ),
}


@pytest.mark.parametrize(("run", "tool_choice"), ASKS.values(), ids=ASKS)
def test_the_model_is_asked(run: Run, tool_choice: str) -> None:
    assert next_step(run) == CallModel(run.messages, tool_choice)


OVER = {
    "an answer": (run_of(asked(text="hi"), turns=1), "answered"),
    "an answer in the only turn": (
        run_of(asked(text="hi"), turns=1, max_turns=1),
        "answered",
    ),
    "an empty answer": (run_of(asked(), turns=1), "answered"),
    "the text of the last turn": (
        run_of(*TURN_DONE, asked(text="hi"), turns=2, max_turns=2),
        "max_turns",
    ),
    "a refusal": (run_of(asked(text="no"), turns=1, finish="refusal"), "refused"),
    "cut at its length": (
        run_of(asked(text="so lo"), turns=1, finish="length"),
        "truncated",
    ),
    "no turn is left": (run_of(*TURN_DONE, turns=2, max_turns=2), "max_turns"),
    "tokens are spent": (
        run_of(*TURN_DONE, turns=1, usage=Usage(7, 3), limits=Limits(total_tokens=10)),
        "limit_reached",
    ),
    "time is spent": (
        run_of(*TURN_DONE, turns=1, seconds=2.0, limits=Limits(seconds=2.0)),
        "limit_reached",
    ),
    "a guard ended it": (
        run_of(*TURN_DONE, turns=1, stopped="repeated_call"),
        "repeated_call",
    ),
}


@pytest.mark.parametrize(("run", "reason"), OVER.values(), ids=OVER)
def test_the_run_is_over(run: Run, reason: str) -> None:
    assert next_step(run) == Stop(reason)


REFUSED_CALLS = {
    "in the last turn": ({"turns": 2, "max_turns": 2}, "max_turns"),
    "in the only turn": ({"turns": 1, "max_turns": 1}, "max_turns"),
    "though tools are off": ({"turns": 1, "tool_choice": "none"}, "answered"),
    "over the number of calls": (
        {"turns": 1, "tool_calls": 3, "limits": Limits(tool_calls=3)},
        "limit_reached",
    ),
    "over the tokens": (
        {"turns": 1, "usage": Usage(1, 1), "limits": Limits(total_tokens=2)},
        "limit_reached",
    ),
    "over the time": (
        {"turns": 1, "seconds": 1.0, "limits": Limits(seconds=1.0)},
        "limit_reached",
    ),
}


@pytest.mark.parametrize(("state", "reason"), REFUSED_CALLS.values(), ids=REFUSED_CALLS)
def test_calls_past_a_limit_are_answered_unexecuted(
    state: dict[str, Any], reason: str
) -> None:
    run = run_of(asked(LOOK, PAY), **state)
    step = next_step(run)
    assert isinstance(step, Stop)
    assert step.reason == reason
    after = advance(run, step)
    assert [
        (r.call_id, r.is_error, r.reason) for r in after.messages[-1].tool_results
    ] == [
        ("a", True, "not_run"),
        ("p", True, "not_run"),
    ]
    assert after.stopped == reason
    assert next_step(after) == Stop(reason)


CALLS = {
    "no call waits": (run_of(asked(LOOK, LOOK), turns=1), CallTools((LOOK, LOOK))),
    "exactly at the limit": (
        run_of(asked(LOOK), turns=1, tool_calls=2, limits=Limits(tool_calls=3)),
        CallTools((LOOK,)),
    ),
    "one wants a verdict": (run_of(asked(LOOK, PAY), turns=1), AskApproval((PAY,))),
    "all want one": (run_of(asked(PAY, PAY2), turns=1), AskApproval((PAY, PAY2))),
    "one is decided": (
        run_of(asked(PAY, PAY2), turns=1, verdicts={"p": YES}),
        AskApproval((PAY2,)),
    ),
    "a free one waits too": (
        run_of(asked(LOOK, PAY), turns=1, verdicts={"p": LATER}),
        Stop("awaiting_approval"),
    ),
    "partly deferred": (
        run_of(asked(PAY, PAY2), turns=1, verdicts={"p": YES, "p2": LATER}),
        Stop("awaiting_approval"),
    ),
    "all decided": (
        run_of(asked(PAY, PAY2), turns=1, verdicts={"p": YES, "p2": NO}),
        CallTools((PAY, PAY2)),
    ),
    "a verdict on a free call is none": (
        run_of(asked(LOOK), turns=1, verdicts={"a": LATER}),
        CallTools((LOOK,)),
    ),
    "the same after a forced turn": (
        run_of(asked(LOOK), turns=1, tool_choice="required"),
        CallTools((LOOK,)),
    ),
    "calls in a refusal": (
        run_of(asked(LOOK), turns=1, finish="refusal"),
        Stop("refused", "Not run: the model refused in the same reply."),
    ),
    "calls in a truncated reply": (
        run_of(asked(LOOK), turns=1, finish="length"),
        CallTools((LOOK,)),
    ),
}


@pytest.mark.parametrize(("run", "step"), CALLS.values(), ids=CALLS)
def test_calls_are_run_or_wait(run: Run, step: Any) -> None:
    assert next_step(run) == step


def test_next_step_changes_nothing() -> None:
    run = run_of(asked(LOOK, PAY), turns=1)
    before = copy.deepcopy(run)
    next_step(run)
    assert run == before


# What has changed once it has


def test_a_reply_is_a_turn() -> None:
    run = run_of(seconds=1.0)
    reply = Reply(asked(LOOK), Usage(9, 5, 2, 1), "length")
    after = advance(run, CallModel(run.messages), reply, seconds=0.5)
    assert after == replace(
        run,
        messages=(USER, asked(LOOK)),
        turns=1,
        usage=Usage(9, 5, 2, 1),
        finish="length",
        log=(Turn(Usage(9, 5, 2, 1), "length", 0.5),),
        seconds=1.5,
    )
    assert run == run_of(seconds=1.0)


def test_results_answer_their_batch() -> None:
    run = run_of(asked(LOOK, PAY), turns=1, verdicts={"p": YES}, tool_calls=4)
    after = advance(run, CallTools((LOOK, PAY)), (SEEN, ToolResult("p", "paid")))
    assert after.messages[-1] == answered(SEEN, ToolResult("p", "paid"))
    assert (after.tool_calls, after.open_calls, after.stopped) == (6, (), None)


def test_a_verdict_dies_with_its_batch() -> None:
    run = run_of(asked(PAY), turns=1, verdicts={"p": YES})
    after = advance(run, CallTools((PAY,)), (ToolResult("p", "paid"),))
    assert after.verdicts == {}
    assert after.decided == {"p": YES}
    # The model sends the same id again: what was approved once does not cover it.
    again = advance(after, CallModel(after.messages), Reply(asked(PAY)), held=[PAY])
    assert next_step(again) == AskApproval((PAY,))


def test_a_verdict_dies_with_a_closed_batch() -> None:
    closed = close(run_of(asked(PAY), turns=1, verdicts={"p": YES}), "stopped")
    assert (closed.verdicts, closed.decided) == ({}, {"p": YES})


def test_verdicts_are_added() -> None:
    run = run_of(asked(PAY, PAY2), turns=1, verdicts={"p": YES})
    after = advance(run, AskApproval((PAY2,)), {"p2": NO, "a stranger": YES})
    assert after.verdicts == {"p": YES, "p2": NO.on(PAY2)}
    assert after.held == held(PAY, PAY2)


def test_a_verdict_holds_for_one_call() -> None:
    elsewhere = YES.on(PAY)
    assert elsewhere.on(PAY) == elsewhere
    assert elsewhere.on(PAY2).decision == "deny"


def test_a_held_call_waits() -> None:
    run = run_of(asked(PAY), turns=1, held={"p": PAY.digest})
    assert next_step(run) == AskApproval((PAY,))
    assert run.waiting == (PAY,)


MISMATCHES = {
    "no result": (CallTools((LOOK, PAY)), ()),
    "one is left out": (CallTools((LOOK, PAY)), (SEEN,)),
    "one twice": (CallTools((LOOK, PAY)), (SEEN, SEEN)),
    "one too many": (CallTools((LOOK,)), (SEEN, ToolResult("p", "paid"))),
    "in another order": (CallTools((LOOK, PAY)), (ToolResult("p", "paid"), SEEN)),
    "of another call": (CallTools((LOOK,)), (ToolResult("b", "seen"),)),
    "a verdict is missing": (AskApproval((PAY, PAY2)), {"p": YES}),
    "no reply": (CallModel((USER,)), None),
    "results for a reply": (CallModel((USER,)), (SEEN,)),
    "a reply for results": (CallTools((LOOK,)), Reply(asked(text="hi"))),
    "verdicts for results": (CallTools((LOOK,)), {"a": YES}),
    "nothing for results": (CallTools((LOOK,)), None),
    "a reply for the end": (Stop("answered"), Reply(asked(text="hi"))),
}


@pytest.mark.parametrize(("step", "outcome"), MISMATCHES.values(), ids=MISMATCHES)
def test_an_outcome_answers_its_step(step: Any, outcome: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        advance(run_of(asked(LOOK, PAY), turns=1), step, outcome)


def test_a_pause_is_no_end() -> None:
    run = run_of(asked(PAY), turns=1, verdicts={"p": LATER})
    assert advance(run, Stop("awaiting_approval")) == run


def test_a_run_says_which_calls_wait() -> None:
    run = run_of(asked(LOOK, PAY, PAY2), turns=1, verdicts={"p": NO, "p2": LATER})
    assert run.waiting == (PAY2,)


# close


def test_close_keeps_what_is_done() -> None:
    run = run_of(asked(LOOK, PAY), turns=1)
    results = close(run, "why", {"a": SEEN}, "interrupted").messages[-1].tool_results
    assert results == (
        SEEN,
        ToolResult("p", "why", is_error=True, reason="interrupted"),
    )


@pytest.mark.parametrize(
    "run",
    [run_of(), run_of(*TURN_DONE), run_of(asked(text="hi"))],
    ids=["user", "tool", "text"],
)
def test_close_without_open_calls_changes_nothing(run: Run) -> None:
    assert close(run, "why") == run


# Guards


def play(
    *batches: tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]],
    limits: Limits | None = None,
    exempt: tuple[str, ...] = (),
) -> Run:
    """The run after replies with these calls and these results; it ends early where the loop says so."""
    run = Run("r", (USER,), max_turns=100, limits=limits or Limits(), exempt=exempt)
    for calls, results in batches:
        step = next_step(run)
        if isinstance(step, Stop):
            return run
        run = advance(run, step, Reply(asked(*calls)))
        run = advance(run, CallTools(calls), results)
    return run


def looked(
    content: str = "seen", name: str = "look", reason: str = "", **arguments: Any
) -> Any:
    result = ToolResult("a", content, is_error=bool(reason), reason=reason)
    return (ToolCall("a", name, arguments or {"key": 1}),), (result,)


BAD, GOOD = looked("Invalid", reason="malformed"), looked()

MALFORMED = {
    "two": ([BAD] * 2, 2, None),
    "three in a row": ([BAD] * 3, 3, "malformed_arguments"),
    "a good one between": ([BAD, BAD, GOOD, BAD, BAD], 2, None),
    "a failing tool is not malformed": (
        [looked("boom", reason="failed"), BAD, looked("b", reason="failed")],
        0,
        None,
    ),
    "a denial is not malformed": ([BAD, BAD, looked("no", reason="denied")], 0, None),
}


@pytest.mark.parametrize(
    ("batches", "count", "stopped"), MALFORMED.values(), ids=MALFORMED
)
def test_malformed_replies_in_a_row_end_the_run(
    batches: Any, count: int, stopped: str | None
) -> None:
    run = play(*batches)
    assert (run.malformed, run.stopped) == (count, stopped)


def test_a_reply_with_one_good_call_is_not_malformed() -> None:
    bad = ToolResult("a", "Invalid", is_error=True, reason="malformed")
    batch = ((LOOK, PAY), (bad, ToolResult("p", "paid")))
    assert play(*[batch] * 5, limits=Limits(repeats=100)).stopped is None


def test_the_budget_of_malformed_replies_can_be_set() -> None:
    assert play(BAD, limits=Limits(malformed=1)).stopped == "malformed_arguments"
    assert play(*[BAD] * 4, limits=Limits(malformed=5)).stopped is None


def test_attempts_left_count_down() -> None:
    left = [play(*[BAD] * count).attempts_left for count in range(3)]
    assert left == [2, 1, 0]


def notes(run: Run) -> list[bool]:
    """Of each tool message: whether the model was told that it repeats itself."""
    contents = [
        result.content for message in run.messages for result in message.tool_results
    ]
    return [content != "seen" for content in contents]


def test_a_repeated_call_is_pointed_out_at_the_third_time_and_ends_the_run_at_the_sixth() -> (
    None
):
    run = play(*[GOOD] * 9)
    assert notes(run)[:5] == [False, False, True, True, True]
    assert len(notes(run)) == 6
    assert run.stopped == "repeated_call"
    third = run.messages[6].tool_results[0].content
    assert third.startswith("seen\n")
    assert "3 times" in third


REPEATS = {
    "another result": [GOOD, GOOD, looked("changed"), GOOD, GOOD],
    "other arguments": [GOOD, GOOD, looked(key=2), GOOD, GOOD],
    "another tool": [GOOD, GOOD, looked(name="find"), GOOD, GOOD],
    "a malformed call": [GOOD, GOOD, BAD, GOOD, GOOD],
    "the results alternate": [looked(), looked("else")] * 6,
    "1 is not true": [looked(key=1), looked(key=True), looked(key=1), looked(key=1.5)]
    * 2,
}


@pytest.mark.parametrize("batches", REPEATS.values(), ids=REPEATS)
def test_a_change_resets_the_count_of_repeats(batches: Any) -> None:
    run = play(*batches)
    assert run.stopped is None
    assert not any(
        "times" in result.content
        for message in run.messages
        for result in message.tool_results
    )


def test_the_order_of_keys_makes_no_other_call() -> None:
    run = play(*[looked(a=1, b=2), looked(b=2, a=1)] * 3)
    assert run.stopped == "repeated_call"


def test_an_exempt_tool_may_repeat() -> None:
    run = play(*[looked()] * 20, exempt=("look",))
    assert run.stopped is None
    assert not any(notes(run))


def test_an_exempt_tool_does_not_hide_a_repeated_one() -> None:
    poll = ToolCall("b", "poll")
    batches = [
        ((LOOK, poll), (SEEN, ToolResult("b", f"state {number}")))
        for number in range(6)
    ]
    assert play(*batches, exempt=("poll",)).stopped == "repeated_call"


def test_only_what_is_repeated_is_pointed_out() -> None:
    poll, fail = ToolCall("b", "poll"), ToolCall("c", "fail")
    bad = ToolResult("c", "Invalid", is_error=True, reason="malformed")
    batch = ((LOOK, poll, fail), (SEEN, ToolResult("b", "pending"), bad))
    run = play(*[batch] * 3, exempt=("poll",))
    contents = [result.content for result in run.messages[-1].tool_results]
    assert [content in ("seen", "pending", "Invalid") for content in contents] == [
        False,
        True,
        True,
    ]


def test_the_limit_of_repeats_can_be_set() -> None:
    assert play(*[GOOD] * 4, limits=Limits(repeats=4)).stopped == "repeated_call"
    assert play(*[GOOD] * 9, limits=Limits(repeats=10)).stopped is None


NO_LIMITS = [
    *({"concurrency": value} for value in (0, -1)),
    *({"malformed": value} for value in (0, -1)),
    *({"repeats": value} for value in (0, 1, -1)),
    *(
        {"tool_calls": -1},
        {"total_tokens": -1},
        {"seconds": -0.5},
        {"result_chars": -1},
    ),
]


@pytest.mark.parametrize("given_limits", NO_LIMITS, ids=str)
def test_a_limit_that_is_none_is_refused_at_once(given_limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given_limits))):
        Limits(**given_limits)


# Any conversation

NAMES = st.sampled_from(
    [
        "look",
        "fail",
        "pay",
        "poll",
        "functions.look",
        "lok",
        "",
        "a b",
        "multi_tool_use.parallel",
    ]
)
ARGUMENTS = st.one_of(
    st.sampled_from(
        [
            '{"key": 1}',
            "{}",
            "",
            "null",
            "[]",
            '{"key": 1',
            '{"key": "x"}',
            '{"other": 1}',
            "{'key': 2}",
        ]
    ),
    st.builds(
        json.dumps,
        st.dictionaries(
            st.sampled_from(["key", "sum"]), st.integers(-3, 3), max_size=2
        ),
    ),
    st.sampled_from(
        [
            {"key": 3},
            '{"tool_uses": [{"recipient_name": "functions.look", "parameters": {"key": 1}}]}',
            '{"tool_uses": [{"recipient_name": "pay"}, {"recipient_name": "lok"}]}',
        ]
    ),
    st.text(max_size=8),
)
SENT = st.builds(
    lambda id, name, raw: ToolCall(id, name, raw=raw),
    st.sampled_from(["", "c1", "c2", "c3", "ä b"]),
    NAMES,
    ARGUMENTS,
)
REPLIES = st.builds(
    lambda text, calls, finish, usage: Reply(
        Message("assistant", text, tuple(calls)), usage, finish
    ),
    st.text(max_size=5),
    st.lists(SENT, max_size=3),
    st.sampled_from(["stop", "length", "refusal"]),
    st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
)
APPROVERS: Any = st.sampled_from(
    [
        None,
        *(
            lambda call, answer=answer: answer
            for answer in ("approve", "deny", "defer", None, True, NO)
        ),
    ]
)
HISTORIES = st.lists(
    st.sampled_from(
        [
            {"role": "user", "content": "before"},
            {"role": "assistant", "content": "so"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "h1", "function": {"name": "look"}}],
            },
        ]
    ),
    max_size=2,
    unique_by=str,
)
LIMITS = st.builds(
    Limits,
    st.none() | st.integers(0, 5),
    st.none() | st.integers(0, 40),
    concurrency=st.integers(1, 3),
    repeats=st.just(3),
)


def tools() -> toolkit.ToolRegistry:
    registry = toolkit.ToolRegistry()

    def look(key: int = 0) -> str:
        return f"seen {key}"

    def fail() -> None:
        raise ValueError("boom")

    def pay(sum: int = 1) -> str:
        return "paid"

    async def poll() -> list[int]:
        return [1]

    for function in (look, fail, poll):
        registry.register_tool(function)
    registry.register_tool(pay, permission="sensitive")
    return registry


TOOLS = tools()


@settings(max_examples=50)
@given(
    replies=st.lists(REPLIES, max_size=6),
    approve=APPROVERS,
    history=HISTORIES,
    limits=LIMITS,
    max_turns=st.integers(1, 6),
    choice=st.sampled_from(["auto", "none", "required", "look"]),
)
def test_every_call_of_every_conversation_is_answered_once(
    run: Callable[..., RunResult],
    replies: list[Reply],
    approve: Any,
    history: list[Any],
    limits: Limits,
    max_turns: int,
    choice: str,
) -> None:
    model = ScriptedModel([*replies, *["done"] * 6])
    before = copy.deepcopy((replies, history))
    options: dict[str, Any] = {
        "limits": limits,
        "max_turns": max_turns,
        "tool_choice": choice,
    }
    result = run(
        "q", model=model, tools=TOOLS, approve=approve, history=history, **options
    )

    assert (replies, history) == before
    for request in model.requests:
        check_pairs(request.messages)
        body = encode_for(
            chat, request.messages, request.tools, tool_choice=request.tool_choice
        )
        assert find_complaint(body) is None
    check_pairs(result.messages, paused=result.stop_reason == "awaiting_approval")
    assert bool(result.waiting) == (result.stop_reason == "awaiting_approval")
    assert RunResult.from_json(result.to_json()) == result
    assert str(result)
    assert len(model.requests) == result.run.turns <= max_turns
    ran = [
        call for call in result.calls if call.name == "pay" and call.content == "paid"
    ]
    assert not ran or (approve is not None and approve(PAY) == "approve")


def check_pairs(messages: tuple[Message, ...], *, paused: bool = False) -> None:
    """Each call is answered at once and once, in order, with text; no id comes twice."""
    seen: set[str] = set()
    for position, message in enumerate(messages):
        ids = [call.id for call in message.tool_calls]
        assert "" not in ids
        assert len({*ids} | seen) == len(ids) + len(seen), f"an id comes twice: {ids}"
        seen |= set(ids)
        following = messages[position + 1] if position + 1 < len(messages) else None
        if paused and following is None:
            assert ids
        elif ids:
            assert following is not None
            assert [result.call_id for result in following.tool_results] == ids
            assert all(
                isinstance(result.content, str) for result in following.tool_results
            )
        else:
            assert following is None or not following.tool_results


@settings(max_examples=30)
@given(
    replies=st.lists(
        REPLIES.filter(lambda reply: reply.message.tool_calls), min_size=1, max_size=3
    )
)
def test_any_conversation_can_be_resumed_from_its_json(replies: list[Reply]) -> None:
    model = ScriptedModel([*replies, *["done"] * 4])
    result = toolkit.run_agent_with_tools("q", model=model, tools=TOOLS)
    for number in range(20):
        if not result.waiting:
            break
        verdicts: Any = {result.waiting[0].id: ("approve", "deny")[number % 2]}
        result = toolkit.resume(result.to_json(), verdicts, model=model, tools=TOOLS)
    assert not result.waiting
    check_pairs(result.messages)


@settings(max_examples=30)
@given(replies=st.lists(REPLIES, max_size=4), approve=APPROVERS)
def test_both_drivers_come_to_the_same(replies: list[Reply], approve: Any) -> None:
    def script() -> ScriptedModel:
        return ScriptedModel([*replies, *["done"] * 6])

    plain = toolkit.run_agent_with_tools(
        "q", model=script(), tools=TOOLS, approve=approve
    )
    awaited = asyncio.run(
        toolkit.arun_agent_with_tools("q", model=script(), tools=TOOLS, approve=approve)
    )
    assert plain.stop_reason == awaited.stop_reason
    assert [told(message) for message in plain.messages] == [
        told(message) for message in awaited.messages
    ]


def told(message: Message) -> Any:
    """A message without what differs from run to run: made ids, and references to them."""
    results = [(result.is_error, result.reason) for result in message.tool_results]
    return (
        message.role,
        message.text,
        [(call.name, call.arguments) for call in message.tool_calls],
        results,
    )
