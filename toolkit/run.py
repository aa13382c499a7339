"""The functions that people call: run, resume and extract, each also for the running event loop."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from toolkit.calls.policy import Approver
from toolkit.calls.protocols import Journal
from toolkit.events import Sink
from toolkit.messages import Decision, Limits, Verdict
from toolkit.runs.beginning import begin, resume_from
from toolkit.runs.driver import aperform, perform
from toolkit.runs.options import RunOptions
from toolkit.runs.protocols import RunStore
from toolkit.runs.reading import Conversation
from toolkit.runs.results import RunResult
from toolkit.runs.state import Mode, Run
from toolkit.tools.registry import ToolsGiven
from toolkit.tools.request import LanguageModel, Retriever

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The output of a run without an output_type is Any, so no overloads are needed.
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


def _prompt_alone_by_position(function: Callable[P, R]) -> Callable[P, R]:
    """Say what to write to somebody who gives more than the prompt by position."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        _check_positional(function.__name__, args)
        return function(*args, **kwargs)

    return call


def _check_positional(name: str, args: tuple[Any, ...]) -> None:
    if len(args) > 1:
        keyword = "tools" if isinstance(args[1], Iterable) else "max_turns"
        raise TypeError(
            f"{name}() takes only the prompt by position. Name the rest, "
            f"for example {keyword}={args[1]!r:.60}."
        )


@_prompt_alone_by_position
def run_agent_with_tools(
    prompt: str,
    *,
    model: str | LanguageModel | None = None,
    tools: ToolsGiven = None,
    instructions: str | None = None,
    history: Conversation = None,
    max_turns: int = 10,
    tool_choice: str = "auto",
    output_type: type[T] | None = None,
    approve: Approver | None = None,
    retrieve: int | Retriever | None = None,
    limits: Limits | None = None,
    mode: Mode = "run",
    deps: Any = None,
    on_event: Sink | Sequence[Sink] | None = None,
    on_text: Callable[[str], None] | None = None,
    audit: str | Path | Journal | None = None,
    store: RunStore | None = None,
    run_id: str | None = None,
    cancel: threading.Event | None = None,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    **fields: Any,
) -> RunResult[T]:
    """Ask a model, run the tools that it calls, and go on until it answers.

    prompt: the user's message.
    model: a name, or "responses:NAME", "anthropic:NAME", "react:NAME" for these wires; "local" or
        "local:PATH.gguf" for the embedded model; or a `Model`. None takes $TOOLKIT_MODEL; else
        OpenAI's model if $OPENAI_API_KEY is set; else the embedded model. `client`, `base_url` and
        `api_key` belong to a name.
    tools: functions, Tools or a registry, or where to find them ("module", "module:name"). None
        takes the global registry, in which `@tool` registers.
    instructions: the system text.
    history: a result or messages to continue, also as Chat Completions dicts. Never changed.
    max_turns: the most requests to the model. In the last of several, tools are switched off, so
        that the model answers.
    tool_choice: "auto", "required", "none" or the name of a tool. A forced choice applies to the
        first turn.
    output_type: a type; `result.output` is then a validated value of it.
    approve: decides on calls of sensitive tools: "approve", "deny", "defer" or a Verdict. Without
        it the run pauses at such a call.
    retrieve: how many tools a request shows, those that fit the conversation best; or a function
        that chooses them. Tools that the run has called stay in view, and a tool that is not in
        view may still be called.
    limits: further bounds, see `Limits`.
    mode: "plan" runs only tools with the permission "read"; `result.plan` has the other calls, to
        apply later.
    deps: any object; tools find it in their `ToolContext`.
    on_event: a function, or several, called with each `Event` of the run. Their errors are logged.
    on_text: called with the model's text as it comes. The result is the same as without it.
    audit: a file, to which each call of a tool that is not "read" is written before it starts and
        after it has ended.
    store: keeps every step before the next one begins, so that `resume(run_id, store=…)` can go on
        after a crash.
    run_id: the id of the run. None makes one.
    cancel: set it in any thread, and the run ends with "cancelled". A request or a tool that is
        still at work is left behind.
    fields: request fields of the model (temperature, …), sent as they are.

    Outcomes are values, see `RunResult.stop_reason`. Raises ModelError if the model cannot be
    reached after all retries, with the run attached as `error.run`. KeyboardInterrupt passes, also
    with the run attached.
    """
    options = RunOptions(
        model=model,
        tools=tools,
        instructions=instructions,
        history=history,
        max_turns=max_turns,
        tool_choice=tool_choice,
        output_type=output_type,
        approve=approve,
        retrieve=retrieve,
        limits=limits,
        mode=mode,
        deps=deps,
        on_event=on_event,
        on_text=on_text,
        audit=audit,
        store=store,
        run_id=run_id,
        cancel=cancel,
        client=client,
        base_url=base_url,
        api_key=api_key,
        fields=fields,
    )
    return perform(begin(prompt, options))


