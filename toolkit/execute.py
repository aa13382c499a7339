"""One call: parse, validate, permit, run, render.

Each stage can answer the model instead of raising. Plain functions run in daemon threads that are
used again (or, without a timeout, on the caller's own thread), so that a stuck tool holds up neither
the run nor the end of the process; coroutine functions run on the caller's event loop, or, where
there is none, on one private loop. What decides is written once; only what waits has an async twin.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import functools
import hashlib
import inspect
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from toolkit import arguments, threads
from toolkit.errors import ToolError
from toolkit.events import current_call
from toolkit.loop import Limits, Run, Verdict
from toolkit.messages import Reply, ToolCall, ToolContext, ToolResult
from toolkit.rendering import explain, render
from toolkit.schema import InvalidArguments
from toolkit.tools import FunctionTool, Tool, Toolset

_log = logging.getLogger("toolkit")
_MENDING_ROUNDS = 3
_PLAIN = (str, dict, list, int, float, bool, type(None))
_MOST_ITEMS = 1_000  # of what a generator yields

Done = dict[str, ToolResult]


def receive(reply: Reply, run: Run, tools: Toolset) -> Reply:
    """Read the calls of a reply: names resolved, ids unique in the run, arguments out of their text and wrappers."""
    if not reply.message.tool_calls:
        return reply
    used = {call.id for message in run.messages for call in message.tool_calls}
    calls: list[ToolCall] = []
    asked = list(reply.message.tool_calls)
    for sent in asked:
        is_cut = reply.finish == "length" and sent is asked[-1]
        for call in _read(sent, tools, truncated=is_cut):
            call_id = call.id if call.id and call.id not in used else _new_id(run, len(calls), used)
            used.add(call_id)
            calls.append(call if call_id == call.id else replace(call, id=call_id))
    return replace(reply, message=replace(reply.message, tool_calls=tuple(calls)))


def needs_approval(call: ToolCall, tools: Toolset) -> bool:
    """Whether a call waits for a verdict: its tool is sensitive, and the call would run if it were approved."""
    tool = tools.get(call.name)
    if tool is None or tool.permission != "sensitive" or call.problem:
        return False
    try:
        _validate(call, tool)
    except InvalidArguments:
        return False
    return True


def run_calls(calls: tuple[ToolCall, ...], tools: Toolset, run: Run, deps: Any, done: Done) -> tuple[ToolResult, ...]:
    """Run the calls of one reply; return their results in the order of the calls. Fills `done` as results come in."""
    ready = _prepare_all(calls, tools, run, deps, done)
    if len(ready) == 1 and ready[0].tool.timeout is None and not ready[0].tool.is_async:
        done[ready[0].call.id] = _run_here(ready[0])
    elif ready:
        with contextlib.closing(_schedule(ready, _start, run.limits.concurrency, done)) as schedule:
            wanted = next(schedule, None)
            while wanted:
                finished = concurrent.futures.wait(*wanted, concurrent.futures.FIRST_COMPLETED).done
                wanted = _send(schedule, finished)
    return tuple(done[call.id] for call in calls)


async def arun_calls(
    calls: tuple[ToolCall, ...], tools: Toolset, run: Run, deps: Any, done: Done
) -> tuple[ToolResult, ...]:
    """As `run_calls`; coroutine functions run on the running event loop."""
    import asyncio  # here and below: its import takes as long as all of the toolkit's

    ready = _prepare_all(calls, tools, run, deps, done)
    if ready:
        with contextlib.closing(_schedule(ready, _astart, run.limits.concurrency, done)) as schedule:
            wanted = next(schedule, None)
            while wanted:
                # wait, not wait_for: a tool that is slow to clean up would delay its own timeout.
                finished, _ = await asyncio.wait(wanted[0], timeout=wanted[1], return_when=asyncio.FIRST_COMPLETED)
                wanted = _send(schedule, finished)
    return tuple(done[call.id] for call in calls)


def run_text(tool: Tool, text: str, deps: Any) -> ToolResult | None:
    """Run one call at once, on this thread, where its text fits the tool as it is; None where it needs more care."""
    if tool.timeout is not None or tool.is_async or tool.permission == "sensitive":
        return None
    if (values := tool.signature.read(text)) is None:
        return None
    call = ToolCall("call", tool.name, raw=text)
    context = ToolContext(call.id, deps=deps) if tool.signature.context else None
    return _run_here(_Ready(call, tool, values, context, call, Limits().result_chars))


@dataclass(slots=True, eq=False)
class _Ready:
    """A call that may run: its validated values, and the clock of its run."""

    call: ToolCall
    tool: Tool
    values: dict[str, Any]
    context: ToolContext | None
    mended: ToolCall
    limit: int
    started: float = 0.0
    abandoned: bool = False


def _read(sent: ToolCall, tools: Toolset, *, truncated: bool) -> Iterator[ToolCall]:
    parsed = arguments.parse(sent.raw, truncated=truncated)
    name = tools.names.get(sent.name)
    if name is None:
        name = tools.names.get(arguments.resolve_name(sent.name, tools.names) or "", sent.name)
    is_parallel = name not in tools and name.rpartition(".")[2] == "parallel"
    if is_parallel and (inner := arguments.expand_parallel(parsed.arguments)):
        for position, (inner_name, inner_raw) in enumerate(inner):
            raw = inner_raw if isinstance(inner_raw, str) else _as_json(inner_raw)
            call = ToolCall(sent.id if position == 0 else "", inner_name, raw=raw, repairs=("parallel",))
            yield from _read(call, tools, truncated=truncated)
        return
    tool = tools.get(name)
    if tool is not None:
        parsed = arguments.unwrap(parsed, name, tool.parameters)
    call = ToolCall(sent.id, name, parsed.arguments, sent.raw, (*sent.repairs, *parsed.repairs), parsed.problem)
    if tool is not None and tool.permission == "sensitive" and not call.problem:
        with contextlib.suppress(InvalidArguments):
            call = _validate(call, tool)[1]  # who approves sees what will run
    yield call


def _new_id(run: Run, position: int, used: set[str]) -> str:
    """Nine letters and digits, which every provider takes (Mistral takes nothing else); the same in every replay."""
    for attempt in itertools.count():
        seed = f"{run.id}:{run.turns}:{position}:{attempt}".encode()
        made = hashlib.sha256(seed).hexdigest()[:9]
        if made not in used:
            return made
    raise AssertionError  # count() does not end


def _prepare_all(calls: tuple[ToolCall, ...], tools: Toolset, run: Run, deps: Any, done: Done) -> list[_Ready]:
    ready = []
    for call in calls:
        match _prepare(call, tools, run, deps):
            case ToolResult() as result:
                done[call.id] = result
            case made:
                ready.append(made)
    return ready


def _prepare(call: ToolCall, tools: Toolset, run: Run, deps: Any) -> _Ready | ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        known = [tool.wire_name for tool in tools.values()]
        return _malformed(call, arguments.unknown_tool(call.name, known, run.attempts_left))
    if call.problem:
        error = {"type": "unreadable", "loc": (), "msg": call.problem, "input": None}
        return _malformed(call, arguments.complain(tool.wire_name, [error], tool.parameters, run.attempts_left))
    try:
        values, mended = _validate(call, tool)
    except InvalidArguments as error:
        text = arguments.complain(tool.wire_name, error.errors, tool.parameters, run.attempts_left)
        return _malformed(call, text)
    if tool.permission != "read" and (refusal := _refusal(call, tool, run.verdicts)):
        return ToolResult(call.id, refusal, is_error=True, reason="denied")
    ready = _Ready(call, tool, values, None, mended, run.limits.result_chars)
    if tool.signature.context:
        ready.context = ToolContext(call.id, run.id, run.turns, deps, lambda: ready.abandoned)
    return ready


def _malformed(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, text, is_error=True, reason="malformed")


def _validate(call: ToolCall, tool: Tool) -> tuple[dict[str, Any], ToolCall]:
    """The values for the tool, and the call as it was understood. Raises InvalidArguments with the first errors."""
    signature = tool.signature
    tried, repairs, first = dict(call.arguments), call.repairs, None
    for _ in range(_MENDING_ROUNDS + 1):
        try:
            values, unlisted = signature.validate(tried)
        except InvalidArguments as error:
            first = first or error
            mended = arguments.mend(tried, error.errors, signature.optional, tool.parameters)
            if mended is None:
                break
            tried, repairs = mended[0], (*repairs, *mended[1])
        else:
            if unlisted:
                repairs = (*repairs, *(f"unlisted_key:{key}" for key in unlisted))
                _log.warning("call %s of %r has keys that its models do not list: %s", call.id, call.name, unlisted)
            return values, call if repairs == call.repairs else replace(call, arguments=tried, repairs=repairs)
    raise first or InvalidArguments([])


def _refusal(call: ToolCall, tool: Tool, verdicts: Mapping[str, Verdict]) -> str:
    """Why the call may not run, or nothing. Only an exact approval lets a sensitive tool run."""
    verdict = verdicts.get(call.id)
    decision = verdict.decision if isinstance(verdict, Verdict) and type(verdict.decision) is str else None
    if decision == "approve":
        return ""
    if tool.permission == "write" and verdict is None:
        return ""
    if decision == "deny" and verdict:
        return f"Not run: the user denied this call{f' ({verdict.reason})' if verdict.reason else ''}."
    return "Not run: this tool needs an approval, and there is none for this call."


_Schedule = Generator[tuple[set[Any], float | None], set[Any], None]


def _schedule(ready: list[_Ready], start: Callable[[_Ready], Any], concurrency: int, done: Done) -> _Schedule:
    """Start calls, at most `concurrency` at once, and judge them as they end; yields what to wait for and how long."""
    waiting = deque(one for one in ready if one.tool.parallel)
    in_line = deque(one for one in ready if not one.tool.parallel)  # one at a time, in order
    running = dict[Any, _Ready]()
    try:
        while waiting or in_line or running:
            is_free = all(one.tool.parallel for one in running.values())
            while (waiting or (in_line and is_free)) and len(running) < concurrency:
                one = in_line.popleft() if in_line and is_free else waiting.popleft()
                is_free = is_free and one.tool.parallel
                one.started = time.perf_counter()
                running[start(one)] = one
            ends = [one.started + one.tool.timeout for one in running.values() if one.tool.timeout is not None]
            finished = yield set(running), max(min(ends) - time.perf_counter(), 0.0) if ends else None
            for future in finished:
                one = running.pop(future)
                cancelled = _Raised(ToolError("The tool cancelled itself.")) if future.cancelled() else None
                done[one.call.id] = _judge(one, cancelled or future.result())
            now = time.perf_counter()
            for future, one in list(running.items()):
                if one.tool.timeout is not None and now >= one.started + one.tool.timeout and not future.done():
                    del running[future]
                    _abandon(future, one)
                    done[one.call.id] = _timed_out(one)
    finally:
        for future, one in running.items():
            _abandon(future, one)
        for one in (*waiting, *in_line):
            done[one.call.id] = ToolResult(one.call.id, "Not run: the run was stopped.", True, "not_run")


def _send(schedule: _Schedule, finished: set[Any]) -> tuple[set[Any], float | None] | None:
    try:
        return schedule.send(finished)
    except StopIteration:
        return None


def _abandon(future: Any, one: _Ready) -> None:
    one.abandoned = True
    future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # or asyncio complains of it
    future.cancel()


def _start(one: _Ready) -> concurrent.futures.Future[Any]:
    if one.tool.is_async:
        return threads.run_coroutine(_acall(one))
    return threads.start(functools.partial(contextvars.copy_context().run, _call, one))


def _astart(one: _Ready) -> Any:
    import asyncio

    if one.tool.is_async:
        return asyncio.ensure_future(_acall(one))
    return asyncio.ensure_future(_call_in_thread(one))


async def _call_in_thread(one: _Ready) -> Any:
    import asyncio

    work = functools.partial(contextvars.copy_context().run, _call, one, settle=False)
    return await _finish(await asyncio.wrap_future(threads.start(work)))


@dataclass(frozen=True, slots=True)
class _Raised:
    """What a tool raised, as a value: raised, StopIteration would break a future, SystemExit end an event loop."""

    error: BaseException


def _call(one: _Ready, *, settle: bool = True) -> Any:
    """Call a plain function; what it returns to be awaited is awaited here, or by the caller."""
    current_call.set(one.call.id)  # in a context of its own
    try:
        value = one.tool.call(one.values, one.context)
        if type(value) in _PLAIN:
            return value
        if inspect.isawaitable(value) or hasattr(value, "__aiter__"):
            if not settle:
                return value
            return threads.run_coroutine(_finish(value)).result()
        return _drained(value)
    except BaseException as error:
        return _Raised(error)


async def _acall(one: _Ready) -> Any:
    current_call.set(one.call.id)
    try:
        value = one.tool.call(one.values, one.context)
    except BaseException as error:
        return _Raised(error)
    return await _finish(value)


async def _finish(value: Any) -> Any:
    from asyncio import CancelledError

    try:
        if inspect.isawaitable(value):
            value = await value
        if not hasattr(value, "__aiter__"):
            return _drained(value)
        items = []
        async for item in value:
            items.append(item)
            if len(items) > _MOST_ITEMS:
                break
        return _bounded(items)
    except CancelledError:
        raise
    except BaseException as error:
        return _Raised(error)


def _drained(value: Any) -> Any:
    """A generator's items are made while the tool runs, not while its result is written down."""
    return _bounded(list(itertools.islice(value, _MOST_ITEMS + 1))) if isinstance(value, Iterator) else value


