"""What a run waits for, one class for each: performed plainly, or on the running event loop."""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from toolkit.calls import threads
from toolkit.calls.execution import Batch, Results, arun_calls, run_calls
from toolkit.calls.policy import Approver, Policy
from toolkit.calls.threads import NEVER, Halt, HaltReason
from toolkit.calls.validation import CheckedCall
from toolkit.messages import Message, PendingCall, Reply, Verdict
from toolkit.tools.request import LanguageModel, Request, Retriever
from toolkit.tools.tool import Tool

_log = logging.getLogger("toolkit")


class Halted(BaseException):
    """A wait ended early. `reason` says why."""

    def __init__(self, reason: HaltReason) -> None:
        super().__init__(reason)
        self.reason: HaltReason = reason


class Act(Protocol):
    """Something that a run waits for."""

    def perform(self) -> Any:
        """Do it on this thread. Raises Halted if the wait for it ended early."""

    async def aperform(self) -> Any:
        """Do it on the running event loop."""


@dataclass(frozen=True, slots=True)
class ChooseTools:
    """Let a retriever choose the tools that a request shows."""

    retrieve: Retriever
    messages: Sequence[Message]
    tools: Sequence[Tool]

    def perform(self) -> Sequence[Tool]:
        return self.retrieve(self.messages, self.tools)

    async def aperform(self) -> Sequence[Tool]:
        import asyncio

        # In a thread, because it may ask a server.
        return await asyncio.wrap_future(threads.start(self.perform))


@dataclass(frozen=True, slots=True)
class AskModel:
    """Get a reply from the model. After the wait has ended, nothing more of its text is passed on."""

    model: LanguageModel
    request: Request
    halt: Halt

    def perform(self) -> Reply:
        if self.halt is NEVER:
            return self.model.complete(self.request)
        is_over = threading.Event()
        request = _guarded(self.request, self.halt, is_over)
        try:
            # In a thread of its own, which is left behind if the wait ends first.
            future = threads.start(functools.partial(self.model.complete, request))
            return cast(Reply, _wait(future, self.halt))
        finally:
            is_over.set()

    async def aperform(self) -> Reply:
        request = _guarded(self.request, self.halt, threading.Event())
        return cast(Reply, await _await(self.model.acomplete(request), self.halt))


@dataclass(frozen=True, slots=True)
class AskApprover:
    """Get a verdict on a call. If the approver fails, the call waits."""

    approve: Approver | None
    call: PendingCall
    policy: Policy
    halt: Halt

    def perform(self) -> Verdict:
        try:
            answer = self._ask()
            if inspect.isawaitable(answer):
                coroutine = threads.as_coroutine(answer)
                answer = _wait(threads.run_coroutine(coroutine), self.halt)
        except Exception:
            answer = self._failed()
        return self.policy.read_verdict(answer, self.call)

    async def aperform(self) -> Verdict:
        try:
            answer = self._ask()
            if inspect.isawaitable(answer):
                answer = await _await(answer, self.halt)
        except Exception:
            answer = self._failed()
        return self.policy.read_verdict(answer, self.call)

    def _ask(self) -> Any:
        return "defer" if self.approve is None else self.approve(self.call)

    def _failed(self) -> str:
        _log.exception(
            "the approver failed on call %s of %r; the call waits",
            self.call.id,
            self.call.name,
        )
        return "defer"


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Run the calls of a batch. Each result is added to `results` as it comes in."""

    calls: Sequence[CheckedCall]
    batch: Batch
    results: Results

    def perform(self) -> None:
        run_calls(self.calls, self.batch, self.results)

    async def aperform(self) -> None:
        await arun_calls(self.calls, self.batch, self.results)


def _guarded(request: Request, halt: Halt, is_over: threading.Event) -> Request:
    on_text = request.on_text
    if on_text is None or halt is NEVER:
        return request
    pass_on: Callable[[str], None] = on_text

    def on_text_in_time(text: str) -> None:
        if not is_over.is_set() and not halt.reason:
            pass_on(text)

    return replace(request, on_text=on_text_in_time)


def _wait(future: concurrent.futures.Future[Any], halt: Halt) -> Any:
    try:
        while not future.done():
            if halt.reason:
                raise Halted(halt.reason)
            concurrent.futures.wait([future], halt.timeout())
        return future.result()
    finally:
        future.cancel()


async def _await(awaitable: Awaitable[Any], halt: Halt) -> Any:
    if halt is NEVER:
        return await awaitable
    import asyncio

    task = asyncio.ensure_future(awaitable)
    try:
        while not task.done():
            if halt.reason:
                raise Halted(halt.reason)
            await asyncio.wait([task], timeout=halt.timeout())
        return task.result()
    finally:
        task.cancel()
