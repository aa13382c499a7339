"""Judges the calls of a run by those that its case expects.

Calls are judged as a run would read them: what the tool's own validation makes of the arguments is compared with what
it makes of those expected, never text with text. An argument that was left out counts as its default, and stays left
out where that is asked for. Every call of the model counts, once.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from toolkit.calls.validation import validate_call
from toolkit.evals.cases import NO_CALL, Arguments, Case, Expected, Label, Outcome
from toolkit.evals.matchers import Matcher, fits, is_optional, optional
from toolkit.messages import ToolCall
from toolkit.runs.results import RunResult
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.schema import MISSING, InvalidArguments
from toolkit.tools.tool import Tool

_GRAVEST_FIRST: tuple[Label, ...] = (
    "wrong_tool",
    "wrong_arguments",
    "missing_call",
    "unwanted_call",
    "right",
)
_EXPLANATION_CHARS = 2_000  # a model may send anything


class _Pair(NamedTuple):
    """An expected call beside the one that was made; NO_CALL if either is missing."""

    label: Label
    expected: str
    called: str
    reason: str = ""


def judge(case: Case, result: RunResult, tools: ToolRegistry) -> Outcome:
    """Compare the calls of a run with those that its case expects."""
    messages = result.messages[result.run.history :]
    calls = [
        _mended(call, tools.get(call.name))
        for message in messages
        for call in message.tool_calls
    ]
    reasons = [
        [_mismatch(call, tools.get(call.name), wanted, case.exact) for call in calls]
        for wanted in case.expected
    ]
    last_words = f"the run ended with {result.stop_reason!r}"
    if result.text:
        last_words = f"the model said {result.text[:200]!r}"
    pairs = list(_pairs(case.expected, calls, reasons, last_words))
    label = min((pair.label for pair in pairs), key=_GRAVEST_FIRST.index)
    explanation = " ".join(pair.reason for pair in pairs if pair.reason)
    # All are right, so that there are as many calls as expected.
    in_place = (reasons[n][n] == "" for n in range(len(calls)))
    if label == "right" and case.in_order and not all(in_place):
        label = "wrong_tool"
        order = ", ".join(map(_call_text, calls))
        explanation = f"The calls came in another order: {order}."
    return Outcome(
        case.id,
        label,
        explanation[:_EXPLANATION_CHARS],
        calls=tuple(
            {"tool": c.name, "arguments": dict(c.arguments), "problem": c.problem}
            for c in calls
        ),
        pairs=tuple((p.expected, p.called, p.label == "right") for p in pairs),
        usage=result.usage,
    )


def _pairs(
    expected: Sequence[Expected],
    calls: Sequence[ToolCall],
    reasons: list[list[str]],
    last_words: str,
) -> Iterator[_Pair]:
    """Give each expected call one of the calls: the one that fits, else one of the same tool, else any."""
    assignment = _assignment(reasons)
    missing = [wanted for wanted in range(len(expected)) if wanted not in assignment]
    extra = [made for made in range(len(calls)) if made not in assignment.values()]
    names = [each.name for each in expected]
    if not expected and not calls:
        yield _Pair("right", NO_CALL, NO_CALL)
    for wanted in sorted(assignment):
        yield _Pair("right", names[wanted], names[wanted])
    candidates = sorted(
        (calls[made].name not in expected[wanted].names, wanted, made)
        for wanted in missing
        for made in extra
    )
    for is_other_tool, wanted, made in candidates:
        if wanted in missing and made in extra:
            missing.remove(wanted)
            extra.remove(made)
            reason = reasons[wanted][made]
            if is_other_tool:
                yield _Pair("wrong_tool", names[wanted], calls[made].name, reason)
            else:
                yield _Pair("wrong_arguments", names[wanted], names[wanted], reason)
    for wanted in missing:
        reason = f"{expected[wanted]} was not called; {last_words}."
        yield _Pair("missing_call", names[wanted], NO_CALL, reason)
    further = "further " if expected else ""
    for made in extra:
        text = _call_text(calls[made])
        reason = f"{text} was called, but no {further}call was expected."
        yield _Pair("unwanted_call", NO_CALL, calls[made].name, reason)


def _assignment(reasons: list[list[str]]) -> dict[int, int]:
    """As many expected calls as possible, each with a call of its own that fits it (augmenting paths)."""
    owners: dict[int, int] = {}

    def place(wanted: int, tried: set[int]) -> bool:
        for made, reason in enumerate(reasons[wanted]):
            if not reason and made not in tried:
                tried.add(made)
                if made not in owners or place(owners[made], tried):
                    owners[made] = wanted
                    return True
        return False

    for wanted in range(len(reasons)):
        place(wanted, set())
    return {wanted: made for made, wanted in owners.items()}


def _call_text(call: ToolCall) -> str:
    return str(Expected(call.name, call.arguments))


# One call


def _mismatch(
    call: ToolCall, tool: Tool | None, expected: Expected, exact: bool
) -> str:
    """Why a call is not the one expected; "" if it is."""
    if tool is None or call.name not in expected.names:
        return f"{_call_text(call)} was called instead of {expected}."
    if call.problem:
        return f"The arguments of {call.name} did not fit it: {call.problem}."
    wanted = dict(expected.arguments)
    if exact:
        for name in call.arguments:
            default = _default(name, tool)
            free = optional() if default is MISSING else optional(default)
            wanted.setdefault(name, free)
    reasons = [
        _wrong_argument(name, value, call, tool) for name, value in wanted.items()
    ]
    reasons = list(filter(None, reasons))
    return f"{call.name}: {', '.join(reasons)}." if reasons else ""


def _wrong_argument(name: str, wanted: Any, call: ToolCall, tool: Tool) -> str:
    """Why an argument is not the wanted one; "" if it is."""
    default = _default(name, tool)
    if name not in call.arguments:
        if is_optional(wanted):
            return ""
        if default is MISSING:
            return f"{name} was left out, not {wanted!r}"
    value = call.arguments.get(name, default)
    convert = functools.partial(_tool_value, name, call, tool)
    if fits(wanted, convert(value), convert):
        return ""
    return f"{name} was {value!r}, not {wanted!r}"


def _default(name: str, tool: Tool) -> Any:
    entry = tool.parameters["properties"].get(name)
    return entry.get("default", MISSING) if isinstance(entry, Mapping) else MISSING


def _tool_value(name: str, call: ToolCall, tool: Tool, value: Any) -> Any:
    """The value that the tool gets if the argument is `value`; `value` itself if the tool would refuse it."""
    try:
        return _tool_values({**call.arguments, name: value}, tool).get(name, value)
    except (InvalidArguments, ValueError):  # ValueError: JSON cannot express it
        return value


def _tool_values(arguments: Arguments, tool: Tool) -> dict[str, Any]:
    """The values that the tool gets, by the names that models see. Raises InvalidArguments."""
    values, _ = validate_call(ToolCall("", tool.name, arguments), tool)
    names = {each.name: each.wire_name for each in tool.signature.parameters}
    return {names.get(name, name): value for name, value in values.items()}


def _mended(call: ToolCall, tool: Tool | None) -> ToolCall:
    """The call as its tool would accept it; `problem` says why it would not."""
    if tool is None or call.problem:
        return call
    try:
        _, mended = validate_call(call, tool)
    except InvalidArguments as error:
        return replace(call, problem=str(error))
    return mended


# What a case may expect


def check_expected(case: Case, tools: ToolRegistry) -> None:
    """Raise ValueError if a case expects what its tools do not have or would refuse."""
    calls = [(name, each.arguments) for each in case.expected for name in each.names]
    calls += [(name, {}) for name in case.results]
    # Definitions come from elsewhere, with their errors, and cannot be corrected here.
    foreign = {tool["name"] for tool in case.tools or () if isinstance(tool, Mapping)}
    for name, arguments in calls:
        if name not in tools:
            known = [tool.name for tool in tools]
            names = difflib.get_close_matches(name, known, 3) or known[:10]
            raise ValueError(
                f"Case {case.id!r} names {name!r}, which is none of its tools. There are {names}."
            )
        if name not in foreign:
            for argument, wanted in arguments.items():
                _check_argument(case.id, tools[name], argument, wanted)


def _check_argument(case_id: str, tool: Tool, name: str, wanted: Any) -> None:
    properties = tool.parameters["properties"]
    is_known = name in properties or tool.parameters.get("additionalProperties")
    if not is_known and not is_optional(wanted):
        names = ", ".join(properties) or "none"
        raise ValueError(
            f"Case {case_id!r}: {tool.name!r} has no parameter {name!r}. It has {names}."
        )
    if isinstance(wanted, Matcher):
        return
    try:
        _tool_values({name: wanted}, tool)
    except InvalidArguments as error:
        for each in error.errors:
            # The other parameters are missing here, and a part of the value may be.
            if each["loc"][:1] == (name,) and each["type"] != "missing":
                raise ValueError(
                    f"Case {case_id!r}: {tool.name!r} would refuse {name}={wanted!r}: {each['msg']}."
                ) from error
