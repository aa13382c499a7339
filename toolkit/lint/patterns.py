"""Which arguments of a function become regular expressions, read from its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

from toolkit.tools.signatures import without_partials


def is_isolated(function: Any) -> bool:
    """True for a function that runs in a child process, which its timeout ends."""
    code = getattr(function, "__code__", None)
    return "isolation" in Path(getattr(code, "co_filename", "")).parts


def compiled_names(function: Any) -> set[str]:
    """The names that a function gives to `re` as a pattern."""
    try:
        source = inspect.getsource(inspect.unwrap(without_partials(function)))
        tree = ast.parse(textwrap.dedent(source))
    except (OSError, TypeError, SyntaxError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re" | "regex")),
                args=[ast.Name(id=name), *_],
            ) if node.func.attr != "escape":  # type: ignore[attr-defined]
                names.add(name)
    return names
