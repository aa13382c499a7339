"""What a run produced: its answer, its calls, and its JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from toolkit.calls.validation import validate_call
from toolkit.errors import RunIncomplete
from toolkit.messages import Message, ToolCall, ToolResult, Usage, Verdict, visible
from toolkit.runs.plans import Plan
from toolkit.runs.state import Run, StopReason
from toolkit.tools.tool import Toolset

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # RunResult without a parameter means RunResult[Any].
    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a run and its result.

    `arguments` is what the tool got, in JSON form: by its own parameter names, defaults included.
    `raw` is what the model sent, and `repairs` names what was mended in it. `content` is what the
    model read of the result, `value` the Python object that the tool returned (lost in JSON).
    `verdict` is "approve" or "deny" if somebody decided on the call. `seconds` is how long the tool
    ran.
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
class RunResult(Generic[T_co]):
    """The result of a run. `str(result)` is the text of the answer.

    `stop_reason` says why the run ended, `waiting` has the calls of a paused run that need a verdict,
    with their validated arguments, and `run` is the whole state: `to_json()` saves it, `resume`
    continues it, and `history=result` asks a further question.
    """

    run: Run
    stop_reason: StopReason
    waiting: tuple[ToolCall, ...] = ()
    # For the plan and the typed output; not in JSON.
    toolset: Toolset | None = field(default=None, compare=False)

    @property
    def plan(self) -> Plan:
        """What a run in the mode "plan" would have done: its calls, for one approval."""
        calls, results = self._calls_and_results()
        planned = tuple(
            replace(calls[key], arguments=_arguments(calls[key], result))
            for key, result in results.items()
            if result.reason == "planned"
        )
        return Plan(self.run, planned, self.toolset)

    @property
    def text(self) -> str:
        """The last text of the model in this run, or "". With an `output_type`, the answer as JSON."""
        answer = self._answer()
        if answer is not None:
            return answer[1].content
        texts: list[str] = []
        for message in reversed(self._own_messages()):
            # There are several in a row if the provider paused for its own tools.
            if message.role == "assistant":
                texts.append(message.text)
            elif texts:
                break
        return "".join(reversed(texts))

    @property
    def output(self) -> T_co:
        """The answer of a run with an `output_type`, validated; None without one.

        A result that was read from JSON does not know the type, so its output is None. A run that
        was resumed with the type, or ran in another process, has it.
        """
        answer = self._answer()
        if answer is None:
            return None  # type: ignore[return-value]
        call, result = answer
        if result.value is None and self.toolset is not None:
            tool = self.toolset[call.name]
            return tool.run(validate_call(call, tool)[0])  # type: ignore[no-any-return]
        return result.value  # type: ignore[no-any-return]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, including what was there before the run."""
        return self.run.messages

    @property
    def usage(self) -> Usage:
        """The tokens of all requests of the run."""
        return self.run.usage

    @property
    def calls(self) -> list[CallRecord]:
        """The answered calls of this run, in order."""
        calls, results = self._calls_and_results()
        return [
            _record(calls[key], result, self.run.decided)
            for key, result in results.items()
        ]

    def raise_for_stop(self) -> RunResult[T_co]:
        """Return the result if the run was answered; raise RunIncomplete otherwise."""
        if self.stop_reason != "answered":
            raise RunIncomplete(
                f"The run ended without an answer: {self.stop_reason}. {self}"
            )
        return self

    def to_json(self) -> str:
        """The run as JSON text, which `RunResult.from_json` and `resume` read in any process."""
        saved = {
            "version": 2,
            "stop_reason": self.stop_reason,
            "waiting": [call.id for call in self.waiting],
            "run": as_plain(self.run),
        }
        try:
            return json.dumps(saved, ensure_ascii=False, allow_nan=False)
        except ValueError:
            # What a server sent may hold a number that is not finite.
            from pydantic_core import to_json

            return to_json(saved, inf_nan_mode="strings").decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> RunResult[Any]:
        """Read what `to_json` wrote, in this version or in 0.1.0. Raises ValueError for anything else."""
        try:
            saved = json.loads(text)
        except ValueError as error:
            raise ValueError(
                f"This is not a saved run, because it is not JSON: {error}. "
                "Give what to_json() wrote, or an id with store=."
            ) from error
        version = saved.get("version") if isinstance(saved, dict) else None
        if version not in (1, 2):
            raise ValueError(
                f"This is not a saved run of version 1 or 2 (its version is {version!r})."
            )
        missing = [key for key in ("run", "stop_reason", "waiting") if key not in saved]
        if missing:
            raise ValueError(f"This is not a saved run: it lacks {missing}.")
        run: Run = reader(Run)(saved["run"])
        reason: StopReason = reader(StopReason)(saved["stop_reason"])
        waiting = tuple(call for call in run.held_calls if call.id in saved["waiting"])
        return RunResult(run, reason, waiting)

    def tree(self) -> str:
        """The run as lines for a terminal: its turns, their calls and results, and how long each took."""
        from toolkit.display import result_text

        return result_text(self)

    def save_html(self, path: str | Path) -> None:
        """Write the run as a timeline to one HTML file, which loads nothing from elsewhere."""
        from toolkit.display import result_page

        Path(path).write_text(result_page(self), encoding="utf-8")

    def _own_messages(self) -> tuple[Message, ...]:
        return self.run.messages[self.run.history :]

    def _calls_and_results(self) -> tuple[dict[str, ToolCall], dict[str, ToolResult]]:
        """The answered calls of this run and their results, by call id."""
        messages = self._own_messages()
        calls = {call.id: call for each in messages for call in each.tool_calls}
        results = {
            result.call_id: result
            for each in messages
            for result in each.tool_results
            if result.call_id in calls
        }
        return calls, results

    def _answer(self) -> tuple[ToolCall, ToolResult] | None:
        """The call that gave the answer of a run with an output type, and its result."""
        if not self.run.output:
            return None
        calls, results = self._calls_and_results()
        for key in reversed(results):
            if calls[key].name == self.run.output and not results[key].is_error:
                return calls[key], results[key]
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        # The tools stay in their process.
        return type(self), (self.run, self.stop_reason, self.waiting)

    def __repr__(self) -> str:
        run = self.run
        counts = (
            f"{run.turns} turns, {len(self.calls)} calls, "
            f"{run.usage.total_tokens} tokens"
        )
        return f"<RunResult {self.stop_reason}: {counts}: {str(self)[:80]!r}>"

    def _repr_html_(self) -> str:
        from toolkit.display import result_html

        return result_html(self)

    def __str__(self) -> str:
        if not self.waiting:
            return self.text or f"(no text; the run ended with {self.stop_reason})"
        names = ", ".join(
            f"{visible(call.name)} ({visible(call.id)})" for call in self.waiting
        )
        return (
            f"Paused: {len(self.waiting)} call(s) wait for approval: {names}. Go on "
            f'with resume(result, {{{visible(repr(self.waiting[0].id))}: "approve" or "deny", …}}).'
        )


