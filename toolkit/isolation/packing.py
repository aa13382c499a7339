"""A call as bytes for a child process."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

from toolkit.isolation.child import find_function
from toolkit.messages import ToolContext


def pack(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
    """The call as bytes; the function by its name if a fresh interpreter finds it there.

    Raises TypeError for arguments that cannot be pickled, and RuntimeError if the function cannot travel, or is called
    while a child imports its module.
    """
    name = name_of(function)
    isolating = getattr(sys.modules.get("__main__"), "__isolating__", None)
    if isolating:
        raise RuntimeError(
            f"{name!r} is called while its module is imported, in the child for {isolating!r}. "
            "Call it in a function, or below: if __name__ == '__main__'."
        )
    place = _find_place(function)
    try:
        from cloudpickle import dumps
    except ImportError:
        if place is None:
            raise RuntimeError(
                f"{name!r} has no place in a module that a child could import. Move it to the top of a module "
                "of its own, or install cloudpickle: pip install 'toolkit-agent[isolation]'."
            ) from None
        dumps = pickle.dumps
    call = (
        place or function,
        tuple(map(_without_flag, arguments)),
        {key: _without_flag(value) for key, value in keywords.items()},
    )
    try:
        return bytes(dumps(call))
    except Exception as error:
        raise TypeError(
            f"The call of {name!r} cannot go into a child process: {error}. Pass plain data, or what can be pickled."
        ) from error


def name_of(function: Any) -> str:
    """The name of a function, or that of the class of a callable object."""
    return str(getattr(function, "__name__", type(function).__name__))


def _find_place(function: Any) -> str | None:
    """Where a fresh interpreter finds a function, as "module:name"; None if it does not."""
    module = str(getattr(function, "__module__", ""))
    qualified_name = getattr(function, "__qualname__", "")
    spec = getattr(sys.modules.get(module), "__spec__", None)
    if module == "__main__" or spec is None:
        return None
    with suppress(Exception):
        if find_function(module, qualified_name) is function:
            return f"{module}:{qualified_name}"
    return None


def _without_flag(value: Any) -> Any:
    """A ToolContext without its flag, which no pickle could carry: there it is never set. bool() is False."""
    return replace(value, cancelled=bool) if isinstance(value, ToolContext) else value
