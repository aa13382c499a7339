"""Runs as OpenTelemetry traces and metrics, in the names of its conventions for generative AI.

    invoke_agent                a run (of one that was paused: each leg), by `gen_ai.conversation.id`
    ├── chat MODEL              a request to the model, with its tokens
    ├── execute_tool NAME       a call, by `gen_ai.tool.call.id`; calls of one reply overlap as they did
    │   └── …                   what the tool traces itself, and runs inside of it
    └── chat MODEL

`error.type` is the class of an exception; for a call "failed", "timeout", "denied", "malformed", "interrupted",
"unknown" or "not_run"; for a request that was abandoned, what ended the run ("cancelled", "limit_reached").

Names, units and buckets are those of github.com/open-telemetry/semantic-conventions-genai, in development there, as of
2026. Only the `chat` spans have tokens: some back ends add up what they find on all spans of a trace.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.events import Event
from toolkit.messages import Message, whole_characters
from toolkit.tools.tool import Tool

try:
    from opentelemetry import context, metrics, trace
except ImportError as error:
    raise ImportError(
        "Traces need OpenTelemetry. Install it: pip install 'toolkit-agent[otel]'."
    ) from error

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that says where content is captured; "true" is an older value for all places."""

_ON_SPANS = ("span_only", "span_and_event", "true")
_TOKENS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_SECONDS = [0.01 * 2**power for power in range(14)]
# By operation, or "usage": name, unit, description, buckets.
_HISTOGRAMS = {
    "invoke_agent": (
        "gen_ai.invoke_agent.duration",
        "s",
        "A run, or one leg of it.",
        [0.1 * 2**power for power in range(13)],
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
    "usage": (
        "gen_ai.client.token.usage",
        "{token}",
        "Tokens of a request to the model.",
        [4.0**power for power in range(14)],
    ),
}


@dataclass(slots=True)
class _OpenSpan:
    """A span that has not ended. `labels` are attributes of its metrics too; `token` leaves its context."""

    span: trace.Span
    start: int  # nanoseconds since 1970
    labels: Mapping[str, str]
    token: Any = None


@dataclass(slots=True)
class _Leg:
    """A run while it goes on, from here to its end or its pause."""

    run_id: str
    run: _OpenSpan
    tools: Mapping[str, Tool]
    chat: _OpenSpan | None = None
    batch_start: int = 0
    # The calls that have no span yet, and those that have, by id.
    requests: dict[str, Event] = field(default_factory=dict)
    calls: dict[str, _OpenSpan] = field(default_factory=dict)
    output: str = ""


class Tracing:
    """A sink that traces runs with OpenTelemetry: `on_event=Tracing()`.

    tracer_provider, meter_provider: from OpenTelemetry's SDK; None takes the global ones.
    capture_content: whether what people, models and tools said goes onto the spans; None leaves it to the environment
        variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT (SPAN_ONLY or SPAN_AND_EVENT; unset, it does not).

    One sink serves any number of runs at once, in threads and in tasks. A run is a child of the span in which it
    begins. Pass it to `on_event` as it is: it must be called where the run runs. Raises TypeError for an argument that
    does not fit.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        capture_content: bool | None = None,
    ) -> None:
        for name, provider, method in (
            ("tracer_provider", tracer_provider, "get_tracer"),
            ("meter_provider", meter_provider, "get_meter"),
        ):
            if provider is not None and not hasattr(provider, method):
                raise TypeError(
                    f"{name} must be a provider of OpenTelemetry's SDK, not {provider!r}. Pass what made that."
                )
        # "NO_CONTENT" is true, too.
        if not isinstance(capture_content, bool | None):
            raise TypeError(
                f"capture_content={capture_content!r} must be True, False or None."
            )
        if capture_content is None:
            capture_content = os.environ.get(CAPTURE, "").strip().lower() in _ON_SPANS
        self.capture_content = capture_content
        self._tracer = trace.get_tracer("toolkit", tracer_provider=tracer_provider)
        meter = metrics.get_meter("toolkit", meter_provider=meter_provider)
        self._histograms = {
            key: meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=buckets
            )
            for key, (name, unit, text, buckets) in _HISTOGRAMS.items()
        }
        # A run is found by the context in which it runs: neither call ids nor run ids are unique among runs.
        self._key = context.create_key("toolkit.run")

    def __call__(self, event: Event) -> None:
        if event.name == "run_start":
            self._start_run(event)
            return
        leg = context.get_value(self._key)
        if not isinstance(leg, _Leg) or leg.run_id != event.run_id:
            return  # its start failed, and was logged
        match event.name:
            case "model_request":
                self._start_chat(leg, event)
            case "model_reply":
                self._end_chat(leg, None, event)
            case "route_switch":
                self._end_chat(leg, "ToolsRefused")
            case "tool_call_request":
                if not leg.requests:
                    leg.batch_start = time.time_ns()
                leg.requests[event.data["tool_call_id"]] = event
            case "tool_exec_result":
                self._end_call(leg, event)
            case "run_end":
                self._end_run(leg, event)

    def enter_call(self, call_id: str) -> None:
        """Start the span of a call, in the context of its tool."""
        leg = context.get_value(self._key)
        if isinstance(leg, _Leg) and call_id in leg.requests:
            call = self._start_call(leg, leg.requests.pop(call_id), time.time_ns())
            leg.calls[call_id] = call
            context.attach(trace.set_span_in_context(call.span))

    def _start_run(self, event: Event) -> None:
        labels = {
            "gen_ai.provider.name": event.data["provider"] or "_OTHER",
            "gen_ai.request.model": event.data["model"],
        }
        run = self._start(
            "invoke_agent", "", labels, {"gen_ai.conversation.id": event.run_id}
        )
        leg = _Leg(event.run_id, run, event.subject or {})
        inside = trace.set_span_in_context(run.span)
        run.token = context.attach(context.set_value(self._key, leg, inside))

    def _start_chat(self, leg: _Leg, event: Event) -> None:
        attributes = {"gen_ai.conversation.id": leg.run_id}
        model = event.data["model"]
        chat = self._start("chat", model, leg.run.labels, attributes)
        chat.token = context.attach(trace.set_span_in_context(chat.span))
        leg.chat = chat
        if self._captures(chat, event):
            text = _messages_text(event.subject)
            chat.span.set_attribute("gen_ai.input.messages", text)
            if not leg.output:
                leg.run.span.set_attribute("gen_ai.input.messages", text)

    def _end_chat(
        self, leg: _Leg, error: str | None, reply: Event | None = None
    ) -> None:
        chat, leg.chat = leg.chat, None
        if chat is None:
            return
        try:
            attributes = self._reply_attributes(leg, chat, reply) if reply else {}
            self._end(chat, error, attributes)
        finally:
            context.detach(chat.token)

    def _reply_attributes(
        self, leg: _Leg, chat: _OpenSpan, event: Event
    ) -> dict[str, Any]:
        data = event.data
        finish = "tool_call" if data["tool_calls"] else data["finish"]
        if finish == "refusal":
            finish = "content_filter"  # "stop" and "length" are the conventions' own
        for kind in ("input", "output"):  # the other tokens are part of these
            count = data[f"{kind}_tokens"]
            if count:
                labels = {**chat.labels, "gen_ai.token.type": kind}
                self._histograms["usage"].record(count, labels)
        attributes = {name: data[key] or None for key, name in _TOKENS.items()}
        attributes["gen_ai.response.finish_reasons"] = [finish]
        if self._captures(chat, event):
            leg.output = _messages_text([event.subject.message], finish_reason=finish)
            attributes["gen_ai.output.messages"] = leg.output
        return attributes

    def _start_call(self, leg: _Leg, request: Event, start: int) -> _OpenSpan:
        data = request.data
        name, arguments = whole_characters(data["tool_name"]), data["arguments"]
        labels = {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
        attributes = {"gen_ai.tool.call.id": data["tool_call_id"]}
        tool = leg.tools.get(name)
        if tool and tool.description:
            attributes["gen_ai.tool.description"] = tool.description
        if self.capture_content and arguments is not None:
            # Arguments that could not be read are {}, and their text is in the other field.
            text = _as_text(arguments or data["raw_arguments"])
            attributes["gen_ai.tool.call.arguments"] = text
        return self._start("execute_tool", name, labels, attributes, start)

    def _end_call(self, leg: _Leg, event: Event) -> None:
        data, call_id = event.data, event.data["tool_call_id"]
        request = leg.requests.pop(call_id, None)
        call = leg.calls.pop(call_id, None)
        if request and not call:
            # It did not run, or this sink was not told where.
            start = leg.batch_start + round(data["started_ms"] * 1e6)
            call = self._start_call(leg, request, start)
        if call is None:
            return  # abandoned just as it began: it ended with the run
        status, approval = data["status"], data["approval"] or None
        attributes = {"toolkit.status": status, "toolkit.approval": approval}
        if self._captures(call, event):
            text = whole_characters(event.subject.content)
            attributes["gen_ai.tool.call.result"] = text
        end = call.start + round(data["time_ms"] * 1e6)
        self._end(call, data["error_type"], attributes, end)

    def _end_run(self, leg: _Leg, event: Event) -> None:
        error, stop_reason = event.data.get("error"), event.data.get("stop_reason")
        leg.requests.clear()  # what starts from here on is nobody's concern
        try:
            self._end_chat(leg, error or stop_reason)
            for call in list(leg.calls.values()):
                self._end(call, error or "interrupted", {})
            attributes = {
                "toolkit.stop_reason": stop_reason,
                "gen_ai.output.messages": leg.output or None,
            }
            self._end(leg.run, error, attributes)
        finally:
            context.detach(leg.run.token)

    def _captures(self, open_span: _OpenSpan, event: Event) -> bool:
        """Whether to write the subject of an event onto a span."""
        is_captured = self.capture_content and open_span.span.is_recording()
        return is_captured and event.subject is not None

    def _start(
        self,
        operation: str,
        target: str,
        labels: Mapping[str, str],
        attributes: Mapping[str, str],
        start: int = 0,
    ) -> _OpenSpan:
        labels = {**labels, "gen_ai.operation.name": operation}
        start = start or time.time_ns()
        span = self._tracer.start_span(
            f"{operation} {target}".rstrip(),
            kind=trace.SpanKind.CLIENT
            if operation == "chat"
            else trace.SpanKind.INTERNAL,
            attributes={**labels, **attributes},
            start_time=start,
        )
        return _OpenSpan(span, start, labels)

    def _end(
        self,
        open_span: _OpenSpan,
        error: str | None,
        attributes: Mapping[str, Any],
        end: int | None = None,
    ) -> None:
        """End a span now, or earlier. An attribute of None is not set."""
        span, labels, now = open_span.span, dict(open_span.labels), time.time_ns()
        end = max(min(end or now, now), open_span.start)
        if error:
            labels["error.type"] = error
            span.set_attribute("error.type", error)
            span.set_status(trace.StatusCode.ERROR)
        for name, value in attributes.items():
            if value is not None:
                span.set_attribute(name, value)
        # What was not executed has no duration.
        if attributes.get("toolkit.status") != "not_executed":
            seconds = (end - open_span.start) / 1e9
            self._histograms[labels["gen_ai.operation.name"]].record(seconds, labels)
        span.end(end)


def _messages_text(messages: Iterable[Message], **fields: Any) -> str:
    """Messages as the conventions write them, each with these further fields."""
    return _as_text(
        [{**entry, **fields} for message in messages for entry in _entries(message)]
    )


def _entries(message: Message) -> list[dict[str, Any]]:
    """The entries of a message: one for each result, because back ends show one result of an entry."""
    results = [
        {"type": "tool_call_response", "id": result.call_id, "response": result.content}
        for result in message.tool_results
    ]
    if results:
        return [{"role": message.role, "parts": [part]} for part in results]
    parts: list[Any] = [
        {
            "type": "tool_call",
            "id": call.id,
            "name": call.name,
            "arguments": dict(call.arguments),
        }
        for call in message.tool_calls
    ]
    if message.text:
        parts.insert(0, {"type": "text", "content": message.text})
    return [{"role": message.role, "parts": parts}]


def _as_text(value: Any) -> str:
    """JSON without lone surrogates: a single one keeps an exporter from sending all its spans."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return str(whole_characters(value))
