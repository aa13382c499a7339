"""Functions that run in a child process of their own, within limits, and are ended for certain.

    @tool
    @isolated(timeout=5, memory_mb=256)
    def count_words(text: str) -> int: ...

**How.** Each call starts a fresh interpreter, never a fork of this process. It imports the function by its module and
name; one that has none there (in a notebook or a script, a lambda, a closure) travels by value, with `cloudpickle`.
The child has an empty environment but for the names in `env`, a working directory of its own that is gone afterwards,
and no socket or file of this process. What it writes to standard output and error goes nowhere; the last of it is in
the log when it ends badly. Context variables do not travel.

**What it costs.** Each call takes about 40 ms of processor time more, and 100 ms where the function's module imports
the toolkit, as it does to decorate (Python 3.11, 2026). No child is kept or started ahead.

**Arguments** are pickled. **Results** come back as JSON, never as a pickle, for whatever ran there may have been
written by a model: the return type says how they are read (models, dataclasses, dates, sets), and without one a
result is plain JSON, so that a tuple becomes a list, a date a string, and bytes base64. They may have 10 MB.

**When it ends.** At `timeout`, which counts from the start of the child, imports included; when this process is gone;
when the run no longer waits (the tool's own timeout is shorter, Ctrl-C, cancellation). All that the child started ends
with it, in sessions of their own as well. A `ToolContext` reaches the child with its `deps` pickled; there its
`cancelled()` is never true.

**What it is not.** It keeps accidents and runaways in, not an enemy: code in the child has the rights of this user,
reads this user's files and reaches the network. `examples/python_sandbox.py` shows what to add. `memory_mb` and
`cpu_s` hold for each process that it starts, not for all together. Linux is where all of this holds. On macOS the
address space is not limited by the system, and a process that leaves its group outlives the call. Windows is refused.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import logging
import marshal
import os
import pickle
import select
import subprocess
import sys
import tempfile
import threading
import time
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from toolkit.calls import threads
from toolkit.calls.redaction import redact
from toolkit.errors import ToolDefinitionError, ToolError
from toolkit.isolation import child as isolated_child
from toolkit.messages import ToolContext
from toolkit.tools.tool import MARK, TOOL

_log = logging.getLogger("toolkit")
_GRACE = 10.0  # seconds, after which the guard itself is not waited for
_MOST_ANSWER = isolated_child.MOST_RESULT + 1_000_000

F = TypeVar("F", bound=Callable[..., Any])


class IsolatedError(Exception):
    """What the function raised in its child, where it is none of Python's own exceptions. Its class has that name."""


