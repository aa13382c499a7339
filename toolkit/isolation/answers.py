"""What comes back from a child process, as a value or an exception. Nothing in it is trusted."""

from __future__ import annotations

import builtins
import inspect
import logging
import sys
import types
import typing
from contextlib import suppress
from typing import Any

from toolkit.calls.redaction import redact
from toolkit.errors import ToolDefinitionError, ToolError
from toolkit.isolation.packing import name_of

_log = logging.getLogger("toolkit")


class IsolatedError(Exception):
    """An exception of the child that is not one of Python's own. Its class has the name of that exception's class."""


class ChildTraceback(Exception):
    """The traceback in the child: the cause of what is raised here, for the log."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def return_adapter(function: Any) -> Any:
    """The pydantic adapter of a list of what the function returns, by its return type; without one, of any value.

    Raises ToolDefinitionError if the type does not say how its JSON is read.
    """
    from pydantic import TypeAdapter

    unwrapped = inspect.unwrap(function)
    hints = getattr(unwrapped, "__annotations__", {})
    holder = types.SimpleNamespace(__annotations__={"return": hints.get("return", Any)})
    try:
        namespace = getattr(unwrapped, "__globals__", {})
        resolved = typing.get_type_hints(holder, namespace, include_extras=True)
        # In a list, because a type of its own takes no config. The child writes bytes as base64.
        in_list: Any = types.GenericAlias(list, (resolved["return"],))
        return TypeAdapter(in_list, config={"val_json_bytes": "base64"})
    except Exception as error:
        raise ToolDefinitionError(
            f"The return type of {name_of(function)!r} does not say how its JSON is read: {error}. Return plain data."
        ) from error


def value_of(answer: bytes, function: Any, adapter: Any) -> Any:
    """The value that came back. Raises what went wrong in the child."""
    from pydantic import ValidationError

    name = name_of(function)
    kind, _, body = answer.partition(b"\n")
    text = body.decode(errors="replace")
    match kind:
        case b"value":
            try:
                return adapter.validate_json(body)[0]
            except (ValidationError, IndexError) as error:
                raise TypeError(
                    f"{name!r} returned what does not fit its return type: {error}"
                ) from None
        case b"spoken":
            raise ToolError(text)
        case b"problem":
            problem, _, output = text.partition("\n")
            _log.warning(
                "isolated %r %s Its last output: %s",
                name,
                problem,
                redact(output) or "none",
            )
            raise ToolError(f"The tool {name!r} {problem}")
        case b"raised":
            exception = _exception(body, function)
            if exception:
                raise exception
        case b"setup":
            raise RuntimeError(f"The child could not load {name!r}: {text}")
    raise RuntimeError(
        f"The child for {name!r} gave no answer that can be read. Its Python is {sys.executable!r}."
    )


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
