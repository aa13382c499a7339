"""What a tool returned or raised, as text for a model."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, Sequence, ValuesView
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from toolkit.errors import ToolError

_MOST_ITEMS = 1_000  # of what an iterator yields
_MOST_NODES = 1_000_000  # of one value: shared parts nested in each other grow without bound when written out
_DEEPEST = 100
_LONGEST_DIGITS = 4_300  # Python's own readers of JSON refuse a longer integer
_LONGEST_MESSAGE = 2_000  # of an exception that is no ToolError
_LONGEST_REDACTED = 50_000
_LEFT_OUT = "… [the rest is left out] …"

_EXACT: list[tuple[type, Callable[[Any], object]]] = [(str, str.__str__), (int, int.__int__), (float, float.__float__)]
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def render(value: object, limit: int = 32_000) -> str:
    """Write what a tool returned as text of at most `limit` characters; never raises an Exception.

    A string is itself. Everything else is compact JSON: models, dataclasses, sets (sorted), enums by
    value, dates in ISO form, NaN as null, other objects by their `to_dict()`, items, public attributes
    or text. Bytes that are no text become their size, iterators are read up to 1,000 items, and an
    object's address is never shown. A longer text keeps its head and its tail around a line that says
    how much was cut. A lone surrogate, which no request can carry, becomes U+FFFD.
    """
    text = value if type(value) is str else _write(value)
    if not text.isascii():
        text = _encodable(text)
    return text if len(text) <= limit else _cut(text, limit)


def explain(error: BaseException, tool: str, function: Callable[..., object] | None, *, reference: str = "") -> str:
    """Tell the model that a tool raised; never raises an Exception.

    A `ToolError` speaks as it is. What the module of `function` raised itself tells its class and its
    message, redacted: its author wrote it. An exception from deeper down may say anything, so only its
    class is told. The members of a group are told by the same rule. `reference` names the full trace
    in the local log.
    """
    try:
        if isinstance(error, ToolError) and (speech := _message(error)):
            return render(speech)
        told = _tell(error, function)
    except Exception:
        told = type(error).__name__
    story = render(f"The tool {tool!r} failed: {told}", 2 * _LONGEST_MESSAGE)
    return render(f"{story} (log reference {reference})") if reference else story


def redact(text: str) -> str:
    """Take secrets, connection strings, SQL, paths and network addresses out of a text.

    Each leaves a mark in its place: "[redacted]", "[connection]", "[sql]", "[path]", "[address]". Plain
    links, dates, numbers and prose stay, and so do mail addresses, which are mostly what a call is about.
    Of a text over 50,000 characters only the beginning is kept.
    """
    if len(text) > _LONGEST_REDACTED:
        # Up to where a word ends: half a secret might not be known as one.
        end = max(text.rfind(mark, 0, _LONGEST_REDACTED) for mark in ' \n,"')
        text = f"{text[:end] if end > 0 else ''} {_LEFT_OUT}"
    for pattern, mark in _patterns():
        text = pattern.sub(mark, text)
    return text


def _write(value: object) -> str:
    try:
        plain = _Walk().plain(value)
        return plain if isinstance(value, str) and isinstance(plain, str) else _as_json(plain)
    except Exception:
        return '"<unreadable>"'


class _Walk:
    """One walk over a value, which makes it plain JSON: what it is inside of, and how much it may still visit.

    pydantic_core.to_json alone would follow an endless iterator, and shared parts without end.
    """

    __slots__ = ("inside", "left")

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.left = _MOST_NODES

    def plain(self, value: object) -> Any:
        kind = type(value)
        self.left -= 1 if kind is not str else 1 + len(value) // 64  # type: ignore[arg-type]
        if kind is str or kind is bool or value is None:
            return value
        if kind is float:
            return value if math.isfinite(value) else None  # type: ignore[arg-type]
        if kind is int:
            return _integer(value)  # type: ignore[arg-type]
        if len(self.inside) >= _DEEPEST:
            return _LEFT_OUT
        if id(value) in self.inside:
            return "<circular reference>"
        self.inside.add(id(value))
        try:
            return self._convert(value, kind)
        except Exception:
            return f"<{kind.__name__}>"
        finally:
            self.inside.discard(id(value))

    def _convert(self, value: Any, kind: type) -> Any:
        if kind is list or kind is tuple:
            return self._items(value)
        if kind is dict or isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, Enum):
            return self.plain(value.value)
        for scalar, exact in _EXACT:
            if isinstance(value, scalar):
                return self.plain(exact(value))  # not str(value): a subclass may say something else there
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _decode(bytes(value))
        if isinstance(value, (set, frozenset)):
            return self._sorted(value)
        if isinstance(value, (Sequence, KeysView, ValuesView, ItemsView)):
            return self._items(value)
        if isinstance(value, BaseException):
            return ": ".join(filter(None, (kind.__name__, redact(_message(value)))))
        name = getattr(value, "__name__", None)
        if hasattr(kind, "__await__") or hasattr(kind, "__aiter__"):
            return f"<never awaited: {name or kind.__name__}>"
        if isinstance(name, str) and (callable(value) or isinstance(value, ModuleType)):
            return f"<{kind.__name__} {name}>"
        if hasattr(kind, "__next__"):
            return self._items(value, _MOST_ITEMS)
        return self._convert_object(value, kind)

    def _convert_object(self, value: Any, kind: type) -> Any:
        is_model = hasattr(kind, "__pydantic_serializer__")
        if is_dataclass(value) and not is_model:
            return self._mapping({field.name: getattr(value, field.name) for field in fields(value)})
        if not is_model or not any(hasattr(type(part), "__next__") for part in getattr(value, "__dict__", {}).values()):
            from pydantic_core import to_jsonable_python

            with suppress(Exception):
                return self.plain(to_jsonable_python(value, fallback=functools.partial(self._part, value)))
        if hasattr(kind, "to_dict"):
            return self.plain(_table(value, kind))
        if hasattr(kind, "item") and getattr(value, "ndim", None) == 0:
            return self.plain(value.item())  # a number of numpy or torch
        if hasattr(kind, "__iter__") and not is_model:
            return self._items(value, _MOST_ITEMS)
        return self._mapping(_attributes(value, kind)) or _text(value, kind)

    def _part(self, whole: object, part: object) -> Any:
        if part is whole:
            raise TypeError  # pydantic does not know it
        return self.plain(part)

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if self.left <= 0:
                found["…"] = _LEFT_OUT
                break
            name = self.plain(key)
            name = name if isinstance(name, str) else _as_json(name)
            while name in found:  # 1 and "1"
                name = f"{name} ({len(found) + 1})"
            found[name] = self.plain(item)
        return found

    def _items(self, values: Iterable[Any], most: int = _MOST_NODES) -> list[Any]:
        found: list[Any] = []
        try:
            for item in values:
                if len(found) >= most or self.left <= 0:
                    found.append(f"… [cut after {len(found):,} items] …")
                    break
                found.append(self.plain(item))
        except Exception as error:
            found.append(f"… [ended by {type(error).__name__}] …")
        return found

    def _sorted(self, values: Iterable[Any]) -> list[Any]:
        try:
            return self._items(sorted(values))
        except Exception:
            return sorted(self._items(values), key=_as_json)  # of mixed types; yet the same in every run


def _integer(value: int) -> int | str:
    if value.bit_length() <= 3 * _LONGEST_DIGITS:
        return value
    if value.bit_length() > 100 * _LONGEST_DIGITS:
        return f"<integer of about {int(value.bit_length() * math.log10(2)):,} digits>"
    from decimal import Decimal

    return str(Decimal(value))  # str(value) refuses that many digits


def _decode(value: bytes) -> str:
    """Bytes as text, where they are UTF-8 without control characters other than white space and escape."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return f"<{len(value):,} bytes>" if re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]", text) else text


