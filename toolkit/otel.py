"""Runs as OpenTelemetry traces and metrics, in the names of its conventions for generative AI.

    invoke_agent                a run (of one that was paused: each leg), by `gen_ai.conversation.id`
    ├── chat MODEL              a request to the model, with its tokens
    ├── execute_tool NAME       a call, by `gen_ai.tool.call.id`; calls of one reply overlap as they did
    │   └── …                   what the tool traces itself, and runs inside of it
    └── chat MODEL

`error.type` is the class of an exception; for a call "failed", "timeout", "denied", "malformed", "interrupted",
"unknown" or "not_run"; for a request that was left behind what ended the run ("cancelled", "limit_reached").

Names, units and buckets are those of github.com/open-telemetry/semantic-conventions-genai, in development there, as of
2026. Tokens stand on the `chat` spans alone: some back ends add up what they find on all spans of a trace.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextvars import Token
from dataclasses import dataclass, field
from typing import Any

from toolkit.events import Event
from toolkit.messages import Message, whole_characters
from toolkit.tools.tool import Tool

try:
    from opentelemetry import context, metrics, trace
except ImportError as missing:
    raise ImportError(
        "Traces need OpenTelemetry. Install it: pip install 'toolkit-agent[otel]'."
    ) from missing

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that says where content is captured; "true" is an older value for all places."""

_ON_SPANS = ("span_only", "span_and_event", "true")
_TOKENS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_FINISHES = {"refusal": "content_filter"}  # "stop" and "length" are theirs
_SECONDS = [0.01 * 2**power for power in range(14)]
_DURATIONS = {
    "invoke_agent": (
        "gen_ai.invoke_agent.duration",
        "s",
        "A run, or one leg of it.",
        [0.1 * 2**n for n in range(13)],
    ),
    "chat": (
        "gen_ai.client.operation.duration",
        "s",
        "A request to the model.",
        _SECONDS,
    ),
    "execute_tool": (
        "gen_ai.execute_tool.duration",
        "s",
        "A call of a tool.",
        _SECONDS,
    ),
}
_USAGE = (
    "gen_ai.client.token.usage",
    "{token}",
    "Tokens of a request to the model.",
    [4**power for power in range(14)],
)


@dataclass(slots=True)
class _Open:
    """A span that has not ended."""

    span: trace.Span
    began: int  # nanoseconds since 1970
    counted: Mapping[str, str]  # the attributes of its metrics too


@dataclass(slots=True)
class _Leg:
    """A run while it goes on, from here to its end or its pause."""

    run_id: str
    run: _Open
    tools: Mapping[str, Tool]
    tokens: list[Token[context.Context]] = field(
        default_factory=list
    )  # of the contexts that were entered
    chat: _Open | None = None
    batch: int = 0
    asked: dict[str, Event] = field(
        default_factory=dict
    )  # the calls that have no span yet, by id
    calls: dict[str, _Open] = field(default_factory=dict)
    said: str = ""


