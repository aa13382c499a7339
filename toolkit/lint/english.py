"""What lint knows of English: verbs, occasions, and lists of values in a text.

verbs.txt and destructive_verbs.txt hold the verbs that names of tools begin with, one a line.
"""

from __future__ import annotations

import re
from importlib.resources import files

from toolkit.retrieval.ranking import words


def _listed(name: str) -> frozenset[str]:
    return frozenset(files(__package__).joinpath(name).read_text("utf-8").split())


DESTRUCTIVE = _listed("destructive_verbs.txt")
_VERBS = DESTRUCTIVE | _listed("verbs.txt")
_VERB_OF_STEM = {
    stem: verb for verb in sorted(_VERBS, reverse=True) for stem in words(verb)
}
_PREFIX = re.compile(r"^(?:de|dis|mis|over|pre|re|un)")
_SUFFIX = re.compile(r"[a-z]{3}(?:ify|i[sz]e)$")
_VERB_FORM = re.compile(r"\w+s\b|\w+(?= (?:an?|the)\b)")


def verb_of_name(name: str) -> str:
    """The first verb in a name (`get_weather`, `weatherGet`); "" if there is none."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return next(filter(_is_verb, map(str.lower, parts)), "")


def _is_verb(word: str) -> bool:
    stem = _PREFIX.sub("", word)
    return word in _VERBS or stem in _VERBS or bool(_SUFFIX.search(word))


def verb_of_text(text: str) -> str:
    """The verb that a description begins with; "" if it is not in the list."""
    return _VERB_OF_STEM.get(next(words(text), ""), "")


def begins_with_word_of(text: str, name: str) -> bool:
    """Whether a description begins with a verb, listed or not, that the name contains too: "Yodels a song"."""
    form = _VERB_FORM.match(text)
    return form is not None and not set(words(form[0])).isdisjoint(words(name))


_COMMON = re.compile(r"\b(?:the|of|and|to|from|with|by|for)\b", re.IGNORECASE)
# The words of an occasion or a purpose, or a second sentence.
_OCCASION = re.compile(
    r"\b(?:use[ds]?|useful|call|helps?|purposes?|when(?:ever)?|if|once|before|after|instead|unless|until|prefer|needs?"
    r"|only)\b|[.;:!?]\s+\S|\n",
    re.IGNORECASE,
)


def lacks_occasion(text: str) -> bool:
    """Whether an English description does not say when to use the tool."""
    return _COMMON.search(text) is not None and not _OCCASION.search(text)


_OPEN_ENDED = re.compile(
    r"\b(?:e\.?g|example|such as|like|instance|includ\w+|etc|format\w*|similar)\b|\.\.\.|…",
    re.IGNORECASE,
)
_QUOTED = r"""(?:'[^'\n]{1,40}'|"[^"\n]{1,40}"|`[^`\n]{1,40}`)"""
_OR = r"(?:\s*[,/|]\s*(?:or\s+)?|\s+or\s+)"
_JOINED = r"\s*[,/|]\s*(?:or\s+|and\s+)?|\s+or\s+|\s+and\s+"
_QUOTED_LIST = re.compile(rf"(?P<list>{_QUOTED}(?:{_OR}{_QUOTED})+)")
_NAMED_LIST = re.compile(
    r"\b(?:one of|options|(?:possible|allowed|valid|accepted|supported) values|choices|either|between)"
    r"(?: are| the following)?\s*:?\s*"
    rf"(?P<list>{_QUOTED}(?:(?:{_JOINED}){_QUOTED})+|[\w-]+(?:{_OR}[\w-]+)+(?=[.;)]|$))",
    re.IGNORECASE,
)


def values_in(text: str) -> list[str]:
    """The values that a description lists as all that there are."""
    match = _NAMED_LIST.search(text) or _QUOTED_LIST.search(text)
    if match is None or _OPEN_ENDED.search(text):
        return []
    values = (value.strip("'\"`") for value in re.split(_JOINED, match["list"]))
    return list(dict.fromkeys(values))