class ChildTraceback(Exception):
    """The traceback in the child: the cause of what is raised here, for the log."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def isolated(
    *,
    timeout: float = 30.0,
    memory_mb: float | None = 2_048,
    cpu_s: float | None = None,
    env: Iterable[str] = (),
) -> Callable[[F], F]:
    """Wrap a function so that each call runs in a child process, which is killed at `timeout` with all it started.

    `timeout` is in seconds. `memory_mb` limits the address space of each process, in units of 1,000,000 bytes (some
    libraries reserve far more than they use), and `cpu_s` its processor time, in seconds, rounded up; None sets no
    limit. `env` names the environment variables that the child gets. Name, signature, hints and docstring stay; a
    coroutine function stays one. Write `@tool` above it, with a longer timeout if this one is over its 60 seconds.

    Raises ToolDefinitionError for what cannot be isolated. A call raises what the function raises, by name and
    message: Python's own exceptions and ToolError as such, others as an IsolatedError. A limit that was met is a
    ToolError that says so.
    """
    limits: dict[str, Any] = {
        "timeout": timeout,
        "memory_mb": memory_mb,
        "cpu_s": cpu_s,
    }
    for name, value in limits.items():
        if value is not None or name == "timeout":
            if (
                not isinstance(value, (int, float))
                or isinstance(value, bool)
                or not 0 < value < 1e9
            ):
                raise ToolDefinitionError(
                    f"{name}={value!r} of isolated() is no number above 0. Give it one."
                )
            limits[name] = float(value)
    limits["env"] = (env,) if isinstance(env, str) else tuple(env)
    if isinstance(env, Mapping) or not all(
        isinstance(name, str) for name in limits["env"]
    ):
        raise ToolDefinitionError(
            "env of isolated() names variables, whose values are taken from here. Give names."
        )
    if not hasattr(os, "fork"):
        raise ToolDefinitionError(
            "isolated() does not work on this system. Use Linux, there or in a container."
        )
    return lambda function: _wrapped(function, limits)


def _wrapped(function: Any, limits: dict[str, Any]) -> Any:
    _check(function)
    read_type = functools.cache(functools.partial(_return_type, function))

    def call(
        arguments: tuple[Any, ...], named: dict[str, Any], is_left: Callable[[], bool]
    ) -> Any:
        payload = _pickle(function, arguments, named)
        adapter = read_type()
        return _settle(
            _ask(payload, _name(function), limits, is_left), function, adapter
        )

    @functools.wraps(function)
    def plain(*arguments: Any, **named: Any) -> Any:
        return call(arguments, named, threads.abandoned.get())

    @functools.wraps(function)
    async def awaited(*arguments: Any, **named: Any) -> Any:
        import asyncio

        is_left = threading.Event()
        future = asyncio.wrap_future(
            threads.start(functools.partial(call, arguments, named, is_left.is_set))
        )
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            is_left.set()
            await asyncio.wait([future])  # not long: the child is killed
            future.cancelled() or future.exception()  # or asyncio complains of it
            raise

    wrapper: Any = awaited if inspect.iscoroutinefunction(function) else plain
    wrapper.__isolated__ = function
    return wrapper


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _check(function: Any) -> None:
    if not callable(function):
        raise ToolDefinitionError(
            f"{function!r} cannot be isolated: it cannot be called. Give a function."
        )
    if hasattr(function, TOOL) or hasattr(function, MARK):
        raise ToolDefinitionError(
            f"{_name(function)!r} is a tool already, which stays without isolation. Write @tool above @isolated."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(
            f"{_name(function)!r} yields, which no child can. Return a list of the items."
        )


def _return_type(function: Any) -> Any:
    """The pydantic adapter of a list of what the function says that it returns; of any value, if it says nothing."""
    from pydantic import TypeAdapter

    plain = inspect.unwrap(function)
    said = {
        name: hint
        for name, hint in getattr(plain, "__annotations__", {}).items()
        if name == "return"
    }
    holder = types.SimpleNamespace(__annotations__=said)
    try:
        hints = typing.get_type_hints(
            holder, getattr(plain, "__globals__", {}), include_extras=True
        )
        # In a list, for a type of its own takes no config. The child writes bytes so.
        listed: Any = types.GenericAlias(list, (hints.get("return", Any),))
        return TypeAdapter(listed, config={"val_json_bytes": "base64"})
    except Exception as error:
        raise ToolDefinitionError(
            f"The return type of {_name(function)!r} does not say how its JSON is read: {error}. Return plain data."
        ) from error


def _pickle(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
    """The call as bytes; the function by its name if a fresh interpreter finds it there. Raises TypeError."""
    name = _name(function)
    if waiting := getattr(sys.modules.get("__main__"), "__isolating__", None):
        raise RuntimeError(
            f"{name!r} is called while its module is imported, in the child for {waiting!r}. "
            "Call it in a function, or below: if __name__ == '__main__'."
        )
    # The flag stays outside: nothing in a pickle could carry it. bool() is False.
    plain = [
        replace(value, cancelled=bool) if isinstance(value, ToolContext) else value
        for value in arguments
    ]
    plain_named = {
        k: replace(v, cancelled=bool) if isinstance(v, ToolContext) else v
        for k, v in named.items()
    }
    where = _find_name(function)
    try:
        import cloudpickle

        dumps = cloudpickle.dumps
    except ImportError:
        if where is None:
            raise RuntimeError(
                f"{name!r} has no place in a module that a child could import. Move it to the top of a module "
                "of its own, or install cloudpickle: pip install 'toolkit-agent[isolation]'."
            ) from None
        dumps = pickle.dumps
    try:
        return bytes(dumps((where or function, tuple(plain), plain_named)))
    except Exception as error:
        raise TypeError(
            f"The call of {name!r} cannot go into a child process: {error}. Pass plain data, or what can be pickled."
        ) from error


def _find_name(function: Any) -> str | None:
    """Where a fresh interpreter will find a function, as "module:name", else None."""
    module, qualified_name = (
        str(getattr(function, "__module__", "")),
        getattr(function, "__qualname__", ""),
    )
    if (
        module == "__main__"
        or getattr(sys.modules.get(module), "__spec__", None) is None
    ):
        return None
    with suppress(Exception):
        if isolated_child.find_function(module, qualified_name) is function:
            return f"{module}:{qualified_name}"
    return None


def _ask(
    payload: bytes, name: str, limits: dict[str, Any], is_left: Callable[[], bool]
) -> bytes:
    """Let a child make the call; return its answer, once all that it started is ended."""
    memory = f"problem\nused more than {limits['memory_mb'] or 0:g} MB of memory and was ended.".encode()
    path = [os.path.abspath(entry) for entry in sys.path]
    settings = {
        "name": name,
        "parent": os.getpid(),
        "memory_problem": memory,
        "path": path,
        **limits,
    }
    answer = b""
    with (
        suppress(RecursionError),
        tempfile.TemporaryDirectory(
            "", "toolkit-", ignore_cleanup_errors=True
        ) as folder,
    ):
        with tempfile.TemporaryFile() as given:
            given.write(marshal.dumps({**settings, "folder": folder}) + payload)
            given.seek(0)
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", isolated_child.__file__],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={
                    name: os.environ[name]
                    for name in limits["env"]
                    if name in os.environ
                },
                start_new_session=True,
            )
        try:
            answer = _read(child.stdout.fileno(), limits["timeout"] + _GRACE, is_left)  # type: ignore[union-attr]
        finally:
            _end(child)
    return answer


def _read(end: int, seconds: float, is_left: Callable[[], bool]) -> bytes:
    deadline, answer, poll = time.monotonic() + seconds, bytearray(), select.poll()
    poll.register(end, select.POLLIN)
    while time.monotonic() < deadline and len(answer) < _MOST_ANSWER:
        if is_left():
            return b"problem\nwas ended: nobody waits for it any more."
        if poll.poll(100):  # milliseconds
            if not (piece := os.read(end, 65_536)):
                break
            answer += piece
    return bytes(answer)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the guard, if it has not ended: asked to, it first ends all that it started."""
    child.stdout.close()  # type: ignore[union-attr]
    child.terminate()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.kill()  # the function's own process dies with it
        child.wait()


