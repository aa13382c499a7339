"""Plan mode: what is run and what is only planned, and a plan that is carried out once, as it was approved."""

from __future__ import annotations

import asyncio
import html
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import toolkit
from helpers import Runner, ask
from toolkit import (
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolContext,
    ToolError,
    ToolRegistry,
)
from toolkit.audit import verify
from toolkit.errors import ApprovalError, StoreError
from toolkit.messages import Message
from toolkit.runs.plans import Plan
from toolkit.runs.state import Run
from toolkit.store import SQLiteStore

ROOT = Path(__file__).parents[1]


class World:
    """Tools of all tiers, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.registry = ToolRegistry()

        def look(key: str) -> str:
            """Look."""
            self.done.append(f"look {key}")
            return key

        def put(key: str, times: int = 1) -> str:
            """Put."""
            self.done.append(f"put {key} {times!r}")
            return f"put {key}"

        async def put_async(key: str, context: ToolContext) -> str:
            """Put."""
            await asyncio.sleep(0)
            self.done.append(f"put_async {key} {context.deps}")
            return f"put {key}"

        def pay(key: str) -> str:
            """Pay."""
            self.done.append(f"pay {key}")
            return f"paid {key}"

        def fail(key: str) -> str:
            """Fail."""
            self.done.append(f"fail {key}")
            raise ToolError("No room.")

        self.registry.register_tool(look, permission="read")
        for function in (put, put_async, fail):
            self.registry.register_tool(function, parallel=False)
        self.registry.register_tool(pay, permission="sensitive", parallel=False)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    return SQLiteStore(tmp_path / "runs.db")


REPLIES: list[Any] = [
    [ask("look", "a", key="1"), ask("put", "b", key="2")],
    [ask("pay", "c", key="3"), ask("put_async", "d", key="4")],
    "It is planned.",
]
DONE = ["put 2 1", "pay 3", "put_async 4 None"]


def make_plan(
    world: World,
    run: Runner = toolkit.run_agent_with_tools,
    *replies: Any,
    **options: Any,
) -> RunResult:
    model = ScriptedModel(replies or REPLIES)
    return run("go", model=model, tools=world.registry, mode="plan", **options)


def test_only_what_reads_is_run(run: Runner, world: World) -> None:
    asked: list[str] = []
    result = make_plan(
        world, run, approve=lambda call: asked.append(call.id) or "approve"
    )
    assert (world.done, asked, result.stop_reason) == (["look 1"], [], "answered")
    assert [call.content.split(":")[0].split(",")[0] for call in result.calls] == [
        "1",
        *["Planned"] * 3,
    ]
    assert not any(call.is_error for call in result.calls)
    assert [call.id for call in result.plan.calls] == ["b", "c", "d"]
    assert (
        str(result.plan)
        == '1. put({"key":"2","times":1})\n2. pay({"key":"3"})\n3. put_async({"key":"4"})'
    )


def test_a_plan_is_carried_out_once_and_in_order(run: Runner, world: World) -> None:
    plan = make_plan(world, run).plan
    world.done.clear()
    results = plan.apply(plan.digest)
    assert world.done == DONE
    assert [(result.call_id, result.content) for result in results] == [
        ("b", "put 2"),
        ("c", "paid 3"),
        ("d", "put 4"),
    ]
    for again in (plan, make_plan(world, run, run_id=plan.run.id).plan):
        with pytest.raises(ApprovalError, match=r"applied before\. Nothing was run"):
            again.apply()
    assert world.done == [*DONE, "look 1"]


def test_a_run_that_planned_nothing(run: Runner, world: World) -> None:
    plan = make_plan(world, run, ask("look", key="1"), "ok").plan
    assert (plan.calls, str(plan), plan.apply()) == ((), "(nothing planned)", ())


def test_a_run_that_was_no_plan_has_none(run: Runner, world: World) -> None:
    result = run(
        "go", model=ScriptedModel([ask("put", key="1"), "ok"]), tools=world.registry
    )
    assert result.plan.calls == ()


def test_after_a_failure_nothing_more_is_run(run: Runner, world: World) -> None:
    together = [ask("fail", "b", key="2"), ask("put", "c", key="3")]
    results = make_plan(
        world, run, ask("put", "a", key="1"), together, ask("pay", key="4"), "ok"
    ).plan.apply()
    assert world.done == [
        "put 1 1",
        "fail 2",
        "put 3 1",
    ]  # the calls of one reply belong together
    assert [result.reason for result in results] == ["", "failed", "", "not_run"]
    assert results[-1].content == "Not run: a call before it in the plan failed."


def test_arguments_are_carried_out_as_they_were_understood(
    run: Runner, world: World
) -> None:
    """What the plan shows is what the tool gets: after mends, not before."""
    replies = [
        ToolCall("a", "put", raw='{"arguments": {"key": "x", "times": null}}'),
        "ok",
    ]
    plan = make_plan(world, run, *replies).plan
    assert str(plan) == '1. put({"key":"x","times":1})'
    loaded = RunResult.from_json(make_plan(world, run, *replies).to_json()).plan
    assert loaded.calls[0].arguments == {"key": "x", "times": 1}
    assert [result.content for result in loaded.apply(tools=world.registry)] == [
        "put x"
    ]
    assert world.done == ["put x 1"]
    assert not plan.apply()[0].is_error


def test_calls_that_could_not_run_are_not_planned(run: Runner, world: World) -> None:
    replies = [
        [
            ask("put", "a", wrong=1),
            ask("nothing", "b"),
            ToolCall("c", "pay", raw="{"),
            ask("pay", "d", key="1"),
        ]
    ]
    plan = make_plan(world, run, *replies, "ok").plan
    assert [call.id for call in plan.calls] == ["d"]


@pytest.mark.parametrize("text", ["\ud800", 'a"b\n', "漢"], ids=ascii)
def test_a_plan_can_be_shown(text: str, run: Runner, world: World) -> None:
    plan = make_plan(
        world, run, ToolCall("a", "put", raw=json.dumps({"key": text})), "ok"
    ).plan
    assert str(plan).startswith("1. put(")
    assert "\n" not in str(plan)
    assert str(plan).encode()


def test_what_a_policy_denies_is_neither_run_nor_planned(
    run: Runner, world: World
) -> None:
    def policy(call: ToolCall) -> str:
        return "deny" if call.arguments["key"] == "secret" else "approve"

    policy.tiers = ("read", "write")  # type: ignore[attr-defined]
    replies = [
        [
            ask("look", "a", key="secret"),
            ask("look", "b", key="1"),
            ask("put", "c", key="secret"),
        ],
        "ok",
    ]
    replies[0].append(ask("put", "d", key="1"))  # type: ignore[union-attr]
    result = make_plan(world, run, *replies, approve=policy)
    assert world.done == ["look 1"]
    assert [
        call.content.startswith("Not run: the user denied") for call in result.calls
    ] == [True, False, True, False]
    assert [call.id for call in result.plan.calls] == ["d"]


def test_a_deferred_read_pauses_a_plan(run: Runner, world: World) -> None:
    def policy(call: ToolCall) -> str:
        return "defer"

    policy.tiers = ("read",)  # type: ignore[attr-defined]
    paused = make_plan(
        world,
        run,
        [ask("look", "a", key="1"), ask("put", "b", key="2")],
        approve=policy,
    )
    assert [call.id for call in paused.waiting] == ["a"]
    assert paused.plan.calls == ()
    result = toolkit.resume(
        paused.to_json(),
        {"a": "approve"},
        model=ScriptedModel(["ok"]),
        tools=world.registry,
    )
    assert (world.done, [call.id for call in result.plan.calls]) == (["look 1"], ["b"])


def test_a_conversation_goes_on_with_a_plan_of_its_own(
    run: Runner, world: World
) -> None:
    """What an earlier plan held is not run a second time by a later one."""
    first = make_plan(world, run, ask("put", "a", key="1"), "ok")
    first.plan.apply()
    model = ScriptedModel([ask("put", "b", key="2"), "ok"])
    second = run("more", model=model, tools=world.registry, mode="plan", history=first)
    assert [call.id for call in second.plan.calls] == ["b"]
    second.plan.apply()
    assert world.done == ["put 1 1", "put 2 1"]


# What is refused


def altered(result: RunResult, **changes: Any) -> RunResult:
    saved = json.loads(result.to_json())
    for message in saved["run"]["messages"]:
        for call in message["tool_calls"]:
            if call["id"] == "b":
                call["arguments"] = changes
        for answer in message["tool_results"]:
            if answer["call_id"] == "b" and answer["arguments"] is not None:
                answer["arguments"] = changes
    return RunResult.from_json(json.dumps(saved))


def test_another_plan_than_the_approved_one_is_refused(
    run: Runner, world: World
) -> None:
    result = make_plan(world, run)
    other = altered(result, key="666").plan
    world.done.clear()
    for approved in (result.plan.digest, "", "x"):
        with pytest.raises(ApprovalError, match=r"is another\. Nothing was run"):
            other.apply(approved, tools=world.registry)
    with pytest.raises(ApprovalError, match="is another"):
        make_plan(world, run).plan.apply(
            result.plan.digest
        )  # equal calls, but of another run
    assert [line for line in world.done if not line.startswith("look")] == []
    assert len(result.plan.apply(result.plan.digest)) == 3  # a refusal uses nothing up


def test_an_altered_plan_is_no_second_one(run: Runner, world: World) -> None:
    result = make_plan(world, run)
    result.plan.apply()
    with pytest.raises(ApprovalError, match="applied before"):
        altered(result, key="666").plan.apply(tools=world.registry)
    assert "put 666 1" not in world.done


def test_a_plan_that_its_tools_read_differently_is_kept(
    run: Runner, world: World, store: SQLiteStore
) -> None:
    plan = make_plan(world, run, store=store).plan
    other = World()

    def put(key: str, times: int = 2) -> str:
        """Put."""
        raise AssertionError("the call that was approved had times=1")

    tools = [*(each for each in other.registry if each.name != "put"), put]
    with pytest.raises(ApprovalError, match=r"\['b'\] are not those"):
        plan.apply(tools=tools, store=store)
    assert other.done == []
    plan.apply(store=store)
    assert world.done[1:] == DONE


def test_tools_that_are_not_there(run: Runner, world: World) -> None:
    text = make_plan(world, run).to_json()
    plan = RunResult.from_json(text).plan
    with pytest.raises(
        ApprovalError,
        match=r"calls \['pay', 'put', 'put_async'\], but tools= does not have them",
    ):
        plan.apply()  # the global registry
    with pytest.raises(ApprovalError, match=r"calls \['pay'\], but"):
        plan.apply(tools=world.registry.subset(tiers={"write"}))
    world.done.clear()
    assert len(plan.apply(tools=world.registry, deps="given")) == 3
    assert world.done == ["put 2 1", "pay 3", "put_async 4 given"]


def test_a_plan_that_was_broken_off_is_not_begun_again(run: Runner) -> None:
    done: list[str] = []

    def put(key: str) -> str:
        """Put."""
        done.append(key)
        raise KeyboardInterrupt

    registry = ToolRegistry()
    registry.register_tool(put)
    plan = run(
        "",
        model=ScriptedModel([ask("put", key="1"), "ok"]),
        tools=registry,
        mode="plan",
    ).plan
    with pytest.raises(KeyboardInterrupt):
        plan.apply()
    with pytest.raises(ApprovalError, match="applied before"):
        plan.apply()
    assert done == ["1"]


def test_threads_that_apply_one_plan(world: World) -> None:
    plan = make_plan(world).plan
    world.done.clear()
    gate, refused = threading.Barrier(6), []

    def apply() -> None:
        gate.wait()
        try:
            plan.apply()
        except ApprovalError:
            refused.append(1)

    threads = [threading.Thread(target=apply) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (world.done, len(refused)) == (DONE, 5)


# With a store and an audit


def test_with_a_store(run: Runner, world: World, store: SQLiteStore) -> None:
    result = make_plan(world, run, store=store)
    world.done.clear()
    for other in (altered(result, key="666"), make_plan(world, run)):
        with pytest.raises((ApprovalError, StoreError), match=r"went on|has no run"):
            other.plan.apply(tools=world.registry, store=store)
    store.result(result.run.id).plan.apply(
        result.plan.digest, tools=world.registry, store=store
    )
    assert [line for line in world.done if not line.startswith("look")] == DONE
    assert (store.runs()[0].status, store.load(result.run.id).applied) == (
        "applied",
        True,
    )
    kept = store.result(result.run.id)
    assert kept.stop_reason == "answered"  # how the run came to its end is not lost
    with pytest.raises(ApprovalError, match="applied before"):
        kept.plan.apply(tools=world.registry, store=store)
    store.close()


def test_a_run_that_went_on_is_another_plan(
    run: Runner, world: World, store: SQLiteStore
) -> None:
    def policy(call: ToolCall) -> str:
        return "defer"

    policy.tiers = ("read",)  # type: ignore[attr-defined]
    replies = [ask("put", "a", key="1"), ask("look", "b", key="2")]
    paused = make_plan(world, run, *replies, approve=policy, store=store)
    toolkit.resume(
        paused.run.id,
        {"b": "deny"},
        model=ScriptedModel(["ok"]),
        tools=world.registry,
        store=store,
    )
    with pytest.raises(ApprovalError, match="its run went on"):
        paused.plan.apply(store=store)
    assert (
        store.result(paused.run.id)
        .plan.apply(tools=world.registry, store=store)[0]
        .content
        == "put 1"
    )
    store.close()


_APPLY = """
import sys
from toolkit import ToolRegistry
from toolkit.errors import ApprovalError, StoreError
from toolkit.store import SQLiteStore
store, tools = SQLiteStore(sys.argv[1]), ToolRegistry()
def put(key: str, times: int = 1) -> str:
    "Put."
    with open(sys.argv[2], "a") as file:
        file.write(key + "\\n")
    return "put"
