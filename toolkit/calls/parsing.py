"""What a model sent, read carefully: text to arguments, or a reason.

Everything here reads untrusted input: nothing is evaluated, no reader raises, the work is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toolkit.messages import whole_characters
from toolkit.tools.json_schema import types_of

Errors = Sequence[Mapping[str, Any]]
Object = dict[str, Any]
Path = tuple[str | int, ...]
Schema = Mapping[str, Any]

_CUT_OFF = "The arguments were cut off at the output length limit. Send shorter ones, or split them over several calls."
_WRAPPERS = {
    "arguments",
    "parameters",
    "properties",
    "args",
    "kwargs",
    "params",
    "input",
    "function",
}
_NAME_KEYS = {"name", "tool", "tool_name", "function", "function_name"}
_SCHEMA_KEYS = {"type", "required", "additionalProperties", "$schema", "id"}


_WORDS = {"True": "true", "False": "false", "None": "null", ",": ""}
_ESCAPES = {"\\'": "'", "\\x": "\\u00", '"': '\\"'} | {
    chr(code): f"\\u{code:04x}" for code in range(32)
}
_DECODER = json.JSONDecoder()
# The groups are named after the repairs; all that follows belongs to a quote that is never closed.
_TOKEN = re.compile(
    r"""(?s)(?P<escapes>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<python_literal>'[^'\\]*(?:\\.[^'\\]*)*'|\b(?:True|False|None)\b)"""
    r"""|(?P<escaped_quotes>\\"[^"\\]*\\")|(?P<trailing_comma>(?<![\[{,:]),(?=\s*[\]}]))|(?P<unclosed>["'].*)"""
)
_IN_STRING = re.compile(r'(?s)\\x(?=[0-9a-fA-F]{2})|\\.|["\x00-\x1f]')


@dataclass(frozen=True, slots=True)
class Parsed:
    """Arguments as a JSON object, with the name of each repair that reading needed.

    Where they could not be read, `problem` says why, in sentences for the model, and `arguments` is {}. `other` is
    then the JSON value that was sent instead of an object, if it was one: an array, a string, a number.
    """

    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()
    problem: str = ""
    other: Any = None


def parse(raw: object, *, truncated: bool = False) -> Parsed:
    """Read what a model sent as arguments; never raises, never guesses.

    `raw` is JSON text (str, bytes), an object as some servers send it, or None. Nothing (blank, null, an empty array)
    means {}. Only what has one reading is repaired; what was cut off is never completed. With `truncated` (the server
    said that the output limit ended the reply) whatever is no whole object is reported as cut off.
    """
    import pydantic_core  # 30 ms: paid at the first call

    try:
        value = pydantic_core.from_json(
            raw if isinstance(raw, (str, bytes)) else _text(raw), allow_inf_nan=False
        )
    except Exception:
        value = None
    if type(value) is dict:
        return Parsed(value)
    try:
        value, repairs = read_json(_text(raw).lstrip("\ufeff"))
    except Exception as error:  # too deep a text, or an object of some SDK, whose methods raise what they like
        return Parsed(
            {},
            problem=_CUT_OFF
            if truncated
            else f"The arguments are not valid JSON: {error}.",
        )
    if isinstance(value, dict) or (value in (None, []) and not truncated):
        return Parsed(value or {}, repairs)
    problem = f"The arguments are {json_excerpt(value)}, which is no JSON object. Send one that names the parameters."
    return Parsed({}, repairs, _CUT_OFF if truncated else problem, value)


def _text(raw: object) -> str:
    text = raw.decode() if isinstance(raw, (bytes, bytearray)) else raw
    return (
        text
        if isinstance(text, str)
        else json.dumps(dict(text) if isinstance(text, Mapping) else text)
    )


def read_json(text: str) -> tuple[Any, tuple[str, ...]]:
    """The one JSON value of a text (None if blank) and what was mended. ValueError says why there is none."""
    import pydantic_core

    repairs: list[str] = []
    value = _layer(text, repairs)
    while isinstance(value, str) and value.lstrip()[:1] in ("", "{", "[", '"', "`"):
        repairs.append("double_encoded")
        value = _layer(value, repairs)
    whole = whole_characters(value)
    if whole != value:
        repairs.append("surrogate")
    # The strict reader has the last word: no infinity, no nesting that the validator could not follow.
    read = pydantic_core.from_json(
        json.dumps(whole, ensure_ascii=False, allow_nan=False)
    )
    return read, tuple(dict.fromkeys(repairs))