class Tracing:
    """A sink that tells OpenTelemetry of runs: `on_event=Tracing()`.

    tracer_provider, meter_provider: from OpenTelemetry's SDK; None takes the global ones.
    capture_content: whether what people, models and tools said goes onto the spans; None leaves it to the environment
        variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT (SPAN_ONLY or SPAN_AND_EVENT; unset, it does not).

    One serves any number of runs at once, in threads and in tasks. A run hangs under the span in which it was begun.
    Give it to `on_event` as it is: it must be called where the run runs.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        capture_content: bool | None = None,
    ) -> None:
        for name, given in (
            ("tracer_provider", tracer_provider),
            ("meter_provider", meter_provider),
        ):
            if given is not None and not hasattr(
                given, f"get_{name.removesuffix('_provider')}"
            ):
                raise TypeError(
                    f"{name} is a provider of OpenTelemetry's SDK, not {given!r}. Give what made that."
                )
        if not isinstance(capture_content, bool | None):  # "NO_CONTENT" is true, too
            raise TypeError(
                f"capture_content={capture_content!r} is neither True, False nor None. Give one of these."
            )
        if capture_content is None:
            capture_content = os.environ.get(CAPTURE, "").strip().lower() in _ON_SPANS
        self.capture_content = capture_content
        self._tracer = trace.get_tracer("toolkit", tracer_provider=tracer_provider)
        meter = metrics.get_meter("toolkit", meter_provider=meter_provider)
        self._durations = {
            operation: _histogram(meter, *given)
            for operation, given in _DURATIONS.items()
        }
        self._usage = _histogram(meter, *_USAGE)
        # A run is found by the context in which it runs: neither call ids nor run ids are unique among runs.
        self._key = context.create_key("toolkit.run")

    def __call__(self, event: Event) -> None:
        if event.name == "run_start":
            self._begin_run(event)
            return
        leg = context.get_value(self._key)
        if not isinstance(leg, _Leg) or leg.run_id != event.run_id:
            return  # its beginning failed, and was logged
        match event.name:
            case "model_request":
                self._begin_chat(leg, event)
            case "model_reply":
                self._end_chat(leg, "", event)
            case "route_switch":
                self._end_chat(leg, "ToolsRefused")
            case "tool_call_request":
                leg.batch = leg.batch if leg.asked else time.time_ns()
                leg.asked[event.data["tool_call_id"]] = event
            case "tool_exec_result":
                self._end_call(leg, event)
            case "run_end":
                self._end_run(leg, event)

    def enter_call(self, call_id: str) -> None:
        """Begin the span of a call, in the context of its tool."""
        leg = context.get_value(self._key)
        if isinstance(leg, _Leg) and (asked := leg.asked.pop(call_id, None)):
            leg.calls[call_id] = call = self._begin_call(leg, asked, time.time_ns())
            context.attach(trace.set_span_in_context(call.span))

    def _begin_run(self, event: Event) -> None:
        provider = event.data["provider"] or "_OTHER"
        model = {
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": event.data["model"],
        }
        run = self._begin(
            "invoke_agent", "", model, {"gen_ai.conversation.id": event.run_id}
        )
        leg = _Leg(event.run_id, run, event.subject or {})
        leg.tokens.append(
            context.attach(
                context.set_value(self._key, leg, trace.set_span_in_context(run.span))
            )
        )

    def _begin_chat(self, leg: _Leg, event: Event) -> None:
        named = {"gen_ai.conversation.id": leg.run_id}
        leg.chat = chat = self._begin(
            "chat", event.data["model"], leg.run.counted, named
        )
        leg.tokens.append(context.attach(trace.set_span_in_context(chat.span)))
        if self._captures(chat) and event.subject:
            heard = _as_text(
                [each for message in event.subject for each in _written(message)]
            )
            for one in (chat,) if leg.said else (chat, leg.run):
                one.span.set_attribute("gen_ai.input.messages", heard)

    def _tell_reply(self, leg: _Leg, chat: _Open, event: Event) -> None:
        data = event.data
        finish = (
            "tool_call"
            if data["tool_calls"]
            else _FINISHES.get(data["finish"], data["finish"])
        )
        chat.span.set_attribute("gen_ai.response.finish_reasons", [finish])
        for key, name in _TOKENS.items():
            if count := data[key]:  # 0 where the provider told nothing
                chat.span.set_attribute(name, count)
                if key in (
                    "input_tokens",
                    "output_tokens",
                ):  # the others are part of these
                    self._usage.record(
                        count,
                        {
                            **chat.counted,
                            "gen_ai.token.type": key.removesuffix("_tokens"),
                        },
                    )
        if self._captures(chat) and event.subject:
            leg.said = _as_text(
                [
                    {**each, "finish_reason": finish}
                    for each in _written(event.subject.message)
                ]
            )
            chat.span.set_attribute("gen_ai.output.messages", leg.said)

    def _end_chat(self, leg: _Leg, error: str, reply: Event | None = None) -> None:
        if chat := leg.chat:
            leg.chat = None
            try:
                if reply:
                    self._tell_reply(leg, chat, reply)
                self._end(chat, error)
            finally:
                context.detach(leg.tokens.pop())

    def _begin_call(self, leg: _Leg, asked: Event, began: int) -> _Open:
        name, arguments = (
            whole_characters(asked.data["tool_name"]),
            asked.data["arguments"],
        )
        named = {"gen_ai.tool.call.id": asked.data["tool_call_id"]}
        if (tool := leg.tools.get(name)) and tool.description:
            named["gen_ai.tool.description"] = tool.description
        if self.capture_content and arguments is not None:
            # What could not be read is {}, and the text stands in the other field.
            named["gen_ai.tool.call.arguments"] = _as_text(
                arguments or asked.data["raw_arguments"]
            )
        counted = {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
        return self._begin("execute_tool", name, counted, named, began)

    def _end_call(self, leg: _Leg, event: Event) -> None:
        data, call_id = event.data, event.data["tool_call_id"]
        asked, call = leg.asked.pop(call_id, None), leg.calls.pop(call_id, None)
        if asked and not call:  # it did not run, or this sink was not told of where
            call = self._begin_call(
                leg, asked, leg.batch + round(data["started_ms"] * 1e6)
            )
        if call is None:
            return  # given up just as it began: ended with the run
        call.span.set_attribute("toolkit.status", data["status"])
        if data["approval"]:
            call.span.set_attribute("toolkit.approval", data["approval"])
        if self._captures(call) and event.subject:
            call.span.set_attribute(
                "gen_ai.tool.call.result", whole_characters(event.subject.content)
            )
        ended = min(call.began + round(data["time_ms"] * 1e6), time.time_ns())
        self._end(
            call, data["error_type"], ended, counts=data["status"] != "not_executed"
        )

    def _end_run(self, leg: _Leg, event: Event) -> None:
        error, stop_reason = (
            event.data.get("error", ""),
            event.data.get("stop_reason", ""),
        )
        leg.asked.clear()  # what begins from here on is nobody's concern
        try:
            self._end_chat(leg, error or stop_reason)
            for call in list(leg.calls.values()):
                self._end(call, error or "interrupted")
            if stop_reason:
                leg.run.span.set_attribute("toolkit.stop_reason", stop_reason)
            if leg.said:
                leg.run.span.set_attribute("gen_ai.output.messages", leg.said)
            self._end(leg.run, error)
        finally:
            while leg.tokens:
                context.detach(leg.tokens.pop())

    def _captures(self, one: _Open) -> bool:
        return self.capture_content and one.span.is_recording()

    def _begin(
        self,
        operation: str,
        target: str,
        counted: Mapping[str, str],
        named: Mapping[str, str],
        began: int = 0,
    ) -> _Open:
        counted = {**counted, "gen_ai.operation.name": operation}
        kind = trace.SpanKind.CLIENT if operation == "chat" else trace.SpanKind.INTERNAL
        name, attributes, began = (
            f"{operation} {target}".rstrip(),
            {**counted, **named},
            began or time.time_ns(),
        )
        return _Open(
            self._tracer.start_span(name, None, kind, attributes, start_time=began),
            began,
            counted,
        )

    def _end(self, one: _Open, error: str, ended: int = 0, counts: bool = True) -> None:
        ended, counted = max(ended or time.time_ns(), one.began), dict(one.counted)
        if error:
            counted["error.type"] = error
            one.span.set_attribute("error.type", error)
            one.span.set_status(trace.StatusCode.ERROR)
        if counts:
            self._durations[counted["gen_ai.operation.name"]].record(
                (ended - one.began) / 1e9, counted
            )
        one.span.end(ended)


def _histogram(
    meter: metrics.Meter, name: str, unit: str, text: str, buckets: list[float]
) -> metrics.Histogram:
    return meter.create_histogram(
        name, unit, text, explicit_bucket_boundaries_advisory=buckets
    )


def _written(message: Message) -> list[dict[str, Any]]:
    """A message as the conventions write it; each result by itself, since back ends show one of a message."""
    if message.tool_results:
        parts = [
            {"type": "tool_call_response", "id": r.call_id, "response": r.content}
            for r in message.tool_results
        ]
        return [{"role": message.role, "parts": [part]} for part in parts]
    said: list[dict[str, Any]] = (
        [{"type": "text", "content": message.text}] if message.text else []
    )
    for call in message.tool_calls:
        said.append(
            {
                "type": "tool_call",
                "id": call.id,
                "name": call.name,
                "arguments": dict(call.arguments),
            }
        )
    return [{"role": message.role, "parts": said}]


def _as_text(value: Any) -> str:
    """JSON without lone surrogates: a single one keeps an exporter from sending all its spans."""
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, default=str)
    )
    return str(whole_characters(text))
