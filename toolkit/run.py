"""The functions that people call: a run, its resumption, and reading a value out of a text."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast

from toolkit import events
from toolkit.calls.protocols import Journal, RunStore
from toolkit.errors import ApprovalError, StoreError
from toolkit.messages import Decision, Limits, Message, Verdict, whole_characters
from toolkit.runs.context import Approver, Setting, make_setting
from toolkit.runs.driver import adrive, drive, read_verdict
from toolkit.runs.loop import Run, waiting
from toolkit.runs.reading import Conversation, read_conversation
from toolkit.runs.results import RunResult
from toolkit.tools.registry import ToolsGiven
from toolkit.tools.request import LanguageModel, Retriever

T = TypeVar("T")
P = ParamSpec("P")
_Run = Coroutine[Any, Any, RunResult]


def _with_parameters_of(
    function: Callable[P, RunResult],
) -> Callable[[Callable[..., _Run]], Callable[P, _Run]]:
    """Give an async twin the parameters of `function`; it gets all of them, with their defaults, by name."""
    signature = inspect.signature(function)

    def decorate(twin: Callable[..., _Run]) -> Callable[P, _Run]:
        @functools.wraps(twin)
        async def called(*args: P.args, **given: P.kwargs) -> RunResult:
            bound = signature.bind(*args, **given)
            bound.apply_defaults()
            return await twin(**bound.arguments)

        called.__signature__ = signature  # type: ignore[attr-defined]  # what inspect and help() look for
        called.__annotations__ = function.__annotations__
        return called

    return decorate


def run_agent_with_tools(
    prompt: str,
    *,
    model: str | LanguageModel | None = None,
    tools: ToolsGiven = None,
    instructions: str | None = None,
    history: Conversation = None,
    max_turns: int = 10,
    tool_choice: str = "auto",
    output_type: Any = None,
    approve: Approver | None = None,
    retrieve: int | Retriever | None = None,
    limits: Limits | None = None,
    mode: Literal["run", "plan"] = "run",
    deps: Any = None,
    on_event: events.Sink | Sequence[events.Sink] | None = None,
    on_text: Callable[[str], None] | None = None,
    audit: str | Path | Journal | None = None,
    store: RunStore | None = None,
    run_id: str | None = None,
    cancel: threading.Event | None = None,
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
    tools: functions, Tools or a registry, or where to find them ("module", "module:name"); None takes the global
        registry, where `@tool` registers.
    instructions: the system text.
    history: a result or messages (also Chat Completions dicts) to go on from; never changed.
    max_turns: requests to the model at most. In the last of several the tools are switched off, so that it answers.
    tool_choice: "auto", "required", "none" or a tool's name; a forced choice holds for the first turn.
    output_type: a type, of which the run gives a validated value in `result.output`.
    approve: decides on calls of sensitive tools: "approve", "deny", "defer" or a Verdict. Without it the run pauses.
    retrieve: how many tools a request shows, those that fit the conversation best, or a function that chooses them.
        Tools that the run has called stay in view; what is not in view may be called all the same.
    limits: further bounds, see `Limits`.
    mode: "plan" runs only tools with the permission "read"; `result.plan` holds the other calls, to apply later.
    deps: anything; tools find it in their `ToolContext`.
    on_event: called with each `Event` of the run, or several such; their errors are logged and break nothing.
    on_text: called with the model's text as it comes; the result is the same as without.
    audit: a file, to which each call of a tool that is not "read" is written before it starts and once it has ended.
    store: keeps every step before the next begins, so that `resume(run_id, store=…)` goes on after a crash.
    run_id: the id of the run; made up where it is None.
    cancel: set it, from any thread, and the run ends with "cancelled"; a request or a tool at work is left behind.
    options: request fields of the model (temperature …), sent as they are.

    Outcomes are values: see `RunResult.stop_reason`. Raises ModelError where the model cannot be reached after
    retries, with the run attached as `error.run`; KeyboardInterrupt passes, with the run attached as well.
    """
    return drive(*_begin(**locals()))


