"""What a model sent, read carefully: text to arguments, or a reason.

Everything here reads untrusted input: nothing is evaluated, no reader raises, the work is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toolkit.messages import whole_characters
from toolkit.tools.json_schema import alternatives, types_of
from toolkit.tools.json_values import may_overflow

_CUT_OFF = (
    "The arguments were cut off at the output length limit. "
    "Send shorter ones, or split them over several calls."
)
# Keys that models put around the arguments, and keys that may stand beside these.
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

_WORDS = {
    "True": "true",
    "False": "false",
    "None": "null",
    ",": "",
    "(": "[",
    ")": "]",
}
_CONTROL_CHARACTERS = {chr(code): f"\\u{code:04x}" for code in range(32)}
_ESCAPES = {"\\'": "'", "\\x": "\\u00", '"': '\\"', **_CONTROL_CHARACTERS}
_DECODER = json.JSONDecoder()
_VISIBLE = re.compile(r"\S")
# The groups have the names of the repairs. Everything after a quote that is never closed belongs to it.
_TOKEN = re.compile(
    r"""(?s)(?P<escapes>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<python_literal>'[^'\\]*(?:\\.[^'\\]*)*'|\b(?:True|False|None|0[xX][0-9a-fA-F]+|\d+(?:_\d+)+)\b)"""
    # A tuple is an array; without a comma it is only an expression.
    r"""|(?P<expression>\([^(),]*\))|(?P<tuple>[()])"""
    r"""|(?P<escaped_quotes>\\"[^"\\]*\\")|(?P<trailing_comma>(?<![\[{,:]),(?=\s*[\]})]))|(?P<unclosed>["'].*)"""
)
_LABEL = re.compile(
    r"\s*(?:(?:arguments|args|parameters|params|(?:action |tool )?input)\s*[:=]\s*)?(?=\{)",
    re.IGNORECASE,
)
# A string, or a name before "=".
_KEYWORD = re.compile(
    r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?:(?<=,)|\A)\s*(?P<key>\w+)\s*=(?!=)"""
)
_IN_STRING = re.compile(r'(?s)\\x(?=[0-9a-fA-F]{2})|\\.|["\x00-\x1f]')

PLAIN_TEXT = "plain_text"
"""The repair of a call whose arguments may be plain text."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Arguments as a JSON object, with the name of each repair that reading needed.

    If they could not be read, `problem` says why, in sentences for the model, and `arguments` is {}.
    `other` is then the JSON value that was sent instead of an object, if it was one: an array, a
    string, a number.
    """

    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()
    problem: str = ""
    other: Any = None


def parse(raw: object, *, truncated: bool = False) -> Parsed:
    """Read what a model sent as arguments. Never raises, never guesses.

    `raw` is JSON text (str, bytes), an object as some servers send it, or None. Nothing (blank, null,
    an empty array) means {}. Only what has one reading is repaired; what was cut off is never
    completed. With `truncated` (the server said that the output limit ended the reply), anything that
    is not a whole object is reported as cut off.
    """
    import pydantic_core  # 30 ms, paid at the first call

    try:
        text = raw if isinstance(raw, (str, bytes)) else _as_text(raw)
        value = pydantic_core.from_json(text, allow_inf_nan=False)
        if may_overflow(text if isinstance(text, str) else text.decode()):
            json.dumps(value, allow_nan=False)
    except Exception:
        value = None
    if type(value) is dict:
        return Parsed(value)
    repairs: tuple[str, ...] = ()
    try:
        value, repairs = read_json(_as_text(raw).lstrip("\ufeff"))
        problem = (
            f"The arguments are {json_excerpt(value)}, which is no JSON object. "
            "Send one JSON object that names the parameters."
        )
    except Exception as error:
        # A text that is nested too deeply, or an SDK's object, whose methods raise what they like.
        value, problem = "", f"The arguments are not valid JSON: {_in_words(error)}."
        return Parsed({}, problem=_CUT_OFF if truncated else problem)
    if isinstance(value, dict):
        return Parsed(value, repairs)
    if value in (None, []) and not truncated:
        return Parsed({}, repairs)
    return Parsed({}, repairs, _CUT_OFF if truncated else problem, value)


def _in_words(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        is_incomplete = error.pos >= len(error.doc.rstrip())
        if is_incomplete or error.msg.startswith("Unterminated string"):
            return f"{error}; it is incomplete, so send the whole object"
        return f"{error}; send one JSON object and nothing else"
    if "JSON compliant" in str(error):
        return f"a number is not finite ({error})"
    return str(error)


def read_json(text: str) -> tuple[Any, tuple[str, ...]]:
    """The one JSON value of a text (None if blank) and the repairs. ValueError says why there is none."""
    import pydantic_core

    repairs: list[str] = []
    value = _read_layer(text, repairs)
    while isinstance(value, str) and value.lstrip()[:1] in ("", "{", "[", '"', "`"):
        repairs.append("double_encoded")
        value = _read_layer(value, repairs)
    whole = whole_characters(value)
    if whole != value:
        repairs.append("surrogate")
    # The strict reader has the last word: no infinity, no nesting that the validator could not follow.
    checked = json.dumps(whole, ensure_ascii=False, allow_nan=False)
    return pydantic_core.from_json(checked), tuple(dict.fromkeys(repairs))


def _as_text(raw: object) -> str:
    if isinstance(raw, (bytes, bytearray)):
        return raw.decode()
    if isinstance(raw, str):
        return raw
    return json.dumps(dict(raw) if isinstance(raw, Mapping) else raw)


def _read_layer(text: str, repairs: list[str]) -> Any:
    fence = re.match(r"\s*```\w*", text)
    if fence:
        repairs.append("code_fence")
        text = text[fence.end() :].rstrip().removesuffix("```")
    try:
        return _single_value(text, repairs)
    except ValueError:
        rewritten = _rewritten(text, repairs)
    try:
        return _single_value(rewritten, repairs)
    except ValueError:
        value = _lone_object(rewritten)
        if value is None:
            raise
    repairs.append("surrounding_text")
    return value


def _lone_object(text: str) -> Any:
    """The one object of a text, if a label stands before it, or prose or an end tag behind it; else None."""
    label = _LABEL.match(text)
    if not label:
        return None
    try:
        value, end = _DECODER.raw_decode(text, label.end())
    except ValueError:
        return None
    rest = text[end:].lstrip()
    is_prose = not rest.startswith((",", ":", '"', "]")) and not set(rest) & set("{}")
    return value if is_prose else None


def _single_value(text: str, repairs: list[str]) -> Any:
    """The value of a text; of several that are equal, the first. Raises ValueError if they differ."""
    values: list[Any] = []
    start = _VISIBLE.search(text)
    while start:
        value, end = _DECODER.raw_decode(text, start.start())
        values.append(value)
        start = _VISIBLE.search(text, end)
    # Compared as text, because 1 == 1.0 == True in Python.
    if len({json.dumps(value, sort_keys=True) for value in values}) > 1:
        raise ValueError(
            f"{len(values)} values that differ; send one JSON object, and each further one as a call of its own"
        )
    if len(values) > 1:
        repairs.append("concatenated_duplicate")
    return values[0] if values else None


def _rewritten(text: str, repairs: list[str]) -> str:
    """The text with what Python or JavaScript write differently as JSON. Adds no bracket, closes no quote.

    It works token by token, so that nothing inside a string is taken for structure. What is still not
    JSON afterwards is refused by the decoder. `ast.literal_eval` would warn about escapes, exhaust its
    stack, and cannot read `null`.
    """

    def rewrite(match: re.Match[str]) -> str:
        kind, token = str(match.lastgroup), match[0]
        is_empty = token.strip("( )") == ""
        if kind == "unclosed" or (kind == "expression" and not is_empty):
            return token
        if kind == "expression":
            repairs.append("python_literal")
            return "[]"
        if token[0].isdigit():
            repairs.append(kind)
            return str(int(token, 0))
        quote = 2 if kind == "escaped_quotes" else 1
        inner = _IN_STRING.sub(_escape, token[quote:-quote])
        rewritten = _WORDS.get(token, f'"{inner}"')
        if rewritten != token:
            repairs.append("python_literal" if kind == "tuple" else kind)
        return rewritten

    return _TOKEN.sub(rewrite, text)


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], match[0])


def unwrap(parsed: Parsed, name: str, parameters: Mapping[str, Any]) -> Parsed:
    """Remove the envelope that a model put around the arguments of tool `name`, if it can be nothing else.

    `parameters` is the tool's JSON Schema. An envelope is `{"arguments": {...}}` or one of its
    relatives, with nothing beside it but the tool's name or words of a schema, for a tool that has no
    such parameter. A bare array is an envelope for a tool whose only required (or only) parameter
    takes an array.
    """
    properties = parameters.get("properties") or {}
    if isinstance(parsed.other, list):
        candidates = parameters.get("required") or list(properties)
        if len(candidates) == 1:
            only = candidates[0]
            if "array" in types_of(properties.get(only), parameters):
                return Parsed({only: parsed.other}, (*parsed.repairs, "bare_array"))
    arguments = parsed.arguments
    names = {key for key in _NAME_KEYS if arguments.get(key) == name}
    keys = arguments.keys() - _SCHEMA_KEYS - names
    if len(keys) != 1 or not keys <= _WRAPPERS | {name}:
        return parsed
    has_own_key = bool(arguments.keys() & properties.keys())
    if has_own_key or parameters.get("additionalProperties"):
        return parsed
    inner = parse(arguments[keys.pop()])
    is_schema = any(
        _is_schema(value, properties.get(key)) for key, value in inner.arguments.items()
    )
    if inner.problem or is_schema:
        return parsed
    repairs = (*parsed.repairs, "wrapper", *inner.repairs)
    return unwrap(replace(inner, repairs=repairs), name, parameters)


def read_plain(text: str, parameters: Mapping[str, Any]) -> Parsed:
    """Arguments in plain text: an object, `name='value'` as in Python, or the value of the only parameter.

    The only parameter is the one that is required, or the only one at all.
    """
    parsed = parse(text)
    properties = parameters.get("properties") or {}
    text = text.strip()
    if not parsed.problem or not text or text.startswith("{"):
        return parsed
    by_name = parse("{" + _KEYWORD.sub(_as_key, text) + "}")
    if by_name.arguments and by_name.arguments.keys() <= properties.keys():
        return Parsed(by_name.arguments)
    names = parameters.get("required") or list(properties)
    if len(names) != 1 or isinstance(parsed.other, list):
        return parsed
    only = names[0]
    label = re.match(rf"[\"']?{re.escape(only)}[\"']?\s*[=:：]\s*", text)
    text = text[label.end() :] if label else text
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        values = mended(text)
        text = values[0] if values else text[1:-1]
    return Parsed({only: typed(text, properties.get(only), parameters)})


def _as_key(match: re.Match[str]) -> str:
    return f'"{match["key"]}":' if match["key"] else match[0]


def mended(text: str) -> list[Any]:
    """The one value that `text` stands for, in a list; an empty list if it stands for none."""
    arguments = parse(f'{{"value": {text}}}').arguments
    return [arguments["value"]] if arguments.keys() == {"value"} else []


def typed(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value that `text` stands for, if a form writes all values as text.

    The schema decides: text stays text if a string is allowed or the parameter is not known.
    """
    if not isinstance(schema, Mapping):
        return text
    types = set(types_of(schema, root))
    for node in alternatives(schema, root):
        choices = [*node.get("enum", ()), node.get("const")]
        if any(isinstance(choice, str) for choice in choices):
            types.add("string")
    word = text.strip()
    is_null = "null" in types and word in ("null", "None")
    is_container = types & {"object", "array"} and word.startswith(("{", "["))
    if "string" in types and not is_null and not is_container:
        return text
    values = mended(word)
    return values[0] if values else text


