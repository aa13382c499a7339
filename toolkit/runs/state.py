"""The state of a run: everything that has to be saved for it to continue in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from toolkit.messages import (
    Finish,
    Limits,
    Message,
    ToolCall,
    ToolResult,
    Usage,
    Verdict,
)

StopReason = Literal[
    "answered",
    "max_turns",
    "awaiting_approval",
    "malformed_arguments",
    "repeated_call",
    "limit_reached",
    "refused",
    "truncated",
    "cancelled",
]
Mode = Literal["run", "plan"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to the model: its tokens, why the reply ended, and its duration in seconds."""

    usage: Usage
    finish: Finish
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """The whole state of a run.

    The first `history` messages existed before the run began. `output` names the tool whose call
    is the answer of a run with an `output_type`. `route` is "prompted" after the server has refused
    tools. `exempt` names the tools that may be called again and again. `log` has one `Turn` for each
    request. `malformed` counts the replies in a row that no tool could read, `repeated` the equal
    batches in a row, and `fingerprint` identifies the last batch.

    The rest is about the open calls, which are the unanswered calls of the last reply. `held` has
    the digest of each call that needs a verdict, and `validated` its arguments as the tool would get
    them. `verdicts` are the verdicts so far. `settled` has the results of calls that ended before
    the process did. `decided` keeps the verdicts of answered calls.
    """

    id: str
    messages: tuple[Message, ...]
    history: int = 0
    max_turns: int = 10
    tool_choice: str = "auto"
    output: str = ""
    route: Literal["", "prompted"] = ""
    mode: Mode = "run"
    exempt: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    turns: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    log: tuple[Turn, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    validated: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settled: Mapping[str, ToolResult] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    decided: Mapping[str, Verdict] = field(default_factory=dict)
    malformed: int = 0
    repeated: int = 0
    fingerprint: str = ""
    stopped: StopReason | None = None
    applied: bool = False

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the last reply, while they are unanswered."""
        return self.messages[-1].tool_calls if self.messages else ()

    @property
    def held_calls(self) -> tuple[ToolCall, ...]:
        """The open calls that need a verdict, with their validated arguments."""
        return tuple(
            replace(call, arguments=self.validated.get(call.id, call.arguments))
            for call in self.open_calls
            if call.id in self.held and call.id not in self.settled
        )

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The held calls that nobody has approved or denied, with their validated arguments."""
        return tuple(call for call in self.held_calls if not self.is_decided(call.id))

    @property
    def attempts_left(self) -> int:
        """How many more replies with unreadable arguments this run accepts."""
        return max(self.limits.malformed - self.malformed - 1, 0)

    @property
    def is_last_turn(self) -> bool:
        """True if the next turn is the last one, in which tools are switched off."""
        return self.max_turns > 1 and self.turns == self.max_turns - 1

    @property
    def is_spent(self) -> bool:
        """True if the tokens or the seconds of this run are used up."""
        tokens, seconds = self.limits.total_tokens, self.limits.seconds
        if tokens is not None and self.usage.total_tokens >= tokens:
            return True
        return seconds is not None and self.seconds >= seconds

    def is_decided(self, call_id: str) -> bool:
        """True if the call was approved or denied."""
        verdict = self.verdicts.get(call_id)
        return verdict is not None and verdict.decision in ("approve", "deny")
