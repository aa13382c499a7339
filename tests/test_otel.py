"""Runs as OpenTelemetry sees them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import importlib
import itertools
import json
import logging
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="collects the spans")

from opentelemetry import context, trace
from opentelemetry.metrics import NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from helpers import Runner
from toolkit import (
    Limits,
    Message,
    Reply,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolRegistry,
    Usage,
    arun_agent_with_tools,
    resume,
    run_agent_with_tools,
)
from toolkit.events import Event, without_content
from toolkit.otel import CAPTURE, Tracing

Tree = dict[str, Any]
SECRET = "told in confidence"


class Traced:
    """A tracer of the test's own, and what it was told."""

    def __init__(self, **options: Any) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader])
        self.sink = Tracing(
            tracer_provider=self.provider, meter_provider=meters, **options
        )
        self.tracer = self.provider.get_tracer("the user's own")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return sorted(
            (span for span in self.spans if span.name == name),
            key=lambda span: span.start_time or 0,
        )

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def tree(self) -> list[Tree]:
        """The names of the spans, each with those under it, in the order of their beginning."""

        def under(parent: int | None) -> list[Tree]:
            below = [
                span
                for span in self.spans
                if (span.parent.span_id if span.parent else None) == parent
            ]
            below.sort(key=lambda span: span.start_time or 0)
            return [{span.name: under(span.context.span_id)} for span in below]

        return under(None)

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        scopes = [
            scope
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
        ]
        return {
            metric.name: list(metric.data.data_points)
            for scope in scopes
            for metric in scope.metrics
        }


@pytest.fixture
def traced() -> Traced:
    return Traced()


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def call(call_id: str, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments)


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


# The tree


