"""Where a run starts: from a prompt, or from a run that paused or was left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from toolkit.calls.policy import Policy, is_verdict, read_verdict
from toolkit.calls.validation import CheckedCall, check_call
from toolkit.errors import ApprovalError, StoreError
from toolkit.messages import (
    Decision,
    Limits,
    Message,
    ToolCall,
    Verdict,
    whole_characters,
)
from toolkit.runs.context import RunContext
from toolkit.runs.driver import Flow, drive
from toolkit.runs.loop import hold
from toolkit.runs.options import RunOptions, check_max_turns
from toolkit.runs.protocols import RunStore
from toolkit.runs.reading import read_conversation
from toolkit.runs.results import RunResult
from toolkit.runs.state import Run


def begin(prompt: str, options: RunOptions) -> Flow:
    """The flow of a new run."""
    context = RunContext.of(options)
    if not isinstance(prompt, str):
        raise TypeError(f"prompt must be a string, not {type(prompt).__name__}.")
    messages = read_conversation(options.history)
    if options.instructions is not None:
        system = Message("system", whole_characters(options.instructions))
        messages = [system, *(each for each in messages if each.role != "system")]
    tool_choice = options.tool_choice
    if context.output and tool_choice == "auto" and len(context.tools) == 1:
        tool_choice = context.output
    run = Run(
        id=options.run_id or os.urandom(16).hex(),
        messages=(*messages, Message("user", whole_characters(prompt))),
        history=len(messages),
        max_turns=options.max_turns,
        tool_choice=tool_choice,
        output=context.output,
        mode=options.mode,
        exempt=tuple(sorted(context.tools.exempt)),
        limits=options.limits or Limits(),
    )
    _check_run(run, context)
    if context.store:
        context.store.create(run)
    return drive(run, context, [])


def _check_run(run: Run, context: RunContext) -> None:
    if run.id.lstrip().startswith("{") or whole_characters(run.id) != run.id:
        raise ValueError(
            f"run_id={run.id!r} looks like a run's JSON, or cannot be written. "
            "Choose another."
        )
    choice, tools = run.tool_choice, context.tools
    if choice == "none" and context.output:
        raise ValueError(
            "output_type makes the answer a call, "
            'so tool_choice="none" leaves no way to answer.'
        )
    if choice not in ("auto", "none", "required", *tools):
        raise ValueError(
            f"tool_choice={choice!r} is neither auto, required, none nor one of "
            f"{list(tools)}."
        )
    if choice == "required" and not tools:
        raise ValueError("tool_choice forces a call, but the run has no tools.")


def resume_from(
    paused: RunResult[Any] | Run | str,
    verdicts: Mapping[str, Decision | Verdict] | None,
    max_turns: int | None,
    options: RunOptions,
) -> Flow:
    """The flow of a run that paused, or that an error left behind."""
    context = RunContext.of(options)
    run = _claimed(paused, context.store)
    try:
        _check_resumption(run, context)
        batch = [check_call(call, context.tools) for call in run.open_calls]
        if max_turns is not None:
            run = _with_max_turns(run, max_turns)
        run = _with_verdicts(run, verdicts or {}, batch, context)
        run = replace(run, exempt=tuple(sorted(context.tools.exempt)))
    except BaseException:
        if context.store:
            context.store.release(run.id)
        raise
    return drive(run, context, batch)


def _claimed(paused: RunResult[Any] | Run | str, store: RunStore | None) -> Run:
    """The run to continue. If a store has it, it is claimed, and is in the state that the store has."""
    if isinstance(paused, str):
        if store and not paused.lstrip().startswith("{"):
            return store.claim(paused)
        paused = RunResult.from_json(paused)
    if not isinstance(paused, RunResult | Run):
        raise TypeError(
            "A run is resumed from its result, its JSON, or error.run, "
            f"not from {type(paused).__name__}."
        )
    run = paused if isinstance(paused, Run) else paused.run
    if store is None:
        return run
    stored = store.claim(run.id)
    if stored.messages != run.messages:
        store.release(run.id)
        raise StoreError(
            f"The store has run {run.id!r} in another state. "
            f"Resume it by its id: resume({run.id!r}, …)."
        )
    return stored


def _check_resumption(run: Run, context: RunContext) -> None:
    if run.output != context.output:
        article = "with" if run.output else "without"
        raise ValueError(
            f"The run was begun {article} output_type. Resume it in the same way."
        )
    missing = [
        call.name
        for call in run.open_calls
        if call.id in run.held and call.name not in context.tools
    ]
    if missing:
        raise ValueError(
            f"Calls of {missing} wait for approval, but tools= does not have them."
        )
    altered = [call.id for call in run.held_calls if run.held[call.id] != call.digest]
    if altered:
        raise ApprovalError(
            f"The calls {altered} are not those that were held for approval: "
            "somebody altered the run."
        )


def _with_max_turns(run: Run, max_turns: int) -> Run:
    check_max_turns(max_turns)
    # A run that was stopped by its turns continues, unless the last turn gave an answer.
    is_cut_off = run.stopped == "max_turns" and run.messages[-1].role == "tool"
    return replace(
        run, max_turns=max_turns, stopped=None if is_cut_off else run.stopped
    )


def _with_verdicts(
    run: Run,
    verdicts: Mapping[str, Decision | Verdict],
    batch: list[CheckedCall],
    context: RunContext,
) -> Run:
    """The run with its open calls validated again, and with new verdicts on those that wait.

    A call whose validated arguments are not those that were held is held again, with its new ones.
    Verdicts on the old ones do not count.
    """
    previous = run.held
    run = hold(run, _calls_to_hold(run, batch, context.policy(run)))
    changed = {key for key in previous if previous[key] != run.held[key]}
    kept = {
        call_id: verdict
        for call_id, verdict in run.verdicts.items()
        if verdict.decision != "defer" and call_id not in changed
    }
    run = replace(run, verdicts=kept)
    waiting = {call.id: call for call in run.waiting}
    _check_verdicts(verdicts, waiting)
    bound = {
        call_id: read_verdict(verdict).on(waiting[call_id])
        for call_id, verdict in verdicts.items()
        if call_id not in changed or _is_on(verdict, waiting[call_id])
    }
    return replace(run, verdicts={**kept, **bound})


def _calls_to_hold(
    run: Run, batch: list[CheckedCall], policy: Policy
) -> Iterator[ToolCall]:
    """The open calls that need a verdict and are not held yet, or not with these arguments."""
    for checked in batch:
        call_id = checked.call.id
        if call_id in run.settled:
            continue
        if call_id not in run.held:
            if policy.needs_verdict(checked):
                yield checked.pending()
        elif checked.values is not None:
            pending = checked.pending()
            if run.held[call_id] != pending.digest:
                yield pending


def _check_verdicts(
    verdicts: Mapping[str, Any], waiting: Mapping[str, ToolCall]
) -> None:
    unknown = [call_id for call_id in verdicts if call_id not in waiting]
    if unknown:
        raise ApprovalError(
            f"No call {unknown} waits for a verdict; these do: {list(waiting)}."
        )
    unclear = {key: each for key, each in verdicts.items() if not is_verdict(each)}
    if unclear:
        raise ApprovalError(
            f"These are not verdicts: {unclear!r:.500}. "
            'Give "approve", "deny", "defer" or a Verdict(…) for each call.'
        )


def _is_on(verdict: Decision | Verdict, call: ToolCall) -> bool:
    """True if the verdict names exactly this call, by its digest."""
    return isinstance(verdict, Verdict) and verdict.digest == call.digest