def _table(value: Any, kind: type) -> Any:
    """What `to_dict` says; of a table, which has a `head`, its first rows only."""
    rows = value.head(_MOST_ITEMS) if hasattr(kind, "head") else value
    # The "split" form of pandas keeps the index and names each column once; the others lose or repeat them.
    form = rows.to_dict("split") if hasattr(kind, "iterrows") else rows.to_dict()
    if rows is not value and len(rows) < len(value):
        return {**form, "…": f"{len(rows):,} of {len(value):,} rows"}
    return form


def _attributes(value: object, kind: type) -> dict[str, Any]:
    """The public attributes that stand in `__dict__` and `__slots__`."""
    names = list(getattr(value, "__dict__", ()))
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    public = [name for name in dict.fromkeys(names) if isinstance(name, str) and not name.startswith("_")]
    return {name: getattr(value, name) for name in public if hasattr(value, name)}


def _text(value: object, kind: type) -> str:
    if {"__str__", "__repr__"}.isdisjoint(name for base in kind.__mro__[:-1] for name in vars(base)):
        return f"<{kind.__name__}>"
    return re.sub(r" at 0x[0-9A-Fa-f]+|(?<=<)(?:coroutine|generator) object ", "", str(value))


def _encodable(text: str) -> str:
    """The text with each pair of surrogates as its one character, and U+FFFD for each that is alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    line = "\n… [{:,} of {:,} characters cut] …\n"
    kept = limit - len(line.format(len(text), len(text)))
    if kept < 2:
        return text[: max(limit, 0)]
    tail = kept // 3
    return text[: kept - tail] + line.format(len(text) - kept, len(text)) + text[len(text) - tail :]


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        return ""
    return text if text.strip() else ""


def _tell(error: BaseException, function: Callable[..., object] | None, depth: int = 0) -> str:
    """The class of an exception, and what it says where it may speak."""
    members = getattr(error, "exceptions", None)  # of an ExceptionGroup, which Python 3.10 does not know
    if isinstance(members, tuple) and members and all(isinstance(one, BaseException) for one in members):
        told = [_tell(one, function, depth + 1) for one in members[:5]] if depth < 3 else []
        more = [f"{len(members) - len(told)} more"] if len(told) < len(members) else []
        return f"{type(error).__name__} ({'; '.join(told + more)})"
    message = _message(error)
    if isinstance(error, ToolError) and message:
        return message
    if not message or not _is_own(error, function):
        return type(error).__name__
    return f"{type(error).__name__}: {_cut(redact(message), _LONGEST_MESSAGE)}"


def _is_own(error: BaseException, function: Callable[..., object] | None) -> bool:
    """Whether the module of the function raised the error itself: its innermost frame stands there."""
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    home: Any = function
    while isinstance(home, functools.partial):
        home = home.func
    home = inspect.unwrap(home)
    space, module = trace.tb_frame.f_globals, getattr(home, "__module__", None)
    return space is getattr(home, "__globals__", None) or (module is not None and space.get("__name__") == module)


# Names of secrets: what follows the first ones is always one, the others occur in prose ("unexpected token: …") too.
_SURE = r"pass(?:word|wd|phrase|code)|pwd|secret|(?:api|access|private|account|signing|subscription)[_ -]?key"
_LIKELY = r"token|session|signature|credentials?|bearer|auth"
_HEADER = r"authorization|cookie"
# Of a name, what may come after it: "_id", "Value", "2"; not the "s" of "max_tokens", nor the "ary" of "secretary".
_REST = r"(?:[_-](?!count|limit|type|usage)[\w-]{0,30}|(?<=[a-z])[A-Z]\w{0,30}|\d{1,3})?"
_ANY = rf"(?i:{_SURE}|{_LIKELY}|{_HEADER}){_REST}"
_QUOTED = r"""(?:"(?:[^"\\]|\\[\s\S]?)*(?:"|\Z)|'(?:[^'\\]|\\[\s\S]?)*(?:'|\Z))"""
_RUN = r"(?!\[redacted)(?:[^\s&]|&(?![\w.-]+=))+"  # up to the next part of a query
_PROSE = (
    r"(?!\s|(?:an?|at|be|cannot|does|empty|expected|expired|has|have|in|incorrect|invalid|is|may|missing|must|needs|no"
    r"|none|not|null|only|required|should|the|too|true|false|unknown|was|wrong)(?![\w=-])|\[redacted)"
)
# No word, date or time: letters with digits, three parts, or as long as no word is.
_CODE = r"(?!\d{1,4}[:/-])(?:(?=\S{0,80}\d)(?=\S{0,80}[A-Za-z])|(?=[\w-]{1,80}\.[\w-]{1,80}\.\w)|(?=[\w.~+/=-]{24}))\S+"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_HEX = r"[0-9A-Fa-f]{1,4}"
_SEGMENT = r"""/[^\s/"'`<>|:;,()\[\]{}\\]{1,255}"""
_APART = r"""(?<![^\s"'`(\[{<=:,;|>])"""  # at the start, or after what may stand before a path
_SOURCE = r"(?:py|pyx|ipynb|js|mjs|jsx|ts|tsx|java|kt|go|rs|rb|php|c|cc|cpp|h|cs|swift|sh|sql)"

# A pattern, and the mark that takes the place of what it finds; in the order in which they are looked for. Each takes
# time in proportion to the text: what repeats is bounded, or ends where the next try would begin.
_RULES = (
    (r" at 0x[0-9A-Fa-f]+", ""),
    (r"Traceback \(most recent call last\):(?:\n[ \t]+[^\n]*)*", "[trace]"),
    (
        r"-----BEGIN [A-Z0-9 ]{1,40}-----[\s\S]*?(?:-----END [A-Z0-9 ]{1,40}-----|\Z)"
        r"|(?<![A-Za-z0-9])(?:sk-(?=[\w-]{0,80}\d)[\w-]{8,}|sk-[\w-]{16,}|[rsp]k_(?:live|test)_\w{8,}|gh[a-z]_\w{6,}"
        r"|github_pat_\w{6,}|glpat-[\w-]{8,}|xox[a-z]-[\w-]{6,}|A[KS]IA[A-Z0-9]{12,}|AIza[\w-]{16,}|gsk_\w{16,}"
        r"|hf_[A-Za-z0-9]{16,}|npm_\w{16,}|ya29\.[\w-]{8,}|SG\.[\w-]{16,}\.[\w-]{16,}|eyJ[\w-]{6,}(?:\.[\w-]*){1,4})"
        r"|(?<=hooks\.slack\.com/services/)\S+",
        "[redacted]",
    ),
    (
        r"\[SQL:[\s\S]*"
        r"|\b(?:SELECT\s(?:(?!SELECT\b)[^;])*?\bFROM\s|INSERT\s+INTO\s|UPDATE\s+\S{1,200}\s+SET\s|DELETE\s+FROM\s"
        r"|(?:CREATE|DROP|ALTER|TRUNCATE)\s+(?:[A-Z]{1,20}\s+){0,3}(?:TABLE|INDEX|VIEW|DATABASE|SCHEMA|USER|ROLE)\s"
        # In lower case only what prose does not say.
        r"|(?i:select\s+\*\s+from\s|select\s+[\w.]{1,60}(?:\s*,\s*[\w.]{1,60}){1,60}\s+from\s+(?!(?:an?|the|your)\s)"
        r"|select\s+[\w.]{1,60}\s+from\s+[\w.]{1,60}\s+(?:where|join|limit|(?:order|group)\s+by)\s"
        r"|insert\s+into\s+\S{1,60}\s*(?:\([^()]{0,500}\)\s*)?(?:values\s*\(|select\s)"
        r"|update\s+\S{1,60}\s+set\s+\S{1,60}\s*=|delete\s+from\s+\S{1,60}\s+where\s"
        r"|(?:create|drop|alter)\s+table\s+(?:if\s+(?:not\s+)?exists\s+)?\S{1,60}\s*(?:[(;]|(?:add|drop)\s|\Z)))"
        r"(?:'[^']*(?:'|\Z)|[^;'])*",
        "[sql]",
    ),
    (
        r"\b(?!https?:)[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"]+|\bjdbc:[^\s\"]+"
        r"|\bhttps?://(?:[^\s/?#@\"]{1,300}|[^\s/?#@:\"]{0,100}:[^\s@\"]{1,300})@[^\s\"]*"
        r"|(?i:\b(?:server|data source|host|driver|provider|dsn|endpoint|defaultendpointsprotocol))\s?=\s?"
        r"[^;=\n]{1,200}(?:;\s?[\w ]{1,40}=[^;\n]{0,300}){1,40};?",
        "[connection]",
    ),
    # Inside of a JSON string, in JSON or Python, in a header, after "=", after ":".
    (rf"""({_ANY}\\"\s?:\s?)\\"(?:[^"\\]|\\(?!"))*(?:\\?"|\Z)""", r'\1\\"[redacted]\\"'),
    (rf"""({_ANY}["']\s?(?::|=>)\s?)(?:{_QUOTED}|[\[{{][^\[\]{{}}]*[\]}}]|{_PROSE}[^\s,}}\]]+)""", r'\1"[redacted]"'),
    (rf"((?i:{_HEADER}){_REST}\s{{0,3}}[:=]\s{{0,3}}){_PROSE}[^\n\"']+", r"\1[redacted]"),
    (rf"((?i:{_SURE}|{_LIKELY}){_REST}\s{{0,3}}={{1,2}}\s{{0,3}})(?:{_QUOTED}|{_RUN})", r"\1[redacted]"),
    (rf"((?i:{_SURE}){_REST}(?:\s?:\s{{0,3}}|\s(?:is\s)?(?=[\"'])))(?:{_QUOTED}|{_PROSE}{_RUN})", r"\1[redacted]"),
    (rf"((?i:{_LIKELY}){_REST}(?:\s?:\s?(?=\S{{5}})|\s(?=\S{{8}}))){_CODE}", r"\1[redacted]"),
    (
        r'File "[^"\n]{1,500}", line \d+(?:, in \S+)?'
        r"""|(?<=["'`])(?:~?/(?=[^"'`\n]{0,500}[/.])|[A-Za-z]:[\\/](?!/)|\\\\)[^"'`\n]{1,500}(?=["'`])"""
        r"|(?<![A-Za-z0-9])[A-Za-z]:(?:\\|/(?=[\w.$~-]))"
        r"""(?:[^\\\n"'<>|:*?]{0,100}\\)*[^\s\\"'<>|:*?,;)]*(?::\d+){0,2}"""
        r"""|(?<![\w\\])\\{2,4}[\w.$-]{1,100}\\{1,2}[^\s"'<>|]*"""
        rf"|{_APART}(?:(?:~(?:[a-z][\w-]{{0,30}})?{_SEGMENT}|{_SEGMENT}{_SEGMENT})(?:{_SEGMENT})*"
        rf"|/(?:etc|home|mnt|opt|proc|root|srv|tmp|usr|var)\b(?![.\w-])|{_SEGMENT}\.[A-Za-z]\w{{0,7}}\b)"
        r"/?(?<![.!?])(?::\d+){0,2}"
        rf"|(?<![\w./\\-])[\w./\\-]{{1,200}}\.{_SOURCE}(?::\d+(?::\d+)?|,? line \d+)\b",
        "[path]",
    ),
    (
        rf"(?<![\w.])(?<!ersion )(?:{_OCTET}\.){{3}}{_OCTET}(?:/\d{{1,2}}\b)?(?::\d{{1,5}})?(?!\w|\.\d)"
        rf"|(?<![\w:.])\[?(?:(?:{_HEX}:){{7}}{_HEX}|(?=[0-9A-Fa-f:]{{0,40}}\d)(?:{_HEX}:){{1,6}}(?::{_HEX}){{1,6}}"
        rf"|(?:{_HEX}:){{2,7}}:|::{_HEX}(?::{_HEX}){{1,6}}|::1)(?:%\w{{1,20}})?(?:/\d{{1,3}})?(?:\]:\d{{1,5}}|\])?(?![\w:])",
        "[address]",
    ),
)


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern), mark) for pattern, mark in _RULES]
