"""What a tool raised, as text for a model, and which exceptions may speak."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolkit.calls.redaction import redact
from toolkit.calls.rendering import render
from toolkit.errors import ToolError
from toolkit.tools.signatures import without_partials

_MAX_MESSAGE = 2_000  # characters of an exception that is not a ToolError
_MAX_MEMBERS = 5  # of an exception group
_MAX_DEPTH = 3
# What redaction puts in the place of SQL and of connection strings.
_SILENT_MARKS = ("[sql]", "[connection]")
# Modules of the standard library whose errors tell of servers, databases, processes and files.
_SILENT_MODULES = {"urllib", "http", "ssl", "socket", "sqlite3", "subprocess", "os"}


def explain(
    error: BaseException,
    tool: str,
    function: Callable[..., object] | None,
    *,
    reference: str = "",
) -> str:
    """Tell the model that a tool raised. Never raises an Exception.

    A `ToolError` speaks unchanged. Other exceptions give their class, and their message, redacted, if it
    is about the user's own program: raised by the package of `function` or by code that is not
    installed, or a ValueError or LookupError of the standard library that such code called
    (`datetime.strptime`, `json.loads`, `UUID`, `ZoneInfo`). Drivers, HTTP clients and other installed
    packages may say anything, so only their class is given; so it is for a message with SQL or a
    connection string. The members of a group follow the same rule. `reference` names the full trace
    in the local log.
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
        text = redact(message)
        if not any(mark in text for mark in _SILENT_MARKS):
            return f"{name}: {render(text, _MAX_MESSAGE)}"
    return name


def _may_speak(error: BaseException, function: Any) -> bool:
    """True if code that the user wrote raised the error, or the standard library for a wrong value."""
    home = getattr(inspect.unwrap(without_partials(function)), "__module__", "")
    # An error from a child process names its module: its frames are not here.
    origin = getattr(error, "raised_in_module", None)
    if origin is not None:
        return bool(origin == home)
    modules = [frame.f_globals for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not modules:
        return False
    if _is_own(modules[-1], home):
        return True
    if not isinstance(error, (ValueError, LookupError)):
        return False
    while modules and _is_value_check(modules[-1]):
        modules.pop()
    return bool(modules) and _is_own(modules[-1], home)


def _is_own(module: Mapping[str, Any], home: str) -> bool:
    """True for a module of the tool's own package, and for one that is not installed: a script, a notebook cell."""
    name = module.get("__name__") or ""
    if name == home or name.partition(".")[0] == (home or "").partition(".")[0]:
        return True
    path = module.get("__file__")
    if path is None:
        return name in ("", "__main__")  # a notebook cell
    return not path.startswith(_installed_folders())


def _is_value_check(module: Mapping[str, Any]) -> bool:
    """True for a module of the standard library that tells no more of the world than what it was given."""
    package = (module.get("__name__") or "").partition(".")[0]
    return package in sys.stdlib_module_names and package not in _SILENT_MODULES


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    """Where the standard library, installed packages and the toolkit itself are."""
    import site
    import sysconfig

    folders = [*sysconfig.get_paths().values(), *site.getsitepackages()]
    toolkit = str(Path(__file__).parents[1])
    return tuple({*map(os.path.abspath, folders), toolkit})