def _bounded(items: list[Any]) -> list[Any]:
    return items if len(items) <= _MOST_ITEMS else [*items[:_MOST_ITEMS], f"… (cut after {_MOST_ITEMS:,} items)"]


def _run_here(one: _Ready) -> ToolResult:
    one.started = time.perf_counter()
    return _judge(one, contextvars.copy_context().run(_call, one))


def _judge(one: _Ready, value: Any) -> ToolResult:
    """What came of a call, as its result. KeyboardInterrupt and cancellation are raised again."""
    seconds = time.perf_counter() - one.started
    mended = one.mended is not one.call
    repairs, got = (one.mended.repairs, one.mended.arguments) if mended else ((), None)
    if not isinstance(value, _Raised):
        return ToolResult(one.call.id, render(value, one.limit), False, "", repairs, got, seconds, value)
    from asyncio import CancelledError

    error = value.error
    if isinstance(error, (KeyboardInterrupt, CancelledError)):
        raise error
    if isinstance(error, SystemExit):  # a function written for the command line must not end the program
        error = ToolError(f"The tool ended itself with exit status {error.code!r}.")
    function = one.tool.function if isinstance(one.tool, FunctionTool) else type(one.tool).run
    spoken = isinstance(error, ToolError)
    _log.error("tool %r failed in call %s", one.tool.name, one.call.id, exc_info=None if spoken else error)
    text = explain(error, one.tool.name, function, reference="" if spoken else one.call.id)
    return ToolResult(one.call.id, text, True, "failed", repairs, got, seconds)


def _timed_out(one: _Ready) -> ToolResult:
    text = f"The tool {one.tool.name!r} did not finish within {one.tool.timeout:g} seconds; it may still be at work."
    _log.error("tool %r timed out in call %s", one.tool.name, one.call.id)
    return ToolResult(one.call.id, text, is_error=True, reason="timeout", seconds=one.tool.timeout or 0.0)


def _as_json(value: Mapping[str, Any]) -> str:
    from pydantic_core import to_json

    return to_json(dict(value)).decode()