def _async_twin_of(
    function: Callable[P, R],
) -> Callable[
    [Callable[..., Coroutine[Any, Any, Any]]], Callable[P, Coroutine[Any, Any, R]]
]:
    """Give an async function the parameters of `function`. It gets all of them, defaults included."""
    signature = inspect.signature(function)

    def decorate(
        twin: Callable[..., Coroutine[Any, Any, Any]],
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        @functools.wraps(twin)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if "prompt" in signature.parameters:
                _check_positional(twin.__name__, args)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return await twin(**bound.arguments)  # type: ignore[no-any-return]

        # What inspect and help() look for.
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = function.__annotations__
        return call

    return decorate


@_async_twin_of(run_agent_with_tools)
async def arun_agent_with_tools(prompt: str, **options: Any) -> Any:
    """As `run_agent_with_tools`, on the running event loop. A cancellation passes, with the run attached.

    At Ctrl-C `asyncio.run` raises a KeyboardInterrupt of its own. The run is then on
    `error.__context__.run`.
    """
    return await aperform(begin(prompt, RunOptions(**options)))


def resume(
    paused: RunResult[Any] | Run | str,
    verdicts: Mapping[str, Decision | Verdict] | None = None,
    *,
    model: str | LanguageModel | None = None,
    tools: ToolsGiven = None,
    output_type: type[T] | None = None,
    approve: Approver | None = None,
    retrieve: int | Retriever | None = None,
    deps: Any = None,
    on_event: Sink | Sequence[Sink] | None = None,
    on_text: Callable[[str], None] | None = None,
    max_turns: int | None = None,
    audit: str | Path | Journal | None = None,
    store: RunStore | None = None,
    cancel: threading.Event | None = None,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    **fields: Any,
) -> RunResult[T]:
    """Continue a run that paused, or that an error left behind.

    paused: the result, its JSON text, the run of an error, or, with `store`, the run's id.
    verdicts: what was decided, by call id: "approve", "deny", "defer" or a Verdict. While a call of
        a reply is undecided, the run stays paused and starts none of them.
    max_turns: for the whole run; lets a run continue that had reached its own.

    The other arguments are those of `run_agent_with_tools`. They are needed again, because a saved
    run has neither a model nor tools. The calls that wait are validated again; a call that the tools
    now read in another way waits again.

    Raises ApprovalError for an invalid verdict, or one on a call that does not wait for one, and
    StoreError if another process drives the run or the store has it in a later state.
    """
    options = RunOptions(
        model=model,
        tools=tools,
        output_type=output_type,
        approve=approve,
        retrieve=retrieve,
        deps=deps,
        on_event=on_event,
        on_text=on_text,
        audit=audit,
        store=store,
        cancel=cancel,
        client=client,
        base_url=base_url,
        api_key=api_key,
        fields=fields,
    )
    return perform(resume_from(paused, verdicts, max_turns, options))


@_async_twin_of(resume)
async def aresume(
    paused: RunResult[Any] | Run | str,
    verdicts: Mapping[str, Decision | Verdict] | None,
    max_turns: int | None,
    **options: Any,
) -> Any:
    """As `resume`, on the running event loop."""
    flow = resume_from(paused, verdicts, max_turns, RunOptions(**options))
    return await aperform(flow)


def extract(
    text: str, output_type: type[T], *, max_turns: int = 3, **options: Any
) -> T:
    """Read a value of a type out of a text: one forced call of a tool made from the type, validated.

    `options` are those of `run_agent_with_tools`. Raises RunIncomplete if the model did not manage it.
    """
    result = run_agent_with_tools(
        text, tools=(), output_type=output_type, max_turns=max_turns, **options
    )
    return result.raise_for_stop().output


async def aextract(
    text: str, output_type: type[T], *, max_turns: int = 3, **options: Any
) -> T:
    """As `extract`, on the running event loop."""
    result = await arun_agent_with_tools(
        text, tools=(), output_type=output_type, max_turns=max_turns, **options
    )
    return result.raise_for_stop().output
