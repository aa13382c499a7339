"""The options of a run as one value, checked before anything happens."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from toolkit.calls.policy import Approver
from toolkit.calls.protocols import Journal
from toolkit.events import Sink
from toolkit.messages import Limits, Permission
from toolkit.models.options import refuse_unknown_options
from toolkit.runs.protocols import RunStore
from toolkit.runs.reading import Conversation
from toolkit.runs.state import Mode
from toolkit.tools.registry import ToolsGiven
from toolkit.tools.request import LanguageModel, Retriever


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `run_agent_with_tools` and its relatives take, except the prompt. `fields` go to the model."""

    model: str | LanguageModel | None = None
    tools: ToolsGiven = None
    instructions: str | None = None
    history: Conversation = None
    max_turns: int = 10
    tool_choice: str = "auto"
    output_type: Any = None
    approve: Approver | None = None
    retrieve: int | Retriever | None = None
    limits: Limits | None = None
    mode: Mode = "run"
    deps: Any = None
    on_event: Sink | Sequence[Sink] | None = None
    on_text: Callable[[str], None] | None = None
    audit: str | Path | Journal | None = None
    store: RunStore | None = None
    run_id: str | None = None
    cancel: threading.Event | None = None
    client: Any = None
    base_url: str | None = None
    api_key: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raise TypeError or ValueError for an option that cannot work, naming it."""
        refuse_unknown_options(self.fields, NAMES)
        self._check_callables()
        self._check_objects()
        self._check_values()

    @property
    def sinks(self) -> list[Sink]:
        """What `on_event` names, as a list."""
        if isinstance(self.on_event, list | tuple):
            return [sink for sink in self.on_event if sink is not None]
        return [] if self.on_event is None else [self.on_event]  # type: ignore[list-item]

    def _check_callables(self) -> None:
        callables: list[tuple[str, Any]] = [("approve", self.approve)]
        callables += [("on_text", self.on_text)]
        callables += [("on_event", sink) for sink in self.sinks]
        for name, value in callables:
            if value is not None and not callable(value):
                raise TypeError(
                    f"{name} must be a function, not {type(value).__name__}."
                )
            if name != "approve" and inspect.iscoroutinefunction(value):
                raise TypeError(
                    f"{name} must be a plain function: "
                    "a coroutine function would not be awaited."
                )
        if inspect.iscoroutinefunction(self.retrieve):
            raise TypeError(
                "retrieve must be a plain function, which an async run calls in a "
                "thread: a coroutine function would not be awaited."
            )

    def _check_objects(self) -> None:
        unknown = sorted(
            {*getattr(self.approve, "tiers", ())} - {*get_args(Permission)}
        )
        if unknown:
            known = ", ".join(get_args(Permission))
            raise ValueError(
                f"The approver's tiers include {unknown}; the tiers are {known}."
            )
        if self.store is not None and not hasattr(self.store, "claim"):
            raise TypeError(
                f"store must be a RunStore such as SQLiteStore(PATH), not "
                f"{type(self.store).__name__}. To send a field of that name to the "
                "model, write extra_body={'store': …}."
            )
        if self.cancel is not None and not hasattr(self.cancel, "is_set"):
            raise TypeError(
                f"cancel must be a threading.Event, not {type(self.cancel).__name__}."
            )

    def _check_values(self) -> None:
        check_max_turns(self.max_turns)
        if self.limits is not None and not isinstance(self.limits, Limits):
            raise TypeError(
                f"limits must be a Limits, not {type(self.limits).__name__}. "
                "Write limits=Limits(tool_calls=…)."
            )
        if self.mode not in get_args(Mode):
            raise ValueError(f'mode must be "run" or "plan", not {self.mode!r}.')
        texts = {"instructions": self.instructions, "run_id": self.run_id}
        for name, value in texts.items():
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be a string, not {type(value).__name__}.")
        if not isinstance(self.tool_choice, str):
            raise TypeError(
                f"tool_choice must be a string, not {type(self.tool_choice).__name__}. "
                "To force a tool, give its name."
            )


NAMES = tuple(each.name for each in fields(RunOptions) if each.name != "fields")
"""The names of all options, which no field of a model may be close to."""


def check_max_turns(max_turns: Any) -> None:
    if type(max_turns) is not int or max_turns < 1:
        raise ValueError(
            f"max_turns must be a whole number, 1 or more, not {max_turns!r}."
        )
