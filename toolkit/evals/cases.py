"""What a model should call, and whether it did: cases, matchers of arguments, and the judgement.

Calls are judged as a run would read them: what the tool's own validation makes of the arguments, defaults filled in,
is compared with what it makes of those expected, never text with text. Every call of the model counts, once.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import EllipsisType
from typing import Any, Literal

from toolkit.calls.validation import validate_call
from toolkit.messages import ToolCall
from toolkit.runs.reading import read_conversation
from toolkit.runs.results import RunResult
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.schema import MISSING, InvalidArguments
from toolkit.tools.tool import Tool

Label = Literal[
    "right",
    "wrong_tool",
    "wrong_arguments",
    "missing_call",
    "unwanted_call",
    "truncated",
    "error",
]
NO_CALL = "(no call)"
_MOST_CHARACTERS = 2_000  # of an explanation: a model may send anything


@dataclass(frozen=True, slots=True, repr=False)
class Matcher:
    """What an argument must be, where a plain value says too much. Made by `contains`, `one_of` and the like."""

    kind: str
    wanted: Any
    tolerance: float | None = None
    optional: bool = False

    def __repr__(self) -> str:
        plain = (
            repr(self.wanted)
            if self.kind == "worded"
            else f"{self.kind}({self.wanted!r})"
        )
        text = " or ".join(map(repr, self.wanted)) if self.kind == "one_of" else plain
        return (
            (f"{text}, or left out" if text else "left out") if self.optional else text
        )


def equal(value: Any) -> Matcher:
    """The argument is this value, as the tool's own validation reads both. A plain value means the same."""
    return one_of(value)


def contains(part: Any) -> Matcher:
    """The text has this part, or the list this item."""
    return Matcher("contains", part)


def matches(pattern: str) -> Matcher:
    """The regular expression is found in the text. Raises ValueError where it is none."""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ValueError(
            f"'matches' takes a regular expression, which {pattern!r} is not: {error}."
        ) from error
    return Matcher("matches", pattern)


def one_of(*values: Any) -> Matcher:
    """The argument is one of these values or fits one of these matchers. It serves for a tool's name as well."""
    return Matcher("one_of", values)


def near(number: float, tolerance: float | None = None) -> Matcher:
    """The number is at most `tolerance` away (default: one percent of it)."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"'near' takes a number, not {number!r}.")
    return Matcher("near", number, tolerance)


_LEFT_OUT = one_of()


def optional(wanted: Any = _LEFT_OUT) -> Matcher:
    """The argument may be left out; if it is there it must fit. Without `wanted` it must be left out."""
    return replace(
        wanted if isinstance(wanted, Matcher) else equal(wanted), optional=True
    )


def may_be_left_out(wanted: Any) -> bool:
    return isinstance(wanted, Matcher) and wanted.optional


def fits(
    wanted: Any, value: Any, read: Callable[[Any], Any] = lambda value: value
) -> bool:
    """Whether a value fits a matcher or is what is wanted. `read` turns a wanted plain value into what a tool gets."""
    if isinstance(wanted, Matcher) and wanted.kind == "one_of":
        return any(fits(each, value, read) for each in wanted.wanted)
    if not _has_matcher(wanted):
        return _is_same(read(wanted), value)
    value = jsonable(value)
    match wanted, value:
        case Matcher("contains", part), str() | list():
            return (
                str(part) in value
                if isinstance(value, str)
                else any(fits(part, item) for item in value)
            )
        case Matcher("matches", pattern), _:
            return (
                re.search(
                    pattern, value if isinstance(value, str) else json.dumps(value)
                )
                is not None
            )
        case Matcher("near", number, tolerance), int() | float():
            most = abs(number) / 100 if tolerance is None else tolerance
            return not isinstance(value, bool) and math.isclose(
                value, number, rel_tol=1e-9, abs_tol=most
            )
        case Matcher("worded", text), str():
            return _words(value) == _words(text)
        case Mapping(), Mapping():
            there = all(
                fits(each, value[k]) if k in value else may_be_left_out(each)
                for k, each in wanted.items()
            )
            return there and value.keys() <= wanted.keys()
        case list() | tuple(), list():
            return len(value) == len(wanted) and all(map(fits, wanted, value))
    return False


def _words(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


def _has_matcher(wanted: Any) -> bool:
    inner = (
        wanted.values()
        if isinstance(wanted, Mapping)
        else wanted
        if isinstance(wanted, list | tuple)
        else ()
    )
    return isinstance(wanted, Matcher) or any(map(_has_matcher, inner))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other  # to Python, True is 1
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            _is_same(one[key], other[key]) for key in one
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def jsonable(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)


# Cases


@dataclass(frozen=True, slots=True)
class Expected:
    """A call that should be made. Arguments that are not named are free, unless the case is `exact`."""

    tool: str | Matcher
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={wanted!r}' for name, wanted in self.arguments.items())})"

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that will do."""
        is_choice = isinstance(self.tool, Matcher) and self.tool.kind == "one_of"
        return self.tool.wanted if is_choice else (self.tool,)  # type: ignore[union-attr, return-value]

    @property
    def name(self) -> str:
        return " or ".join(self.names)


