"""The decorator: checks what it is given, and makes each call a call in a child process."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from toolkit.calls import threads
from toolkit.errors import ToolDefinitionError
from toolkit.isolation.call import IsolatedFunction
from toolkit.tools.tool import MARK, TOOL

_F = TypeVar("_F", bound=Callable[..., Any])


def isolated(
    *,
    timeout: float = 30.0,
    memory_mb: float | None = 2_048,
    cpu_s: float | None = None,
    env: Iterable[str] = (),
) -> Callable[[_F], _F]:
    """Wrap a function so that each call runs in a child process, which is killed at `timeout` with all it started.

    timeout: seconds.
    memory_mb: the most address space of each process, in units of 1,000,000 bytes (some libraries reserve far more
        than they use). None: no limit.
    cpu_s: the most processor time of each process, in seconds, rounded up. None: no limit.
    env: names of the environment variables that the child inherits.

    Name, signature, hints and docstring stay; a coroutine function stays one. Write `@tool` above it, with a longer
    timeout if this one is over its 60 seconds.

    Raises ToolDefinitionError for what cannot be isolated. A call raises what the function raises, by name and
    message: Python's own exceptions and ToolError as such, others as an IsolatedError. A limit that is reached is a
    ToolError that says so.
    """
    limits: dict[str, Any] = {
        "timeout": timeout,
        "memory_mb": memory_mb,
        "cpu_s": cpu_s,
    }
    for name, value in limits.items():
        if value is None and name != "timeout":
            continue
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 < value < 1e9:
            raise ToolDefinitionError(
                f"{name}={value!r} of isolated() must be a number above 0."
            )
        limits[name] = float(value)
    names = (env,) if isinstance(env, str) else tuple(env)
    if isinstance(env, Mapping) or not all(isinstance(name, str) for name in names):
        raise ToolDefinitionError(
            "env of isolated() names variables that the child inherits. Pass names, without values."
        )
    if not hasattr(os, "fork"):
        raise ToolDefinitionError(
            "isolated() does not work on this system. Use Linux, for example in a container."
        )
    return functools.partial(_wrap, limits={**limits, "env": names})


def _wrap(function: Any, limits: Mapping[str, Any]) -> Any:
    isolated_function = IsolatedFunction(function, limits)
    _check(isolated_function)
    call = isolated_function.call

    @functools.wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        return call(threads.abandoned.get(), *arguments, **keywords)

    @functools.wraps(function)
    async def async_wrapper(*arguments: Any, **keywords: Any) -> Any:
        import asyncio

        cancelled = threading.Event()
        work = functools.partial(call, cancelled.is_set, *arguments, **keywords)
        future = asyncio.wrap_future(threads.start(work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            cancelled.set()
            # Not long: the child is killed.
            await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # else asyncio reports that nobody fetched it
            raise

    is_async = inspect.iscoroutinefunction(function)
    wrapped: Any = async_wrapper if is_async else wrapper
    wrapped.__isolated__ = function
    return wrapped


def _check(isolated_function: IsolatedFunction) -> None:
    function, name = isolated_function.function, isolated_function.name
    if not callable(function):
        raise ToolDefinitionError(
            f"{function!r} cannot be isolated: it is not callable. Pass a function."
        )
    if hasattr(function, TOOL) or hasattr(function, MARK):
        raise ToolDefinitionError(
            f"{name!r} is a tool already, which would run without isolation. Write @tool above @isolated."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(
            f"{name!r} yields, which a child process cannot. Return a list of the items."
        )
