"""How often the right tools are shown, measured on requests of your own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from toolkit.messages import Message
from toolkit.retrieval.retrievers import best
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.request import Retriever


class Recall(NamedTuple):
    """How many of the tools that cases need were shown.

    `rate`, 0 to 1, is the mean over the cases. `missed` are the names of tools that were not shown, by request.
    """

    rate: float
    missed: dict[str, list[str]]


def recall_at(
    cases: Iterable[tuple[str, Collection[str]]],
    retrieve: int | Retriever,
    tools: ToolsGiven,
) -> Recall:
    """Measure on your own requests whether the right tools are shown.

    A case is a request and the names of the tools that it needs (or the only name). `retrieve` is the argument of a
    run: K, or a retriever. Raises ValueError if there are no cases, or one names no tool or an unknown one.
    """
    retriever = best(retrieve) if isinstance(retrieve, int) else retrieve
    all_tools = list(registry_of(tools))
    known = {tool.name for tool in all_tools}
    shares: list[float] = []
    missed: dict[str, list[str]] = {}
    for request, needed in cases:
        names = {needed} if isinstance(needed, str) else set(needed)
        if not names or not names <= known:
            raise ValueError(
                f"The case {request!r} needs {sorted(names)}. Name at least one, and only tools in tools=."
            )
        shown = retriever([Message("user", request)], all_tools)
        absent = names - {tool.name for tool in shown}
        if absent:
            missed[request] = sorted(absent)
        shares.append(1 - len(absent) / len(names))
    if not shares:
        raise ValueError(
            "There are no cases. Pass requests with the names of the tools that they need."
        )
    return Recall(sum(shares) / len(shares), missed)
