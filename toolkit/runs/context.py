"""The context of a run: what it works with that is not part of its saved state. It decides nothing."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit import events
from toolkit.calls.execution import Batch
from toolkit.calls.policy import Approver, Policy
from toolkit.calls.protocols import Journal
from toolkit.calls.threads import NEVER, Halt
from toolkit.models.naming import find_model
from toolkit.runs.auditing import open_audit
from toolkit.runs.options import RunOptions
from toolkit.runs.protocols import RunStore
from toolkit.runs.state import Run
from toolkit.tools.effects import effect_without_tier
from toolkit.tools.registry import registry_of
from toolkit.tools.request import LanguageModel, Retriever
from toolkit.tools.tool import OutputTool, Tool, Toolset

_log = logging.getLogger("toolkit")


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run works with: its model and tools, who is asked and told, and what keeps it."""

    model: LanguageModel
    tools: Toolset
    output: str
    approve: Approver | None
    retrieve: Retriever | None
    deps: Any
    fields: Mapping[str, Any]
    sinks: tuple[events.Sink, ...]
    on_text: Callable[[str], None] | None
    cancel: threading.Event | None
    audit: Journal | None
    store: RunStore | None

    @classmethod
    def of(cls, options: RunOptions) -> RunContext:
        """The context that the options describe. Raises TypeError or ValueError if they describe none."""
        options.check()
        tools = registry_of(options.tools).snapshot()
        if options.tools is None and not tools:
            _log.warning(
                "the run has no tools: nothing is registered, and tools= is not given. "
                "Pass tools=… (or tools=())"
            )
        _warn_of_effects(tools)
        output = ""
        if options.output_type is not None:
            output_tool = OutputTool(options.output_type, tools)
            tools = Toolset([*tools.values(), output_tool])
            output = output_tool.name
        return cls(
            model=find_model(
                options.model,
                client=options.client,
                base_url=options.base_url,
                api_key=options.api_key,
            ),
            tools=tools,
            output=output,
            approve=options.approve,
            retrieve=_retriever(options.retrieve),
            deps=options.deps,
            fields=options.fields,
            sinks=events.listeners(options.sinks),
            on_text=options.on_text,
            cancel=options.cancel,
            audit=open_audit(options.audit),
            store=options.store,
        )

    def policy(self, run: Run) -> Policy:
        """What decides on the calls of the run."""
        return Policy.of(self.approve, plans=run.mode == "plan", output=run.output)

    def halt(self, run: Run) -> Halt:
        """What ends a step that waits: the caller's flag, and the end of the run's time."""
        seconds = run.limits.seconds
        if seconds is None:
            return NEVER if self.cancel is None else Halt(self.cancel)
        return Halt(self.cancel, time.monotonic() + seconds - run.seconds)

    def batch(self, run: Run) -> Batch:
        """What the calls of the run's next batch share. The audit is the journal nearest to the call."""
        return Batch(
            run_id=run.id,
            turn=run.turns,
            deps=self.deps,
            limits=run.limits,
            halt=self.halt(run),
            journals=tuple(each for each in (self.store, self.audit) if each),
            entries=tuple(
                sink.enter_call for sink in self.sinks if hasattr(sink, "enter_call")
            ),
            verdicts=run.verdicts,
        )

    @property
    def all_tools(self) -> tuple[Tool, ...]:
        return tuple(self.tools.values())

    @property
    def retrievable(self) -> list[Tool]:
        """The tools that a retriever chooses from."""
        return [tool for tool in self.tools.values() if tool.name != self.output]

    def tools_in_view(self, chosen: Sequence[Tool], run: Run) -> tuple[Tool, ...]:
        """The chosen tools and those that the run is using, in order of registration, as prompt caches need it."""
        is_list = isinstance(chosen, Sequence)
        if not is_list or not all(isinstance(tool, Tool) for tool in chosen):
            raise TypeError(
                f"retrieve= returned {chosen!r:.200}. "
                "It must return a list of the tools that it was given."
            )
        in_use = {call.name for message in run.messages for call in message.tool_calls}
        names = {tool.name for tool in chosen} | in_use | {self.output}
        if run.turns == 0:
            names.add(run.tool_choice)
            if run.tool_choice == "required" and names.isdisjoint(self.tools):
                return self.all_tools  # a call is required, whatever fits
        return tuple(tool for tool in self.tools.values() if tool.name in names)


_warned: weakref.WeakSet[Tool] = weakref.WeakSet()


def _warn_of_effects(tools: Toolset) -> None:
    """Log once for each tool that acts on the world and has no tier that anybody chose."""
    for tool in tools.values():
        if tool in _warned:
            continue
        _warned.add(tool)
        act = effect_without_tier(tool)
        if act:
            _log.warning(
                "tool %r speaks of %r, and runs without approval because nobody chose its tier. "
                'Write permission="sensitive", or permission="write" to let it run.',
                tool.name,
                act,
            )


def _retriever(retrieve: int | Retriever | None) -> Retriever | None:
    if retrieve is None or callable(retrieve):
        return retrieve
    if type(retrieve) is not int or retrieve < 1:
        raise ValueError(
            f"retrieve must be a number of tools, 1 or more, or a function that "
            f"chooses them, not {retrieve!r}."
        )
    from toolkit.retrieval import best

    return best(retrieve)
