"""What a tool returned, as text for a model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from toolkit.calls.redaction import redact
from toolkit.messages import whole_characters

# Items of a value that does not know its length.
_MAX_ITEMS = 1_000
# Nodes of one value: parts that are shared, and nested in each other, multiply when they are written.
_MAX_NODES = 1_000_000
_MAX_DEPTH = 100
# The json module refuses to write integers with more digits.
_MAX_BITS = 14_000
_LEFT_OUT = "… [the rest is left out] …"

_as_json = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), check_circular=False
).encode


def render(value: object, limit: int = 32_000) -> str:
    """Write what a tool returned as text of at most `limit` characters. Never raises an Exception.

    A string is itself. Everything else is compact JSON: models, dataclasses, sets (sorted), enums by
    value, dates in ISO form, NaN as null, other objects by their `to_dict()`, items, public attributes
    or text. Bytes that are not text become their size, iterators are read up to 1,000 items, and an
    object's address is never shown. A longer text keeps its head and its tail around a line that says
    how much was cut. A lone surrogate, which no request can carry, becomes U+FFFD.
    """
    try:
        if isinstance(value, str):
            text = str.__str__(value)
        else:
            text = _as_json(_Walk().plain(value))
        text = whole_characters(text)
    except Exception:
        text = '"<unreadable>"'
    return text if len(text) <= limit else _shortened(text, limit)


class _Walk:
    """One walk over a value that turns it into plain JSON: what it is inside of, and how many nodes are left.

    pydantic_core.to_json alone would follow an endless iterator, and shared parts without end.
    """

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.nodes_left = _MAX_NODES

    def plain(self, value: Any) -> Any:
        kind = type(value)
        self.nodes_left -= 1
        if value is None or issubclass(kind, str):
            self.nodes_left -= len(value or "") // 64
            return value
        if issubclass(kind, float):
            return value if math.isfinite(value) else None
        if issubclass(kind, int):
            bits = value.bit_length()
            return value if bits < _MAX_BITS else f"<integer of {bits:,} bits>"
        if id(value) in self.inside:
            return "<circular reference>"
        if len(self.inside) >= _MAX_DEPTH:
            return _LEFT_OUT
        self.inside.add(id(value))
        try:
            return self._container(value, kind)
        except Exception as error:
            return f"<{kind.__name__}: {type(error).__name__}>"
        finally:
            self.inside.discard(id(value))

    def _container(self, value: Any, kind: type) -> Any:
        if issubclass(kind, (dict, Mapping)):
            return self._object(value)
        if issubclass(kind, (set, frozenset)):
            return sorted(self._array(value), key=_sort_key)
        if issubclass(kind, (list, tuple)) or hasattr(kind, "__next__"):
            return self._array(value)
        simpler = _simplified(value, kind)
        return self._array(value) if simpler is value else self.plain(simpler)

    def _object(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, item in value.items():
            if self.nodes_left <= 0:
                return {**plain, "…": _LEFT_OUT}
            name = self.plain(key)
            if not isinstance(name, str):
                name = _as_json(name)
            while name in plain:  # 1 and "1"
                name += " (2)"
            plain[name] = self.plain(item)
        return plain

    def _array(self, values: Iterable[Any]) -> list[Any]:
        limit = _MAX_NODES if hasattr(values, "__len__") else _MAX_ITEMS
        plain: list[Any] = []
        for item in values:
            if len(plain) >= limit or self.nodes_left <= 0:
                return [*plain, f"… [cut after {len(plain):,} items] …"]
            plain.append(self.plain(item))
        return plain


def _sort_key(item: Any) -> tuple[float, str]:
    number = item if isinstance(item, (int, float)) else math.inf
    return number, _as_json(item)


def _simplified(value: Any, kind: type) -> Any:
    """The value one step nearer to JSON; the value itself if its items are what it is."""
    if issubclass(kind, (bytes, bytearray, memoryview)):
        text = bytes(value).decode(errors="replace")
        is_text = "\0" not in text and "\ufffd" not in text
        return text if is_text else f"<{len(value):,} bytes>"
    if issubclass(kind, BaseException):
        return f"{kind.__name__}: {redact(str(value))}"
    name = getattr(value, "__name__", None)
    if isinstance(name, str):  # a function, a class, a module, a coroutine
        is_awaitable = hasattr(kind, "__await__")
        return f"<{'never awaited:' if is_awaitable else kind.__name__} {name}>"
    import pydantic_core

    is_model = hasattr(kind, "__pydantic_fields__")
    with suppress(Exception):
        if is_model:
            # Not in JSON mode, which would follow an iterator in the model to its end.
            return value.__pydantic_serializer__.to_python(value)
        if not is_dataclass(kind):
            return pydantic_core.to_jsonable_python(value)
    if hasattr(kind, "iterrows"):
        # Of pandas' forms only "split" neither loses nor repeats an index or a column.
        return value.to_dict("split")
    if hasattr(kind, "to_dict"):
        return value.to_dict()
    if hasattr(kind, "tolist"):
        return value.tolist()  # an array or a number of numpy or torch
    if hasattr(kind, "__iter__") and not is_model:
        return value
    return _attributes(value, kind)


def _attributes(value: Any, kind: type) -> Any:
    """The public attributes of an object; its text without addresses if it has none."""
    names: Iterable[str] = getattr(value, "__dict__", ())
    if is_dataclass(kind):
        names = [field.name for field in fields(kind)]
    public = {name: getattr(value, name) for name in names if not name.startswith("_")}
    if public:
        return public
    pattern = r" at 0x[0-9A-Fa-f]+|(?<=<)(?:coroutine|generator) object "
    return re.sub(pattern, "", str(value))


def _shortened(text: str, limit: int) -> str:
    room = limit - 60  # the line between head and tail takes at most as much
    if room < 2:
        return text[: max(limit, 0)]
    tail_length = room // 3
    head, tail = text[: room - tail_length], text[len(text) - tail_length :]
    cut = f"[{len(text) - room:,} of {len(text):,} characters cut]"
    return f"{head}\n… {cut} …\n{tail}"