@dataclass(frozen=True, slots=True)
class Case:
    """One request to a model, and the calls that it should make.

    input: the user's message, or messages in the form of Chat Completions, the last of them the user's.
    tool, arguments: the one call expected; None: no call. `one_of("a", "b")` where either tool will do.
    calls: several calls instead, each a tool, a pair of tool and arguments, or an `Expected`; in any order, unless
        `in_order`.
    exact: arguments that are not named must be left out or have their default.
    id: what the case is called in reports, and how it is found in a baseline; by default made from the input.
    tools: the tools offered, by name (default: all), or definitions with `name, description, parameters`.
    results: by the name of a tool, what a call of it returns in place of running it.
    then: the case that follows in the same conversation, asked if this one came out right.
    """

    input: str | Sequence[Mapping[str, Any]]
    tool: str | Matcher | EllipsisType | None = ...
    arguments: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    calls: Sequence[Expected | str | tuple[str, Mapping[str, Any]]] | None = None
    in_order: bool = False
    exact: bool = False
    id: str = ""
    tools: Sequence[str | Mapping[str, Any]] | None = None
    results: Mapping[str, Any] = field(default_factory=dict)
    then: Case | None = None

    def __post_init__(self) -> None:
        if not self.input or not isinstance(self.input, str | list | tuple):
            raise ValueError("'input' is a text or a list of messages, and not empty.")
        if (
            not isinstance(self.input, str)
            and read_conversation(self.input)[-1].role != "user"
        ):
            raise ValueError("the last message of 'input' is the user's.")
        object.__setattr__(self, "id", self.id or self._made_id())
        if (self.tool is ...) is (self.calls is None):
            raise ValueError(
                f"Case {self.id!r}: say what is expected with 'tool' (None: no call) or with 'calls'."
            )
        if self.arguments and (self.tool is None or self.tool is ...):
            raise ValueError(
                f"Case {self.id!r}: 'arguments' belong to a 'tool'; those of 'calls' stand in each call."
            )
        for one in self.expected:
            if not all(isinstance(name, str) for name in one.names) or not isinstance(
                one.arguments, Mapping
            ):
                raise TypeError(
                    f"Case {self.id!r}: a call is a tool's name and an object of arguments, not {one!r}."
                )
        if not all(
            isinstance(tool, str) or (isinstance(tool, Mapping) and "name" in tool)
            for tool in self.tools or ()
        ):
            raise TypeError(
                f"Case {self.id!r}: 'tools' holds names, or objects with name, description, parameters."
            )
        kinds = {
            "id": str,
            "results": Mapping,
            "then": Case | None,
            "tools": list | tuple | None,
        }
        if wrong := [
            name
            for name, kind in kinds.items()
            if not isinstance(getattr(self, name), kind)
        ]:
            raise TypeError(
                f"Case {self.id!r}: {wrong[0]!r} cannot be {getattr(self, wrong[0])!r}."
            )

    @property
    def expected(self) -> tuple[Expected, ...]:
        """The calls expected; none where no tool should be called."""
        if isinstance(self.tool, EllipsisType):
            read = (
                [one] if isinstance(one, str | Matcher) else one
                for one in self.calls or ()
            )
            return tuple(
                one if isinstance(one, Expected) else Expected(*one) for one in read
            )
        return () if self.tool is None else (Expected(self.tool, self.arguments),)

    def __str__(self) -> str:
        return self.id

    def _made_id(self) -> str:
        said = (
            self.input
            if isinstance(self.input, str)
            else f"{jsonable(self.input[-1]).get('content')}"
        )
        if said is self.input and len(said) <= 60:
            return said
        return f"{said[:50]}… {hashlib.sha256(repr(self.input).encode('utf-8', 'replace')).hexdigest()[:6]}"