def _layer(text: str, repairs: list[str]) -> Any:
    if fence := re.match(r"\s*```\w*", text):
        repairs.append("code_fence")
        text = text[fence.end() :].rstrip().removesuffix("```")
    try:
        return _decoded(text, repairs)
    except ValueError:
        return _decoded(_as_json(text, repairs), repairs)


def _decoded(text: str, repairs: list[str]) -> Any:
    values, end = [], 0
    while visible := re.compile(r"\S").search(text, end):
        value, end = _DECODER.raw_decode(text, visible.start())
        values.append(value)
    if (
        len({json.dumps(value, sort_keys=True) for value in values}) > 1
    ):  # as text, for 1 == 1.0 == True in Python
        raise ValueError(
            f"{len(values)} values that differ; send each as a call of its own"
        )
    if len(values) > 1:
        repairs.append("concatenated_duplicate")
    return values[0] if values else None


def _as_json(text: str, repairs: list[str]) -> str:
    """The text with what Python, JavaScript or haste wrote differently put as JSON; adds no bracket, closes no quote.

    Token by token, so that nothing inside a string is taken for structure; what the rewriting does not make JSON, the
    decoder refuses. `ast.literal_eval` would warn of escapes and exhaust its stack, and cannot read `null`.
    """

    def token(match: re.Match[str]) -> str:
        kind, piece = str(match.lastgroup), match[0]
        edge = 2 if kind == "escaped_quotes" else 1
        inner = _IN_STRING.sub(
            lambda found: _ESCAPES.get(found[0], found[0]), piece[edge:-edge]
        )
        new = piece if kind == "unclosed" else _WORDS.get(piece, f'"{inner}"')
        if new != piece:
            repairs.append(kind)
        return new

    return _TOKEN.sub(token, text)


def unwrap(parsed: Parsed, name: str, parameters: Schema) -> Parsed:
    """Take off the envelope that a model put around the arguments of tool `name`, where it can be nothing else.

    `parameters` is the tool's JSON Schema. An envelope is `{"arguments": {...}}` and its kin with nothing beside it
    but the tool's name or words of a schema, for a tool that has no such parameter; or a bare array for a tool whose
    one required (or one) parameter takes an array.
    """
    properties = parameters.get("properties") or {}
    lone = parameters.get("required") or list(properties)
    if (
        isinstance(parsed.other, list)
        and len(lone) == 1
        and "array" in types_of(properties.get(lone[0]), parameters)
    ):
        return Parsed({lone[0]: parsed.other}, (*parsed.repairs, "bare_array"))
    given = parsed.arguments
    held = (
        given.keys()
        - _SCHEMA_KEYS
        - {key for key in _NAME_KEYS if given.get(key) == name}
    )
    is_wrapper = (
        len(held) == 1
        and held <= _WRAPPERS | {name}
        and not given.keys() & properties.keys()
    )
    if not is_wrapper or parameters.get("additionalProperties"):
        return parsed
    inner = parse(given[held.pop()])
    if inner.problem or any(
        _is_schema(value, properties.get(key)) for key, value in inner.arguments.items()
    ):
        return parsed
    return unwrap(
        replace(inner, repairs=(*parsed.repairs, "wrapper", *inner.repairs)),
        name,
        parameters,
    )


def _is_schema(value: Any, schema: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(schema, Mapping)
        and value.get("type", "") == schema.get("type")
    )


def json_excerpt(value: Any) -> str:
    return clipped(
        whole_characters(json.dumps(value, ensure_ascii=False, default=str)), 60
    )


def clipped(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def resolve_name(name: str, known: Collection[str]) -> str | None:
    """The known tool that a name means: `functions.x` and `functions.x:0` mean `x`. Case is never folded."""
    bare = name.partition("<|")[0].strip(
        " \t\r\n\"'`"
    )  # a control token of gpt-oss may cling to the name
    short = re.sub(r"\A(?:functions?|tools?)\.|:\d+\Z", "", bare)
    return next((tool for tool in (name, bare, short) if tool in known), None)


def expand_parallel(
    arguments: Mapping[str, Any],
) -> list[tuple[str, dict[str, Any] | str]] | None:
    """The calls inside one call of OpenAI's `multi_tool_use.parallel`, names as sent; None if it has not that form."""
    with suppress(LookupError, TypeError):
        sent = [
            (str(use["recipient_name"]), use.get("parameters"))
            for use in arguments["tool_uses"]
        ]
        return [
            (name, given if isinstance(given, dict) else _text(given))
            for name, given in sent
        ] or None
    return None
