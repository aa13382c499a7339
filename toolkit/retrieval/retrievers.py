"""Retrievers: which tools fit a conversation best, by words alone, or by words and embeddings."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from toolkit.messages import Message
from toolkit.retrieval.conversation import WeightedText, weighted_texts
from toolkit.retrieval.embedding import Embed, ToolVectors
from toolkit.retrieval.finding import FindTools, checked_count, found_names
from toolkit.retrieval.ranking import index_of
from toolkit.tools.request import Retriever
from toolkit.tools.tool import Tool, as_tool

ToolOrName = Callable[..., Any] | Tool | str
"""A tool: itself, its function, or its name."""

_RANK_CONSTANT = 10
"""What lessens the lead of the first ranks. 60, as in the paper on RRF (Cormack 2009), is for longer lists."""

_BEHIND = 0.9
"""What was said around the last request scores at most this share of what fits the request best."""


def best(
    k: int = 12, *, always: Iterable[ToolOrName] | str = (), threshold: float = 0.0
) -> Retriever:
    """Make a retriever that shows the `k` tools that fit the conversation best by their words (BM25).

    The last request counts most, what was said lately some. `always` are tools that are shown beside these: themselves,
    their functions or their names. `threshold` is the least BM25 score to be shown; at 0 a word in common is enough.
    If nothing fits, no others are shown. A tool made by `find_tools`, and what it found, is always shown.
    The tools keep their order. Raises ValueError if `k` is not a whole number from 1, and at its first use if `always`
    names a tool that the run does not have.
    """

    def choose(texts: Sequence[WeightedText], tools: Sequence[Tool]) -> list[str]:
        return _ranked_by_words(texts, tools, threshold)

    return _retriever(choose, k, always)


def hybrid(
    embed: Embed,
    k: int = 12,
    *,
    always: Iterable[ToolOrName] | str = (),
    threshold: float = 0.0,
    similarity: float = 0.2,
) -> Retriever:
    """Make a retriever as `best` does, which ranks by words and by embeddings and fuses the ranks (RRF).

    `embed` takes texts and returns a vector for each: `embeddings(model=…)`, or a function of your own. The tools' own
    are requested once and kept by their text. `similarity` is the least cosine of a tool that no word speaks for; what
    means something depends on the model. If `embed` fails, a warning is logged, and words alone choose for a minute.
    """
    vectors = ToolVectors(embed)

    def choose(texts: Sequence[WeightedText], tools: Sequence[Tool]) -> list[str]:
        rankings = (
            _ranked_by_words(texts, tools, threshold),
            vectors.nearest(texts, tools, similarity),
        )
        scores: dict[str, float] = {}
        for names in rankings:
            for place, name in enumerate(names):
                scores[name] = scores.get(name, 0.0) + 1 / (_RANK_CONSTANT + place)
        return sorted(scores, key=scores.__getitem__, reverse=True)

    return _retriever(choose, k, always)


def _retriever(
    choose: Callable[[Sequence[WeightedText], Sequence[Tool]], list[str]],
    k: int,
    always: Iterable[ToolOrName] | str,
) -> Retriever:
    """A retriever that shows the first `k` names that `choose` returns, and what is always shown."""
    k = checked_count(k)
    pinned = _names_of(always)

    def retrieve(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Tool]:
        unknown = pinned - {tool.name for tool in tools} if pinned else None
        if unknown:
            raise ValueError(
                f"always= names {sorted(unknown)}, which the run does not have. Pass these to the run, too."
            )
        finders = {tool.name for tool in tools if isinstance(tool, FindTools)}
        shown = pinned | finders
        others = [tool for tool in tools if tool.name not in shown] if shown else tools
        searches = _calls_of(finders, messages)
        texts = weighted_texts(messages, searches)
        shown.update(choose(texts, others)[:k])
        found = found_names(messages, searches)
        return [tool for tool in tools if tool.name in shown or tool.wire_name in found]

    return retrieve


def _names_of(always: Iterable[ToolOrName] | str) -> set[str]:
    is_one = isinstance(always, (str, Tool)) or callable(always)
    things: Iterable[Any] = [always] if is_one else always
    return {
        thing if isinstance(thing, str) else as_tool(thing).name for thing in things
    }


def _calls_of(names: Collection[str], messages: Sequence[Message]) -> set[str]:
    """The ids of the calls of these tools."""
    return {
        call.id
        for message in messages
        for call in message.tool_calls
        if call.name in names
    }


def _ranked_by_words(
    texts: Sequence[WeightedText], tools: Sequence[Tool], threshold: float
) -> list[str]:
    """The names, best first. What was said around the last request comes after what fits that best."""
    index = index_of(tools)
    (request, _), *around = texts
    weights: dict[str, float] = {}
    # The heaviest last: a word counts as in the text where it counts most.
    for text, weight in sorted(around, key=operator.itemgetter(1)):
        weights.update(dict.fromkeys(index.terms(text), weight))
    fit, related = (
        [ranked for ranked in index.rank(query) if ranked[1] >= threshold]
        for query in (request, weights)
    )
    if not related:
        return [tool.name for tool, _ in fit]
    scale = min(1.0, _BEHIND * fit[0][1] / related[0][1]) if fit else 1.0
    scores = {tool.name: score * scale for tool, score in related}
    for tool, score in fit:
        scores[tool.name] = max(score, scores.get(tool.name, 0.0))
    return sorted(scores, key=scores.__getitem__, reverse=True)