@_with_parameters_of(run_agent_with_tools)
async def arun_agent_with_tools(**given: Any) -> RunResult:
    """As `run_agent_with_tools`, on the running event loop. Cancellation passes, with the run attached.

    At Ctrl-C `asyncio.run` raises a KeyboardInterrupt of its own; the run is then on `error.__context__.run`.
    """
    return await adrive(*_begin(**given))


def resume(
    paused: RunResult | Run | str,
    verdicts: Mapping[str, Decision | Verdict] | None = None,
    *,
    model: str | LanguageModel | None = None,
    tools: ToolsGiven = None,
    output_type: Any = None,
    approve: Approver | None = None,
    retrieve: int | Retriever | None = None,
    deps: Any = None,
    on_event: events.Sink | Sequence[events.Sink] | None = None,
    on_text: Callable[[str], None] | None = None,
    max_turns: int | None = None,
    audit: str | Path | Journal | None = None,
    store: RunStore | None = None,
    cancel: threading.Event | None = None,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    **options: Any,
) -> RunResult:
    """Go on with a run that paused, or that an error left behind.

    `paused` is the result, its JSON text, the run of an error, or with `store=` the run's id. `verdicts` decides calls
    by their id: "approve", "deny", "defer" or a Verdict; while one of a reply is undecided, the run stays paused and
    starts none of them. `max_turns`, for the whole run, lets one go on that had reached its own. The other arguments
    are as for `run_agent_with_tools`, and are given anew: a saved run holds neither model nor tools.

    Raises ApprovalError for a verdict on a call that does not wait for one, and StoreError where another process drives
    the run or its store has it further on.
    """
    return drive(*_continue(**locals()))


@_with_parameters_of(resume)
async def aresume(**given: Any) -> RunResult:
    """As `resume`, on the running event loop."""
    return await adrive(*_continue(**given))


def extract(
    text: str, output_type: type[T], *, max_turns: int = 3, **options: Any
) -> T:
    """Read a value of a type out of a text: one forced call of a tool made from the type, validated.

    `options` are those of `run_agent_with_tools`. Raises RunIncomplete where the model did not manage it.
    """
    result = run_agent_with_tools(
        text, tools=(), output_type=output_type, max_turns=max_turns, **options
    )
    return cast(T, result.raise_for_stop().output)


async def aextract(
    text: str, output_type: type[T], *, max_turns: int = 3, **options: Any
) -> T:
    """As `extract`, on the running event loop."""
    result = await arun_agent_with_tools(
        text, tools=(), output_type=output_type, max_turns=max_turns, **options
    )
    return cast(T, result.raise_for_stop().output)


_PARAMETERS = tuple(inspect.signature(run_agent_with_tools).parameters)[
    1:-1
]  # without prompt and options


def _begin(
    prompt: str,
    instructions: str | None,
    history: Conversation,
    max_turns: int,
    tool_choice: str,
    limits: Limits | None,
    mode: Literal["run", "plan"],
    run_id: str | None,
    **given: Any,
) -> tuple[Run, Setting]:
    setting = make_setting(parameters=_PARAMETERS, **given)
    before = read_conversation(history)
    if instructions is not None:
        before = [
            Message("system", whole_characters(instructions)),
            *(m for m in before if m.role != "system"),
        ]
    if setting.output and tool_choice == "auto" and len(setting.tools) == 1:
        tool_choice = setting.output
    run = Run(
        run_id or os.urandom(16).hex(),
        (*before, Message("user", whole_characters(prompt))),
        len(before),
        max_turns,
        tool_choice,
        setting.output,
        mode=mode,
        exempt=tuple(sorted(setting.tools.exempt)),
        limits=Limits() if limits is None else limits,
    )
    _check_beginning(run, instructions, setting)
    if setting.store:
        setting.store.create(run)
    return run, setting


