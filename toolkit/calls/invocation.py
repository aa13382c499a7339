"""One call of a tool: enter its context, call the function, await what it returns, render the outcome."""

from __future__ import annotations

import contextvars
import functools
import inspect
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from toolkit.calls import threads
from toolkit.calls.explaining import explain
from toolkit.calls.rendering import render
from toolkit.calls.validation import CheckedCall
from toolkit.errors import ToolError
from toolkit.events import current_call
from toolkit.messages import ToolContext, ToolResult, ToolReturn
from toolkit.tools.tool import FunctionTool, Tool

_log = logging.getLogger("toolkit")
_PLAIN_TYPES = (str, dict, list, int, float, bool, type(None))
_MAX_ITEMS = 1_000  # of what a generator yields


@dataclass(slots=True, eq=False)
class Invocation:
    """A call that may run, and the clock of its run.

    `timeout` is how long it may take, in seconds. `entries` are told the call's id in the context in
    which its tool runs, before it starts.
    """

    checked: CheckedCall
    tool: Tool
    max_chars: int
    timeout: float | None = None
    context: ToolContext | None = None
    entries: tuple[Callable[[str], None], ...] = ()
    queued: float = field(default_factory=time.perf_counter)
    started: float = 0.0
    is_abandoned: bool = False

    @property
    def id(self) -> str:
        return self.checked.call.id

    @property
    def deadline(self) -> float | None:
        """When the call's time is over, in seconds of `time.perf_counter`."""
        return None if self.timeout is None else self.started + self.timeout

    def result(self, text: str, reason: str = "", value: Any = None) -> ToolResult:
        arguments, repairs = self.checked.differences
        return ToolResult(
            call_id=self.id,
            content=text,
            is_error=bool(reason),
            reason=reason,
            repairs=repairs,
            arguments=arguments,
            started=self.started - self.queued,
            seconds=time.perf_counter() - self.started,
            value=value,
        )

    def abandon(self, future: Any) -> None:
        """Stop waiting for the call. Its thread cannot be ended, and may still be at work."""
        self.is_abandoned = True
        # asyncio complains about an exception that nobody retrieved.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        future.cancel()


@dataclass(frozen=True, slots=True)
class _Failure:
    """An exception as a value. Raised, StopIteration would break a future, and SystemExit end an event loop."""

    error: BaseException


def invoke(invocation: Invocation) -> ToolResult:
    """Run the call on this thread and return its result."""
    context = contextvars.copy_context()
    return as_result(invocation, context.run(_call_and_await, invocation))


def start(invocation: Invocation) -> Future[Any]:
    """Start the call: a coroutine function on the private event loop, any other in a daemon thread."""
    if invocation.tool.is_async:
        return threads.run_coroutine(_acall(invocation))
    return threads.start(functools.partial(_call_and_await, invocation))


def start_on_loop(invocation: Invocation) -> Any:
    """As `start`, with coroutine functions on the running event loop."""
    import asyncio

    is_async = invocation.tool.is_async
    call = _acall(invocation) if is_async else _acall_in_thread(invocation)
    return asyncio.ensure_future(call)


def as_result(invocation: Invocation, outcome: Any) -> ToolResult:
    """The result of a call, from what `start` resolved to. Raises KeyboardInterrupt again."""
    if isinstance(outcome, ToolReturn):
        return invocation.result(outcome.text, value=outcome.value)
    error = _speaking(outcome.error)
    tool = invocation.tool
    is_tool_error = isinstance(error, ToolError)
    _log.log(
        logging.INFO if is_tool_error else logging.ERROR,
        "tool %r failed in call %s",
        tool.name,
        invocation.id,
        exc_info=None if is_tool_error else error,
    )
    function = tool.function if isinstance(tool, FunctionTool) else type(tool).run
    reference = "" if is_tool_error else invocation.id
    text = explain(error, tool.name, function, reference=reference)
    return invocation.result(render(text, invocation.max_chars), "failed")


