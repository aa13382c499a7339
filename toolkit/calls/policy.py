"""One value that answers every question of permission: what needs a verdict, and what may run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, get_args

from toolkit.calls.complaints import complain, unknown_tool
from toolkit.calls.redaction import redact
from toolkit.calls.validation import CheckedCall
from toolkit.messages import (
    Decision,
    PendingCall,
    Permission,
    ToolCall,
    ToolResult,
    Verdict,
)
from toolkit.tools.tool import Tool, Toolset

_log = logging.getLogger("toolkit")

Approver = Callable[[ToolCall], "Decision | Verdict | Awaitable[Decision | Verdict]"]
"""Decides on a call, which is a `PendingCall`. Anything but an exact approval keeps it from running.

By default an approver is asked about calls of sensitive tools. One with an attribute `tiers` is also
asked about the calls of these tiers.
"""

_SENSITIVE: frozenset[Permission] = frozenset({"sensitive"})
_PLANNED = (
    "Planned, and not run yet: it will run once the plan is approved. "
    "Go on as if it succeeded."
)
# Errors of a validator, whose author did not write them for a model; so are those of a type that is not pydantic's.
_FREE_TEXT = ("value_error", "assertion_error")


@dataclass(frozen=True, slots=True)
class Policy:
    """Decides which calls of a run may run.

    `tiers` are the permission tiers whose calls need a verdict. If `plans` is true, only tools of the
    tier "read" run, and other calls are planned. `output` names the tool whose call is the answer.
    """

    tiers: frozenset[Permission] = _SENSITIVE
    plans: bool = False
    output: str = ""

    @classmethod
    def of(
        cls, approver: Approver | None, *, plans: bool = False, output: str = ""
    ) -> Policy:
        """The policy of a run with this approver. In a plan only the approver's own tiers are asked: it may deny."""
        tiers = frozenset[Permission](getattr(approver, "tiers", ()))
        return cls(tiers if plans else tiers | _SENSITIVE, plans, output)

    def needs_verdict(self, checked: CheckedCall) -> bool:
        """True if somebody must decide on the call: it could run, and its tier is one that is asked."""
        is_valid = checked.values is not None
        return is_valid and not checked.hidden and self._asks(checked.tool)

    def read_verdict(self, answer: Any, call: PendingCall) -> Verdict:
        """The verdict in an approver's answer. In a plan a call that would wait is planned instead."""
        verdict = read_verdict(answer)
        is_effect = call.permission != "read"
        if self.plans and is_effect and verdict.decision == "defer":
            return Verdict("approve", "planned")
        return verdict

    def answer(
        self,
        checked: CheckedCall,
        verdict: Verdict | None = None,
        *,
        is_held: bool = False,
        attempts_left: int | None = None,
        tools: Toolset,
    ) -> ToolResult | None:
        """The result of a call that must not run; None if it may run.

        `is_held` is true if the call once needed a verdict, whatever this policy asks. `tools` are
        those that the model may be told of.
        """
        call, tool = checked.call, checked.tool
        if tool is None:
            known = [each.wire_name for each in tools.values()]
            text = unknown_tool(call.name, known, attempts_left)
            return ToolResult(call.id, text, is_error=True, reason="malformed")
        if checked.values is None:
            errors = [_redacted(error) for error in checked.errors]
            text = complain(tool.wire_name, errors, tool.parameters, attempts_left)
            return ToolResult(call.id, text, is_error=True, reason="malformed")
        refusal = self._refusal(checked, verdict, is_held)
        is_effect = tool.permission != "read" and tool.name != self.output
        if not refusal and not (self.plans and is_effect):
            return None
        # What was denied or planned is what was shown, not what the model sent.
        return ToolResult(
            call.id,
            refusal or _PLANNED,
            is_error=bool(refusal),
            reason="denied" if refusal else "planned",
            repairs=checked.repairs,
            arguments=checked.arguments,
        )

    def _refusal(
        self, checked: CheckedCall, verdict: Verdict | None, is_held: bool
    ) -> str:
        """Why a valid call may not run; empty if it may. Only an approval of exactly this call counts."""
        is_asked = self._asks(checked.tool)
        if is_asked and checked.hidden:
            names = ", ".join(map(repr, checked.hidden))
            return (
                f"Not run: the value of {names} cannot be shown as JSON, "
                "so nobody can approve this call."
            )
        if verdict is None and not is_asked and not is_held:
            return ""
        if verdict is not None and is_verdict(verdict):
            if verdict.decision == "approve":
                if verdict.digest == checked.pending().digest:
                    return ""
                return "Not run: this is not the call that was approved."
            if verdict.decision == "deny":
                reason = f" ({verdict.reason})" if verdict.reason else ""
                return f"Not run: {verdict.by or 'the user'} denied this call{reason}."
        return "Not run: this tool needs an approval, and there is none for this call."

    def _asks(self, tool: Tool | None) -> bool:
        if tool is None or tool.name == self.output:
            return False
        return tool.permission in self.tiers


def read_verdict(answer: Any) -> Verdict:
    """Exactly "approve", "deny" or "defer", or a Verdict with one of them; anything else is a denial."""
    if is_verdict(answer):
        return answer if isinstance(answer, Verdict) else Verdict(answer)
    return Verdict("deny", "the approval was no clear answer")


def is_verdict(answer: Any) -> bool:
    """True if an answer decides on a call, or defers it, in exactly one of the accepted forms."""
    decision = answer.decision if isinstance(answer, Verdict) else answer
    return type(decision) is str and decision in get_args(Decision)


def _redacted(error: Any) -> Any:
    from pydantic_core.core_schema import ErrorType

    kind = error["type"]
    if kind in _FREE_TEXT or kind not in get_args(ErrorType):
        return {**error, "msg": redact(error["msg"])}
    return error