# The judgement

_GRAVEST_FIRST: tuple[Label, ...] = (
    "wrong_tool",
    "wrong_arguments",
    "missing_call",
    "unwanted_call",
)


def judge(case: Case, result: RunResult, tools: ToolRegistry) -> dict[str, Any]:
    """Set the calls of a run beside those expected, and say in a sentence what is wrong: fields of an Outcome."""
    made = [
        call
        for message in result.messages[result.run.history :]
        for call in message.tool_calls
    ]
    calls, expected = (
        [_as_read(call, tools.get(call.name)) for call in made],
        case.expected,
    )
    reasons = [
        [_mismatch(one, call, tools.get(call.name), case.exact) for call in calls]
        for one in expected
    ]
    matched, found = _match(reasons), list[tuple[Label, str]]()
    missing = [i for i in range(len(expected)) if i not in matched]
    over = [j for j in range(len(calls)) if j not in matched.values()]
    pairs = [(expected[i].name, expected[i].name, True) for i in sorted(matched)]
    for label in _GRAVEST_FIRST[1::-1]:  # a call of the same tool is what was meant
        for i in list(missing):
            close = [
                j
                for j in over
                if label == "wrong_tool" or calls[j].name in expected[i].names
            ]
            if close:
                missing.remove(i)
                over.remove(close[0])
                found.append((label, reasons[i][close[0]]))
                name = expected[i].name
                pairs.append(
                    (
                        name,
                        calls[close[0]].name if label == "wrong_tool" else name,
                        False,
                    )
                )
    said = (
        f"the model said {result.text[:200]!r}"
        if result.text
        else f"the run ended with {result.stop_reason!r}"
    )
    found += [
        ("missing_call", f"{expected[i]} was not called; {said}.") for i in missing
    ]
    further = "further " if expected else ""
    found += [
        (
            "unwanted_call",
            f"{_shown(calls[j])} was called, but no {further}call was expected.",
        )
        for j in over
    ]
    pairs += [(expected[i].name, NO_CALL, False) for i in missing] + [
        (NO_CALL, calls[j].name, False) for j in over
    ]
    if not found and case.in_order and any(reasons[i][i] for i in range(len(calls))):
        found = [
            (
                "wrong_tool",
                f"The calls came in another order: {', '.join(map(_shown, calls))}.",
            )
        ]
    return {
        "label": min(
            (label for label, _ in found), key=_GRAVEST_FIRST.index, default="right"
        ),
        "explanation": " ".join(why for _, why in found)[:_MOST_CHARACTERS],
        "calls": tuple(
            {"tool": c.name, "arguments": dict(c.arguments), "problem": c.problem}
            for c in calls
        ),
        "pairs": tuple(pairs or [(NO_CALL, NO_CALL, True)]),
        "usage": result.usage,
    }


def _match(reasons: list[list[str]]) -> dict[int, int]:
    """As many expected calls as possible, each with a call of its own that fits it (augmenting paths)."""
    taken: dict[int, int] = {}

    def place(i: int, tried: set[int]) -> bool:
        for j, reason in enumerate(reasons[i]):
            if not reason and j not in tried:
                tried.add(j)
                if j not in taken or place(taken[j], tried):
                    taken[j] = i
                    return True
        return False

    for i in range(len(reasons)):
        place(i, set())
    return {i: j for j, i in taken.items()}


