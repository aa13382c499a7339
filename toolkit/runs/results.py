"""What a run came to: its answer, its calls, and its JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.errors import RunIncomplete
from toolkit.messages import Message, ToolCall, ToolResult, Usage, Verdict
from toolkit.runs.loop import Run, StopReason
from toolkit.runs.plans import Plan
from toolkit.tools.tool import Toolset


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a run and what came of it.

    `arguments` is what the tool got and `raw` what the model sent; `repairs` names each mend between the two. `value`
    is the Python object that the tool returned (lost in JSON), `content` what the model read of it. `verdict` is
    "approve" or "deny" where somebody decided. `seconds` is how long the tool ran.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    raw: Any
    repairs: tuple[str, ...]
    content: str
    value: Any
    is_error: bool
    verdict: str
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """What a run came to. `str(result)` is the text of the answer.

    `stop_reason` says why it ended, `waiting` holds the calls without a verdict of a paused run, and `run` is its whole
    state: `to_json()` saves it, `resume` goes on with it, `history=result` asks a further question.
    """

    run: Run
    stop_reason: StopReason
    waiting: tuple[ToolCall, ...] = ()
    toolset: Toolset | None = field(
        default=None, compare=False
    )  # for the plan; not in JSON

    @property
    def plan(self) -> Plan:
        """What a run in the mode "plan" would have done: the calls for one approval."""
        messages = self.run.messages[
            self.run.history :
        ]  # what was planned before has a plan of its own
        results = {
            result.call_id: result
            for message in messages
            for result in message.tool_results
        }
        asked = [
            call
            for message in messages
            for call in message.tool_calls
            if call.id in results
        ]
        planned = [
            (call, results[call.id])
            for call in asked
            if results[call.id].reason == "planned"
        ]
        calls = (
            replace(c, arguments=c.arguments if r.arguments is None else r.arguments)
            for c, r in planned
        )
        return Plan(self.run, tuple(calls), self.toolset)

    @property
    def text(self) -> str:
        """The last text of the model in this run; empty where it said nothing. With an `output_type`, its JSON."""
        if self.run.output and (
            answers := [
                c for c in self.calls if c.name == self.run.output and not c.is_error
            ]
        ):
            return answers[-1].content
        said: list[str] = []
        for message in reversed(self.run.messages[self.run.history :]):
            if (
                message.role == "assistant"
            ):  # several in a row where the provider paused amid its own tools
                said.insert(0, message.text)
            elif said:
                break
        return "".join(said)

    @property
    def output(self) -> Any:
        """The answer of a run with an `output_type`, validated; None where there is none, or the type is not known.

        What was read from JSON knows none; what was resumed or run elsewhere with the type reads it anew.
        """
        answers = [
            call
            for call in self.calls
            if call.name == self.run.output and not call.is_error
        ]
        if not answers or answers[-1].value is not None or self.toolset is None:
            return answers[-1].value if answers else None
        tool = self.toolset[self.run.output]
        return tool.run(tool.signature.validate(answers[-1].arguments)[0])

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, what was there before the run included."""
        return self.run.messages

    @property
    def usage(self) -> Usage:
        """The tokens of all requests of the run."""
        return self.run.usage

    @property
    def calls(self) -> list[CallRecord]:
        """The answered calls of this run, in order."""
        messages = self.run.messages[self.run.history :]
        asked = {call.id: call for message in messages for call in message.tool_calls}
        return [
            _record(asked[result.call_id], result, self.run.decided)
            for message in messages
            for result in message.tool_results
            if result.call_id in asked
        ]

    def raise_for_stop(self) -> RunResult:
        """Return the result if the run was answered; raise RunIncomplete otherwise."""
        if self.stop_reason != "answered":
            raise RunIncomplete(
                f"The run ended without an answer: {self.stop_reason}. {self}"
            )
        return self

    def to_json(self) -> str:
        """The run as JSON text, which `RunResult.from_json` and `resume` read, in any process."""
        return json.dumps({"version": 1, "stop_reason": self.stop_reason, "waiting": [call.id for call in self.waiting],
                           "run": as_plain(self.run)}, ensure_ascii=False)  # fmt: skip

    @classmethod
    def from_json(cls, text: str | bytes) -> RunResult:
        """Read what `to_json` wrote. Raises ValueError where it is something else."""
        try:
            saved = json.loads(text)
        except ValueError as error:
            raise ValueError(
                f"This is no saved run, since it is no JSON: {error}. Give what to_json() wrote, or an id with store=."
            ) from error
        version = saved.get("version") if isinstance(saved, dict) else None
        if version != 1:
            raise ValueError(
                f"This is no saved run of version 1 (its version is {version!r})."
            )
        if missing := [
            key for key in ("run", "stop_reason", "waiting") if key not in saved
        ]:
            raise ValueError(f"This is no saved run: it lacks {missing}.")
        run: Run = reader(Run)(saved["run"])
        reason: StopReason = reader(StopReason)(saved["stop_reason"])
        return cls(
            run,
            reason,
            tuple(call for call in run.open_calls if call.id in saved["waiting"]),
        )

    def tree(self) -> str:
        """The run as lines for a terminal: its turns, their calls, what came of them, and how long it took."""
        from toolkit.display import result_text

        return result_text(self)

    def save_html(self, path: str | Path) -> None:
        """Write the run as a timeline into one HTML file that loads nothing from elsewhere."""
        from toolkit.display import result_page

        Path(path).write_text(result_page(self), encoding="utf-8")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self.run,
            self.stop_reason,
            self.waiting,
        )  # the tools stay in their process

    def __repr__(self) -> str:
        run, calls = self.run, len(self.calls)
        counts = f"{run.turns} turns, {calls} calls, {run.usage.total_tokens} tokens"
        return f"<RunResult {self.stop_reason}: {counts}: {str(self)[:80]!r}>"

    def _repr_html_(self) -> str:
        from toolkit.display import result_html

        return result_html(self)

    def __str__(self) -> str:
        if self.waiting:
            names = ", ".join(f"{call.name} ({call.id})" for call in self.waiting)
            first = self.waiting[0].id
            return (
                f"Paused: {len(self.waiting)} call(s) wait for approval: {names}. "
                f'Go on with resume(result, {{{first!r}: "approve" or "deny", …}}).'
            )
        return self.text or f"(no text; the run ended with {self.stop_reason})"


