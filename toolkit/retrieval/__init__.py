"""Which of many tools a turn shows: the best by words and embeddings, and a tool with which the model finds more."""

from __future__ import annotations

import inspect
import logging
import math
import operator
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from toolkit.messages import Message, Permission
from toolkit.retrieval.ranking import Index, words
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.request import Retriever
from toolkit.tools.tool import Tool, ToolParameter, as_tool

_log = logging.getLogger("toolkit")

Embed = Callable[[list[str]], Sequence[Sequence[float]]]
"""Gives each text its embedding, in order."""

Given = Callable[..., Any] | Tool | str
"""A tool: itself, its function, or its name."""


def best(
    k: int = 12, *, always: Iterable[Given] | str = (), threshold: float = 0.0
) -> Retriever:
    """Make a retriever that shows the `k` tools that fit the conversation best by their words (BM25).

    The last request counts most, what was said lately some. `always` are tools that are shown beside these: themselves,
    their functions or their names. `threshold` is the least BM25 score to be shown; at 0 a word in common is enough.
    Where nothing fits, no tools are shown but those. A tool made by `find_tools`, and what it found, is always shown.
    The order is that of the tools given. Raises ValueError at its first use where `always` names none of the tools.
    """
    return _retriever(lambda said, tools: _by_words(said, tools, threshold), k, always)


def hybrid(
    embed: Embed,
    k: int = 12,
    *,
    always: Iterable[Given] | str = (),
    threshold: float = 0.0,
    similarity: float = 0.2,
) -> Retriever:
    """Make a retriever as `best` does, which ranks by words and by embeddings and fuses the ranks (RRF).

    `embed` takes texts and gives a vector for each: `embeddings(model=…)`, or a function of your own. The tools' own
    are asked for once and kept by their text. `similarity` is the least cosine of a tool that no word speaks for; what
    means something depends on the model. Where `embed` fails, a warning is logged, words alone decide, and it is left
    alone for a minute.
    """
    vectors = _Vectors(embed)

    def choose(said: Said, tools: Sequence[Tool]) -> list[str]:
        scores: dict[str, float] = {}
        for names in (
            _by_words(said, tools, threshold),
            vectors.nearest(said, tools, similarity),
        ):
            for place, name in enumerate(names):
                scores[name] = scores.get(name, 0.0) + 1 / (_RANK_CONSTANT + place)
        return sorted(scores, key=scores.__getitem__, reverse=True)

    return _retriever(choose, k, always)


