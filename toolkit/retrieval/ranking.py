"""Which tools fit a text best (BM25)."""

from __future__ import annotations

import functools
import importlib.resources
import math
import operator
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from toolkit.tools.json_schema import Schema, subschemas
from toolkit.tools.tool import Tool

_T = TypeVar("_T", bound=Tool)

# What a word counts in each field of a tool.
_NAME, _KEYWORD, _DESCRIPTION, _PARAMETER = 2.0, 2.0, 1.0, 0.5
# k1 and b of BM25.
_SATURATION, _LENGTH_NORMALISATION = 1.2, 0.6


def rank(text: str, tools: Iterable[_T]) -> list[tuple[_T, float]]:
    """The tools that share a word with `text` and their scores, best first; equal ones in the order given."""
    return Index(tools).rank(text)


class Index(Generic[_T]):
    """Tools read once, to be ranked for many texts. It does not see later changes of a tool."""

    def __init__(self, tools: Iterable[_T]) -> None:
        self.tools = tuple(tools)
        keywords = {
            word for tool in self.tools for word in (*tool.tags, *tool.keywords)
        }
        # In scripts without spaces a keyword is found as a part of the text, whatever its length.
        self._unspaced = sorted(word for word in keywords if _PAIRED.search(word))
        documents = [_weights(tool) for tool in self.tools]
        lengths = [sum(document.values()) for document in documents]
        mean = sum(lengths) / max(len(lengths), 1) or 1.0
        containing = Counter(word for document in documents for word in document)
        # By word: the tools that have it, with its score there.
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for position, document in enumerate(documents):
            own_length = _LENGTH_NORMALISATION * lengths[position] / mean
            damping = _SATURATION * (1 - _LENGTH_NORMALISATION + own_length)
            for word, weight in document.items():
                absent = len(documents) - containing[word]
                rarity = math.log(1 + (absent + 0.5) / (containing[word] + 0.5))
                score = rarity * weight * (_SATURATION + 1) / (weight + damping)
                self._postings[word].append((position, score))

    def terms(self, text: str) -> Iterator[str]:
        """What of a text is compared: its words, and the keywords of scripts without spaces that are in it."""
        yield from words(text)
        for keyword in self._unspaced:
            if keyword in text:
                yield _whole(keyword)

    def rank(self, text: str | Mapping[str, float]) -> list[tuple[_T, float]]:
        """As the function `rank`, over the tools of the index. `text` may also be its `terms` with what each counts."""
        if isinstance(text, str):
            # Not a set: sums must not depend on its order.
            text = dict.fromkeys(self.terms(text), 1.0)
        scores = [0.0] * len(self.tools)
        for word, weight in text.items():
            for position, score in self._postings.get(word, ()):
                scores[position] += weight * score
        positions = [position for position, score in enumerate(scores) if score]
        # Equal ones stay in order, also in reverse.
        positions.sort(key=scores.__getitem__, reverse=True)
        return [(self.tools[position], scores[position]) for position in positions]


def _whole(keyword: str) -> str:
    """A keyword as one term, which no word of a text equals."""
    return f"={keyword}"


def index_of(tools: Sequence[Tool]) -> Index[Tool]:
    """The index of these tools, made once while they come again and read the same."""
    key = tuple(map(id, tools)), tuple(map(operator.attrgetter("description"), tools))
    index = _INDEXES.get(key)
    if index is None:
        if len(_INDEXES) >= 8:
            _INDEXES.clear()
        index = _INDEXES[key] = Index(tools)
    return index


# Of all retrievers, since each run with a number in place of one makes its own. An index holds its tools, so that an
# id stays that of one tool.
_INDEXES: dict[Any, Index[Tool]] = {}


def words(text: str) -> Iterator[str]:
    """The words of a text as they are compared: accents folded, names split, stems, no stop words, CJK in pairs."""
    ignored = stop_words()
    decomposed = unicodedata.normalize("NFKD", text)
    folded = unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))
    for word in _WORDS.findall(_HUMPS.sub(" ", folded)):
        if _PAIRED.match(word):
            for start in range(max(len(word) - 1, 1)):
                yield word[start : start + 2]
            continue
        lower = word.casefold()
        if lower not in ignored:
            yield _stem(lower)


@functools.cache
def stop_words() -> frozenset[str]:
    """English words that say nothing of a subject."""
    return frozenset(_data("stop_words.txt").split())


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
    for ending, replacement in _endings():
        stem = word.removesuffix(ending) + replacement
        if word.endswith(ending) and len(stem) >= 3:
            word = stem
            break
    return word.removesuffix("e") if len(word) > 3 else word


@functools.cache
def _endings() -> list[tuple[str, str]]:
    """The endings with what takes their place. In this order; the first that fits is replaced."""
    lines = _data("endings.txt").splitlines()
    return [(ending, new) for ending, _, new in (line.partition(" ") for line in lines)]


def _data(name: str) -> str:
    file = importlib.resources.files("toolkit.retrieval") / name
    return file.read_text(encoding="utf-8")


def _weights(tool: Tool) -> dict[str, float]:
    """The words of a tool with what they count together."""
    weights: dict[str, float] = defaultdict(float)
    fields = (
        (_NAME, (tool.name,)),
        (_KEYWORD, (*tool.tags, *tool.keywords)),
        (_DESCRIPTION, (tool.description,)),
        (_PARAMETER, _schema_texts(tool.parameters)),
    )
    for weight, texts in fields:
        for text in texts:
            for word in words(text):
                weights[word] += weight
    for keyword in (*tool.tags, *tool.keywords):
        if _PAIRED.search(keyword):
            weights[_whole(keyword)] += _KEYWORD
    return weights


def _schema_texts(schema: Schema) -> Iterator[str]:
    """Names of properties, descriptions and enum values, to any depth."""
    for node in subschemas(schema):
        properties, values = node.get("properties"), node.get("enum")
        if isinstance(properties, Mapping):
            yield from map(str, properties)
        if isinstance(node.get("description"), str):
            yield node["description"]
        if isinstance(values, list):
            yield from (value for value in values if isinstance(value, str))
