"""One call in a child process: packed, started, waited for, ended, and read. Nothing that comes back is trusted."""

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
import time
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toolkit.calls.redaction import redact
from toolkit.errors import ToolDefinitionError, ToolError
from toolkit.isolation import child
from toolkit.messages import ToolContext

_log = logging.getLogger("toolkit")

_GRACE = 10.0  # seconds, after which the guard itself is not waited for
_MOST_ANSWER = child.MOST_RESULT + 1_000_000  # bytes


class IsolatedError(Exception):
    """An exception of the child that is not one of Python's own. Its class has the name of that exception's class."""


class ChildTraceback(Exception):
    """The traceback in the child: the cause of what is raised here, for the log."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(eq=False)
class IsolatedFunction:
    """A function whose calls are made in a child process, each within `limits`."""

    function: Any
    limits: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def call(
        self, is_abandoned: Callable[[], bool], /, *arguments: Any, **keywords: Any
    ) -> Any:
        """Make a call, and return its value. Raises what the function raises, or ToolError for a limit."""
        payload = self._pack(arguments, keywords)
        # Before the child starts, so that a type that cannot be read is refused first.
        _ = self.return_adapter
        folder = tempfile.TemporaryDirectory(
            prefix="toolkit-", ignore_cleanup_errors=True
        )
        try:
            process = self._start(payload, folder.name)
            try:
                answer = _read_answer(
                    process, self.limits["timeout"] + _GRACE, is_abandoned
                )
            finally:
                _end(process)
        finally:
            # The child may have nested folders too deep to be removed.
            with suppress(RecursionError):
                folder.cleanup()
        return self.value(answer)

    @functools.cached_property
    def return_adapter(self) -> Any:
        """The pydantic adapter of a list of what the function returns, by its return type; without one, of any value.

        Raises ToolDefinitionError if the type does not say how its JSON is read.
        """
        from pydantic import TypeAdapter

        function = inspect.unwrap(self.function)
        hints = getattr(function, "__annotations__", {})
        holder = types.SimpleNamespace(
            __annotations__={"return": hints.get("return", Any)}
        )
        try:
            namespace = getattr(function, "__globals__", {})
            resolved = typing.get_type_hints(holder, namespace, include_extras=True)
            # In a list, because a type of its own takes no config. The child writes bytes as base64.
            in_list: Any = types.GenericAlias(list, (resolved["return"],))
            return TypeAdapter(in_list, config={"val_json_bytes": "base64"})
        except Exception as error:
            raise ToolDefinitionError(
                f"The return type of {self.name!r} does not say how its JSON is read: {error}. Return plain data."
            ) from error

    def _pack(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
        """The call as bytes; the function by its name if a fresh interpreter finds it there."""
        outer_name = getattr(sys.modules.get("__main__"), "__isolating__", None)
        if outer_name:
            raise RuntimeError(
                f"{self.name!r} is called while its module is imported, in the child for {outer_name!r}. "
                "Call it in a function, or below: if __name__ == '__main__'."
            )
        place = _find_place(self.function)
        try:
            from cloudpickle import dumps
        except ImportError:
            if place is None:
                raise RuntimeError(
                    f"{self.name!r} has no place in a module that a child could import. Move it to the top of a "
                    "module of its own, or install cloudpickle: pip install 'toolkit-agent[isolation]'."
                ) from None
            dumps = pickle.dumps
        call = (
            place or self.function,
            tuple(map(_without_flag, arguments)),
            {key: _without_flag(value) for key, value in keywords.items()},
        )
        try:
            return bytes(dumps(call))
        except Exception as error:
            raise TypeError(
                f"The call of {self.name!r} cannot go into a child process: {error}. "
                "Pass plain data, or what can be pickled."
            ) from error

    def _start(self, payload: bytes, folder: str) -> subprocess.Popen[bytes]:
        memory_mb = self.limits["memory_mb"] or 0
        settings = {
            **self.limits,
            "name": self.name,
            "parent": os.getpid(),
            # Encoded here: a child without memory cannot.
            "memory_problem": f"problem\nused more than {memory_mb:g} MB of memory and was ended.".encode(),
            "path": [os.path.abspath(entry) for entry in sys.path],
            "folder": folder,
        }
        names = os.environ.keys() & set(self.limits["env"])
        with tempfile.TemporaryFile() as file:
            file.write(marshal.dumps(settings) + payload)
            file.seek(0)
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", child.__file__],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={name: os.environ[name] for name in names},
                start_new_session=True,
            )

    def value(self, answer: bytes) -> Any:
        """The value in an answer of the child. Raises what went wrong there."""
        from pydantic import ValidationError

        kind, _, body = answer.partition(b"\n")
        text = body.decode(errors="replace")
        match kind:
            case b"value":
                try:
                    return self.return_adapter.validate_json(body)[0]
                except (ValidationError, IndexError) as error:
                    raise TypeError(
                        f"{self.name!r} returned what does not fit its return type: {error}"
                    ) from None
            case b"spoken":
                raise ToolError(text)
            case b"problem":
                problem, _, output = text.partition("\n")
                last = redact(output) or "none"
                _log.warning(
                    "isolated %r %s Its last output: %s", self.name, problem, last
                )
                raise ToolError(f"The tool {self.name!r} {problem}")
            case b"raised":
                exception = _exception(body, self.function)
                if exception:
                    raise exception
            case b"setup":
                raise RuntimeError(f"The child could not load {self.name!r}: {text}")
        raise RuntimeError(
            f"The child for {self.name!r} gave no answer that can be read. Its Python is {sys.executable!r}."
        )


def _find_place(function: Any) -> str | None:
    """Where a fresh interpreter finds a function, as "module:name"; None if it does not."""
    module = str(getattr(function, "__module__", ""))
    qualified_name = getattr(function, "__qualname__", "")
    spec = getattr(sys.modules.get(module), "__spec__", None)
    if module == "__main__" or spec is None:
        return None
    with suppress(Exception):
        if child.find_function(module, qualified_name) is function:
            return f"{module}:{qualified_name}"
    return None


def _without_flag(value: Any) -> Any:
    """A ToolContext without its flag, which no pickle could carry: there it is never set. bool() is False."""
    return replace(value, cancelled=bool) if isinstance(value, ToolContext) else value


def _read_answer(
    process: subprocess.Popen[bytes], seconds: float, is_abandoned: Callable[[], bool]
) -> bytes:
    assert process.stdout is not None
    pipe, poll = process.stdout.fileno(), select.poll()
    poll.register(pipe, select.POLLIN)
    answer, deadline = bytearray(), time.monotonic() + seconds
    while time.monotonic() < deadline and len(answer) < _MOST_ANSWER:
        if is_abandoned():
            return b"problem\nwas ended: nobody waits for it any more."
        if not poll.poll(100):  # milliseconds
            continue
        piece = os.read(pipe, 65_536)
        if not piece:
            break
        answer += piece
    return bytes(answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the guard if it has not ended. Asked to, it first ends all that it started."""
    assert process.stdout is not None
    process.stdout.close()
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()  # the function's own process dies with it
        process.wait()


def _exception(report: bytes, function: Any) -> Any:
    """The exception that a child reports; None if the report cannot be read."""
    from pydantic_core import from_json

    fields = None
    with suppress(ValueError):
        fields = from_json(report)
    match fields:
        case [str(class_name), str(message), str(trace), bool(is_own)]:
            error = _new_exception(class_name, message)
            error.__cause__ = ChildTraceback(trace)
            if is_own:
                # Its frames are in the child, so it says itself whose message it is.
                error.raised_in_module = inspect.unwrap(function).__module__
            return error
    return None


def _new_exception(class_name: str, message: str) -> Any:
    kind: Any = getattr(builtins, class_name, None)
    is_exception = isinstance(kind, type) and issubclass(kind, Exception)
    # StopIteration breaks futures.
    if is_exception and kind is not StopIteration:
        with suppress(TypeError):  # some take more than a message
            return kind(message)
    if not class_name.isidentifier():
        return IsolatedError(message)
    return type(class_name, (IsolatedError,), {})(message)