tools.register_tool(put)
plan = store.result("r").plan
print("ready", flush=True)
sys.stdin.readline()
try:
    plan.apply(tools=tools, store=store)
    print("applied")
except (ApprovalError, StoreError) as error:
    print(error)
"""


@pytest.mark.slow
def test_processes_that_apply_one_plan(
    world: World, store: SQLiteStore, tmp_path: Path
) -> None:
    make_plan(
        world,
        toolkit.run_agent_with_tools,
        ask("put", key="1"),
        "ok",
        store=store,
        run_id="r",
    )
    store.close()
    command = [sys.executable, "-c", _APPLY, str(store.path), str(tmp_path / "done")]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "bufsize": 1,
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [subprocess.Popen(command, env=environment, **pipes) for _ in range(3)]
    assert [process.stdout.readline() for process in processes if process.stdout] == [
        "ready\n"
    ] * 3
    said = [process.communicate("\n", timeout=30)[0] for process in processes]
    assert sum(line == "applied\n" for line in said) == 1, said
    assert (
        sum("applied before" in line or "being driven" in line for line in said) == 2
    ), said
    assert (tmp_path / "done").read_text() == "1\n"


def test_a_plan_is_audited(run: Runner, world: World, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    plan = make_plan(world, run, audit=path).plan
    assert path.read_bytes() == b""  # nothing was done yet
    plan.apply(audit=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["kind"], line["tool_call_id"]) for line in lines[:2]] == [
        ("intent", "b"),
        ("outcome", "b"),
    ]
    assert {(line["decision"], line["by"]) for line in lines} == {
        ("approve", "who approved the plan")
    }
    assert {line["run_id"] for line in lines} == {plan.run.id}
    assert (verify(path).is_intact, verify(path).lines, verify(path).unfinished) == (
        True,
        6,
        (),
    )


def test_what_cannot_be_audited_is_not_applied(
    run: Runner, world: World, tmp_path: Path
) -> None:
    plan = make_plan(world, run).plan
    world.done.clear()
    (tmp_path / "audit.jsonl").mkdir()
    with pytest.raises(OSError, match="audit"):
        plan.apply(audit=tmp_path / "audit.jsonl")
    assert world.done == []
    assert len(plan.apply()) == 3  # nothing was begun


def test_a_plan_is_a_value(run: Runner, world: World) -> None:
    result = make_plan(world, run)
    assert isinstance(result.plan, Plan)
    assert result.plan == result.plan
    assert len(result.plan.digest) == 64
    assert "Planned" not in repr(result.plan)


UNSEEN = ["\u202e", "\u200b", "\x1b[2J", "\ufe0f", "\u3164", "\x00", "\u2066"]


@pytest.mark.parametrize("char", UNSEEN)
def test_what_is_shown_of_a_plan_and_a_pause_hides_nothing(char: str) -> None:
    calls = (ToolCall(f"a{char}", f"put{char}", {"key": f"x{char}", char: 1}),)
    message = Message("assistant", tool_calls=calls)
    made = Run("r", messages=(Message("user", f"go{char}"), message))
    paused = RunResult(made, "awaiting_approval", calls)
    for shown in (str(Plan(made, calls)), str(paused), paused._repr_html_()):
        assert char not in shown
        assert json.dumps(char)[1:-1] in html.unescape(shown)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("r", "a"), ("r\na", "")),
        (("r", "a b"), ("r\na", "b")),
        (("r", 'a", "'), ("r", "a")),
    ],
)
def test_plans_of_other_ids_have_other_digests(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    digests = {
        Plan(Run(run_id, ()), (ToolCall(call_id, "put"),)).digest
        for run_id, call_id in (one, other)
    }
    assert len(digests) == 2


def test_no_id_takes_the_place_of_a_call() -> None:
    call, second = ToolCall("a", "put"), ToolCall("b", "pay")
    both = Plan(Run("r", ()), (call, second))
    one = Plan(Run(f"r\na {call.digest}", ()), (second,))
    glued = Plan(Run("r", ()), (replace(second, id=f"a {call.digest}\nb"),))
    assert len({both.digest, one.digest, glued.digest}) == 3


def test_the_outcomes_of_a_plan_after_a_crash(run: Runner, store: SQLiteStore) -> None:
    registry = ToolRegistry()

    @registry.register_tool
    def put(key: str) -> str:
        """Put."""
        if key == "2":
            raise KeyboardInterrupt
        return f"put {key}"

    replies = [
        ask("put", "a", key="1"),
        ask("put", "b", key="2"),
        ask("put", "c", key="3"),
    ]
    model = ScriptedModel([*replies, "ok"])
    plan = run("go", model=model, tools=registry, mode="plan", store=store).plan
    assert set(plan.outcomes(store).values()) == {"not started"}
    with pytest.raises(KeyboardInterrupt):
        plan.apply(store=store)
    outcomes = store.result(plan.run.id).plan.outcomes(store)
    assert str(outcomes.pop("a")) == "put 1"
    assert outcomes == {"b": "outcome unknown", "c": "not started"}
    store.close()