def _check_beginning(run: Run, instructions: Any, setting: Setting) -> None:
    texts = {
        "prompt": run.messages[-1].text,
        "instructions": instructions or "",
        "run_id": run.id,
    }
    for name, given in {**texts, "tool_choice": run.tool_choice}.items():
        if not isinstance(given, str):
            to_force = (
                " To force a tool, give its name." if name == "tool_choice" else ""
            )
            raise TypeError(f"{name} is a text, not {type(given).__name__}.{to_force}")
    if run.id.lstrip().startswith("{") or whole_characters(run.id) != run.id:
        raise ValueError(
            f"run_id={run.id!r} could not be told from a run's JSON, or not be written. Choose another."
        )
    _check_turns(run.max_turns)
    if not isinstance(run.limits, Limits):
        raise TypeError(
            f"limits is a Limits, not {type(run.limits).__name__}. Write limits=Limits(tool_calls=…)."
        )
    if run.mode not in ("run", "plan"):
        raise ValueError(f'mode={run.mode!r} is neither "run" nor "plan".')
    if run.tool_choice == "none" and setting.output:
        raise ValueError(
            'output_type makes the answer a call, so tool_choice="none" leaves no way to answer.'
        )
    if run.tool_choice not in ("auto", "none", "required", *setting.tools):
        known = list(setting.tools)
        raise ValueError(
            f"tool_choice={run.tool_choice!r} is neither auto, required, none nor one of {known}."
        )
    if run.tool_choice == "required" and not setting.tools:
        raise ValueError("tool_choice forces a call, but the run has no tools.")


def _check_turns(max_turns: Any) -> None:
    if type(max_turns) is not int or max_turns < 1:
        raise ValueError(
            f"max_turns={max_turns!r} is no number of turns. Give a whole number, 1 or more."
        )


def _continue(
    paused: RunResult | Run | str,
    verdicts: Mapping[str, Decision | Verdict] | None,
    max_turns: int | None,
    **given: Any,
) -> tuple[Run, Setting]:
    setting = make_setting(parameters=_PARAMETERS, **given)
    run = _claimed(paused, setting.store)
    try:
        return _decided(run, verdicts or {}, max_turns, setting), setting
    except BaseException:
        if setting.store:
            setting.store.release(run.id)
        raise


def _claimed(paused: RunResult | Run | str, store: RunStore | None) -> Run:
    """The run to go on with; where a store has it, as it is there, and nobody else's."""
    if isinstance(paused, str):
        if store and not paused.lstrip().startswith("{"):
            return store.claim(paused)
        paused = RunResult.from_json(paused)
    if not isinstance(paused, RunResult | Run):
        raise TypeError(
            f"A run is resumed from its result, its JSON, or error.run, not from {type(paused).__name__}."
        )
    run = paused if isinstance(paused, Run) else paused.run
    if store is None:
        return run
    kept = store.claim(run.id)
    if kept.messages != run.messages:
        store.release(run.id)
        raise StoreError(
            f"The store has run {run.id!r} in another state. Resume it by its id: resume({run.id!r}, …)."
        )
    return kept


def _decided(
    run: Run,
    verdicts: Mapping[str, Decision | Verdict],
    max_turns: int | None,
    setting: Setting,
) -> Run:
    if run.output != setting.output:
        raise ValueError(
            f"The run was begun with{'' if run.output else 'out'} output_type. Resume it in the same way."
        )
    if strangers := [
        call.name
        for call in run.open_calls
        if call.id in run.held and call.name not in setting.tools
    ]:
        raise ValueError(
            f"Calls of {strangers} wait for approval, but tools= does not hold them."
        )
    if altered := [
        call.id
        for call in run.open_calls
        if run.held.get(call.id, call.digest) != call.digest
    ]:
        raise ApprovalError(
            f"The calls {altered} are not those that were held for approval: somebody altered the run."
        )
    if max_turns is not None:
        _check_turns(max_turns)
        is_cut = (
            run.stopped == "max_turns" and run.messages[-1].role == "tool"
        )  # else there was an answer
        run = replace(run, max_turns=max_turns, stopped=None if is_cut else run.stopped)
    open_calls = {call.id: call for call in waiting(run, setting.gate(run))}
    if unknown := [call_id for call_id in verdicts if call_id not in open_calls]:
        raise ApprovalError(
            f"No call {unknown} waits for a verdict; these do: {list(open_calls)}."
        )
    given = {
        call_id: read_verdict(answer).on(open_calls[call_id])
        for call_id, answer in verdicts.items()
    }
    kept = {
        call_id: verdict
        for call_id, verdict in run.verdicts.items()
        if verdict.decision != "defer"
    }
    return replace(
        run, verdicts={**kept, **given}, exempt=tuple(sorted(setting.tools.exempt))
    )