def test_a_run_is_a_tree_of_spans(run: Runner, traced: Traced) -> None:
    first = Reply(
        Message("assistant", "", (call("c", "double", number=4),)), Usage(7, 5, 3, 2)
    )
    run(
        "q",
        model=ScriptedModel([first, "8"]),
        tools=[double],
        on_event=traced.sink,
        run_id="r",
    )
    assert traced.tree() == [
        {
            "invoke_agent": [
                {"chat scripted": []},
                {"execute_tool double": []},
                {"chat scripted": []},
            ]
        }
    ]
    common = {
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.conversation.id": "r",
    }
    root, (asked, answered) = traced.one("invoke_agent"), traced.named("chat scripted")
    assert attributes(root) == {
        "gen_ai.operation.name": "invoke_agent",
        **common,
        "toolkit.stop_reason": "answered",
    }
    assert attributes(asked) == {
        "gen_ai.operation.name": "chat",
        **common,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    assert attributes(answered)["gen_ai.response.finish_reasons"] == ("stop",)
    assert not [name for name in attributes(answered) if "usage" in name], (
        "nothing was counted"
    )
    assert attributes(traced.one("execute_tool double")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "double",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c",
        "gen_ai.tool.description": "Double a number.",
        "toolkit.status": "ok",
    }
    kinds = {span.name.split()[0]: span.kind for span in traced.spans}
    assert kinds == {
        "invoke_agent": SpanKind.INTERNAL,
        "chat": SpanKind.CLIENT,
        "execute_tool": SpanKind.INTERNAL,
    }
    assert {span.status.status_code for span in traced.spans} == {StatusCode.UNSET}


def test_a_span_lies_within_its_parent(run: Runner, traced: Traced) -> None:
    def nested(number: int) -> str:
        return str(
            run_agent_with_tools(
                "q", model=script(), tools=[double], on_event=traced.sink
            )
        )

    def script() -> ScriptedModel:
        return ScriptedModel([call("c", "double", number=4), "8"])

    calls = [call("c", "nested", number=1), call("d", "double", number=2)]
    run(
        "q",
        model=ScriptedModel([calls, "done"]),
        tools=[nested, double],
        on_event=traced.sink,
    )
    by_id = {span.context.span_id: span for span in traced.spans}
    assert len(by_id) == 9
    for span in traced.spans:
        began, ended = times(span)
        assert began <= ended
        if span.parent:
            parent_began, parent_ended = times(by_id[span.parent.span_id])
            assert parent_began <= began <= ended <= parent_ended, span.name


def test_each_of_several_calls_has_its_span(run: Runner) -> None:
    traced = Traced(capture_content=True)
    together = threading.Barrier(
        3
    )  # each waits for the others, so they overlap or the test fails

    def meet(number: int) -> int:
        together.wait(30)
        return number

    calls = [call(f"c{number}", "meet", number=number) for number in range(3)]
    run("q", model=ScriptedModel([calls, "done"]), tools=[meet], on_event=traced.sink)
    spans = traced.named("execute_tool meet")
    results = {
        attributes(s)["gen_ai.tool.call.id"]: attributes(s)["gen_ai.tool.call.result"]
        for s in spans
    }
    assert results == {"c0": "0", "c1": "1", "c2": "2"}
    assert max(times(span)[0] for span in spans) < min(times(span)[1] for span in spans)


def test_calls_one_after_another_have_spans_one_after_another(
    run: Runner, traced: Traced
) -> None:
    def wait(number: int) -> int:
        threading.Event().wait(0.01)
        return number

    registry = ToolRegistry()
    registry.register_tool(wait, parallel=False)
    calls = [call(f"c{number}", "wait", number=number) for number in range(3)]
    run("q", model=ScriptedModel([calls, "done"]), tools=registry, on_event=traced.sink)
    spans = traced.named("execute_tool wait")
    assert [attributes(span)["gen_ai.tool.call.id"] for span in spans] == [
        "c0",
        "c1",
        "c2",
    ]
    assert all(
        times(after)[0] - times(before)[0] >= 0.01e9
        for before, after in itertools.pairwise(spans)
    )


@pytest.mark.parametrize(
    "kind", ["plain", "async", "without timeout", "async without timeout"]
)
def test_what_a_tool_traces_itself_hangs_under_its_call(
    run: Runner, traced: Traced, kind: str
) -> None:
    def work(number: int) -> str:
        with traced.tracer.start_as_current_span(f"work {number}"):
            return str(
                run_agent_with_tools(
                    "q", model=ScriptedModel(["inner"]), tools=(), on_event=traced.sink
                )
            )

    async def work_async(number: int) -> str:
        with traced.tracer.start_as_current_span(f"work {number}"):
            await asyncio.sleep(0)
            model = ScriptedModel(["inner"])
            return str(
                await arun_agent_with_tools(
                    "q", model=model, tools=(), on_event=traced.sink
                )
            )

    registry = ToolRegistry()
    timeout = {"timeout": None} if "without" in kind else {}
    registry.register_tool(
        work_async if "async" in kind else work, name="work", **timeout
    )
    inner = {"invoke_agent": [{"chat scripted": []}]}
    for number in (
        1,
        2,
    ):  # alone, a call without timeout runs on the caller's own thread
        traced.exporter.clear()
        calls = [call(f"c{n}", "work", number=n) for n in range(number)]
        with traced.tracer.start_as_current_span("mine"):
            run(
                "q",
                model=ScriptedModel([calls, "done"]),
                tools=registry,
                on_event=traced.sink,
            )
        (mine,) = traced.tree()
        (leg,) = mine["mine"]
        asked, *made, answered = leg["invoke_agent"]
        assert asked == answered == {"chat scripted": []}
        made.sort(key=str)
        assert made == [
            {"execute_tool work": [{f"work {n}": [inner]}]} for n in range(number)
        ]


def test_what_a_model_traces_itself_hangs_under_its_request(
    run: Runner, traced: Traced
) -> None:
    def reply(request: Any) -> str:
        with traced.tracer.start_as_current_span("POST"):
            return "done"

    for options in (
        {},
        {"cancel": threading.Event()},
    ):  # with a flag the request is made in a thread of its own
        traced.exporter.clear()
        run("q", model=ScriptedModel(reply), tools=(), on_event=traced.sink, **options)
        assert traced.tree() == [{"invoke_agent": [{"chat scripted": [{"POST": []}]}]}]


def test_the_context_of_the_caller_is_as_before(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("mine") as mine:
        before = context.get_current()
        run_agent_with_tools(
            "q", model=ScriptedModel(["done"]), tools=(), on_event=traced.sink
        )
        with pytest.raises(ZeroDivisionError):
            run_agent_with_tools(
                "q",
                model=ScriptedModel([ZeroDivisionError()]),
                tools=(),
                on_event=traced.sink,
            )
        assert context.get_current() == before
        assert trace.get_current_span() is mine


def test_each_leg_of_a_paused_run_is_a_span(traced: Traced) -> None:
    registry = ToolRegistry()
    registry.register_tool(double, permission="sensitive")
    model = ScriptedModel([call("c", "double", number=4), "8"])
    paused = run_agent_with_tools(
        "q", model=model, tools=registry, on_event=traced.sink
    )
    assert traced.tree() == [{"invoke_agent": [{"chat scripted": []}]}]
    resume(paused, {"c": "approve"}, model=model, tools=registry, on_event=traced.sink)
    second = {"invoke_agent": [{"execute_tool double": []}, {"chat scripted": []}]}
    assert traced.tree() == [{"invoke_agent": [{"chat scripted": []}]}, second]
    legs = [attributes(span) for span in traced.named("invoke_agent")]
    assert [leg["toolkit.stop_reason"] for leg in legs] == [
        "awaiting_approval",
        "answered",
    ]
    assert {leg["gen_ai.conversation.id"] for leg in legs} == {paused.run.id}
    assert (
        attributes(traced.one("execute_tool double"))["toolkit.approval"] == "approve"
    )


# What goes wrong


def fail(number: int) -> int:
    """Fail."""
    raise ToolError(SECRET)


def hang(number: int) -> int:
    """Take long."""
    threading.Event().wait(30)
    return number


FAILING = ToolRegistry([double, fail])
FAILING.register_tool(double, name="guarded", permission="sensitive")
FAILING.register_tool(hang, timeout=0.05)


@pytest.mark.parametrize(
    ("name", "given", "error"),
    [
        pytest.param("fail", {"number": 1}, "failed", id="the tool fails"),
        pytest.param("hang", {"number": 1}, "timeout", id="it hangs"),
        pytest.param("guarded", {"number": 1}, "denied", id="denied"),
        pytest.param("double", {"number": "much"}, "malformed", id="wrong arguments"),
        pytest.param("doble", {"number": 1}, "malformed", id="unknown tool"),
        pytest.param("double", "{", "malformed", id="unreadable"),
    ],
)
def test_a_failed_call_is_an_error(
    run: Runner, name: str, given: Any, error: str
) -> None:
    traced = Traced(capture_content=True)
    bad = (
        ToolCall("bad", name, raw=given)
        if isinstance(given, str)
        else ToolCall("bad", name, given)
    )
    calls = [bad, call("good", "double", number=1)]
    options = {"approve": lambda call: "deny", "on_event": traced.sink}
    result = run("q", model=ScriptedModel([calls, "done"]), tools=FAILING, **options)
    spans = {
        attributes(s)["gen_ai.tool.call.id"]: s
        for s in traced.spans
        if s.name.startswith("execute_tool")
    }
    assert set(spans) == {"bad", "good"}
    assert spans["bad"].name == f"execute_tool {name}"
    assert spans["bad"].status.status_code is StatusCode.ERROR
    assert attributes(spans["bad"])["error.type"] == error
    assert (
        attributes(spans["bad"])["gen_ai.tool.call.result"] == result.calls[0].content
    )
    assert attributes(spans["bad"])["gen_ai.tool.call.arguments"] == (
        given if given == "{" else json.dumps(given)
    )
    assert spans["good"].status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes(traced.one("invoke_agent"))
    points = traced.metrics()["gen_ai.execute_tool.duration"]
    counted = {
        point.attributes["gen_ai.tool.name"]: point.attributes.get("error.type")
        for point in points
    }
    assert counted == {
        "double": None,
        **({name: error} if error in ("failed", "timeout") else {}),
    }, "those that ran"


def test_a_model_that_fails_is_an_error(run: Runner, traced: Traced) -> None:
    with pytest.raises(ZeroDivisionError):
        run(
            "q",
            model=ScriptedModel([ZeroDivisionError(SECRET)]),
            tools=[double],
            on_event=traced.sink,
        )
    assert traced.tree() == [{"invoke_agent": [{"chat scripted": []}]}]
    for span in traced.spans:
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "ZeroDivisionError"
    (point,) = traced.metrics()["gen_ai.client.operation.duration"]
    assert point.attributes["error.type"] == "ZeroDivisionError"


def test_an_interrupted_run_ends_its_spans(run: Runner, traced: Traced) -> None:
    started = threading.Event()

    def stop(number: int) -> int:
        started.wait(30)
        raise KeyboardInterrupt

    def stay(number: int) -> int:
        started.set()
        threading.Event().wait(30)
        return number

    calls = [call("c", "stop", number=1), call("d", "stay", number=1)]
    with pytest.raises(KeyboardInterrupt):
        run("q", model=ScriptedModel([calls]), tools=[stop, stay], on_event=traced.sink)
    errors = {span.name: attributes(span).get("error.type") for span in traced.spans}
    stopped = dict.fromkeys(
        ("execute_tool stop", "execute_tool stay", "invoke_agent"), "KeyboardInterrupt"
    )
    assert errors == {"chat scripted": None, **stopped}


def test_a_cancelled_task_ends_its_spans(traced: Traced) -> None:
    async def cancel_within() -> None:
        started = asyncio.Event()

        async def stay(number: int) -> None:
            started.set()
            await asyncio.sleep(30)

        model = ScriptedModel([call("c", "stay", number=1)])
        running = asyncio.ensure_future(
            arun_agent_with_tools(
                "q", model=model, tools=[stay], on_event=traced.sink, run_id="r"
            )
        )
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel_within())
    assert traced.tree() == [
        {"invoke_agent": [{"chat scripted": []}, {"execute_tool stay": []}]}
    ]
    for span in (traced.one("invoke_agent"), traced.one("execute_tool stay")):
        assert attributes(span)["error.type"] == "CancelledError"


def test_a_planned_call_says_that_it_did_not_run(run: Runner, traced: Traced) -> None:
    model = ScriptedModel([call("c", "double", number=4), "planned"])
    run("q", model=model, tools=[double], on_event=traced.sink, mode="plan")
    span = traced.one("execute_tool double")
    assert attributes(span)["toolkit.status"] == "not_executed"
    assert span.status.status_code is StatusCode.UNSET


def test_a_request_that_is_left_behind_ends(traced: Traced) -> None:
    def reply(request: Any) -> str:
        flag.set()
        threading.Event().wait(1)
        return "late"

    flag = threading.Event()
    run_agent_with_tools(
        "q", model=ScriptedModel(reply), tools=(), on_event=traced.sink, cancel=flag
    )
    assert attributes(traced.one("chat scripted"))["error.type"] == "cancelled"
    assert "error.type" not in attributes(traced.one("invoke_agent"))


def test_a_refused_route_is_an_error_of_its_request(
    run: Runner, traced: Traced
) -> None:
    from toolkit.errors import ToolsRefused

    script = [ToolsRefused("no tools here"), "done"]
    run("q", model=ScriptedModel(script), tools=[double], on_event=traced.sink)
    refused, answered = traced.named("chat scripted")
    assert attributes(refused)["error.type"] == "ToolsRefused"
    assert "error.type" not in attributes(answered)


class Broken(SpanProcessor):
    def __init__(self, *on: str) -> None:
        self.on = on

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.fail("start", span)

    def on_end(self, span: Any) -> None:
        self.fail("end", span)

    def fail(self, when: str, span: Any) -> None:
        if when in self.on or f"{when} {span.name.split()[0]}" in self.on:
            raise RuntimeError("the processor fails")


@pytest.mark.parametrize(
    "on",
    [
        "start",
        "end",
        "start chat",
        "end chat",
        "start execute_tool",
        "end execute_tool",
    ],
)
def test_what_fails_in_a_trace_breaks_no_run(
    run: Runner, traced: Traced, on: str, caplog: Any
) -> None:
    traced.provider.add_span_processor(Broken(on))
    before = context.get_current()
    model = ScriptedModel([call("c", "double", number=4), "8"])
    with caplog.at_level(logging.CRITICAL):
        assert str(run("q", model=model, tools=[double], on_event=traced.sink)) == "8"
        assert context.get_current() == before


class BrokenMeters(NoOpMeterProvider):
    """Its instruments are made, and fail."""

    def get_meter(self, *_: Any, **__: Any) -> Any:
        class Broken(NoOpMeter):
            def create_histogram(self, *_: Any, **__: Any) -> Any:
                return object()

        return Broken("broken")


def test_what_fails_in_a_metric_breaks_no_run_and_no_context(
    run: Runner, caplog: Any
) -> None:
    sink = Tracing(tracer_provider=TracerProvider(), meter_provider=BrokenMeters())
    before = context.get_current()
    replies = [
        Reply(Message("assistant", "", (call("c", "look", number=4),)), Usage(7, 5)),
        "8",
    ]
    seen: list[Any] = []

    def look(number: int) -> int:
        seen.append(trace.get_current_span())
        return number

    with caplog.at_level(logging.CRITICAL):
        assert (
            str(run("q", model=ScriptedModel(replies), tools=[look], on_event=sink))
            == "8"
        )
    assert context.get_current() == before
    assert seen[0].name == "execute_tool look"


def test_a_lone_surrogate_reaches_no_exporter(run: Runner) -> None:
    traced = Traced(capture_content=True)
    first = ToolCall("c", "no\ud800tool", raw='{"text": "\\ud800"}')
    run("q", model=ScriptedModel([first, "done"]), tools=[double], on_event=traced.sink)
    assert len(traced.spans) == 4
    for span in traced.spans:
        (span.name + str(dict(attributes(span)))).encode()


# Many at once


def test_runs_in_threads_have_each_their_tree(traced: Traced) -> None:
    def one(number: int) -> None:
        run_agent_with_tools(
            "q",
            model=ScriptedModel([call("c", "double", number=4), "8"]),
            tools=[double],
            on_event=traced.sink,
        )

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(one, range(50)))
    assert_fifty_trees(traced)


