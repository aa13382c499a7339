"""One call without a model: what `registry.call` and `registry.acall` do."""

from __future__ import annotations

from typing import Any

from toolkit.calls.execution import (
    Batch,
    Results,
    arun_calls,
    permitted_calls,
    run_calls,
)
from toolkit.calls.invocation import Invocation, invoke
from toolkit.calls.policy import Policy
from toolkit.calls.receiving import receive
from toolkit.calls.validation import CheckedCall, check_call
from toolkit.messages import Limits, Message, Reply, ToolCall, ToolResult, Verdict
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.tool import Tool

_POLICY = Policy()
_ID = "call"
_RESULT_CHARS = Limits().result_chars


def call(
    registry: ToolRegistry,
    name: str,
    arguments: Any,
    verdict: Verdict | None,
    deps: Any,
) -> ToolResult:
    """Run one call by the rules of a run. See `ToolRegistry.call`."""
    tool = registry.get(name)
    if tool is not None and verdict is None and isinstance(arguments, str):
        result = _call_at_once(tool, arguments)
        if result is not None:
            return result
    ready, batch, results = _prepare(registry, name, arguments, verdict, deps)
    run_calls(ready, batch, results)
    return results[_ID]


async def acall(
    registry: ToolRegistry,
    name: str,
    arguments: Any,
    verdict: Verdict | None,
    deps: Any,
) -> ToolResult:
    ready, batch, results = _prepare(registry, name, arguments, verdict, deps)
    await arun_calls(ready, batch, results)
    return results[_ID]


def _call_at_once(tool: Tool, text: str) -> ToolResult | None:
    """Run a call on this thread if its text fits the tool as it is; None if it needs more care."""
    needs_thread = tool.timeout is not None or tool.is_async
    if needs_thread or tool.permission == "sensitive" or tool.signature.context:
        return None
    values = tool.signature.read(text)
    if values is None:
        return None
    call = ToolCall(_ID, tool.name, raw=text)
    checked = CheckedCall(call, tool, values, call.arguments)
    invocation = Invocation(checked, tool, _RESULT_CHARS)
    invocation.started = invocation.queued
    return invoke(invocation)


def _prepare(
    registry: ToolRegistry, name: str, arguments: Any, verdict: Any, deps: Any
) -> tuple[list[CheckedCall], Batch, Results]:
    """The call if it may run; else its result."""
    tools = registry.snapshot()
    message = Message("assistant", tool_calls=(ToolCall(_ID, name, raw=arguments),))
    reply = receive(Reply(message), tools, used_ids=set(), seed="")
    calls = reply.message.tool_calls
    if len(calls) > 1:
        raise ValueError(f"{name!r} holds {len(calls)} calls. Make them one by one.")
    checked = check_call(calls[0], tools)
    verdicts: dict[str, Verdict] = {}
    if verdict is not None:
        # Anything but a Verdict decides nothing.
        decided = verdict if isinstance(verdict, Verdict) else Verdict("defer")
        verdicts[_ID] = decided.on(checked.pending())
    batch, results = Batch(deps=deps, verdicts=verdicts), Results()
    ready = permitted_calls([checked], _POLICY, batch, results, tools=tools)
    return ready, batch, results
