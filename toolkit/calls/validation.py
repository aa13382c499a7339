"""Validates a call once: the values that its tool would get, and what approvers and journals see of them."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.calls.mending import mend
from toolkit.messages import PendingCall, ToolCall, Verdict, copied
from toolkit.tools.schema import InvalidArguments
from toolkit.tools.tool import Tool, Toolset

_log = logging.getLogger("toolkit")
_MENDING_ROUNDS = 3  # for JSON text inside of JSON text


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call with the outcome of its validation.

    If the call is valid, `values` are for the tool, and `arguments` are the same values in JSON
    form: by the tool's own parameter names, defaults included. `repairs` names what was mended, and
    `hidden` the parameters whose value has no JSON form. Otherwise `errors` say why the arguments do
    not fit, and `tool` is None if there is no such tool.
    """

    call: ToolCall
    tool: Tool | None
    values: Any = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    errors: Sequence[Mapping[str, Any]] = ()

    @property
    def differences(self) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
        """The validated arguments and the repairs, where they differ from those of the call; else None and ()."""
        call = self.call
        if self.arguments is call.arguments:
            return None, ()
        from pydantic_core import to_json

        is_same = self.arguments == call.arguments
        # As text, because 1 == 1.0 == True in Python.
        if is_same and to_json(self.arguments) != to_json(call.arguments):
            is_same = False
        repairs = () if self.repairs == call.repairs else self.repairs
        return None if is_same else self.arguments, repairs

    def pending(self, verdict: Verdict | None = None) -> PendingCall:
        """The call as approvers and journals see it. Changing its arguments changes nothing else."""
        call, tool = self.call, self.tool
        if tool is None:
            return PendingCall(call.id, call.name, raw=call.raw, problem=call.problem)
        is_valid = self.values is not None
        return PendingCall(
            id=call.id,
            name=call.name,
            arguments=copied(self.arguments if is_valid else call.arguments),
            raw=call.raw,
            repairs=self.repairs if is_valid else call.repairs,
            problem=call.problem,
            permission=tool.permission,
            tags=tuple(tool.tags),
            description=tool.description,
            verdict=verdict,
        )


def check_call(call: ToolCall, tools: Toolset) -> CheckedCall:
    """Validate a call against its tool. Never raises for what a model sent."""
    tool = tools.get(call.name)
    if tool is None:
        return CheckedCall(call, None)
    try:
        values, mended = validate_call(call, tool)
    except InvalidArguments as error:
        return CheckedCall(call, tool, errors=error.errors)
    arguments, hidden = tool.signature.json_arguments(values)
    return CheckedCall(call, tool, values, arguments, mended.repairs, tuple(hidden))


def validate_call(call: ToolCall, tool: Tool) -> tuple[dict[str, Any], ToolCall]:
    """Return the values for the tool, and the call with its arguments as they were mended.

    Raises InvalidArguments with the errors before any mending.
    """
    if call.problem:
        raise InvalidArguments(
            [{"type": "unreadable", "loc": (), "msg": call.problem, "input": None}]
        )
    arguments, repairs = dict(call.arguments), call.repairs
    if tool.signature.decimals and not repairs:
        arguments |= _as_sent(call.raw, tool.signature.decimals)
    first_error: InvalidArguments | None = None
    for _ in range(_MENDING_ROUNDS + 1):
        try:
            values, unlisted = tool.signature.validate(arguments)
        except InvalidArguments as error:
            first_error = first_error or error
            optional = tool.signature.optional
            mended = mend(arguments, error.errors, optional, tool.parameters)
            if mended is None:
                break
            arguments, repairs = mended[0], (*repairs, *mended[1])
            continue
        if unlisted:
            repairs = (*repairs, *(f"unlisted_key:{key}" for key in unlisted))
            _log.warning(
                "call %s of %r has keys that its models do not list: %s",
                call.id,
                call.name,
                unlisted,
            )
        if repairs == call.repairs:
            return values, call
        return values, replace(call, arguments=arguments, repairs=repairs)
    raise first_error or InvalidArguments([])


def _as_sent(raw: Any, names: Collection[str]) -> dict[str, Any]:
    """The named arguments with their decimal numbers as texts, so that they keep all digits."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        exact = json.loads(raw, parse_float=str)
        return {name: exact[name] for name in names if name in exact}
    return {}