def _settle(answer: bytes, function: Any, adapter: Any) -> Any:
    """The value that came back, or the raising of what went wrong. Nothing in it is trusted."""
    from pydantic import ValidationError
    from pydantic_core import from_json

    name, (kind, _, body), told = _name(function), answer.partition(b"\n"), None
    if kind == b"value":
        try:
            return adapter.validate_json(body)[0]
        except (ValidationError, IndexError) as error:
            raise TypeError(
                f"{name!r} returned what its return type does not take: {error}"
            ) from None
    text = body.decode(errors="replace")
    if kind == b"spoken":
        raise ToolError(text)
    if kind == b"problem":
        problem, _, output = text.partition("\n")
        _log.warning(
            "isolated %r %s It wrote last: %s",
            name,
            problem,
            redact(output) or "nothing",
        )
        raise ToolError(f"The tool {name!r} {problem}")
    if kind == b"raised":
        with suppress(ValueError):
            told = from_json(body)
        match told:
            case [str(class_name), str(message), str(trace), bool(is_own)]:
                _raise(
                    _exception(class_name, message), trace, function if is_own else None
                )
    if kind == b"setup":
        raise RuntimeError(f"The child could not load {name!r}: {text}")
    raise RuntimeError(
        f"The child for {name!r} gave no answer that can be read. Its Python is {sys.executable!r}."
    )


def _exception(name: str, message: str) -> Exception:
    kind = getattr(builtins, name, None)
    with suppress(TypeError):  # some take more than a message
        if (
            isinstance(kind, type)
            and issubclass(kind, Exception)
            and kind is not StopIteration
        ):  # breaks futures
            return kind(message)
    return (
        type(name, (IsolatedError,), {})(message)
        if name.isidentifier()
        else IsolatedError(message)
    )


def _raise(error: Exception, trace: str, function: Any) -> NoReturn:
    """Raise it; as the module of `function` where there is one: what it raises itself may speak to the model."""
    error.__cause__ = ChildTraceback(trace)
    home = getattr(inspect.unwrap(function), "__module__", "") if function else __name__
    exec("raise error", {"__name__": home, "error": error})
    raise error  # not reached