def _as_read(call: ToolCall, tool: Tool | None) -> ToolCall:
    """The call as its tool would take it; `problem` says why it would not."""
    try:
        return call if tool is None or call.problem else validate_call(call, tool)[1]
    except InvalidArguments as error:
        return replace(call, problem=str(error))


def _mismatch(
    expected: Expected, call: ToolCall, tool: Tool | None, exact: bool
) -> str:
    """Why a call is not the one expected, or nothing."""
    if tool is None or call.name not in expected.names:
        return f"{_shown(call)} was called instead of {expected}."
    if call.problem:
        return f"The arguments of {call.name} did not fit it: {call.problem}."
    wrong = [
        _wrong_argument(name, wanted, call, tool)
        for name, wanted in expected.arguments.items()
    ]
    for name in call.arguments if exact else ():
        if name not in expected.arguments:
            default = _default(name, tool)
            wrong.append(
                _wrong_argument(
                    name,
                    optional(_LEFT_OUT if default is MISSING else default),
                    call,
                    tool,
                )
            )
    return f"{call.name}: {', '.join(filter(None, wrong))}." if any(wrong) else ""


def _wrong_argument(name: str, wanted: Any, call: ToolCall, tool: Tool) -> str:
    value = call.arguments.get(name, _default(name, tool))
    may_miss = may_be_left_out(wanted)
    if value is MISSING or (may_miss and name not in call.arguments):
        return "" if may_miss else f"{name} was left out, not {wanted!r}"

    def read(value: Any) -> Any:
        """What the tool gets where the argument is this value."""
        with contextlib.suppress(
            InvalidArguments, ValueError
        ):  # what the tool refuses, and what JSON cannot write
            return _values({**call.arguments, name: value}, tool).get(name, value)
        return value

    return (
        ""
        if fits(wanted, read(value), read)
        else f"{name} was {value!r}, not {wanted!r}"
    )


def _default(name: str, tool: Tool) -> Any:
    entry = tool.parameters["properties"].get(name)
    return entry.get("default", MISSING) if isinstance(entry, Mapping) else MISSING


def _values(arguments: Mapping[str, Any], tool: Tool) -> dict[str, Any]:
    values = validate_call(ToolCall("", tool.name, arguments), tool)[0]
    names = {
        parameter.name: parameter.wire_name for parameter in tool.signature.parameters
    }
    return {names.get(name, name): value for name, value in values.items()}


def _shown(call: ToolCall) -> str:
    return str(Expected(call.name, call.arguments))


def check_expected(case: Case, tools: ToolRegistry) -> None:
    """Raise ValueError where a case expects what its tools do not have or would refuse."""
    defined = {tool["name"] for tool in case.tools or () if isinstance(tool, Mapping)}
    named = [(name, one.arguments) for one in case.expected for name in one.names]
    for name, arguments in (*named, *((name, {}) for name in case.results)):
        if name not in tools:
            known = [tool.name for tool in tools]
            there = difflib.get_close_matches(name, known, 3) or known[:10]
            raise ValueError(
                f"Case {case.id!r} names {name!r}, which is none of its tools. There are {there}."
            )
        if (
            name not in defined
        ):  # definitions come from elsewhere, with their errors, and cannot be mended here
            _check_arguments(case.id, tools[name], arguments)


def _check_arguments(case: str, tool: Tool, arguments: Mapping[str, Any]) -> None:
    for argument, wanted in arguments.items():
        known = argument in tool.parameters["properties"] or tool.parameters.get(
            "additionalProperties"
        )
        if not known and not may_be_left_out(wanted):
            listed = ", ".join(tool.parameters["properties"]) or "none"
            raise ValueError(
                f"Case {case!r}: {tool.name!r} has no parameter {argument!r}. It has {listed}."
            )
        try:
            _values({} if isinstance(wanted, Matcher) else {argument: wanted}, tool)
        except InvalidArguments as error:
            if wrong := [
                e["msg"]
                for e in error.errors
                if e["loc"][:1] == (argument,) and e["type"] != "missing"
            ]:
                told = f"Case {case!r}: {tool.name!r} would refuse {argument}={wanted!r}: {wrong[0]}."
                raise ValueError(told) from error
