"""Tools that act on the world, by their name or description, though nobody gave them a tier."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from toolkit.tools.tool import FunctionTool, Tool

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def effect_without_tier(tool: Tool) -> str:
    """The act that a tool's name or description speaks of, if nobody chose its tier; else "".

    Acts destroy something or reach other people: acts.txt has them in English and Chinese.
    """
    if _has_own_tier(tool):
        return ""
    acts = _acts()
    # The first word is the verb: `delete_file` deletes, `lend_book` books nothing.
    for text in (tool.name, tool.description):
        first = _WORD.search(text)
        word = first[0].lower() if first else ""
        for form in (word, word.removesuffix("s")):
            if form in acts:
                return form
    texts = tool.name + tool.description
    if texts.isascii():
        return ""
    # Scripts without spaces: an act may be a part of a word.
    for act in acts:
        if not act.isascii() and act in texts:
            return act
    return ""


def _has_own_tier(tool: Tool) -> bool:
    if tool.permission != Tool.permission:
        return True
    if isinstance(tool, FunctionTool):
        return "permission" in tool.options
    own_classes = type(tool).__mro__[: -len(Tool.__mro__)]
    places: list[Any] = [vars(tool), *map(vars, own_classes)]
    return any("permission" in place for place in places)


@functools.cache
def _acts() -> tuple[str, ...]:
    return tuple(Path(__file__).with_name("acts.txt").read_text("utf-8").split())