def cancelled_itself(invocation: Invocation) -> ToolResult:
    """The result of a call whose future was cancelled by the tool."""
    return as_result(invocation, _Failure(ToolError("The tool cancelled itself.")))


def timed_out(invocation: Invocation) -> ToolResult:
    tool = invocation.tool
    _log.error("tool %r timed out in call %s", tool.name, invocation.id)
    text = (
        f"The tool {tool.name!r} did not finish within {invocation.timeout:g} seconds; "
        "it may still be at work."
    )
    return invocation.result(text, "timeout")


def _call(invocation: Invocation) -> Any:
    """Call the tool: a ToolReturn, a _Failure, or what is still to be awaited."""
    _enter(invocation)
    try:
        value = invocation.tool.call(invocation.checked.values, invocation.context)
        if type(value) not in _PLAIN_TYPES and _is_pending(value):
            return value
        return _rendered(value, invocation)
    except BaseException as error:
        return _Failure(error)


def _call_and_await(invocation: Invocation) -> Any:
    outcome = _call(invocation)
    if isinstance(outcome, ToolReturn | _Failure):
        return outcome
    try:
        return threads.run_coroutine(_finish(outcome, invocation)).result()
    except BaseException as error:
        return _Failure(error)


async def _acall(invocation: Invocation) -> Any:
    return await _finish(_call(invocation), invocation)


async def _acall_in_thread(invocation: Invocation) -> Any:
    import asyncio

    context = contextvars.copy_context()
    call = functools.partial(context.run, _call, invocation)
    outcome = await asyncio.wrap_future(threads.start(call))
    # What is still to be awaited continues in the context in which the call began.
    for variable, value in context.items():
        variable.set(value)
    return await _finish(outcome, invocation)


def _enter(invocation: Invocation) -> None:
    """Mark the context, which is the call's own."""
    current_call.set(invocation.id)
    threads.abandoned.set(lambda: invocation.is_abandoned)
    for enter in invocation.entries:
        try:
            enter(invocation.id)
        except Exception:
            _log.exception("an event sink failed on entering call %s", invocation.id)


def _is_pending(value: Any) -> bool:
    return inspect.isawaitable(value) or hasattr(value, "__aiter__")


async def _finish(outcome: Any, invocation: Invocation) -> Any:
    """Await what a call has left to be awaited."""
    from asyncio import CancelledError

    if isinstance(outcome, ToolReturn | _Failure):
        return outcome
    try:
        value = await outcome if inspect.isawaitable(outcome) else outcome
        if hasattr(value, "__aiter__"):
            value = await _items(value)
        return _rendered(value, invocation)
    except CancelledError:
        raise
    except BaseException as error:
        return _Failure(error)


async def _items(stream: Any) -> list[Any]:
    items: list[Any] = []
    async for item in stream:
        items.append(item)
        if len(items) > _MAX_ITEMS:
            break
    return _bounded(items)


def _rendered(value: Any, invocation: Invocation) -> ToolReturn:
    """A value with its text, which is written while the tool's time runs."""
    if isinstance(value, ToolReturn):
        return ToolReturn(value.value, render(value.text, invocation.max_chars))
    if isinstance(value, Iterator):
        value = _bounded(list(itertools.islice(value, _MAX_ITEMS + 1)))
    return ToolReturn(value, render(value, invocation.max_chars))


def _bounded(items: list[Any]) -> list[Any]:
    if len(items) <= _MAX_ITEMS:
        return items
    return [*items[:_MAX_ITEMS], f"… (cut after {_MAX_ITEMS:,} items)"]


def _speaking(error: BaseException) -> BaseException:
    """The error of a tool; its ways to end itself as a ToolError. Raises KeyboardInterrupt again."""
    from asyncio import CancelledError

    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, CancelledError):
        # The tool's own: a cancelled run raises where it waits, not here.
        return ToolError("The tool cancelled itself.")
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        # Functions written for the command line end like this.
        return ToolError(f"The tool ended itself with exit status {error.code}.")
    return error
