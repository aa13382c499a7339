"""What stands beside the calls of a run and may stop it: the audit log and the run store as protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolkit.messages import PendingCall, ToolResult


class Journal(Protocol):
    """Told of calls before they start and after they end. An error that it raises ends the run."""

    def began(self, run_id: str, turn: int, calls: Sequence[PendingCall]) -> None:
        """These calls start as soon as this returns."""

    def ended(
        self, run_id: str, turn: int, call: PendingCall, result: ToolResult
    ) -> None:
        """A call has its result. It may have been denied, and then it never began."""
