"""A run as a trace: every request, call and result as a span of OpenTelemetry, printed as a tree.

    python examples/tracing.py

Needs the extra `otel` and `opentelemetry-sdk`. The tree here is made by an exporter of a few lines, so that nothing
else must run. For a server (Langfuse, LangSmith, Phoenix, Jaeger …) put its place in OTEL_EXPORTER_OTLP_ENDPOINT and
take `BatchSpanProcessor(OTLPSpanExporter())` of `opentelemetry-exporter-otlp-proto-http` instead.
"""

import os
import time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

from toolkit import (
    Message,
    Reply,
    ScriptedModel,
    ToolCall,
    ToolError,
    Usage,
    run_agent_with_tools,
)
from toolkit.otel import Tracing


class PrintedTree(SpanExporter):
    """Prints a trace once its first span has ended, which is the last to end."""

    def __init__(self):
        self.spans = []

    def export(self, spans):
        for span in spans:
            self.spans.append(span)
            if span.parent is None:
                self.print_tree(span, "")
                self.spans.clear()
        return SpanExportResult.SUCCESS

    def print_tree(self, span, indent):
        told = {
            name.removeprefix("gen_ai."): value
            for name, value in span.attributes.items()
        }
        names = (
            "tool.call.id",
            "tool.call.arguments",
            "usage.input_tokens",
            "usage.output_tokens",
            "error.type",
        )
        print(
            f"{indent}{span.name}",
            *(f"{name}={told[name]}" for name in names if name in told),
        )
        below = [
            each
            for each in self.spans
            if each.parent and each.parent.span_id == span.context.span_id
        ]
        for each in sorted(below, key=lambda each: each.start_time):
            self.print_tree(each, indent + "    ")


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(PrintedTree()))
tracer = provider.get_tracer("examples")
tracing = Tracing(tracer_provider=provider, capture_content=True)  # one for all runs


def find_street(place: str) -> str:
    """The street in which a place lies."""
    with tracer.start_as_current_span(
        "query"
    ):  # a span of the tool's own hangs under its call
        time.sleep(0.01)
        if place == "Atlantis":
            raise ToolError("There is no such place.")
        return f"{place} Street"


def ask_guide(question: str) -> str:
    """Ask a guide, who is a model as well. Its run hangs under the call, too."""
    model = pick_model(
        [ToolCall("", "find_street", {"place": "Market"}), "In Market Street."]
    )
    return str(
        run_agent_with_tools(
            question, tools=[find_street], model=model, on_event=tracing
        )
    )


script = [
    Reply(
        Message(
            "assistant",
            tool_calls=(
                ToolCall("c1", "find_street", {"place": "Station"}),
                ToolCall("c2", "find_street", {"place": "Atlantis"}),
                ToolCall("c3", "ask_guide", {"question": "Where is the market?"}),
            ),
        ),
        Usage(input_tokens=210, output_tokens=48),
    ),
    Reply(
        Message("assistant", "Station Street and Market Street; Atlantis is nowhere."),
        Usage(300, 14),
    ),
]


def pick_model(played):
    return (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(played)
    )


def main() -> None:
    with tracer.start_as_current_span(
        "GET /directions"
    ):  # what the program traces is above
        question = "Where are the station, Atlantis and the market?"
        model = pick_model(script)
        result = run_agent_with_tools(
            question, tools=[find_street, ask_guide], model=model, on_event=tracing
        )
    print(result)


if __name__ == "__main__":
    main()
