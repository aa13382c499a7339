"""What a run in plan mode would have done, as one value to approve and to apply once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolkit.calls.execution import Batch, Results, permitted_calls, run_calls
from toolkit.calls.policy import Policy
from toolkit.calls.protocols import Journal
from toolkit.calls.validation import CheckedCall, check_call
from toolkit.errors import ApprovalError
from toolkit.messages import ToolCall, ToolResult, Verdict, as_json, visible
from toolkit.runs.auditing import open_audit
from toolkit.runs.protocols import RunStore
from toolkit.runs.state import Run
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.tool import Toolset

_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls of write and sensitive tools that a run in plan mode wanted, with their validated arguments.

    Show it (`str(plan)`), have its `digest` approved, then `apply` it: once.
    """

    run: Run = field(repr=False)
    calls: tuple[ToolCall, ...]
    toolset: Toolset | None = field(default=None, compare=False, repr=False)

    @property
    def digest(self) -> str:
        """A hash (SHA-256) of the run's id and of all calls: an approval holds for exactly these."""
        parts = [self.run.id, *([call.id, call.digest] for call in self.calls)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def apply(
        self,
        approved: str | None = None,
        *,
        tools: ToolsGiven = None,
        deps: Any = None,
        audit: str | Path | Journal | None = None,
        store: RunStore | None = None,
    ) -> tuple[ToolResult, ...]:
        """Run exactly the planned calls in their order, and return a result for each.

        `approved` is the digest that somebody approved. `tools` are needed if the plan was read from
        JSON: without them the global registry is used. Calls of one reply run at once; after a failure
        the calls of later replies do not run. Raises ApprovalError, and runs nothing, if the plan is
        another one, if the tools now read one of its calls differently, or if it was applied before by
        this process or, with the `store` of the run, by any.
        """
        if approved not in (None, self.digest):
            raise ApprovalError(
                "This is not the plan that was approved: its digest is another. "
                "Nothing was run."
            )
        toolset = self.toolset
        if tools is not None or toolset is None:
            toolset = registry_of(tools).snapshot()
        missing = sorted({call.name for call in self.calls if call.name not in toolset})
        if missing:
            raise ApprovalError(
                f"The plan calls {missing}, but tools= does not have them. "
                "Nothing was run."
            )
        replies, changed = self._checked_replies(toolset)
        journals = [each for each in (store, open_audit(audit)) if each]
        verdicts = {
            call.id: Verdict("approve", by="who approved the plan").on(call)
            for call in self.calls
        }
        run = self.run
        batch = Batch(
            run.id,
            run.turns,
            deps,
            run.limits,
            journals=tuple(journals),
            verdicts=verdicts,
        )
        with _once(run, store, changed):
            return tuple(self._results(replies, batch, toolset))

    def outcomes(self, store: RunStore) -> dict[str, ToolResult | str]:
        """What became of each planned call, by its id, also after a crash while the plan was applied.

        The result of a call that ended, "not started", or "outcome unknown" for a call that began and
        whose end nobody recorded. Reads the `store` that `apply` was given; raises StoreError if it
        does not have the run.
        """
        settled = store.load(self.run.id).settled
        outcomes: dict[str, ToolResult | str] = {}
        for call in self.calls:
            result = settled.get(call.id)
            if result is None or result.reason == "not_run":
                outcomes[call.id] = "not started"
            elif result.reason == "unknown":
                outcomes[call.id] = "outcome unknown"
            else:
                outcomes[call.id] = result
        return outcomes

    def _checked_replies(
        self, tools: Toolset
    ) -> tuple[list[list[CheckedCall]], list[str]]:
        """The planned calls of each reply, validated again, and the ids of those that are not what was planned."""
        planned = {call.id: call.digest for call in self.calls}
        replies = [
            [
                check_call(call, tools)
                for call in message.tool_calls
                if call.id in planned
            ]
            for message in self.run.messages
        ]
        changed = [
            checked.call.id
            for reply in replies
            for checked in reply
            if checked.values is None
            or checked.pending().digest != planned[checked.call.id]
        ]
        return replies, changed

    def _results(
        self, replies: list[list[CheckedCall]], batch: Batch, tools: Toolset
    ) -> Iterator[ToolResult]:
        has_failed = False
        for reply in replies:
            if has_failed:
                why = "Not run: a call before it in the plan failed."
                for checked in reply:
                    yield ToolResult(
                        checked.call.id, why, is_error=True, reason="not_run"
                    )
                continue
            results: Results = {}
            ready = permitted_calls(reply, _POLICY, batch, results, tools=tools)
            run_calls(ready, batch, results)
            answers = [results[checked.call.id] for checked in reply]
            has_failed = any(result.is_error for result in answers)
            yield from answers

    def __str__(self) -> str:
        lines = [
            f"{number}. {visible(call.name)}({visible(as_json(call.arguments))})"
            for number, call in enumerate(self.calls, 1)
        ]
        return "\n".join(lines) or "(nothing planned)"


_applied: set[str] = set()
_lock = threading.Lock()


@contextlib.contextmanager
def _once(run: Run, store: RunStore | None, changed: list[str]) -> Iterator[None]:
    """Let a plan be applied one time only: whatever began may have had its effect.

    A plan with `changed` calls is refused, and may still be applied with the right tools.
    """
    with contextlib.ExitStack() as claimed:
        with _lock:
            if run.id in _applied or run.applied:
                raise ApprovalError(
                    "This plan was applied before. Nothing was run; make a new plan."
                )
            if store:
                stored = store.claim(run.id)
                claimed.callback(store.release, run.id)
                if stored.applied or stored.messages != run.messages:
                    raise ApprovalError(
                        "This plan was applied before, or its run went on. "
                        "Nothing was run."
                    )
            if changed:
                raise ApprovalError(
                    f"The calls {changed} are not those that were planned: the tools read "
                    "them differently now, or somebody altered the run. Nothing was run."
                )
            if store:
                store.save(replace(stored, applied=True), "applied")
            _applied.add(run.id)
        yield
