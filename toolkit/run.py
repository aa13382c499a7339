"""The functions that people call: a run, its resumption, and reading a value out of a text."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from toolkit import events
from toolkit.drive import Approver, Setting, adrive, drive, read_verdict
from toolkit.errors import ApprovalError
from toolkit.history import Conversation, read_conversation
from toolkit.loop import (
    Decision,
    Limits,
    Run,
    Verdict,
    waiting,
)
from toolkit.messages import Message, whole_characters
from toolkit.models import Model, find_model, refuse_strangers
from toolkit.registry import REGISTRY, ToolRegistry
from toolkit.results import RunResult
from toolkit.tools import OutputTool, Tool, Toolset

_log = logging.getLogger("toolkit")

T = TypeVar("T")
ToolsGiven = ToolRegistry | Iterable[Callable[..., Any] | Tool] | None


def run_agent_with_tools(
    prompt: str,
    *,
    model: str | Model | None = None,
    tools: ToolsGiven = None,
    instructions: str | None = None,
    history: Conversation = None,
    max_turns: int = 10,
    tool_choice: str = "auto",
    output_type: Any = None,
    approve: Approver | None = None,
    limits: Limits | None = None,
    deps: Any = None,
    on_event: events.Sink | None = None,
    on_text: Callable[[str], None] | None = None,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    **options: Any,
) -> RunResult:
    """Ask a model, run the tools that it calls, and go on until it answers.

    prompt: the user's message.
    model: a name ("responses:NAME", "anthropic:NAME", "react:NAME" for these wires), "local" or "local:PATH.gguf" for
        the embedded model, or a `Model`; None takes $TOOLKIT_MODEL, else OpenAI's where $OPENAI_API_KEY is set, else
        the embedded model. `client`, `base_url`, `api_key` go with a name.
    tools: functions, Tools or a registry; None takes the global registry, where `@tool` registers.
    instructions: the system text.
    history: a result or messages (also Chat Completions dicts) to go on from; never changed.
    max_turns: requests to the model at most. In the last of several the tools are switched off, so that it answers.
    tool_choice: "auto", "required", "none" or a tool's name; a forced choice holds for the first turn.
    output_type: a type, of which the run gives a validated value in `result.output`.
    approve: decides on calls of sensitive tools: "approve", "deny", "defer" or a Verdict. Without it the run pauses.
    limits: further bounds, see `Limits`.
    deps: anything; tools find it in their `ToolContext`.
    on_event: called with each `Event` of the run; its errors are logged and break nothing.
    on_text: called with the model's text as it comes; the result is the same as without.
    options: request fields of the model (temperature …), sent as they are.

    Outcomes are values: see `RunResult.stop_reason`. Raises ModelError where the model cannot be reached after
    retries, with the run attached as `error.run`; KeyboardInterrupt passes, with the run attached as well.
    """
    setting = _setting(
        model=model,
        tools=tools,
        output_type=output_type,
        approve=approve,
        deps=deps,
        on_event=on_event,
        on_text=on_text,
        client=client,
        base_url=base_url,
        api_key=api_key,
        options=options,
    )
    return drive(_begin(prompt, instructions, history, max_turns, tool_choice, limits, setting), setting)


async def arun_agent_with_tools(
    prompt: str,
    *,
    model: str | Model | None = None,
    tools: ToolsGiven = None,
    instructions: str | None = None,
    history: Conversation = None,
    max_turns: int = 10,
    tool_choice: str = "auto",
    output_type: Any = None,
    approve: Approver | None = None,
    limits: Limits | None = None,
    deps: Any = None,
    on_event: events.Sink | None = None,
    on_text: Callable[[str], None] | None = None,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    **options: Any,
) -> RunResult:
    """As `run_agent_with_tools`, on the running event loop. Cancellation passes, with the run attached.

    At Ctrl-C `asyncio.run` raises a KeyboardInterrupt of its own; the run is then on `error.__context__.run`.
    """
    setting = _setting(
        model=model,
        tools=tools,
        output_type=output_type,
        approve=approve,
        deps=deps,
        on_event=on_event,
        on_text=on_text,
        client=client,
        base_url=base_url,
        api_key=api_key,
        options=options,
    )
    return await adrive(_begin(prompt, instructions, history, max_turns, tool_choice, limits, setting), setting)


def resume(
    paused: RunResult | Run | str,
    verdicts: Mapping[str, Decision | Verdict] | None = None,
    *,
    model: str | Model | None = None,
    tools: ToolsGiven = None,
    output_type: Any = None,
    approve: Approver | None = None,
    deps: Any = None,
    on_event: events.Sink | None = None,
    on_text: Callable[[str], None] | None = None,
    max_turns: int | None = None,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    **options: Any,
) -> RunResult:
    """Go on with a run that paused, or that an error left behind.

    `paused` is the result, its JSON text, or the run of an error. `verdicts` decides calls by their id; while one of a
    reply is undecided, the run stays paused and starts none of them. The other arguments are as for
    `run_agent_with_tools`. Raises ApprovalError for a verdict on a call that does not wait for one.
    """
    setting = _setting(
        model=model,
        tools=tools,
        output_type=output_type,
        approve=approve,
        deps=deps,
        on_event=on_event,
        on_text=on_text,
        client=client,
        base_url=base_url,
        api_key=api_key,
        options=options,
    )
    return drive(_decided(paused, verdicts or {}, max_turns, setting), setting)


def extract(text: str, output_type: type[T], *, max_turns: int = 3, **options: Any) -> T:
    """Read a value of a type out of a text: one forced call of a tool made from the type, validated.

    `options` are those of `run_agent_with_tools`. Raises RunIncomplete where the model did not manage it.
    """
    result = run_agent_with_tools(text, tools=(), output_type=output_type, max_turns=max_turns, **options)
    return cast(T, result.raise_for_stop().output)


async def aextract(text: str, output_type: type[T], *, max_turns: int = 3, **options: Any) -> T:
    """As `extract`, on the running event loop."""
    result = await arun_agent_with_tools(text, tools=(), output_type=output_type, max_turns=max_turns, **options)
    return cast(T, result.raise_for_stop().output)


async def aresume(
    paused: RunResult | Run | str,
    verdicts: Mapping[str, Decision | Verdict] | None = None,
    *,
    model: str | Model | None = None,
    tools: ToolsGiven = None,
    output_type: Any = None,
    approve: Approver | None = None,
    deps: Any = None,
    on_event: events.Sink | None = None,
    on_text: Callable[[str], None] | None = None,
    max_turns: int | None = None,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    **options: Any,
) -> RunResult:
    """As `resume`, on the running event loop."""
    setting = _setting(
        model=model,
        tools=tools,
        output_type=output_type,
        approve=approve,
        deps=deps,
        on_event=on_event,
        on_text=on_text,
        client=client,
        base_url=base_url,
        api_key=api_key,
        options=options,
    )
    return await adrive(_decided(paused, verdicts or {}, max_turns, setting), setting)


def _setting(
    *,
    model: str | Model | None,
    tools: ToolsGiven,
    output_type: Any,
    approve: Approver | None,
    deps: Any,
    on_event: events.Sink | None,
    on_text: Callable[[str], None] | None,
    client: Any,
    base_url: str | None,
    api_key: str | None,
    options: dict[str, Any],
) -> Setting:
    refuse_strangers(options, _PARAMETERS)
    for name, given in (("approve", approve), ("on_event", on_event), ("on_text", on_text)):
        if given is not None and not callable(given):
            raise TypeError(f"{name} is a function, not {type(given).__name__}.")
        if name != "approve" and inspect.iscoroutinefunction(given):
            raise TypeError(f"{name} is a plain function; a coroutine function would not be awaited.")
    if tools is None:
        tools = REGISTRY
        if not len(REGISTRY):
            _log.warning("the run has no tools: nothing is registered, and none are given. Pass tools=… (or tools=())")
    elif callable(tools) or isinstance(tools, (str, Tool)):
        raise TypeError(f"tools is a list of tools or a ToolRegistry, not {tools!r}. Put it into a list.")
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    found = find_model(model, client=client, base_url=base_url, api_key=api_key)
    toolset = registry.snapshot()
    output = OutputTool(output_type, toolset) if output_type is not None else None
    if output:
        toolset = Toolset([*toolset.values(), output])
    sinks = events.listeners(on_event)
    return Setting(
        found, toolset, tuple(toolset.values()), approve, deps, options, sinks, on_text, output.name if output else ""
    )


_PARAMETERS = tuple(
    n for n, p in inspect.signature(run_agent_with_tools).parameters.items() if p.kind is p.KEYWORD_ONLY
)


def _begin(
    prompt: str,
    instructions: str | None,
    history: Conversation,
    max_turns: int,
    tool_choice: str,
    limits: Limits | None,
    setting: Setting,
) -> Run:
    if not isinstance(prompt, str):
        raise TypeError(f"prompt is a text, not {type(prompt).__name__}.")
    if not isinstance(instructions, str | None):
        raise TypeError(f"instructions is a text, not {type(instructions).__name__}.")
    _check_turns(max_turns)
    if not isinstance(tool_choice, str):
        raise TypeError(f"tool_choice is a text, not {type(tool_choice).__name__}. To force a tool, give its name.")
    if not isinstance(limits, Limits | None):
        raise TypeError(f"limits is a Limits, not {type(limits).__name__}. Write limits=Limits(tool_calls=…).")
    if tool_choice == "none" and setting.output:
        raise ValueError('output_type makes the answer a call, so tool_choice="none" leaves no way to answer.')
    forced = tool_choice not in ("auto", "none")
    if forced and tool_choice != "required" and tool_choice not in setting.tools:
        raise ValueError(
            f"tool_choice={tool_choice!r} is neither auto, required, none nor one of {list(setting.tools)}."
        )
    if forced and not setting.tools:
        raise ValueError("tool_choice forces a call, but the run has no tools.")
    before = read_conversation(history)
    if instructions is not None:
        before = [Message("system", whole_characters(instructions)), *(m for m in before if m.role != "system")]
    messages = (*before, Message("user", whole_characters(prompt)))
    if setting.output and tool_choice == "auto" and len(setting.tools) == 1:
        tool_choice = setting.output
    return Run(
        os.urandom(16).hex(), messages, len(before), max_turns, tool_choice, setting.output, limits=limits or Limits()
    )


def _check_turns(max_turns: Any) -> None:
    if type(max_turns) is not int or max_turns < 1:
        raise ValueError(f"max_turns={max_turns!r} is no number of turns. Give a whole number, 1 or more.")


def _decided(
    paused: RunResult | Run | str,
    verdicts: Mapping[str, Decision | Verdict],
    max_turns: int | None,
    setting: Setting,
) -> Run:
    if isinstance(paused, str):
        paused = RunResult.from_json(paused)
    if not isinstance(paused, RunResult | Run):
        raise TypeError(f"A run is resumed from its result, its JSON, or error.run, not from {type(paused).__name__}.")
    run = paused if isinstance(paused, Run) else paused.run
    if run.output != setting.output:
        raise ValueError(f"The run was begun with{'' if run.output else 'out'} output_type. Resume it in the same way.")
    if strangers := [c.name for c in getattr(paused, "waiting", ()) if c.name not in setting.tools]:
        raise ValueError(f"Calls of {strangers} wait for approval, but tools= does not hold them.")
    if max_turns is not None:
        _check_turns(max_turns)
        is_cut = run.stopped == "max_turns" and run.messages[-1].role == "tool"  # else there was an answer
        run = replace(run, max_turns=max_turns, stopped=None if is_cut else run.stopped)
    open_ids = [call.id for call in waiting(run, setting.gate)]
    if unknown := [call_id for call_id in verdicts if call_id not in open_ids]:
        raise ApprovalError(f"No call {unknown} waits for a verdict; these do: {open_ids}.")
    given = {call_id: read_verdict(answer) for call_id, answer in verdicts.items()}
    kept = {call_id: verdict for call_id, verdict in run.verdicts.items() if verdict.decision != "defer"}
    return replace(run, verdicts={**kept, **given})
