"""Whether a call may run: on which calls somebody must decide, and what was decided."""

from __future__ import annotations

from collections.abc import Collection

from toolkit.calls.receiving import validate_call
from toolkit.messages import (
    SENSITIVE,
    PendingCall,
    Permission,
    ToolCall,
    Verdict,
    copied,
)
from toolkit.runs.loop import Run
from toolkit.tools.schema import InvalidArguments
from toolkit.tools.tool import Tool, Toolset


def needs_approval(
    call: ToolCall, tools: Toolset, asked: Collection[Permission] = SENSITIVE
) -> bool:
    """Whether a call waits for a verdict: somebody decides on its tier, and it would run if it were approved."""
    tool = tools.get(call.name)
    if tool is None or tool.permission not in asked:
        return False
    try:
        validate_call(call, tool)
    except InvalidArguments:
        return False
    return True


def refusal_of(call: ToolCall, run: Run, is_asked: bool) -> str:
    """Why the call may not run, or nothing. Only an exact approval of just this call lets a held one run.

    The gate was passed before; but a type may refuse arguments there that it takes here, and then nobody was asked.
    """
    verdict = run.verdicts.get(call.id)
    if verdict is None and not is_asked and call.id not in run.held:
        return ""
    decision = (
        verdict.decision
        if isinstance(verdict, Verdict) and type(verdict.decision) is str
        else None
    )
    if verdict and decision == "approve":
        return (
            ""
            if verdict.digest == call.digest
            else "Not run: this is not the call that was approved."
        )
    if verdict and decision == "deny":
        why = f" ({verdict.reason})" if verdict.reason else ""
        return f"Not run: {verdict.by or 'the user'} denied this call{why}."
    return "Not run: this tool needs an approval, and there is none for this call."


def pending_call(call: ToolCall, tool: Tool, run: Run) -> PendingCall:
    """The call as approvers and journals see it. Changing its arguments changes nothing else."""
    return PendingCall(
        call.id,
        call.name,
        copied(call.arguments),
        call.raw,
        call.repairs,
        call.problem,
        tool.permission,
        tuple(tool.tags),
        tool.description,
        run.verdicts.get(call.id),
    )
