"""The checks of lint: what is wrong with one tool, with its parameters, and with tools side by side."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from toolkit.errors import ToolDefinitionError
from toolkit.lint.english import (
    DESTRUCTIVE,
    begins_with_word_of,
    lacks_occasion,
    values_in,
    verb_of_name,
    verb_of_text,
)
from toolkit.lint.patterns import compiled_names, is_isolated
from toolkit.retrieval.ranking import Index, words
from toolkit.tools.docstrings import read_docstring
from toolkit.tools.effects import effect_without_tier
from toolkit.tools.foreign import WrittenSignature
from toolkit.tools.json_schema import Schema, alternatives, children
from toolkit.tools.signatures import without_partials
from toolkit.tools.strict import strict_form
from toolkit.tools.tool import FunctionTool, Tool

_LARGEST = 4_000  # characters of description and schema, about a thousand tokens
_ALIKE = 0.8  # of the BM25 score that a tool has for its own text


class Problem(NamedTuple):
    """A rule that a tool breaks: what is wrong, what to write, and with which parameter."""

    rule: str
    message: str
    fix: str
    parameter: str = ""


def problems_of(tool: Tool) -> list[Problem]:
    """What is wrong with a tool. Raises ToolDefinitionError if it has no schema."""
    checks = (
        _name,
        _description,
        _tier,
        _docstring,
        _parameters,
        _size,
        _wires,
        _strict,
        _patterns,
    )
    return [problem for check in checks for problem in check(tool)]


# Names and descriptions


def _name(tool: Tool) -> Iterator[Problem]:
    snake_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tool.name).lower()
    better = re.sub(r"[^a-z0-9]+", "_", snake_case).strip("_")
    if tool.wire_name != tool.name:
        yield Problem(
            "name-illegal",
            f"No wire accepts this name; models see {tool.wire_name!r}.",
            f"Name it in ASCII letters, digits, _ and -, 64 at most: name={better[:64] or 'get_…'!r}.",
        )
    has_verb = verb_of_name(tool.name) or begins_with_word_of(
        tool.description, tool.name
    )
    if better and not has_verb:
        verb = verb_of_text(tool.description) or "get"
        yield Problem(
            "name-without-verb",
            "The name does not say what the tool does.",
            f"Begin it with a verb: name='{verb}_{better}'.",
        )


def _description(tool: Tool) -> Iterator[Problem]:
    text = tool.description.strip()
    start = text.rstrip(".")
    if len(text) > 60:
        start = f"… {start[-50:]}"
    if not text:
        yield Problem(
            "description-missing",
            "Models choose by descriptions, and there is none.",
            'Write a docstring: what it does, and when: "… Use it when …".',
        )
    elif set(words(text)) <= set(words(tool.name)):
        yield Problem(
            "description-repeats-name",
            f"The description {text!r} says no more than the name.",
            f'Say when to use it, and what it returns: "{start}. Use it when …".',
        )
    elif lacks_occasion(text):
        yield Problem(
            "description-without-when",
            "The description says what the tool does, but not when to use it.",
            f'Add for which questions, or when: "{start}. Use it when …".',
        )
    # If the name hides it, the docstring may say it first: "Deletes …".
    for verb in (verb_of_name(tool.name), verb_of_text(text)):
        if tool.permission == "read" and verb in DESTRUCTIVE:
            yield Problem(
                "destructive-read",
                f"It says {verb!r}, but permission='read' lets it run without an audit.",
                'Write permission="write", or "sensitive" if somebody must decide on each call.',
            )
            break


def _tier(tool: Tool) -> Iterator[Problem]:
    act = effect_without_tier(tool)
    if act:
        yield Problem(
            "effect-without-tier",
            f"It says {act!r}, and runs without approval because nobody chose its tier.",
            'Write permission="sensitive", or permission="write" to let it run.',
        )


def _docstring(tool: Tool) -> Iterator[Problem]:
    function: Any = tool.function if isinstance(tool, FunctionTool) else None
    # A wrapper may stand behind a partial, and a partial behind a wrapper.
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = inspect.unwrap(without_partials(function))
    if not inspect.isroutine(function):
        return
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    _, described = read_docstring(inspect.getdoc(function) or "")
    for name in described:
        if name not in parameters and name not in ("self", "cls"):
            close = difflib.get_close_matches(name, parameters, 1)
            yield Problem(
                "parameter-unknown",
                "The docstring describes it, but the function does not take it.",
                f"Write {close[0]!r} there."
                if close
                else "Remove it from the docstring.",
                name,
            )


# Parameters

_DEFINITIONS = ("$defs", "definitions")
_NARROW = {"enum", "const", "pattern", "format"}
_TYPED = {"type", "properties", "items", "allOf", *_NARROW}


def _parameters(tool: Tool) -> Iterator[Problem]:
    for path, schema in _properties(tool.parameters):
        parts = _parts(schema, tool.parameters)
        descriptions = [
            str(part["description"]) for part in parts if part.get("description")
        ]
        if not any(_TYPED & part.keys() for part in parts):
            yield Problem(
                "parameter-untyped",
                "It takes any JSON value, and a model has to guess which.",
                f"Write a type hint: {path.rpartition('.')[2]}: str.",
                path,
            )
        if descriptions:
            yield from _values(path, schema, parts, descriptions[0])
        else:
            yield Problem(
                "parameter-undescribed",
                "Nothing says what it is.",
                f'Describe it, with unit and form: "{path}: …" under Args:, or Field(description="…").',
                path,
            )


def _values(
    path: str, schema: Schema, parts: list[Schema], description: str
) -> Iterator[Problem]:
    codes = _unexplained_codes(parts, description)
    if codes:
        yield Problem(
            "enum-unexplained",
            f"Nothing says what {_as_json(codes)} stands for.",
            f'Say it in the description: "{codes[0]} for …".',
            path,
        )
    values = values_in(description)
    if len(values) > 1 and _is_any_text(parts):
        default = schema.get("default")
        if default and default not in values:
            values.append(default)
        yield Problem(
            "values-in-text",
            "The description lists the values, but the type accepts any text.",
            f"Write the type Literal[{_as_json(values)}].",
            path,
        )


def _properties(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """The properties of a schema to any depth, and of its definitions, by their dotted path."""
    for name, entry in (schema.get("properties") or {}).items():
        # A boolean is a schema too.
        yield f"{path}{name}", entry if isinstance(entry, Mapping) else {}
    for keyword, name, child in children(schema):
        if keyword in ("properties", *_DEFINITIONS):
            yield from _properties(child, f"{path}{name}.")
        elif keyword in ("items", "anyOf", "oneOf", "allOf"):
            yield from _properties(child, path)


def _parts(schema: Schema, root: Schema) -> list[Schema]:
    """The schemas that a value may fit, with those of the items of an array."""
    parts: list[Schema] = []
    waiting = [schema]
    for node in waiting:  # which grows
        for part in alternatives(node, root):
            if part not in parts:
                parts.append(part)
                waiting.append(part.get("items", {}))
    return parts


def _types(schema: Schema) -> list[Any]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


def _is_any_text(parts: Iterable[Schema]) -> bool:
    has_text = any("string" in _types(part) for part in parts)
    return has_text and not any(_NARROW & part.keys() for part in parts)


def _unexplained_codes(parts: Iterable[Schema], description: str) -> list[Any]:
    """Values that do not speak for themselves, as words do, if most of them are not explained."""
    values = [value for part in parts for value in part.get("enum", ())]
    codes: list[Any] = [
        value
        for value in values
        if isinstance(value, str) and len(value) == 1 and value.isalpha()
    ]
    numbers = [value for value in values if type(value) is int]
    is_scale = len(numbers) > 2 and numbers == [
        *range(numbers[0], numbers[0] + len(numbers))
    ]
    if not is_scale:
        codes += numbers
    unexplained = [
        code
        for code in codes
        if not re.search(rf"(?<!\w){re.escape(str(code))}(?!\w)", description)
    ]
    return unexplained if 2 * len(unexplained) > len(codes) else []


def _as_json(values: Iterable[Any]) -> str:
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in values)


# Wires


def _size(tool: Tool) -> Iterator[Problem]:
    schema = json.dumps(
        tool.parameters, ensure_ascii=False, default=str, separators=(",", ":")
    )
    size = len(tool.description) + len(schema)
    if size > _LARGEST:
        yield Problem(
            "too-large",
            f"It adds {size:,} characters to each request.",
            "Split the tool, shorten its descriptions, or let it take less.",
        )


def _wires(tool: Tool) -> Iterator[Problem]:
    # Public bug reports until 2026-11 quote both refusals.
    for path, schema in _properties(tool.parameters):
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", path.rpartition(".")[2]):
            yield Problem(
                "refused",
                "Anthropic refuses a request with a parameter of this name.",
                "Name it in ASCII letters, digits, _, . and -, 64 at most.",
                path,
            )
        parts = _parts(schema, tool.parameters)
        if any("array" in _types(part) and "items" not in part for part in parts):
            yield Problem(
                "refused",
                "OpenAI refuses a request with an array that does not say of what.",
                'Write the type of its items: list[str], or "items": {"type": …} in a schema.',
                path,
            )


def _strict(tool: Tool) -> Iterator[Problem]:
    schema = tool.parameters
    reason = "" if tool.strict is False else _why_not_strict(tool, schema)
    if not reason:
        return
    shared = {name: schema[name] for name in schema if name in _DEFINITIONS}
    culprits = (
        name
        for name, entry in schema["properties"].items()
        if _why_not_strict(tool, {**shared, "properties": {name: entry}})
    )
    yield Problem(
        "not-strict",
        f"OpenAI's strict mode is off for this tool: {reason}",
        "Give each of its parts a type of its own, or write strict=False to accept that.",
        next(culprits, ""),
    )


def _why_not_strict(tool: Tool, schema: Schema) -> str:
    is_written_by_hand = isinstance(tool.signature, WrittenSignature)
    try:
        strict_form(schema, unlisted_is_optional=not is_written_by_hand)
    except ToolDefinitionError as error:
        return str(error)
    return ""


# Tools side by side


def _patterns(tool: Tool) -> Iterator[Problem]:
    """A regular expression out of an argument may backtrack for hours, and a thread in `re` cannot be left."""
    function = tool.function if isinstance(tool, FunctionTool) else type(tool).run
    if not is_isolated(function):
        names = compiled_names(function) & set(tool.parameters["properties"])
        for name in sorted(names):
            yield Problem(
                "pattern-from-argument",
                f"{name!r} is compiled as a regular expression: one that backtracks holds the whole process, and no "
                "timeout ends it.",
                "Put @isolated(timeout=…) on the function, or escape the argument with re.escape().",
                name,
            )


def find_alike(tools: Iterable[Tool]) -> Iterator[tuple[Tool, Problem]]:
    """The tools that share with an earlier one nearly all that sets them apart from the rest. The nearest is named."""
    index = Index(tools)
    by_name = {tool.name: tool for tool in index.tools}
    near: dict[str, list[str]] = {}  # the nearest first
    for tool in index.tools:
        scores = {other.name: score for other, score in index.rank(_text(tool))}
        enough = _ALIKE * scores.pop(tool.name, 1.0)
        near[tool.name] = [name for name, score in scores.items() if score >= enough]
        for name in near[tool.name]:
            is_mutual = tool.name in near.get(name, ())
            if is_mutual and not _differ(tool, by_name[name]):
                yield (
                    tool,
                    Problem(
                        "reads-alike",
                        f"It reads like {name!r}, and a model can hardly choose between them.",
                        f'Say in both when to use which: "… Not for …: that is {name}.", or make them one.',
                    ),
                )
                break


def _text(tool: Tool) -> str:
    return f"{tool.name} {tool.description}"


def _differ(tool: Tool, other: Tool) -> bool:
    """Whether each name has a word that the other tool lacks, or the same words in another order say the reverse."""
    own, others = list(words(tool.description)), list(words(other.description))
    if own != others and sorted(own) == sorted(others):
        return True
    return not (
        set(words(tool.name)) <= set(words(_text(other)))
        or set(words(other.name)) <= set(words(_text(tool)))
    )
