"""What a reply asks for, made out: the names, ids and arguments of its calls."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from toolkit.calls import parsing
from toolkit.messages import (
    SENSITIVE,
    Permission,
    Reply,
    ToolCall,
    as_json,
    with_own_id,
)
from toolkit.runs.loop import Run
from toolkit.tools.schema import InvalidArguments
from toolkit.tools.tool import Tool, Toolset

_log = logging.getLogger("toolkit")
_MENDING_ROUNDS = 3


def receive(
    reply: Reply, run: Run, tools: Toolset, asked: frozenset[Permission] = SENSITIVE
) -> Reply:
    """Read the calls of a reply: names resolved, ids unique in the run, arguments out of their text and wrappers.

    `asked` are the tiers on which somebody decides: their calls are shown as they will run.
    """
    if not reply.message.tool_calls:
        return reply
    used = {call.id for message in run.messages for call in message.tool_calls}
    calls: list[ToolCall] = []
    most = run.limits.argument_chars
    for sent in reply.message.tool_calls:
        is_cut = reply.finish == "length" and sent is reply.message.tool_calls[-1]
        for call in _read(sent, tools, asked, most, truncated=is_cut):
            calls.append(with_own_id(call, used, f"{run.id}:{run.turns}:{len(calls)}"))
    return replace(reply, message=replace(reply.message, tool_calls=tuple(calls)))


def validate_call(call: ToolCall, tool: Tool) -> tuple[dict[str, Any], ToolCall]:
    """The values for the tool, and the call as it was understood. Raises InvalidArguments with the first errors."""
    if call.problem:
        raise InvalidArguments(
            [{"type": "unreadable", "loc": (), "msg": call.problem, "input": None}]
        )
    signature = tool.signature
    tried, repairs, first = dict(call.arguments), call.repairs, None
    for _ in range(_MENDING_ROUNDS + 1):
        try:
            values, unlisted = signature.validate(tried)
        except InvalidArguments as error:
            first = first or error
            mended = parsing.mend(
                tried, error.errors, signature.optional, tool.parameters
            )
            if mended is None:
                break
            tried, repairs = mended[0], (*repairs, *mended[1])
        else:
            if unlisted:
                repairs = (*repairs, *(f"unlisted_key:{key}" for key in unlisted))
                _log.warning(
                    "call %s of %r has keys that its models do not list: %s",
                    call.id,
                    call.name,
                    unlisted,
                )
            return values, call if repairs == call.repairs else replace(
                call, arguments=tried, repairs=repairs
            )
    raise first or InvalidArguments([])


def _read(
    sent: ToolCall,
    tools: Toolset,
    asked: frozenset[Permission],
    most: int,
    *,
    truncated: bool,
) -> Iterator[ToolCall]:
    parsed = _parse(sent.raw, most, truncated)
    name = tools.names.get(sent.name)
    if name is None:
        name = tools.names.get(
            parsing.resolve_name(sent.name, tools.names) or "", sent.name
        )
    is_parallel = name not in tools and name.rpartition(".")[2] == "parallel"
    if is_parallel and (inner := parsing.expand_parallel(parsed.arguments)):
        for position, (inner_name, inner_raw) in enumerate(inner):
            raw = inner_raw if isinstance(inner_raw, str) else as_json(inner_raw)
            call = ToolCall(
                sent.id if position == 0 else "",
                inner_name,
                raw=raw,
                repairs=("parallel",),
            )
            yield from _read(call, tools, asked, most, truncated=truncated)
        return
    tool = tools.get(name)
    if tool is not None:
        parsed = parsing.unwrap(parsed, name, tool.parameters)
    call = ToolCall(
        sent.id,
        name,
        parsed.arguments,
        sent.raw,
        (*sent.repairs, *parsed.repairs),
        parsed.problem,
    )
    if tool is not None and tool.permission in asked:
        with contextlib.suppress(InvalidArguments):
            call = validate_call(call, tool)[1]  # who approves sees what will run
    yield call


def _parse(raw: Any, most: int, truncated: bool) -> parsing.Parsed:
    size = (
        len(raw)
        if isinstance(raw, (str, bytes))
        else len(str(raw))
        if isinstance(raw, dict)
        else 0
    )
    if size > most:
        return parsing.Parsed(
            {},
            problem=f"The arguments are {size:,} characters long. Send {most:,} at most.",
        )
    return parsing.parse(raw, truncated=truncated)
