"""One call of a registry's tool without a model: what `ToolRegistry.call` and `acall` do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolkit.calls.execution import arun_calls, run_calls, run_text
from toolkit.calls.receiving import receive
from toolkit.messages import Message, Reply, ToolCall, ToolResult, Verdict
from toolkit.runs.loop import Run
from toolkit.tools.registry import ToolRegistry


def call(
    registry: ToolRegistry,
    name: str,
    arguments: Any,
    verdict: Verdict | None,
    deps: Any,
) -> ToolResult:
    """Run one call; see `ToolRegistry.call`."""
    tool = (
        registry.get(name) if verdict is None and isinstance(arguments, str) else None
    )
    if tool is not None and (result := run_text(tool, arguments, deps)):
        return result
    run, calls = _one_call(registry, name, arguments, verdict)
    return run_calls(calls, registry.snapshot(), run, deps, {})[0]


async def acall(
    registry: ToolRegistry,
    name: str,
    arguments: Any,
    verdict: Verdict | None,
    deps: Any,
) -> ToolResult:
    """As `call`, with the running event loop for coroutine functions."""
    run, calls = _one_call(registry, name, arguments, verdict)
    return (await arun_calls(calls, registry.snapshot(), run, deps, {}))[0]


def _one_call(
    registry: ToolRegistry, name: str, arguments: Any, verdict: Verdict | None
) -> tuple[Run, tuple[ToolCall, ...]]:
    sent = Reply(
        Message("assistant", tool_calls=(ToolCall("call", name, raw=arguments),))
    )
    run = Run("", ())
    calls = receive(sent, run, registry.snapshot()).message.tool_calls
    if len(calls) > 1:
        raise ValueError(f"{name!r} holds {len(calls)} calls. Make them one by one.")
    if verdict is not None:
        verdict = verdict.on(calls[0]) if isinstance(verdict, Verdict) else verdict
        run = replace(run, verdicts={calls[0].id: verdict})
    return run, calls
