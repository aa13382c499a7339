"""A run: its state, the loop that decides each step, and the driver that takes it."""

from toolkit.runs.loop import advance, next_step
from toolkit.runs.plans import Plan
from toolkit.runs.protocols import RunStore
from toolkit.runs.results import CallRecord, RunResult
from toolkit.runs.state import Run, StopReason, Turn

__all__ = [
    "CallRecord",
    "Plan",
    "Run",
    "RunResult",
    "RunStore",
    "StopReason",
    "Turn",
    "advance",
    "next_step",
]