def test_runs_in_tasks_have_each_their_tree(traced: Traced) -> None:
    async def double_later(number: int) -> int:
        await asyncio.sleep(0.01)
        return 2 * number

    registry = ToolRegistry()
    registry.register_tool(double_later, name="double")

    async def one(number: int) -> None:
        model = ScriptedModel([call("c", "double", number=4), "8"])
        await arun_agent_with_tools(
            "q", model=model, tools=registry, on_event=traced.sink
        )

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(50)))

    asyncio.run(all_of_them())
    assert_fifty_trees(traced)


def assert_fifty_trees(traced: Traced) -> None:
    assert (
        traced.tree()
        == [
            {
                "invoke_agent": [
                    {"chat scripted": []},
                    {"execute_tool double": []},
                    {"chat scripted": []},
                ]
            }
        ]
        * 50
    )
    traces = Counter(span.context.trace_id for span in traced.spans)
    assert set(traces.values()) == {4}
    ids = {
        span.context.trace_id: attributes(span)["gen_ai.conversation.id"]
        for span in traced.named("invoke_agent")
    }
    assert len(ids) == len(set(ids.values())) == 50
    for span in traced.named("chat scripted"):
        assert attributes(span)["gen_ai.conversation.id"] == ids[span.context.trace_id]


def test_runs_of_one_id_at_once_are_kept_apart(traced: Traced) -> None:
    together = threading.Barrier(2)

    def meet(number: int) -> int:
        together.wait(30)
        return number

    def one(number: int) -> None:
        model = ScriptedModel([call("c", "meet", number=number), "done"])
        run_agent_with_tools(
            "q", model=model, tools=[meet], on_event=traced.sink, run_id="same"
        )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(2)))
    whole = {
        "invoke_agent": [
            {"chat scripted": []},
            {"execute_tool meet": []},
            {"chat scripted": []},
        ]
    }
    assert traced.tree() == [whole, whole]


