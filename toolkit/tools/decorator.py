"""`@tool`: makes a function a tool, and returns it unchanged."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from toolkit.messages import copied
from toolkit.tools.registry import REGISTRY, ToolRegistry
from toolkit.tools.tool import (
    MARK,
    TOOL,
    FunctionTool,
    Tool,
    ToolOptions,
    checked_options,
    tool_entry,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def tool(function: _F, /) -> _F: ...
@overload
def tool(
    *, registry: ToolRegistry = ..., **options: Unpack[ToolOptions]
) -> Callable[[_F], _F]: ...
def tool(
    function: Any = None, /, *, registry: ToolRegistry = REGISTRY, **options: Any
) -> Any:
    """Make a function a tool and return it unchanged: it stays callable, testable, stackable.

    Bare or with options: `name`, `description` (default: from the docstring), `schema` (a JSON Schema written by
    hand), `permission` ("read", "write", "sensitive"), `timeout` (seconds, or None for no limit), `tags`, `keywords`,
    `parallel`, `repeat_ok`, `strict`, `registry`; see `Tool`. The function gets `tool_schema`, its Chat Completions
    entry as a read-only mapping that is built on first access. In a class body the method is only marked: bind it with
    `registry.register_methods(obj)` or `tools=[obj.method]`.

    Raises ToolDefinitionError, naming the parameter, if a model could not call the function.
    """
    options = checked_options({**registry.defaults, **options})
    if function is None:
        return lambda function: _decorated(function, options, registry)
    return _decorated(function, options, registry)


def _decorated(
    function: Any, options: Mapping[str, Any], registry: ToolRegistry
) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        _decorated(function.__func__, options, registry)
        return function
    namespace = _locals_of_decoration(function)
    if _is_in_class_body(function):
        setattr(function, MARK, (options, namespace))
        return function
    new = FunctionTool(function, options, namespace)
    registry._add(new)
    if inspect.isfunction(function):
        setattr(function, TOOL, new)
        function.tool_schema = ToolSchema(new)  # type: ignore[attr-defined]  # a function takes any attribute
    return function


class ToolSchema(Mapping[str, Any]):
    """The Chat Completions entry of a decorated function. Read-only, and built on first access."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def __getitem__(self, key: str) -> Any:
        return copied(tool_entry(self._tool)[key])

    def __iter__(self) -> Iterator[str]:
        return iter(tool_entry(self._tool))

    def __len__(self) -> int:
        return len(tool_entry(self._tool))

    def __repr__(self) -> str:
        return repr(tool_entry(self._tool))


def _is_in_class_body(function: Any) -> bool:
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    is_inside = bool(owner) and not owner.endswith("<locals>")
    return inspect.isfunction(function) and is_inside


def _locals_of_decoration(function: Any) -> Mapping[str, Any] | None:
    """The names around a function defined inside another one: postponed hints may be among them."""
    if "<locals>" not in getattr(function, "__qualname__", ""):
        return None
    hints = getattr(inspect.unwrap(function), "__annotations__", {})
    if not any(isinstance(hint, str) for hint in hints.values()):
        return None
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals is globals():
        frame = frame.f_back
    inner = frame.f_locals
    if "__qualname__" in inner:
        # The body of a class. Its methods may have the names of types: get, set, list.
        inner = {k: v for k, v in inner.items() if not inspect.isfunction(v)}
    while frame.f_back and "__qualname__" in frame.f_locals:
        frame = frame.f_back
    return {**frame.f_locals, **inner}
