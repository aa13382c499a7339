"""What a run in plan mode would have done, as one value to approve and to carry out."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolkit.calls.execution import run_calls
from toolkit.calls.protocols import Journal, RunStore, Watch, open_audit
from toolkit.errors import ApprovalError
from toolkit.messages import ToolCall, ToolResult, Verdict, as_json
from toolkit.runs.loop import Run
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.tool import Toolset


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls of tools that write or are sensitive, as a run in the mode "plan" wanted them, in its order.

    Show it (`str(plan)`), have its `digest` approved, then `apply` it: once.
    """

    run: Run = field(repr=False)
    calls: tuple[ToolCall, ...]
    toolset: Toolset | None = field(default=None, compare=False, repr=False)

    @property
    def digest(self) -> str:
        """A hash (SHA-256) of the run's id and of all calls: an approval of the plan holds for just these."""
        parts = [self.run.id, *(f"{call.id} {call.digest}" for call in self.calls)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def apply(
        self,
        approved: str | None = None,
        *,
        tools: ToolsGiven = None,
        deps: Any = None,
        audit: str | Path | Journal | None = None,
        store: RunStore | None = None,
    ) -> tuple[ToolResult, ...]:
        """Run exactly the planned calls, in their order; return a result for each.

        `approved` is the digest that somebody approved. `tools` are those of the run, where it was not read from JSON,
        else the global registry. Calls of one reply run at once; after a failure no later reply's calls are run.
        Raises ApprovalError, and runs nothing, for a plan that is another one or was applied before: by this process,
        or, with the `store` of the run, by any.
        """
        if approved not in (None, self.digest):
            raise ApprovalError(
                "This is not the plan that was approved: its digest is another. Nothing was run."
            )
        toolset = (
            self.toolset
            if tools is None and self.toolset is not None
            else registry_of(tools).snapshot()
        )
        if strangers := sorted(
            {call.name for call in self.calls if call.name not in toolset}
        ):
            raise ApprovalError(
                f"The plan calls {strangers}, but tools= does not hold them. Nothing was run."
            )
        journals = [journal for journal in (store, open_audit(audit)) if journal]
        with _once(self.run, store):
            verdicts = {
                call.id: Verdict("approve", by="who approved the plan").on(call)
                for call in self.calls
            }
            run = replace(self.run, mode="run", settled={}, held={}, verdicts=verdicts)
            return tuple(self._results(run, toolset, deps, Watch(tuple(journals))))

    def _results(
        self, run: Run, toolset: Toolset, deps: Any, watch: Watch
    ) -> Iterator[ToolResult]:
        has_failed = False
        for message in run.messages:
            batch = tuple(
                call
                for call in self.calls
                if call.id in {asked.id for asked in message.tool_calls}
            )
            if has_failed:
                why = "Not run: a call before it in the plan failed."
                yield from (
                    ToolResult(call.id, why, is_error=True, reason="not_run")
                    for call in batch
                )
                continue
            results = run_calls(batch, toolset, run, deps, {}, watch)
            has_failed = any(result.is_error for result in results)
            yield from results

    def __str__(self) -> str:
        lines = (
            f"{number}. {call.name}({as_json(call.arguments)})"
            for number, call in enumerate(self.calls, 1)
        )
        return "\n".join(lines) or "(nothing planned)"


_applied: set[str] = set()
_lock = threading.Lock()


@contextlib.contextmanager
def _once(run: Run, store: RunStore | None) -> Iterator[None]:
    """Lets a plan be applied one time: what began may have had its effect."""
    with contextlib.ExitStack() as claimed:
        with _lock:
            if run.id in _applied or run.applied:
                raise ApprovalError(
                    "This plan was applied before. Nothing was run; make a new plan."
                )
            if store:
                kept = store.claim(run.id)
                claimed.callback(store.release, run.id)
                if kept.applied or kept.messages != run.messages:
                    raise ApprovalError(
                        "This plan was applied before, or its run went on. Nothing was run."
                    )
                store.save(replace(kept, applied=True), "applied")
            _applied.add(run.id)
        yield