def _record(
    call: ToolCall, result: ToolResult, decided: Mapping[str, Verdict]
) -> CallRecord:
    verdict = ""
    # A planned call is decided when its plan is.
    if call.id in decided and result.reason != "planned":
        verdict = decided[call.id].decision
    return CallRecord(
        id=call.id,
        name=call.name,
        arguments=_arguments(call, result),
        raw=call.raw,
        repairs=result.repairs or call.repairs,
        content=result.content,
        value=result.value,
        is_error=result.is_error,
        verdict=verdict,
        seconds=result.seconds,
    )


def _arguments(call: ToolCall, result: ToolResult) -> Mapping[str, Any]:
    return call.arguments if result.arguments is None else result.arguments


@functools.cache
def reader(kind: Any) -> Any:
    """A function that reads a value of this kind from what `as_plain` made; it raises ValueError."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python


def as_plain(value: Any) -> Any:
    """A value as JSON has it, without the Python objects that tools returned."""
    kind: Any = type(value)
    if value is None or kind is str or kind is int:
        return value
    names = _saved_fields(kind)
    if names:
        return {name: as_plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: as_plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(each) for each in value]
    return value


@functools.cache
def _saved_fields(kind: Any) -> tuple[str, ...]:
    if not is_dataclass(kind):
        return ()
    return tuple(each.name for each in fields(kind) if each.name != "value")
