"""What a run works with and its state does not hold: its model, its tools, and who listens, decides and keeps."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from toolkit import events
from toolkit.calls import threads
from toolkit.calls.policy import needs_approval
from toolkit.calls.protocols import Journal, RunStore, Watch, open_audit
from toolkit.errors import ToolsRefused
from toolkit.messages import SENSITIVE, Decision, Permission, ToolCall, Verdict
from toolkit.models.model import find_model, refuse_strangers
from toolkit.runs import reporting
from toolkit.runs.loop import (
    AskApproval,
    Gate,
    Outcome,
    Run,
    Step,
    Stop,
    advance,
    next_step,
)
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.request import LanguageModel, Retriever
from toolkit.tools.tool import OutputTool, Tool, Toolset

_log = logging.getLogger("toolkit")

Approver = Callable[[ToolCall], "Decision | Verdict | Awaitable[Decision | Verdict]"]
"""Decides on a call (a `PendingCall`) of a sensitive tool. What is no exact approval keeps it from running.

One with an attribute `tiers` is asked about the calls of these tiers too.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run works with and its state does not hold."""

    model: LanguageModel
    tools: Toolset
    every: tuple[Tool, ...]
    approve: Approver | None
    retrieve: Retriever | None
    deps: Any
    options: Mapping[str, Any]
    sinks: tuple[events.Sink, ...]
    on_text: Callable[[str], None] | None
    output: str
    cancel: threading.Event | None
    audit: Journal | None
    store: RunStore | None

    @property
    def asked(self) -> frozenset[Permission]:
        """The tiers on whose calls somebody decides."""
        return SENSITIVE | frozenset(getattr(self.approve, "tiers", ()))

    def gate(self, run: Run) -> Gate:
        asked = self._asked_in(run)
        return lambda call: (
            call.name != run.output and needs_approval(call, self.tools, asked)
        )

    def _asked_in(self, run: Run) -> frozenset[Permission]:
        """In a plan, where only what reads is run, a policy may still deny; nothing else is decided there."""
        return (
            frozenset(getattr(self.approve, "tiers", ()))
            if run.mode == "plan"
            else self.asked
        )

    def in_mode(self, verdict: Verdict, call: ToolCall, run: Run) -> Verdict:
        """The verdict; what would wait for one outside of a plan is planned."""
        is_planned = run.mode == "plan" and self.tools[call.name].permission != "read"
        return (
            Verdict("approve", "planned")
            if is_planned and verdict.decision == "defer"
            else verdict
        )

    @property
    def choice(self) -> list[Tool]:
        """The tools that a retriever chooses from."""
        return [tool for tool in self.every if tool.name != self.output]

    def in_view(self, chosen: Sequence[Tool], run: Run) -> tuple[Tool, ...]:
        """What was chosen, and what the run is using, in the order of registration, which prompt caches like."""
        if not isinstance(chosen, Sequence) or not all(
            isinstance(tool, Tool) for tool in chosen
        ):
            raise TypeError(
                f"retrieve= gave {chosen!r:.200}. It gives a list, of the tools that it was given."
            )
        in_use = {call.name for message in run.messages for call in message.tool_calls}
        names = {tool.name for tool in chosen} | in_use | {self.output}
        if run.turns == 0:
            names.add(run.tool_choice)
            if run.tool_choice == "required" and names.isdisjoint(self.tools):
                return self.every  # a call is wanted, whatever fits
        return tuple(tool for tool in self.every if tool.name in names)

    def halt(self, run: Run) -> threads.Halt:
        """What ends a step that waits: the caller's flag, and the end of the run's time."""
        if self.cancel is None and run.limits.seconds is None:
            return threads.NEVER
        seconds = run.limits.seconds
        return threads.Halt(
            self.cancel,
            None if seconds is None else time.monotonic() + seconds - run.seconds,
        )

    def watch(self, run: Run) -> Watch:
        journals = tuple(
            journal for journal in (self.store, self.audit) if journal
        )  # the audit nearest to the call
        enter = tuple(
            sink.enter_call for sink in self.sinks if hasattr(sink, "enter_call")
        )
        return Watch(journals, self.halt(run), enter, self._asked_in(run))

    def next_step(self, run: Run, gate: Gate) -> Step:
        step = next_step(run, gate)
        if (
            self.cancel is not None
            and self.cancel.is_set()
            and not isinstance(step, Stop)
        ):
            return Stop("cancelled", "Not run: the run was cancelled.")
        return step

    def advance(self, run: Run, step: Step, outcome: Outcome, seconds: float) -> Run:
        if self.sinks:
            events.tell(
                self.sinks,
                reporting.step_ended(run, step, outcome, self.model.name, seconds),
            )
        active = (
            0.0 if isinstance(step, AskApproval) else seconds
        )  # people take their time
        run = advance(run, step, outcome, seconds=active)
        if self.store:
            self.store.save(run, "running")
        return run

    def switch_route(self, run: Run, error: ToolsRefused) -> Run:
        """The run with the tools in its prompt from now on, unless they are there already."""
        if run.route == "prompted":
            raise error
        events.tell(self.sinks, reporting.route_switched(run, str(error)))
        return replace(run, route="prompted")


def make_setting(
    *,
    model: str | LanguageModel | None,
    tools: ToolsGiven,
    output_type: Any,
    retrieve: int | Retriever | None,
    on_event: events.Sink | Sequence[events.Sink] | None,
    audit: str | Path | Journal | None,
    client: Any,
    base_url: str | None,
    api_key: str | None,
    options: dict[str, Any],
    parameters: Collection[str],
    **kept: Any,
) -> Setting:
    """The setting that the arguments of a run describe, of which it keeps the rest as they are.

    Raises TypeError or ValueError for what fits none of them.
    """
    refuse_strangers(options, parameters)
    _check(on_event, **kept)
    toolset = registry_of(tools).snapshot()
    if tools is None and not toolset:
        _log.warning(
            "the run has no tools: nothing is registered, and none are given. Pass tools=… (or tools=())"
        )
    output = OutputTool(output_type, toolset) if output_type is not None else None
    if output:
        toolset = Toolset([*toolset.values(), output])
    return Setting(
        model=find_model(model, client=client, base_url=base_url, api_key=api_key),
        tools=toolset,
        every=tuple(toolset.values()),
        output=output.name if output else "",
        retrieve=_retriever(retrieve),
        options=options,
        sinks=events.listeners(on_event),
        audit=open_audit(audit),
        **kept,
    )


def _check(
    on_event: Any, *, approve: Any, on_text: Any, store: Any, cancel: Any, deps: Any
) -> None:
    told = on_event if isinstance(on_event, list | tuple) else [on_event]
    for name, given in (
        ("approve", approve),
        ("on_text", on_text),
        *(("on_event", sink) for sink in told),
    ):
        if given is not None and not callable(given):
            raise TypeError(f"{name} is a function, not {type(given).__name__}.")
        if name != "approve" and inspect.iscoroutinefunction(given):
            raise TypeError(
                f"{name} is a plain function; a coroutine function would not be awaited."
            )
    if strange := sorted({*getattr(approve, "tiers", ())} - {*get_args(Permission)}):
        known = ", ".join(get_args(Permission))
        raise ValueError(
            f"The approver's tiers have {strange}; there are {known}, in a list."
        )
    if store is not None and not hasattr(store, "claim"):
        raise TypeError(
            f"store is a RunStore such as SQLiteStore(PATH), not {type(store).__name__}. "
            "A field of that name goes to the model in extra_body={'store': …}."
        )
    if cancel is not None and not hasattr(cancel, "is_set"):
        raise TypeError(f"cancel is a threading.Event, not {type(cancel).__name__}.")


def _retriever(retrieve: int | Retriever | None) -> Retriever | None:
    if inspect.iscoroutinefunction(retrieve):
        raise TypeError(
            "retrieve is a plain function, which an async run calls in a thread; it would not be awaited."
        )
    if retrieve is None or callable(retrieve):
        return retrieve
    if type(retrieve) is not int or retrieve < 1:
        raise ValueError(
            f"retrieve={retrieve!r} is no number of tools. Give 1 or more, or a function that chooses."
        )
    from toolkit.retrieval import best

    return best(retrieve)