def embeddings(
    model: str,
    *,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    batch: int = 64,
    timeout: float = 30.0,
    **fields: Any,
) -> Embed:
    """Make a function for `hybrid` that asks an OpenAI-compatible endpoint (`POST /embeddings`).

    `client` is a plain client of the openai SDK or alike; else one is made from `base_url` and `api_key` (default: the
    SDK's environment variables) with `timeout` in seconds. `batch` is how many texts go into one request. `fields` are
    sent along (`dimensions` …). The function raises what the client raises; `hybrid` goes on without it.
    """
    if client is None:
        from openai import OpenAI

        key = (
            api_key
            or os.environ.get("OPENAI_API_KEY")
            or ("none" if base_url else None)
        )
        client = OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=1)
    elif inspect.iscoroutinefunction(client.embeddings.create):
        raise TypeError(
            "client is an asynchronous client. Give the plain one: a retriever runs in a thread."
        )

    def embed(texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = []
        for start in range(0, len(texts), batch):
            part = texts[start : start + batch]
            # Not the SDK's default, base64, which some servers do not know.
            answer = client.embeddings.create(
                model=model, input=part, encoding_format="float", **fields
            )
            vectors += [
                each.embedding
                for each in sorted(answer.data, key=operator.attrgetter("index"))
            ]
        return vectors

    return embed


def find_tools(tools: ToolsGiven, k: int = 5) -> Tool:
    """Make a tool with which the model looks for others: a query in, the `k` that fit best out, with their parameters.

    `tools` are those of the run; give it to the run beside them. What it found is shown in the turns after. A registry
    is read anew at each call.
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
        self._tools, self._k = registry_of(tools), _checked(k)

    def get_parameters(self) -> list[ToolParameter]:
        return [
            ToolParameter("query", "string", "What the tool should do, in a few words.")
        ]

    def run(self, parameters: dict[str, Any]) -> Any:
        tools = [tool for tool in self._tools if not isinstance(tool, FindTools)]
        ranked = _index_of(tools).rank(parameters["query"])[: self._k]
        found = [
            {
                "name": t.wire_name,
                "description": t.description,
                "parameters": t.parameters,
            }
            for t, _ in ranked
        ]
        return found or "No tool fits this. Say it in other words, or do without."


class Recall(NamedTuple):
    """How many of the tools that cases need were shown: `rate`, 0 to 1, the mean over the cases; `missed`, what not."""

    rate: float
    missed: dict[str, list[str]]


def recall_at(
    cases: Iterable[tuple[str, Collection[str]]],
    retrieve: int | Retriever,
    tools: ToolsGiven,
) -> Recall:
    """Measure on your own requests whether the right tools are shown.

    A case is a request and the names of the tools that it needs (or the only name). `retrieve` is what a run would be
    given: K, or a retriever. Raises ValueError where there are no cases, or one names no tool or an unknown one.
    """
    retriever, given = (
        best(retrieve) if isinstance(retrieve, int) else retrieve,
        list(registry_of(tools)),
    )
    shares, missed = [], {}
    for request, needed in cases:
        names = {needed} if isinstance(needed, str) else {*needed}
        if not names or names - {tool.name for tool in given}:
            raise ValueError(
                f"The case {request!r} needs {sorted(names)}. Name at least one, and only tools given."
            )
        absent = names - {
            tool.name for tool in retriever([Message("user", request)], given)
        }
        missed.update({request: sorted(absent)} if absent else {})
        shares.append(1 - len(absent) / len(names))
    if not shares:
        raise ValueError(
            "There are no cases. Give requests with the names of the tools that they need."
        )
    return Recall(sum(shares) / len(shares), missed)


# What is said, and what is shown

Said = list[tuple[str, float]]
"""Texts with what each counts: the last request, then what was said around it."""

_REQUEST_WEIGHTS = (1.0, 0.5, 0.25)
"""What the user's messages count, the last one first: "and in Paris?" is about what was asked before."""

_STEP_WEIGHTS = (0.5, 0.3, 0.2)
"""What replies and results since the last request count, the last one first: they tell what is needed next."""

_CHARACTERS = (
    2000  # of a message; the rest of a long one would only blur what it asks for
)


def _retriever(
    choose: Callable[[Said, Sequence[Tool]], list[str]],
    k: int,
    always: Iterable[Given] | str,
) -> Retriever:
    k = _checked(k)
    wanted = [always] if isinstance(always, (str, Tool)) or callable(always) else always
    pinned = {
        thing if isinstance(thing, str) else as_tool(thing).name for thing in wanted
    }

    def retrieve(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Tool]:
        if pinned and (strangers := pinned - {tool.name for tool in tools}):
            raise ValueError(
                f"always= names {sorted(strangers)}, which the run was not given. Give it these, too."
            )
        finders = {tool.name for tool in tools if isinstance(tool, FindTools)}
        beside = pinned | finders
        others = (
            [tool for tool in tools if tool.name not in beside] if beside else tools
        )
        searches = {
            call.id
            for message in messages
            for call in message.tool_calls
            if call.name in finders
        }
        names = {*beside, *choose(_said(messages, searches), others)[:k]}
        if found := _found(messages, searches):
            names.update(tool.name for tool in tools if tool.wire_name in found)
        return [tool for tool in tools if tool.name in names]

    return retrieve


def _checked(k: Any) -> int:
    if type(k) is not int or k < 1:
        raise ValueError(
            f"k={k!r} is no number of tools. Give a whole number, 1 or more."
        )
    return k


def _said(messages: Sequence[Message], searches: Collection[str]) -> Said:
    """What the choice goes by; what a search found does not count, since it is shown anyway."""
    requests = [
        place for place, message in enumerate(messages) if message.role == "user"
    ][::-1]
    steps = range(len(messages) - 1, requests[0] if requests else -1, -1)
    said: Said = [] if requests else [("", 1.0)]
    for weights, places in ((_REQUEST_WEIGHTS, requests), (_STEP_WEIGHTS, steps)):
        for weight, message in zip(
            weights, map(messages.__getitem__, places), strict=False
        ):
            results = (
                result.content
                for result in message.tool_results
                if result.call_id not in searches
            )
            text = " ".join([message.text, *results])
            said.append((_cut(text), weight))
    return said


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= _CHARACTERS
        else f"{text[: _CHARACTERS // 2]} {text[-_CHARACTERS // 2 :]}"
    )


def _found(messages: Sequence[Message], searches: Collection[str]) -> set[str]:
    """The wire names of the tools that the calls with these ids brought up."""
    results = [
        result
        for message in messages
        for result in message.tool_results
        if result.call_id in searches
    ]
    return {name for result in results for name in _FOUND.findall(result.content)}


