"""A tool with which the model finds further tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from toolkit.messages import Message, Permission
from toolkit.retrieval.ranking import index_of
from toolkit.tools.parameter import ToolParameter
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.tool import Tool


def find_tools(tools: ToolsGiven, k: int = 5) -> Tool:
    """Make a tool with which the model looks for others: a query in, the `k` that fit best out, with their parameters.

    `tools` are those of the run; pass this one to the run, too. What it found is shown in the turns after. A registry
    is read again at each call. Raises ValueError if `k` is not a whole number from 1.
    """
    return FindTools(tools, k)


class FindTools(Tool):
    """See `find_tools`."""

    name = "find_tools"
    description = (
        "Find more tools. Use when none of those in view fits what is to be done next."
    )
    permission: Permission = "read"

    def __init__(self, tools: ToolsGiven, k: int = 5) -> None:
        self._tools = registry_of(tools)
        self._k = checked_count(k)

    def get_parameters(self) -> list[ToolParameter]:
        return [
            ToolParameter("query", "string", "What the tool should do, in a few words.")
        ]

    def run(self, parameters: dict[str, Any]) -> Any:
        tools = [tool for tool in self._tools if not isinstance(tool, FindTools)]
        ranked = index_of(tools).rank(parameters["query"])[: self._k]
        found = [
            {
                "name": tool.wire_name,
                "description": tool.description,
                "parameters": tool.parameters,
            }
            for tool, _ in ranked
        ]
        return found or "No tool fits this. Say it in other words, or do without."


def checked_count(k: Any) -> int:
    """`k`, if it is a number of tools. Raises ValueError if it is not."""
    if type(k) is not int or k < 1:
        raise ValueError(f"k must be a number of tools, 1 or more, not {k!r}.")
    return k


def found_names(messages: Sequence[Message], searches: Collection[str]) -> set[str]:
    """The wire names of the tools that the calls with these ids found."""
    results = [
        result.content
        for message in messages
        for result in message.tool_results
        if result.call_id in searches
    ]
    return {name for content in results for name in _FOUND.findall(content)}


# In the text, not in its JSON: a long one was cut.
_FOUND = re.compile(r'\{"name":"([a-zA-Z0-9_-]{1,64})","description":')
