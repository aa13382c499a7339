"""Where tools run: reused daemon threads that never keep the process alive, and one private event loop."""

from __future__ import annotations

import contextvars
import functools
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

Job = tuple["Future[Any]", Callable[[], Any]]
HaltReason = Literal["", "cancelled", "limit_reached"]
"""Why something must stop now; empty if it may continue."""

_IDLE_SECONDS = 5.0
"""How long a thread without work stays alive."""
_POLL_SECONDS = 0.05
"""How often a waiting thread looks at its caller's flag."""

# A pool of concurrent.futures would keep the process alive until its threads end.
_idle: deque[queue.SimpleQueue[Job]] = deque()

abandoned: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar(
    "abandoned", default=lambda: False
)
"""True once the caller has given up on the current tool call."""


@dataclass(frozen=True, slots=True)
class Halt:
    """What ends a wait early: the caller's flag, or a deadline in seconds of `time.monotonic`."""

    cancel: threading.Event | None = None
    deadline: float | None = None

    @property
    def reason(self) -> HaltReason:
        if self.cancel is not None and self.cancel.is_set():
            return "cancelled"
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return "limit_reached"
        return ""

    def timeout(self, seconds: float | None = None) -> float | None:
        """How long to wait, at most `seconds`, before `reason` has to be checked again."""
        bounds = [] if seconds is None else [seconds]
        if self.deadline is not None:
            bounds.append(max(self.deadline - time.monotonic(), 0.0))
        if self.cancel is not None:
            bounds.append(_POLL_SECONDS)
        return min(bounds, default=None)


NEVER = Halt()


def start(work: Callable[[], Any]) -> Future[Any]:
    """Run `work` in a daemon thread, an idle one if there is one, in a copy of the caller's context."""
    future: Future[Any] = Future()
    # From here on, cancelling the future cannot end the thread that serves it.
    future.set_running_or_notify_cancel()
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = queue.SimpleQueue()
        threading.Thread(
            target=_serve, args=(inbox,), name="toolkit-tool", daemon=True
        ).start()
    inbox.put((future, functools.partial(contextvars.copy_context().run, work)))
    return future


def _serve(inbox: queue.SimpleQueue[Job]) -> None:
    while True:
        try:
            future, work = inbox.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            try:
                _idle.remove(inbox)
            except ValueError:
                continue  # it was chosen just now: its work is on the way
            return
        try:
            value = work()
        except BaseException as error:
            _idle.append(inbox)
            future.set_exception(error)
        else:
            _idle.append(inbox)
            future.set_result(value)
            del value
        del future, work  # an idle thread keeps nothing alive


class _PrivateLoop:
    loop: Any = None
    lock = threading.Lock()


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
    """Run a coroutine on the private event loop, in the caller's context.

    A coroutine that already runs there (a run inside an async tool, however deep) gets a loop of its
    own, because the private loop may be waiting for it.
    """
    import asyncio  # importing it takes as long as importing the whole toolkit

    if _is_on_private_loop.get():
        return start(functools.partial(asyncio.run, coroutine))
    with _PrivateLoop.lock:
        if _PrivateLoop.loop is None:
            _PrivateLoop.loop = asyncio.new_event_loop()
            threading.Thread(
                target=_PrivateLoop.loop.run_forever, name="toolkit-loop", daemon=True
            ).start()
    future: Future[Any] = asyncio.run_coroutine_threadsafe(
        _on_private_loop(coroutine), _PrivateLoop.loop
    )
    return future


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """The result of an awaitable, awaited on the private event loop."""
    return run_coroutine(as_coroutine(awaitable)).result()


async def as_coroutine(awaitable: Awaitable[Any]) -> Any:
    """An awaitable as a coroutine."""
    return await awaitable


_is_on_private_loop: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "is_on_private_loop", default=False
)


async def _on_private_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    _is_on_private_loop.set(True)
    return await coroutine


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    _idle.clear()
    _PrivateLoop.loop, _PrivateLoop.lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
