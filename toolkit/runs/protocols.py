"""What keeps runs, as a protocol, so that a run can continue after its process has ended."""

from __future__ import annotations

from typing import Protocol

from toolkit.calls.protocols import Journal
from toolkit.runs.state import Run


class RunStore(Journal, Protocol):
    """Keeps runs. Its methods raise StoreError if they cannot do what they promise."""

    def create(self, run: Run) -> None:
        """Keep a new run and claim it. Raises RunExists if its id is taken."""

    def claim(self, run_id: str) -> Run:
        """Return the run as it was saved, for this process alone until `release`.

        Raises StoreError if another process has claimed it. `Run.settled` has what is known of the
        calls in an unfinished batch: their results, and "outcome unknown" for a call that began, may
        have changed something, and never ended.
        """
        ...

    def load(self, run_id: str) -> Run:
        """Return the run as it was saved, without claiming it."""
        ...

    def save(self, run: Run, status: str) -> None:
        """Keep the state of a claimed run. `status` is "running", "stopped", "applied" or a stop reason."""

    def release(self, run_id: str) -> None:
        """End the claim on a run."""
