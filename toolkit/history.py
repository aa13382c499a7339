"""A conversation to go on from, made whole: ids unique, every call answered once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.dialects.chat import read_message
from toolkit.loop import Run
from toolkit.messages import Message, ToolCall, ToolResult, new_call_id, whole_characters
from toolkit.results import RunResult

Conversation = RunResult | Run | Sequence[Message | Mapping[str, Any]] | None


def read_conversation(history: Conversation) -> list[Message]:
    """The messages of a result, a run, or a list of Messages and Chat Completions dicts; what is given stays as it is.

    A call without a result is answered as not run. Raises ValueError for what is no message, naming its place, and for
    a result without its call.
    """
    if history is None:
        return []
    given: Any = history.messages if isinstance(history, (RunResult, Run)) else history
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"history is a RunResult or a list of messages, not {type(history).__name__}.")
    whole: list[Message] = []
    used: set[str] = set()
    waiting: list[tuple[str, ToolCall]] = []  # calls without a result, with the ids that they came with
    for position, one in enumerate(given):
        message = _message(one, position)
        if message.role == "tool":
            whole += _results(message, waiting, position)
            continue
        _settle(whole, waiting)
        waiting = [(call.id, _unique(call, used)) for call in message.tool_calls]
        calls = tuple(call for _, call in waiting)
        whole.append(message if calls == message.tool_calls else replace(message, tool_calls=calls))
    _settle(whole, waiting)
    return whole


def _message(one: Any, position: int) -> Message:
    if isinstance(one, Message):
        return one if one.text.isascii() else replace(one, text=whole_characters(one.text))
    try:
        return read_message(whole_characters(one))
    except ValueError as error:
        raise ValueError(f"history[{position}] is no message: {error}") from error


def _unique(call: ToolCall, used: set[str]) -> ToolCall:
    made = call.id if call.id and call.id not in used else new_call_id(f"history:{len(used)}", used)
    used.add(made)
    return call if made == call.id else replace(call, id=made)


def _results(message: Message, waiting: list[tuple[str, ToolCall]], position: int) -> list[Message]:
    """One tool message for each result, under the id that its call has now."""
    found = []
    for result in message.tool_results:
        match = next((pair for pair in waiting if pair[0] == result.call_id), None)
        if match is None:
            raise ValueError(f"history[{position}] answers {result.call_id!r}, but no call of that id is open there.")
        waiting.remove(match)
        found.append(Message("tool", tool_results=(replace(result, call_id=match[1].id),)))
    return found


def _settle(whole: list[Message], waiting: list[tuple[str, ToolCall]]) -> None:
    """Put the results of one batch into one message, in the order of its calls; answer what is still open."""
    results = {}
    while whole and whole[-1].role == "tool":
        results.update({result.call_id: result for result in whole.pop().tool_results})
    for _, call in waiting:
        why = "Not run: the conversation went on without it."
        results[call.id] = ToolResult(call.id, why, is_error=True, reason="not_run")
    if results:
        whole.append(Message("tool", tool_results=tuple(results[call.id] for call in whole[-1].tool_calls)))
    waiting.clear()
