"""A request, read once, and where it names parameters."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolkit.local.dates import find_dates
from toolkit.local.extraction import Number, find_numbers
from toolkit.retrieval.ranking import words
from toolkit.tools.json_schema import Schema


class Narrowed(NamedTuple):
    """A schema narrowed to a request, and whether the request speaks of the value: None if only the model can tell."""

    schema: Any
    is_named: bool | None = None


class Query:
    """The text of a request, with what is known of the whole schema that it is read for."""

    def __init__(self, text: str, parameters: Schema) -> None:
        properties = parameters.get("properties")
        names = properties if isinstance(properties, Mapping) else ()
        counts = Counter(word for name in names for word in set(words(name)))
        self.text = text
        self.parameters = parameters
        self.words = set(words(text))
        self.dates = find_dates(text)
        self.numbers = find_numbers(text)
        self.shared_words = {word for word, count in counts.items() if count > 1}
        """Words of several parameters: they tell no parameter from another."""

    def names_before(self, key: str, position: int) -> bool:
        """Whether the name of a parameter stands right before a position: "the title should be …"."""
        clause = _BORDER.split(self.text[:position])[-1]
        before = list(words(" ".join(clause.split()[-4:])))
        name = telling_words(key)
        return bool(name) and name <= set(before) and before[-1] in name

    def names_beside(self, key: str, number: Number) -> bool:
        """Whether the name of a parameter stands right before or after a number."""
        if self.names_before(key, number.start):
            return True
        name = telling_words(key)
        return bool(name) and name <= set(words(self.text_after(number, 3)))

    def text_after(self, number: Number, count: int) -> str:
        """The first words after a number, at most `count`, up to a comma or the like."""
        clause = _BORDER.split(self.text[number.end :])[0]
        return " ".join(clause.split()[:count])


_BORDER = re.compile(r"[,;!?\n\"“”`]|\.\s|(?<!\w)'|'(?!\w)|\b(?:and|or|with)\b")


def telling_words(key: str) -> set[str]:
    """The words of a parameter's name that tell what it is."""
    return set(words(key)) - _words_of_many_names()


@functools.cache
def _words_of_many_names() -> frozenset[str]:
    return frozenset(
        words(
            "number count num include including is has show return returns format enable enabled use allow flag only"
        )
    )
