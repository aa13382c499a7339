"""What a choice of tools goes by: the texts of a conversation, each with its weight."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from toolkit.messages import Message

WeightedText = tuple[str, float]
"""A text with what it counts."""

_REQUEST_WEIGHTS = (1.0, 0.5, 0.25)
"""What the user's messages count, the last one first: "and in Paris?" is about what was asked before."""

_STEP_WEIGHTS = (0.5, 0.3, 0.2)
"""What replies and results since the last request count, the last one first: they tell what is needed next."""

_MAX_CHARACTERS = 2000
"""Of a message; the rest of a long one would only blur what it asks for."""


def weighted_texts(
    messages: Sequence[Message], searches: Collection[str]
) -> list[WeightedText]:
    """The last requests and the steps since, the last request first.

    The results of `searches` (call ids) do not count, because what they found is shown anyway.
    """
    requests = [
        place for place, message in enumerate(messages) if message.role == "user"
    ]
    last_request = requests[-1] if requests else -1
    steps = range(last_request + 1, len(messages))
    texts: list[WeightedText] = [] if requests else [("", 1.0)]
    for weights, places in ((_REQUEST_WEIGHTS, requests), (_STEP_WEIGHTS, steps)):
        for weight, place in zip(weights, reversed(places), strict=False):
            texts.append((_text_of(messages[place], searches), weight))
    return texts


def _text_of(message: Message, searches: Collection[str]) -> str:
    results = [
        result.content
        for result in message.tool_results
        if result.call_id not in searches
    ]
    text = " ".join([message.text, *results])
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]} {text[-half:]}"
