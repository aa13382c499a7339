"""Which tools fit a text best (BM25)."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from toolkit.tools.tool import Tool

T = TypeVar("T", bound=Tool)

NAME_WEIGHT, KEYWORD_WEIGHT, DESCRIPTION_WEIGHT, PARAMETER_WEIGHT = 2.0, 2.0, 1.0, 0.5
SATURATION, LENGTH_NORMALISATION = 1.2, 0.6

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about all also am an and any are as at be been but by can could did do does for from get give had has have
        how i if in into is it its let like me my need of on or our out please she should so some tell than that the
        their them then there these they this to up us use want was we were what when where which who will with would
        you your
        """,
    )
)


def rank(text: str, tools: Iterable[T]) -> list[tuple[T, float]]:
    """The tools that share a word with `text` and their scores, best first; equal ones in the order given."""
    return Index(tools).rank(text)


class Index(Generic[T]):
    """Tools read once, to be ranked for many texts. It does not see later changes of a tool."""

    def __init__(self, tools: Iterable[T]) -> None:
        self.tools = tuple(tools)
        documents = [_weights(tool) for tool in self.tools]
        lengths = [sum(document.values()) for document in documents]
        mean = sum(lengths) / max(len(lengths), 1) or 1.0
        containing = Counter(word for document in documents for word in document)
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for position, (document, length) in enumerate(
            zip(documents, lengths, strict=True)
        ):
            damping = SATURATION * (
                1 - LENGTH_NORMALISATION + LENGTH_NORMALISATION * length / mean
            )
            for word, weight in document.items():
                rarity = math.log(
                    1
                    + (len(documents) - containing[word] + 0.5)
                    / (containing[word] + 0.5)
                )
                score = rarity * weight * (SATURATION + 1) / (weight + damping)
                self._postings[word].append((position, score))

    def rank(self, text: str | Mapping[str, float]) -> list[tuple[T, float]]:
        """As the function `rank`, over the tools of the index. `text` may also be its `words` with what each counts."""
        # Not a set: sums must not depend on its order.
        weights = dict.fromkeys(words(text), 1.0) if isinstance(text, str) else text
        scores = [0.0] * len(self.tools)
        for word, weight in weights.items():
            for position, score in self._postings.get(word, ()):
                scores[position] += weight * score
        found = [position for position, score in enumerate(scores) if score]
        found.sort(
            key=scores.__getitem__, reverse=True
        )  # equal ones stay in order, also in reverse
        return [(self.tools[position], scores[position]) for position in found]


def words(text: str) -> Iterator[str]:
    """The words of a text as they are compared: accents folded, names split, stems, no stop words, CJK in pairs."""
    decomposed = unicodedata.normalize("NFKD", text)
    folded = unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))
    for word in _WORDS.findall(_HUMPS.sub(" ", folded)):
        if _PAIRED.match(word):
            yield from (word[i : i + 2] for i in range(max(len(word) - 1, 1)))
        elif (lower := word.casefold()) not in STOP_WORDS:
            yield _stem(lower)


_ACCENTS = re.compile("[\u0300-\u036f]")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PAIRED_RANGES = (
    "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff\U00020000-\U0003ffff"
)
_PAIRED = re.compile(f"[{_PAIRED_RANGES}]")
_WORDS = re.compile(rf"[{_PAIRED_RANGES}]+|\d+(?=[^\W\d_])|[^\W_{_PAIRED_RANGES}]+")


def _stem(word: str) -> str:
    if len(word) < 4 or not word.isascii():
        return word
    for suffix, replacement in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) + len(replacement) >= 3:
            word = word[: len(word) - len(suffix)] + replacement
            break
    return word.removesuffix("e") if len(word) > 3 else word


# In this order; the first that fits is taken.
_SUFFIXES = (
    *(
        (ending, "at")
        for ending in (
            "ational",
            "ations",
            "ation",
            "ating",
            "ated",
            "ators",
            "ator",
            "ates",
        )
    ),
    *(("ies", "y"), ("ied", "y"), ("sses", "ss"), ("ss", "ss"), ("us", "us")),
    *((ending, "") for ending in ("ings", "ing", "ers", "er", "ed", "es", "s", "ly")),
)


def _weights(tool: Tool) -> dict[str, float]:
    weights: dict[str, float] = defaultdict(float)
    fields = (
        (NAME_WEIGHT, (tool.name,)),
        (KEYWORD_WEIGHT, (*tool.tags, *tool.keywords)),
        (DESCRIPTION_WEIGHT, (tool.description,)),
        (PARAMETER_WEIGHT, _schema_texts(tool.parameters)),
    )
    for weight, texts in fields:
        for text in texts:
            for word in words(text):
                weights[word] += weight
    return weights


def _schema_texts(schema: Mapping[str, Any]) -> Iterator[str]:
    """Names, descriptions and enum values, to any depth. A stack, since a schema may be nested without end."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            properties = node.get("properties")
            if isinstance(properties, Mapping):
                yield from map(str, properties)
            waiting.extend(node.values())
            if isinstance(description := node.get("description"), str):
                yield description
            if isinstance(values := node.get("enum"), list):
                yield from (value for value in values if isinstance(value, str))
        elif isinstance(node, list):
            waiting.extend(node)
