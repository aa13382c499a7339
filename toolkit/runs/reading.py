"""The conversation that a run continues, made complete: unique ids, and every call answered once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.dialects.chat import read_message
from toolkit.messages import (
    Message,
    ToolCall,
    ToolResult,
    whole_characters,
    with_own_id,
)
from toolkit.runs.results import RunResult
from toolkit.runs.state import Run

Conversation = RunResult[Any] | Run | Sequence[Message | Mapping[str, Any]] | None


def read_conversation(history: Conversation) -> list[Message]:
    """The messages of a result, of a run, or of a list of Messages, Chat Completions dicts and SDK objects.

    Nothing in `history` is changed. A call without a result is answered as not run. Raises
    ValueError for something that is not a message, naming its position, and for a result without
    its call.
    """
    if history is None:
        return []
    source: Any = history
    if isinstance(history, RunResult | Run):
        source = history.messages
    is_single = isinstance(source, str | bytes | Mapping)
    if is_single or not isinstance(source, Iterable):
        raise TypeError(
            "history must be a RunResult or a list of messages, "
            f"not {type(history).__name__}."
        )
    messages: list[Message] = []
    used_ids: set[str] = set()
    batch = _OpenBatch()
    for position, entry in enumerate(source):
        message = _message(entry, position)
        if message.role == "tool":
            for result in message.tool_results:
                if not batch.answer(result):
                    raise ValueError(
                        f"history[{position}] answers {result.call_id!r}, "
                        "but no call of that id is open there."
                    )
            continue
        messages += batch.closed()
        batch = _OpenBatch()
        for call in message.tool_calls:
            own = with_own_id(call, used_ids, f"history:{len(used_ids)}")
            batch.calls.append((call.id, own))
        calls = tuple(call for _, call in batch.calls)
        if calls != message.tool_calls:
            message = replace(message, tool_calls=calls)
        messages.append(message)
    return [*messages, *batch.closed()]


class _OpenBatch:
    """The calls of the last reply, each beside the id it had in the history, and their results."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ToolCall]] = []
        self.results: dict[str, ToolResult] = {}

    def answer(self, result: ToolResult) -> bool:
        """Give the result to the first open call of its id. Returns False if there is none."""
        for original_id, call in self.calls:
            if original_id == result.call_id and call.id not in self.results:
                self.results[call.id] = replace(result, call_id=call.id)
                return True
        return False

    def closed(self) -> list[Message]:
        """The results in one message, in the order of the calls. A call without one is answered as not run."""
        if not self.calls:
            return []
        why = "Not run: the conversation went on without it."
        results = tuple(
            self.results.get(call.id)
            or ToolResult(call.id, why, is_error=True, reason="not_run")
            for _, call in self.calls
        )
        return [Message("tool", tool_results=results)]


def _message(entry: Any, position: int) -> Message:
    if isinstance(entry, Message):
        if entry.text.isascii():
            return entry
        return replace(entry, text=whole_characters(entry.text))
    # A message object of an SDK, such as openai's ChatCompletionMessage.
    if hasattr(entry, "model_dump"):
        entry = entry.model_dump(exclude_none=True)
    try:
        return read_message(whole_characters(entry))
    except ValueError as error:
        raise ValueError(f"history[{position}] is not a message: {error}") from error
