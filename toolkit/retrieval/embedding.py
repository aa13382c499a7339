"""Embeddings of texts: from an endpoint, and compared with those of the tools."""

from __future__ import annotations

import inspect
import logging
import math
import operator
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from toolkit.retrieval.conversation import WeightedText
from toolkit.tools.tool import Tool

_log = logging.getLogger("toolkit")

Embed = Callable[[list[str]], Sequence[Sequence[float]]]
"""Gives each text its embedding, in order."""

_PAUSE = 60.0
"""Seconds without embeddings after a failure."""


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
    sent along (`dimensions` …). The function raises what the client raises; `hybrid` continues without it.
    """
    if client is None:
        from openai import OpenAI

        key = api_key or os.environ.get("OPENAI_API_KEY")
        if not key and base_url:
            # A server of your own may need none, but the SDK does.
            key = "none"
        client = OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=1)
    elif inspect.iscoroutinefunction(client.embeddings.create):
        raise TypeError(
            "client is an asynchronous client. Pass the plain one: a retriever runs in a thread."
        )

    def embed(texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = []
        for start in range(0, len(texts), batch):
            # Not the SDK's default encoding, base64, which some servers do not know.
            answer = client.embeddings.create(
                model=model,
                input=texts[start : start + batch],
                encoding_format="float",
                **fields,
            )
            in_order = sorted(answer.data, key=operator.attrgetter("index"))
            vectors += [each.embedding for each in in_order]
        return vectors

    return embed


class ToolVectors:
    """Embeddings of tools, kept by the text that describes a tool. After a failure they are unavailable for a while."""

    def __init__(self, embed: Embed) -> None:
        if not callable(embed) or inspect.iscoroutinefunction(embed):
            raise TypeError(
                f"embed must be a plain function from texts to vectors, not {embed!r}. See embeddings(model=…)."
            )
        self._embed = embed
        self._lock = threading.Lock()
        self._vectors: dict[str, list[float]] = {}
        self._paused_until = 0.0

    def nearest(
        self, texts: Sequence[WeightedText], tools: Sequence[Tool], similarity: float
    ) -> list[str]:
        """The names of the tools that mean nearly what the texts mean, the nearest first; none if that is unknown."""
        texts = [(text, weight) for text, weight in texts if text.strip()]
        if not texts or time.monotonic() < self._paused_until:
            return []
        try:
            meaning = self._meaning_of(texts)
            vectors = self._vectors_of(tools)
            cosines = [_dot(meaning, vector) for vector in vectors]
        except Exception as error:
            # Whatever an endpoint or a function of the user may raise: words still choose.
            self._paused_until = time.monotonic() + _PAUSE
            _log.warning(
                "no embeddings, so words alone choose the tools for %.0f s: %r",
                _PAUSE,
                error,
            )
            return []
        near = [place for place, cosine in enumerate(cosines) if cosine >= similarity]
        near.sort(key=cosines.__getitem__, reverse=True)
        return [tools[place].name for place in near]

    def _meaning_of(self, texts: Sequence[WeightedText]) -> list[float]:
        vectors = self._unit_vectors([text for text, _ in texts])
        weights = [weight for _, weight in texts]
        return _unit([_dot(column, weights) for column in zip(*vectors, strict=True)])

    def _vectors_of(self, tools: Sequence[Tool]) -> list[list[float]]:
        descriptions = [_description(tool) for tool in tools]
        # Without the lock each run of a batch would ask for all tools.
        with self._lock:
            missing = [
                each
                for each in dict.fromkeys(descriptions)
                if each not in self._vectors
            ]
            if missing:
                vectors = self._unit_vectors(missing)
                self._vectors.update(zip(missing, vectors, strict=True))
        return [self._vectors[each] for each in descriptions]

    def _unit_vectors(self, texts: list[str]) -> list[list[float]]:
        vectors = [_unit([float(x) for x in vector]) for vector in self._embed(texts)]
        if len(vectors) != len(texts) or len(set(map(len, vectors))) > 1:
            raise ValueError(
                f"{len(texts)} texts got {len(vectors)} embeddings, or of unequal length"
            )
        return vectors


def _description(tool: Tool) -> str:
    return f"{tool.name}: {' '.join((tool.description, *tool.tags, *tool.keywords))}"


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum((a * b for a, b in zip(first, second, strict=False)), 0.0)


def _unit(vector: list[float]) -> list[float]:
    length = math.hypot(*vector) or 1.0
    return [x / length for x in vector]