def _is_schema(value: Any, schema: Any) -> bool:
    """True if the model sent a property's schema back instead of a value for it."""
    if not isinstance(value, dict) or not isinstance(schema, Mapping):
        return False
    return bool(value.get("type", "") == schema.get("type"))


def resolve_name(name: str, known: Collection[str]) -> str | None:
    """The known tool that a name means: `functions.x` and `functions.x:0` mean `x`. Case matters."""
    # A control token of gpt-oss may be attached to the name.
    bare = name.partition("<|")[0].strip(" \t\r\n\"'`")
    short = re.sub(r"\A(?:functions?|tools?)\.|:\d+\Z", "", bare)
    return next((tool for tool in (name, bare, short) if tool in known), None)


def expand_parallel(
    arguments: Mapping[str, Any],
) -> list[tuple[str, dict[str, Any] | str]] | None:
    """The calls in one call of OpenAI's `multi_tool_use.parallel`, names as sent; None if it has another form."""
    with suppress(LookupError, TypeError):
        calls: list[tuple[str, dict[str, Any] | str]] = []
        for use in arguments["tool_uses"]:
            name = str(use["recipient_name"])
            parameters = use.get("parameters")
            is_object = isinstance(parameters, dict)
            calls.append((name, parameters if is_object else _as_text(parameters)))
        return calls or None
    return None


def json_excerpt(value: Any) -> str:
    """A value as JSON of at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return clipped(whole_characters(text), 60)


def clipped(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
