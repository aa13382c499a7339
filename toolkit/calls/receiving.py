"""The calls of a reply, understood: their tools by name, ids that are unique, arguments as objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from toolkit.calls import parsing
from toolkit.messages import Limits, Reply, ToolCall, as_json, with_own_id
from toolkit.tools.tool import Toolset

_LIMITS = Limits()


def receive(
    reply: Reply,
    tools: Toolset,
    *,
    used_ids: set[str],
    seed: str,
    limits: Limits = _LIMITS,
) -> Reply:
    """Return the reply with its calls as they were understood.

    A call whose id is missing or in `used_ids` gets a new one, made from `seed`, so that a replay
    makes the same. The ids are added to `used_ids`. Arguments that cannot be read leave a `problem`
    on their call.
    """
    if not reply.message.tool_calls:
        return reply
    calls: list[ToolCall] = []
    last = reply.message.tool_calls[-1]
    for call in reply.message.tool_calls:
        is_cut_off = reply.finish == "length" and call is last
        for single in _single_calls(call, tools, limits.argument_chars, is_cut_off):
            calls.append(with_own_id(single, used_ids, f"{seed}:{len(calls)}"))
    return replace(reply, message=replace(reply.message, tool_calls=tuple(calls)))


def _single_calls(
    call: ToolCall, tools: Toolset, max_chars: int, is_cut_off: bool
) -> Iterator[ToolCall]:
    """The call with its arguments read, or the calls inside of a wrapper such as `multi_tool_use.parallel`."""
    parsed = _parse(call.raw, max_chars, is_cut_off)
    name = _tool_name(call.name, tools)
    if name not in tools and name.rpartition(".")[2] == "parallel":
        inner_calls = parsing.expand_parallel(parsed.arguments) or []
        for position, (inner_name, inner_raw) in enumerate(inner_calls):
            raw = inner_raw if isinstance(inner_raw, str) else as_json(inner_raw)
            call_id = call.id if position == 0 else ""
            inner = ToolCall(call_id, inner_name, raw=raw, repairs=("parallel",))
            yield from _single_calls(inner, tools, max_chars, is_cut_off)
        if inner_calls:
            return
    tool = tools.get(name)
    if tool is not None:
        is_plain = parsing.PLAIN_TEXT in call.repairs and len(call.raw) <= max_chars
        if is_plain and not is_cut_off:
            parsed = parsing.read_plain(call.raw, tool.parameters)
        parsed = parsing.unwrap(parsed, name, tool.parameters)
    repairs = (*call.repairs, *parsed.repairs)
    yield ToolCall(call.id, name, parsed.arguments, call.raw, repairs, parsed.problem)


def _tool_name(name: str, tools: Toolset) -> str:
    """The name of the tool that is meant, or the name as it was sent."""
    known = tools.names.get(name)
    if known is None:
        resolved = parsing.resolve_name(name, tools.names) or ""
        known = tools.names.get(resolved, name)
    return known


def _parse(raw: Any, max_chars: int, is_cut_off: bool) -> parsing.Parsed:
    length = 0
    if isinstance(raw, (str, bytes)):
        length = len(raw)
    elif isinstance(raw, dict):
        length = len(str(raw))
    if length > max_chars:
        problem = (
            f"The arguments are {length:,} characters long. Send {max_chars:,} at most."
        )
        return parsing.Parsed({}, problem=problem)
    return parsing.parse(raw, truncated=is_cut_off)
