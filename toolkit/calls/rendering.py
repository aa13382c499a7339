"""What a tool returned or raised, as text for a model."""

from __future__ import annotations

import inspect
import json
import math
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from toolkit.calls.redaction import redact
from toolkit.errors import ToolError
from toolkit.messages import whole_characters
from toolkit.tools.signatures import without_partials

_MOST_ITEMS = 1_000  # of what does not know its length
_MOST_NODES = 1_000_000  # of one value: shared parts nested in each other grow without bound when written out
_DEEPEST = 100
_LONGEST_MESSAGE = 2_000  # of an exception that is no ToolError

_LEFT_OUT = "… [the rest is left out] …"

_as_json = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), check_circular=False
).encode


def render(value: object, limit: int = 32_000) -> str:
    """Write what a tool returned as text of at most `limit` characters; never raises an Exception.

    A string is itself. Everything else is compact JSON: models, dataclasses, sets (sorted), enums by
    value, dates in ISO form, NaN as null, other objects by their `to_dict()`, items, public attributes
    or text. Bytes that are no text become their size, iterators are read up to 1,000 items, and an
    object's address is never shown. A longer text keeps its head and its tail around a line that says
    how much was cut. A lone surrogate, which no request can carry, becomes U+FFFD.
    """
    try:
        text = whole_characters(
            str.__str__(value)
            if isinstance(value, str)
            else _as_json(_Walk().plain(value))
        )
    except Exception:
        text = '"<unreadable>"'
    return text if len(text) <= limit else _cut(text, limit)


def explain(
    error: BaseException,
    tool: str,
    function: Callable[..., object] | None,
    *,
    reference: str = "",
) -> str:
    """Tell the model that a tool raised; never raises an Exception.

    A `ToolError` speaks as it is. What the module of `function` raised itself tells its class and its
    message, redacted: its author wrote it. An exception from deeper down may say anything, so only its
    class is told. The members of a group are told by the same rule. `reference` names the full trace
    in the local log.
    """
    try:
        if isinstance(error, ToolError) and (speech := str(error)).strip():
            return render(speech)
        told = _tell(error, function)
    except Exception:
        told = type(error).__name__
    story = render(f"The tool {tool!r} failed: {told}", 2 * _LONGEST_MESSAGE)
    return render(f"{story} (log reference {reference})") if reference else story


class _Walk:
    """One walk over a value, which makes it plain JSON: what it is inside of, and how much it may still visit.

    pydantic_core.to_json alone would follow an endless iterator, and shared parts without end.
    """

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.left = _MOST_NODES

    def plain(self, value: Any) -> Any:
        kind = type(value)
        self.left -= 1
        if value is None or issubclass(kind, str):
            self.left -= len(value or "") // 64
            return value
        if issubclass(kind, float):
            return value if math.isfinite(value) else None
        if issubclass(kind, int):
            bits = value.bit_length()
            return (
                value if bits < 14_000 else f"<integer of {bits:,} bits>"
            )  # json would refuse its many digits
        if id(value) in self.inside:
            return "<circular reference>"
        if len(self.inside) >= _DEEPEST:
            return _LEFT_OUT
        self.inside.add(id(value))
        try:
            return self._open(value, kind)
        except Exception as error:
            return f"<{kind.__name__}: {type(error).__name__}>"
        finally:
            self.inside.discard(id(value))

    def _open(self, value: Any, kind: type) -> Any:
        if issubclass(kind, (dict, Mapping)):
            return self._mapping(value)
        if issubclass(kind, (set, frozenset)):
            return sorted(self._items(value), key=_order)
        if issubclass(kind, (list, tuple)) or hasattr(kind, "__next__"):
            return self._items(value)
        simpler = _simplify(value, kind)
        return self._items(value) if simpler is value else self.plain(simpler)

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if self.left <= 0:
                return {**found, "…": _LEFT_OUT}
            name = self.plain(key)
            name = name if isinstance(name, str) else _as_json(name)
            while name in found:  # 1 and "1"
                name += " (2)"
            found[name] = self.plain(item)
        return found

    def _items(self, values: Iterable[Any]) -> list[Any]:
        most = _MOST_NODES if hasattr(values, "__len__") else _MOST_ITEMS
        found: list[Any] = []
        for item in values:
            if len(found) >= most or self.left <= 0:
                return [*found, f"… [cut after {len(found):,} items] …"]
            found.append(self.plain(item))
        return found


def _order(item: Any) -> tuple[float, str]:
    return item if isinstance(item, (int, float)) else math.inf, _as_json(item)


def _simplify(value: Any, kind: type) -> Any:
    """The value one step nearer to JSON; the value itself where its items are what it is."""
    if issubclass(kind, (bytes, bytearray, memoryview)):
        text = bytes(value).decode(errors="replace")
        return f"<{len(value):,} bytes>" if "\0" in text or "\ufffd" in text else text
    if issubclass(kind, BaseException):
        return f"{kind.__name__}: {redact(str(value))}"
    if isinstance(
        name := getattr(value, "__name__", None), str
    ):  # of a function, a class, a module
        return f"<{'never awaited:' if hasattr(kind, '__await__') else kind.__name__} {name}>"
    import pydantic_core

    is_model = hasattr(kind, "__pydantic_fields__")
    with suppress(Exception):
        if is_model:  # not as JSON: that would follow an iterator inside to its end
            return value.__pydantic_serializer__.to_python(value)
        if not is_dataclass(kind):
            return pydantic_core.to_jsonable_python(value)
    if hasattr(
        kind, "to_dict"
    ):  # The "split" form of pandas alone neither loses nor repeats an index or a column.
        return value.to_dict("split") if hasattr(kind, "iterrows") else value.to_dict()
    if hasattr(kind, "tolist"):
        return value.tolist()  # an array or a number of numpy or torch
    if hasattr(kind, "__iter__") and not is_model:
        return value
    names = (
        [field.name for field in fields(kind)]
        if is_dataclass(kind)
        else getattr(value, "__dict__", ())
    )
    public = {name: getattr(value, name) for name in names if not name.startswith("_")}
    return public or re.sub(
        r" at 0x[0-9A-Fa-f]+|(?<=<)(?:coroutine|generator) object ", "", str(value)
    )


def _cut(text: str, limit: int) -> str:
    kept = limit - 60  # as much as the line between may take
    if kept < 2:
        return text[: max(limit, 0)]
    tail = kept // 3
    head, end = text[: kept - tail], text[len(text) - tail :]
    return f"{head}\n… [{len(text) - kept:,} of {len(text):,} characters cut] …\n{end}"


def _tell(
    error: BaseException, function: Callable[..., object] | None, depth: int = 0
) -> str:
    """The class of an exception, and what it says where it may speak."""
    name, members = (
        type(error).__name__,
        getattr(error, "exceptions", ()),
    )  # Python 3.10 has no ExceptionGroup
    if members and depth < 3:
        told = [_tell(one, function, depth + 1) for one in members[:5]]
        return f"{name} ({'; '.join(told + ['…'] * (len(members) > 5))})"
    message = str(error).strip()
    if isinstance(error, ToolError) and message:
        return message
    if message and _is_own(error, function):
        return f"{name}: {render(redact(message), _LONGEST_MESSAGE)}"
    return name


def _is_own(error: BaseException, function: Any) -> bool:
    """Whether the module of the function raised the error itself: its innermost frame stands there."""
    home = getattr(inspect.unwrap(without_partials(function)), "__module__", "")
    # An error from a child process, whose frames are not here, names the module itself.
    module = getattr(error, "raised_in_module", None)
    if module is not None:
        return bool(module == home)
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_globals.get("__name__") == home