def test_nothing_is_kept_of_a_run(run: Runner, traced: Traced) -> None:
    kept: list[weakref.ref[Any]] = []

    def mark(number: int) -> int:
        kept.append(weakref.ref(trace.get_current_span()))
        return number

    for reply in ("done", ZeroDivisionError()):
        model = ScriptedModel([call("c", "mark", number=1), reply])
        with contextlib.suppress(ZeroDivisionError):
            run("q", model=model, tools=[mark], on_event=traced.sink)
    traced.exporter.clear()
    del model
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


# Content


def told(traced: Traced) -> str:
    return "".join(span.to_json() for span in traced.spans)


@pytest.mark.parametrize(
    ("asked", "environment", "captured"),
    [
        pytest.param(None, None, False, id="by default"),
        pytest.param(True, None, True, id="asked for"),
        pytest.param(None, "SPAN_ONLY", True, id="spans"),
        pytest.param(None, "span_and_event", True, id="both"),
        pytest.param(None, "true", True, id="as it was"),
        pytest.param(None, "EVENT_ONLY", False, id="events"),
        pytest.param(None, "NO_CONTENT", False, id="none"),
        pytest.param(None, "what", False, id="nonsense"),
        pytest.param(False, "SPAN_ONLY", False, id="the argument wins"),
    ],
)
def test_content_is_for_who_asks(
    run: Runner,
    asked: Any,
    environment: str | None,
    captured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(CAPTURE, raising=False)
    if environment is not None:
        monkeypatch.setenv(CAPTURE, environment)
    traced = Traced(capture_content=asked)

    def repeat(text: str) -> str:
        return text

    first = Reply(
        Message(
            "assistant",
            SECRET,
            (call("c", "repeat", text=SECRET), call("d", SECRET, text=SECRET)),
        )
    )
    run(
        SECRET,
        model=ScriptedModel([first, SECRET]),
        tools=[repeat],
        on_event=traced.sink,
        instructions=SECRET,
    )
    heard = (
        told(traced)
        .replace(f"execute_tool {SECRET}", "")
        .replace(f'"gen_ai.tool.name": "{SECRET}"', "")
    )
    assert (SECRET in heard) is captured


def test_content_has_the_form_of_the_conventions(run: Runner) -> None:
    traced = Traced(capture_content=True)
    calls = (call("c", "double", number=4), call("d", "double", number=5))
    first = Reply(Message("assistant", "so", calls))
    refused = Reply(Message("assistant", "no"), finish="refusal")
    run(
        "q",
        model=ScriptedModel([first, refused]),
        tools=[double],
        on_event=traced.sink,
        instructions="be brief",
    )
    asked, answered = map(attributes, traced.named("chat scripted"))
    begun = [
        {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
        {"role": "user", "parts": [{"type": "text", "content": "q"}]},
    ]
    made = [
        {"type": "tool_call", "id": "c", "name": "double", "arguments": {"number": 4}},
        {"type": "tool_call", "id": "d", "name": "double", "arguments": {"number": 5}},
    ]
    said = {"role": "assistant", "parts": [{"type": "text", "content": "so"}, *made]}
    came = [
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c", "response": "8"}],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "d", "response": "10"}],
        },
    ]
    last = {
        "role": "assistant",
        "parts": [{"type": "text", "content": "no"}],
        "finish_reason": "content_filter",
    }
    assert json.loads(asked["gen_ai.input.messages"]) == begun
    assert json.loads(asked["gen_ai.output.messages"]) == [
        {**said, "finish_reason": "tool_call"}
    ]
    assert json.loads(answered["gen_ai.input.messages"]) == [*begun, said, *came]
    assert json.loads(answered["gen_ai.output.messages"]) == [last]
    whole = attributes(traced.one("invoke_agent"))
    assert json.loads(whole["gen_ai.input.messages"]) == begun
    assert json.loads(whole["gen_ai.output.messages"]) == [last]


def test_a_result_is_captured_whole(run: Runner) -> None:
    traced = Traced(capture_content=True)

    def write(number: int) -> str:
        return "long " * number

    run(
        "q",
        model=ScriptedModel([call("c", "write", number=900), "done"]),
        tools=[write],
        on_event=traced.sink,
    )
    assert (
        attributes(traced.one("execute_tool write"))["gen_ai.tool.call.result"]
        == "long " * 900
    )


def test_a_sink_behind_another_one_still_has_its_times(run: Runner) -> None:
    """Then it is not told where a tool runs, nor what was said."""
    traced = Traced(capture_content=True)

    def work(number: int) -> int:
        threading.Event().wait(0.02)
        return number

    sink = without_content(traced.sink)
    calls = [call("c", "work", number=1), call("d", "work", number=2)]
    run(SECRET, model=ScriptedModel([calls, SECRET]), tools=[work], on_event=sink)
    spans = traced.named("execute_tool work")
    assert {attributes(span)["gen_ai.tool.call.id"] for span in spans} == {"c", "d"}
    assert all(times(span)[1] - times(span)[0] >= 0.02e9 for span in spans)
    assert SECRET not in told(traced)


# Metrics


def test_tokens_and_durations_are_measured(run: Runner, traced: Traced) -> None:
    first = Reply(
        Message("assistant", "", (call("c", "double", number=4),)), Usage(7, 5)
    )
    run(
        "q",
        model=ScriptedModel([first, Reply(Message("assistant", "8"), Usage(10, 0))]),
        tools=[double],
        on_event=traced.sink,
    )
    points = traced.metrics()
    model = {"gen_ai.provider.name": "scripted", "gen_ai.request.model": "scripted"}
    asked = {"gen_ai.operation.name": "chat", **model}
    tokens = {
        point.attributes["gen_ai.token.type"]: point
        for point in points["gen_ai.client.token.usage"]
    }
    assert {kind: (point.count, point.sum) for kind, point in tokens.items()} == {
        "input": (2, 17),
        "output": (1, 5),
    }
    assert dict(tokens["input"].attributes) == {**asked, "gen_ai.token.type": "input"}
    assert tokens["input"].explicit_bounds[:4] == (1, 4, 16, 64)
    assert tokens["input"].explicit_bounds[-1] == 67108864
    (duration,) = points["gen_ai.client.operation.duration"]
    assert (duration.count, dict(duration.attributes)) == (2, asked)
    assert duration.explicit_bounds == (
        *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64),
        *(1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    )
    lasted = sum(
        times(span)[1] - times(span)[0] for span in traced.named("chat scripted")
    )
    assert duration.sum == pytest.approx(lasted / 1e9), "the same as its spans"
    (agent,) = points["gen_ai.invoke_agent.duration"]
    assert agent.explicit_bounds[0] == 0.1
    assert agent.explicit_bounds[-1] == 409.6
    (tool,) = points["gen_ai.execute_tool.duration"]
    assert tool.attributes["gen_ai.tool.name"] == "double"


# A receiver


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An address that takes what an exporter posts, and what it took."""
    posted: list[tuple[str, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append(
                (
                    self.path,
                    gzip.decompress(body)
                    if self.headers["Content-Encoding"] == "gzip"
                    else body,
                )
            )
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()
        thread.join(10)


def test_a_receiver_reads_the_tree(
    run: Runner, receiver: tuple[str, list[tuple[str, bytes]]]
) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="sends to the receiver"
    )
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
        OTLPMetricExporter,
    )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
    )
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    address, posted = receiver
    tracers, meters = (
        TracerProvider(),
        MeterProvider(
            [PeriodicExportingMetricReader(OTLPMetricExporter(f"{address}/v1/metrics"))]
        ),
    )
    tracers.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces"))
    )
    sink = Tracing(tracer_provider=tracers, meter_provider=meters, capture_content=True)
    calls = [
        call("c", "double", number=4),
        ToolCall("d", "double", raw='{"number": "\\ud800"}'),
        call("e", "double", number=5),
    ]
    run(
        "Größe?",
        model=ScriptedModel(
            [Reply(Message("assistant", "", tuple(calls)), Usage(7, 5)), "ok"]
        ),
        tools=[double],
        on_event=sink,
    )
    tracers.shutdown()
    meters.shutdown()
    spans = [
        span
        for path, body in posted
        if path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    (root,) = (span for span in spans if not span.parent_span_id)
    assert root.name == "invoke_agent"
    assert {span.parent_span_id for span in spans if span is not root} == {root.span_id}
    assert {span.trace_id for span in spans} == {root.trace_id}
    given = {a.key: a.value.string_value for a in root.attributes}
    assert (
        json.loads(given["gen_ai.input.messages"])[0]["parts"][0]["content"] == "Größe?"
    )
    codes = {
        next(
            a.value.string_value
            for a in span.attributes
            if a.key == "gen_ai.tool.call.id"
        ): span.status.code
        for span in spans
        if span.name == "execute_tool double"
    }
    assert codes == {"c": 0, "d": 2, "e": 0}, "2 is an error"
    measured = {
        metric.name
        for path, body in posted
        if path == "/v1/metrics"
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert measured == {
        *("gen_ai.client.token.usage", "gen_ai.client.operation.duration"),
        *("gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"),
    }


def test_without_a_receiver_a_run_goes_on(run: Runner, caplog: Any) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="has nobody to send to"
    )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    tracers = TracerProvider()
    tracers.add_span_processor(
        SimpleSpanProcessor(
            OTLPSpanExporter("http://127.0.0.1:9/v1/traces", timeout=0.2)
        )
    )
    with caplog.at_level(logging.CRITICAL):
        result = run(
            "q",
            model=ScriptedModel(["done"]),
            tools=(),
            on_event=Tracing(tracer_provider=tracers),
        )
    assert str(result) == "done"


# Without anything


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            {"tracer_provider": trace.NoOpTracer()},
            "tracer_provider must be a provider",
            id="a tracer",
        ),
        pytest.param(
            {"meter_provider": NoOpMeter("m")},
            "meter_provider must be a provider",
            id="a meter",
        ),
        pytest.param(
            {"capture_content": "NO_CONTENT"},
            "capture_content='NO_CONTENT'",
            id="no flag",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_once(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        Tracing(**given)


def test_without_opentelemetry_the_import_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "toolkit.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"pip install 'toolkit-agent\[otel\]'"):
        importlib.import_module("toolkit.otel")


def test_without_a_provider_nothing_happens(run: Runner) -> None:
    """OpenTelemetry's own default: no SDK is set up, so nothing is recorded."""
    model = ScriptedModel([call("c", "double", number=4), "8"])
    assert (
        str(
            run(
                "q",
                model=model,
                tools=[double],
                on_event=Tracing(),
                limits=Limits(seconds=30),
            )
        )
        == "8"
    )


def test_events_of_an_unknown_run_are_passed_over(traced: Traced) -> None:
    traced.sink(Event("run_end", "r", 0, "", {"stop_reason": "answered"}))
    traced.sink.enter_call("c")
    assert traced.spans == ()
