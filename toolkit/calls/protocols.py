"""What must know of a run as it goes, and may stop it: the audit and the store, as protocols."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toolkit.calls import threads
from toolkit.messages import SENSITIVE, PendingCall, Permission, ToolResult
from toolkit.runs.loop import Run


class Journal(Protocol):
    """Told of calls before they start and after they end. An error that it raises ends the run, unlike a sink's."""

    def began(self, run_id: str, turn: int, calls: Sequence[PendingCall]) -> None:
        """These calls start as soon as this returns."""

    def ended(
        self, run_id: str, turn: int, call: PendingCall, result: ToolResult
    ) -> None:
        """A call has its result, also one that was denied and never began."""


class RunStore(Journal, Protocol):
    """Where runs are kept, so that they outlive their process. Its methods raise StoreError where they cannot."""

    def create(self, run: Run) -> None:
        """Keep a new run, claimed. Raises RunExists where its id is taken."""

    def claim(self, run_id: str) -> Run:
        """The run as it was left, for this process alone until `release`. Refuses one that somebody else drives.

        `Run.settled` holds what came of calls in an unfinished batch: their results, and "outcome unknown" for a call
        that began, may have changed something, and never ended.
        """
        ...

    def load(self, run_id: str) -> Run:
        """The run as it was left, to look at."""
        ...

    def save(self, run: Run, status: str) -> None:
        """Keep the state of a claimed run. `status` is "running", "stopped", "applied" or its stop reason."""

    def release(self, run_id: str) -> None:
        """Give a claimed run free."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What stands beside the calls of a run: journals, what ends them early, who enters them, the tiers decided on."""

    journals: tuple[Journal, ...] = ()
    halt: threads.Halt = threads.NEVER
    enter: tuple[Callable[[str], None], ...] = ()
    asked: frozenset[Permission] = SENSITIVE


UNWATCHED = Watch()


def open_audit(audit: str | Path | Journal | None) -> Journal | None:
    """The audit in a file, or on the logger `toolkit.audit` alone where somebody listens there."""
    if audit is None and not logging.getLogger("toolkit.audit").isEnabledFor(
        logging.INFO
    ):
        return None
    if audit is not None and not isinstance(audit, (str, Path)):
        if not hasattr(audit, "began"):
            raise TypeError(
                f"audit is a path or an AuditLog, not {type(audit).__name__}."
            )
        return audit
    from toolkit.audit import AuditLog

    return AuditLog(audit)
