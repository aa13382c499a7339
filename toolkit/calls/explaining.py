"""What a tool raised, as text for a model, and which exceptions may speak."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

from toolkit.calls.redaction import redact
from toolkit.calls.rendering import render
from toolkit.errors import ToolError
from toolkit.tools.signatures import without_partials

_MAX_MESSAGE = 2_000  # characters of an exception that is not a ToolError
_MAX_MEMBERS = 5  # of an exception group
_MAX_DEPTH = 3


def explain(
    error: BaseException,
    tool: str,
    function: Callable[..., object] | None,
    *,
    reference: str = "",
) -> str:
    """Tell the model that a tool raised. Never raises an Exception.

    A `ToolError` speaks unchanged. An exception that the module of `function` raised itself gives its
    class and its message, redacted: its author wrote it. One from deeper down may say anything, so only
    its class is given. The members of a group follow the same rule. `reference` names the full trace in
    the local log.
    """
    try:
        if isinstance(error, ToolError) and str(error).strip():
            return render(str(error))
        description = _description(error, function)
    except Exception:
        description = type(error).__name__
    text = render(f"The tool {tool!r} failed: {description}", 2 * _MAX_MESSAGE)
    return render(f"{text} (log reference {reference})") if reference else text


def _description(
    error: BaseException, function: Callable[..., object] | None, depth: int = 0
) -> str:
    """The class of an exception, and its message if it may speak."""
    name = type(error).__name__
    # Python 3.10 has no ExceptionGroup.
    members = getattr(error, "exceptions", ())
    if members and depth < _MAX_DEPTH:
        parts = [
            _description(member, function, depth + 1)
            for member in members[:_MAX_MEMBERS]
        ]
        if len(members) > _MAX_MEMBERS:
            parts.append("…")
        return f"{name} ({'; '.join(parts)})"
    message = str(error).strip()
    if isinstance(error, ToolError) and message:
        return message
    if message and _may_speak(error, function):
        return f"{name}: {render(redact(message), _MAX_MESSAGE)}"
    return name


def _may_speak(error: BaseException, function: Any) -> bool:
    """True if the function's own module raised the error."""
    home = getattr(inspect.unwrap(without_partials(function)), "__module__", "")
    # An error from a child process names its module: its frames are not here.
    origin = getattr(error, "raised_in_module", None)
    if origin is not None:
        return bool(origin == home)
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_globals.get("__name__") == home
