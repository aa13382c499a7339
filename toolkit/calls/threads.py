"""Daemon threads that are used again, and one private event loop: where tools run without holding the process."""

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

# A pool of concurrent.futures would hold the process at exit until its threads end; daemon threads do not.
_idle: deque[queue.SimpleQueue[Job]] = deque()


abandoned: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar(
    "abandoned", default=lambda: False
)
"""Says whether nobody waits any longer for the tool call that the running code belongs to."""

_LOOK_AGAIN = (
    0.05  # seconds after which a waiting thread looks at the flag of its caller
)


@dataclass(frozen=True, slots=True)
class Halt:
    """What ends a wait before its time: the caller's flag, or a moment of `time.monotonic`."""

    cancel: threading.Event | None = None
    deadline: float | None = None

    @property
    def reason(self) -> Literal["", "cancelled", "limit_reached"]:
        if self.cancel is not None and self.cancel.is_set():
            return "cancelled"
        return (
            "limit_reached"
            if self.deadline is not None and time.monotonic() >= self.deadline
            else ""
        )

    def patience(self, seconds: float | None = None) -> float | None:
        """How long to wait at most, of `seconds`, before `reason` is to be looked at again."""
        left = (
            None
            if self.deadline is None
            else max(self.deadline - time.monotonic(), 0.0)
        )
        bounds = [
            b
            for b in (seconds, left, None if self.cancel is None else _LOOK_AGAIN)
            if b is not None
        ]
        return min(bounds, default=None)


NEVER = Halt()


def start(work: Callable[[], Any]) -> Future[Any]:
    """Run `work` in a daemon thread of its own, an idle one where there is one, in a copy of the caller's context."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # from here on a cancelled waiter does not kill the thread
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
        future, work = inbox.get()
        try:
            value = work()
        except BaseException as error:
            _idle.append(inbox)
            future.set_exception(error)
        else:
            _idle.append(inbox)
            future.set_result(value)
        del future, work  # keep nothing alive while idle


class _Loop:
    loop: Any = None
    lock = threading.Lock()


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
    """Run a coroutine on the private event loop, in the caller's context.

    Within a coroutine that runs there (a run inside an async tool, however deep), a loop of its own serves: the
    private one may be waiting for just this.
    """
    import asyncio  # as long an import as all of the toolkit's

    if _inside.get():
        return start(functools.partial(asyncio.run, coroutine))
    with _Loop.lock:
        if _Loop.loop is None:
            _Loop.loop = asyncio.new_event_loop()
            threading.Thread(
                target=_Loop.loop.run_forever, name="toolkit-loop", daemon=True
            ).start()
    future: Future[Any] = asyncio.run_coroutine_threadsafe(
        _marked(coroutine), _Loop.loop
    )
    return future


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """What comes of an awaitable, awaited on the private event loop."""
    return run_coroutine(awaited(awaitable)).result()


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """An awaitable as a coroutine."""
    return await awaitable


_inside: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "inside_private_loop", default=False
)


async def _marked(coroutine: Coroutine[Any, Any, Any]) -> Any:
    _inside.set(True)
    return await coroutine


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    _idle.clear()
    _Loop.loop, _Loop.lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
