"""A regular expression for the pieces of a request that can be a value."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from toolkit.local.extraction import find_quotes
from toolkit.retrieval.ranking import stop_words, words

SPANS = "spans"
"""The key of a narrowed string: a regular expression of the pieces of the request that it may be."""

_Token = tuple[int, int]
"""Where a word of a text begins and ends."""

_MAX_TOKENS = 3_000
"""Of all pieces together."""


def find_spans(
    text: str, *, without: Set[str] = frozenset(), in_list: bool = False
) -> str:
    """A regular expression for the pieces of a text that can be a value; "" if there are none.

    A piece begins and ends at words, not at small ones ("the", "of"), and never inside quotes. Its first letters may
    be of either case, because a small model likes capitals. `without` are the stems that it does not begin with. In a
    list it ends before a comma or an "and".
    """
    tokens = _tokens(text)
    longest = min(40, max(6, _MAX_TOKENS // max(len(tokens), 1)))
    pieces: dict[str, None] = {}
    for first, (start, end) in enumerate(tokens):
        if _is_small(text[start:end]) or _is_name(text[start:end], without):
            continue
        last = min(first + longest, len(tokens)) - 1
        if in_list:
            last = _last_before_border(text, tokens, first, last)
        pieces[_piece(text, tokens, first, last)] = None
    return f"^(?:{'|'.join(pieces)})$" if pieces else ""


def _is_small(token: str) -> bool:
    return token in stop_words()


def _is_name(token: str, name: Set[str]) -> bool:
    """Whether a token belongs to the name of the parameter, or to the owner before it ("'s")."""
    if token in ("'s", "’s"):
        return True
    stems = set(words(token.lower())) if token.isalpha() else set[str]()
    return bool(stems) and stems <= name


def _last_before_border(
    text: str, tokens: Sequence[_Token], first: int, last: int
) -> int:
    for place in range(first, last):
        (_, end), (next_start, next_end) = tokens[place], tokens[place + 1]
        has_comma = re.search(r"[,;、，\n]", text[end:next_start])
        if has_comma or text[next_start:next_end] in ("and", "or", "&"):
            return place
    return last


def _piece(text: str, tokens: Sequence[_Token], first: int, last: int) -> str:
    """An expression for the first token and up to all others to the last, each with what stands before it.

    It is built from its end: each token may be followed by what comes after it.
    """
    begins_sentence = first == 0 or re.search(
        r"[.:!?\n]|\\n", text[tokens[first - 1][1] : tokens[first][0]]
    )
    expression = ""
    for place in range(last, first - 1, -1):
        start, end = tokens[place]
        may_end = not _is_small(text[start:end])
        if not expression and not may_end:
            continue
        continuations = [expression] if expression else []
        if begins_sentence and text[end : end + 1] in (".", "!", "?"):
            continuations.append(_literal(text[end]))
        gap = text[tokens[place - 1][1] : start] if place > first else ""
        rest = ""
        if continuations:
            rest = f"(?:{'|'.join(continuations)})" + ("?" if may_end else "")
        expression = _literal(gap) + _either_case(text[start:end]) + rest
    return expression


def _either_case(token: str) -> str:
    """An expression for a token whose first letter may be of either case."""
    first, other = token[:1], token[:1].swapcase()
    has_cases = first != other and len(other) == 1
    beginning = f"[{first}{other}]" if has_cases else _literal(first)
    return beginning + _literal(token[1:])


def _literal(text: str) -> str:
    """As `re.escape`, but only what has a meaning in the regular expressions of JSON Schema."""
    escaped = re.sub(r"[\^$.\[\]()|{}*+?\\]", r"\\\g<0>", text)
    return escaped.replace("\n", r"\n").replace("\t", r"\t").replace("\r", r"\r")


def _tokens(text: str) -> list[_Token]:
    """The words of a text: each letter of scripts without spaces, a quoted text as a whole, the "'s" of an owner."""
    quotes = list(find_quotes(text))
    quoted = {place for quote in quotes for place in range(*quote.span())}
    tokens = [quote.span(1) for quote in quotes]
    for match in _TOKEN.finditer(text):
        if not quoted.isdisjoint(range(*match.span())):
            continue
        start, end = _without_marks(text, *match.span())
        if text[start:end].endswith(("'s", "’s")):
            tokens.append((end - 2, end))
            end -= 2
        if start < end:
            tokens.append((start, end))
    return sorted(tokens)


_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|(?:(?!\\[nt])[^\s{_UNSPACED}])+")
_OPENING = "([{<\"'“‘«「¿¡`*"
_CLOSING = ".,;:!?)]}>\"'”’»」…。，、！？：；`*"


def _without_marks(text: str, start: int, end: int) -> _Token:
    """A word without the punctuation around it. A bracket stays if its partner is in the word: "f(x)"."""
    while start < end and text[start] in _OPENING:
        start += 1
    while end > start and text[end - 1] in _CLOSING:
        if _closes_bracket(text[start:end]):
            break
        end -= 1
    return start, end


def _closes_bracket(token: str) -> bool:
    opening = {")": "(", "]": "[", "}": "{"}.get(token[-1])
    return opening is not None and opening in token