@functools.cache
def reader(kind: Any) -> Any:
    """What reads a kind of value back from what `as_plain` made; raises ValueError where it is something else."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python


def _record(
    call: ToolCall, result: ToolResult, decided: Mapping[str, Verdict]
) -> CallRecord:
    arguments, repairs = call.arguments, call.repairs
    if result.arguments is not None:
        arguments, repairs = result.arguments, result.repairs
    is_decided = (
        call.id in decided and result.reason != "planned"
    )  # that is decided when the plan is
    verdict = decided[call.id].decision if is_decided else ""
    return CallRecord(
        call.id, call.name, arguments, call.raw, repairs,
        result.content, result.value, result.is_error, verdict, result.seconds,
    )  # fmt: skip


def as_plain(thing: Any) -> Any:
    """A value as JSON has it; what a tool returned stays out."""
    kind: Any = type(thing)
    if thing is None or kind is str or kind is int:
        return thing
    if names := _kept_fields(kind):
        return {name: as_plain(getattr(thing, name)) for name in names}
    if isinstance(thing, Mapping):
        return {key: as_plain(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [as_plain(value) for value in thing]
    return thing


@functools.cache
def _kept_fields(kind: Any) -> tuple[str, ...]:
    return (
        tuple(field.name for field in fields(kind) if field.name != "value")
        if is_dataclass(kind)
        else ()
    )