_FOUND = re.compile(
    r'\{"name":"([a-zA-Z0-9_-]{1,64})","description":'
)  # also in a text that was cut


# Ranks

_RANK_CONSTANT = 10
"""What lessens the lead of the first ranks. 60, as in the paper on RRF (Cormack 2009), is for longer lists."""


def _index_of(tools: Sequence[Tool]) -> Index[Tool]:
    """The index of these tools, made once while they come again and read the same."""
    key = tuple(map(id, tools)), tuple(map(operator.attrgetter("description"), tools))
    if (index := _INDEXES.get(key)) is None:
        if len(_INDEXES) >= 8:
            _INDEXES.clear()
        index = _INDEXES[key] = Index(tools)
    return index


# Of all retrievers, since each run with a number in place of one makes its own. An index holds its tools, so that an
# id stays that of one tool.
_INDEXES: dict[Any, Index[Tool]] = {}


def _by_words(said: Said, tools: Sequence[Tool], threshold: float) -> list[str]:
    """The names, best first. What was said around the last request comes after what fits that best."""
    index = _index_of(tools)
    (asked, _), *around = said
    weights: dict[str, float] = {}
    for text, weight in sorted(
        around, key=operator.itemgetter(1)
    ):  # the most that a word counts holds
        weights.update(dict.fromkeys(words(text), weight))
    fit, related = (
        [pair for pair in index.rank(query) if pair[1] >= threshold]
        for query in (asked, weights)
    )
    if not related:
        return [tool.name for tool, _ in fit]
    scale = min(1.0, _BEHIND * fit[0][1] / related[0][1]) if fit else 1.0
    scores = {tool.name: score * scale for tool, score in related}
    for tool, score in fit:
        scores[tool.name] = max(score, scores.get(tool.name, 0.0))
    return sorted(scores, key=scores.__getitem__, reverse=True)


_BEHIND = 0.9


class _Vectors:
    """Embeddings by text, those of tools kept; and what to do while they cannot be had."""

    def __init__(self, embed: Embed) -> None:
        if not callable(embed) or inspect.iscoroutinefunction(embed):
            raise TypeError(
                f"embed is a plain function from texts to vectors, not {embed!r}. See embeddings(model=…)."
            )
        self._embed, self._lock, self._left_alone_until = embed, threading.Lock(), 0.0
        self._known: dict[str, list[float]] = {}

    def nearest(
        self, said: Said, tools: Sequence[Tool], similarity: float
    ) -> list[str]:
        """The names of those that mean nearly what is said, the nearest first; none where that cannot be known."""
        said = [(text, weight) for text, weight in said if text.strip()]
        if not said or time.monotonic() < self._left_alone_until:
            return []
        abouts = [
            f"{tool.name}: {' '.join((tool.description, *tool.tags, *tool.keywords))}"
            for tool in tools
        ]
        try:
            asked = self._meaning(said)
            with self._lock:  # or each run of a batch would ask for all tools
                missing = [
                    about for about in dict.fromkeys(abouts) if about not in self._known
                ]
                self._known.update(
                    zip(missing, self._units(missing) if missing else (), strict=True)
                )
            cosines = [
                sum(map(operator.mul, asked, self._known[about])) for about in abouts
            ]
        except Exception as error:
            self._left_alone_until = time.monotonic() + _PAUSE
            _log.warning(
                "no embeddings, so words alone choose the tools for %.0f s: %r",
                _PAUSE,
                error,
            )
            return []
        near = [place for place, cosine in enumerate(cosines) if cosine >= similarity]
        return [
            tools[place].name
            for place in sorted(near, key=cosines.__getitem__, reverse=True)
        ]

    def _meaning(self, said: Said) -> list[float]:
        vectors, weights = (
            self._units([text for text, _ in said]),
            [weight for _, weight in said],
        )
        return _unit(
            [
                sum(map(operator.mul, column, weights))
                for column in zip(*vectors, strict=True)
            ]
        )

    def _units(self, texts: list[str]) -> list[list[float]]:
        vectors = [_unit([float(x) for x in vector]) for vector in self._embed(texts)]
        if len(vectors) != len(texts) or len(set(map(len, vectors))) > 1:
            raise ValueError(
                f"{len(texts)} texts got {len(vectors)} embeddings, or of unequal length"
            )
        return vectors


_PAUSE = 60.0  # seconds


def _unit(vector: list[float]) -> list[float]:
    length = math.hypot(*vector) or 1.0
    return [x / length for x in vector]
