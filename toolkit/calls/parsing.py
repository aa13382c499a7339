"""What a model sent, read carefully: text to arguments, or a reason.

Everything here reads untrusted input: nothing is evaluated, no reader raises, the work is bounded. Validation stands
in the middle: `parse` and `unwrap` come before it, `mend` and `complain` after it has failed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from operator import getitem
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
_ARRAY_ERRORS = (
    "list_type",
    "tuple_type",
    "set_type",
    "deque_type",
    "sequence_str",
)  # how their names end
_OBJECT_ERRORS = (
    "dict_type",
    "model_type",
    "model_attributes_type",
    "dataclass_type",
    "counter_type",
)
_WANTED = {
    list: _ARRAY_ERRORS,
    dict: _OBJECT_ERRORS,
    int: ("type_integer", "type_number"),
    float: ("type_number",),
    bool: ("type_boolean",),
}
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
        value, repairs = _read(_text(raw).lstrip("\ufeff"))
    except Exception as error:  # too deep a text, or an object of some SDK, whose methods raise what they like
        return Parsed(
            {},
            problem=_CUT_OFF
            if truncated
            else f"The arguments are not valid JSON: {error}.",
        )
    if isinstance(value, dict) or (value in (None, []) and not truncated):
        return Parsed(value or {}, repairs)
    problem = f"The arguments are {_shown(value)}, which is no JSON object. Send one that names the parameters."
    return Parsed({}, repairs, _CUT_OFF if truncated else problem, value)


def _text(raw: object) -> str:
    text = raw.decode() if isinstance(raw, (bytes, bytearray)) else raw
    return (
        text
        if isinstance(text, str)
        else json.dumps(dict(text) if isinstance(text, Mapping) else text)
    )


def _read(text: str) -> tuple[Any, tuple[str, ...]]:
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


def mend(
    arguments: Object,
    errors: Errors,
    properties_with_default: Collection[str],
    parameters: Schema | None = None,
) -> tuple[Object, tuple[str, ...]] | None:
    """Mend what validation refused and what has one reading; None where there is nothing of that kind.

    `errors` is pydantic's `ValidationError.errors(include_url=False)` for `arguments`, which stay untouched. Mended are
    the JSON text of an array or object where one was wanted and no string allowed, and a null that stands for "the
    default": its key is left out. A nested null needs the tool's JSON Schema as `parameters`, which tells a property
    that may be missing from an entry of a free map. The caller validates again, for text in text up to three times,
    and tells the first errors if that fails.
    """
    refused: dict[Path, list[str]] = {}
    for error in errors:
        if path := _path(arguments, error):
            refused.setdefault(path, []).append(error["type"])
    mended, names = deepcopy(arguments), set()
    for (*parents, last), kinds in refused.items():
        node: Any = functools.reduce(getitem, parents, mended)  # type: ignore[arg-type]
        if node[last] is None:
            if last in (
                _optional(node, parameters) if parents else properties_with_default
            ):
                del node[last]
                names.add("null_default")
        elif (value := _contained(node[last], kinds)) is not None:
            node[last] = value
            names.add("json_text")
    return (mended, tuple(sorted(names))) if names else None


def _path(arguments: Any, error: Mapping[str, Any]) -> Path:
    """Where the text or null that an error refuses stands, () if nowhere; union members' labels are passed over."""
    path, node, given = Path(), arguments, error["input"]
    for part in error["loc"]:
        with suppress(LookupError, TypeError):
            node = node[part]
            path = (*path, part)
    return path if (given is None or isinstance(given, str)) and node == given else ()


def _optional(node: Any, schema: Any) -> set[str]:
    """The keys that may be missing from an object, by those parts of a schema that know all of its keys."""
    parts = (
        schema.values()
        if isinstance(schema, Mapping)
        else schema
        if isinstance(schema, list)
        else ()
    )
    found = set[str]().union(*(_optional(node, part) for part in parts))
    known = schema.get("properties") if isinstance(schema, Mapping) else None
    if (
        isinstance(known, Mapping)
        and isinstance(node, dict)
        and node.keys() <= known.keys()
    ):
        found |= known.keys() - schema.get("required", ())
    return found


def _contained(text: str, kinds: list[str]) -> Any:
    """The JSON value in a text, if one of its kind was wanted and no rule refused a text whose type was welcome.

    Scalars are met here only where somebody wrote the schema: pydantic reads them out of text itself.
    """
    judged = any(
        kind.startswith(("string_too", "string_pattern", "value_error", "assertion"))
        for kind in kinds
    )
    with suppress(ValueError, RecursionError):
        value = _read(text)[0]
        ends = _WANTED.get(type(value), ())
        return (
            value if not judged and any(kind.endswith(ends) for kind in kinds) else None
        )
    return None


def complain(
    name: str, errors: Errors, parameters: Schema, attempts_left: int | None = None
) -> str:
    """The errors of one call as a short text for the model: each field, what was expected, what came.

    `errors` is as for `mend`; an entry without `loc` is told by its `msg` alone, so that `{"msg": parsed.problem}`
    tells of what could not be read. The known parameters follow, and how many attempts are left. At most 8 fields and
    2,000 characters.
    """
    fields: dict[Path, list[Mapping[str, Any]]] = {}
    for error in errors[:100]:
        fields.setdefault(_field(error, parameters), []).append(error)
    properties, required = (
        parameters.get("properties") or {},
        parameters.get("required") or (),
    )
    missing = [
        str(path[0])
        for path, group in fields.items()
        if group[0].get("type") == "missing" and len(path) == 1
    ]
    lines = [
        _complaint(path, group, missing or list(properties))
        for path, group in list(fields.items())[:8]
    ]
    known = [
        f"{key} ({'|'.join(types_of(schema, parameters)) or 'any'}{', required' if key in required else ''})"
        for key, schema in properties.items()
    ]
    told, listed = _clip("\n".join(lines), 1300), _clip(", ".join(known) or "none", 500)
    return f"Invalid arguments for {name}:\n{told}\nParameters: {listed}.{_attempts(attempts_left)}"


def _field(error: Mapping[str, Any], parameters: Schema) -> Path:
    """The error's location without the labels that pydantic gives to members of a union."""
    location, labels = (
        tuple(error.get("loc", ())),
        {"int", "float", "str", "bool", *parameters.get("$defs", ())},
    )
    return location[:1] + tuple(
        part for part in location[1:] if part not in labels and "[" not in str(part)
    )


def _complaint(path: Path, group: Errors, rivals: list[str]) -> str:
    kind, field = group[0].get("type"), _clip(".".join(map(str, path)), 100)
    if kind == "missing":
        return f"- {field}: required, but missing"
    if kind == "extra_forbidden":
        near = rivals if len(rivals) == 1 else get_close_matches(field, rivals, 1)
        return f"- {field}: unexpected{f'; did you mean {near[0]}?' if near and len(path) == 1 else ''}"
    expected = " or ".join(dict.fromkeys(map(_expectation, group))).replace(
        " or expected ", " or "
    )
    return (
        f"- {field}: {_clip(expected, 400)}; got {_shown(group[0].get('input'))}"
        if path
        else f"- {expected}"
    )


def _expectation(error: Mapping[str, Any]) -> str:
    kind = str(error.get("type"))
    if kind.endswith(_ARRAY_ERRORS + _OBJECT_ERRORS):
        return (
            "expected an array"
            if kind.endswith(_ARRAY_ERRORS)
            else "expected an object"
        )
    message = str(error.get("msg", ""))
    return re.sub(
        r"\AInput should be (.*?)(, (unable to|got a) .*)?\Z",
        r"expected \1",
        message,
        flags=re.DOTALL,
    )


def _shown(value: Any) -> str:
    return _clip(
        whole_characters(json.dumps(value, ensure_ascii=False, default=str)), 60
    )


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _attempts(left: int | None) -> str:
    return "" if left is None else f"\nAttempts left: {left}."


def unknown_tool(
    name: str, known: Sequence[str], attempts_left: int | None = None
) -> str:
    """The answer to a call of a tool that is not there: the wrong name, the nearest names, then all others."""
    near = get_close_matches(_clip(name, 64), known, 3, 0.5)
    guess = f" Did you mean {' or '.join(near)}?" if near else ""
    listed = _clip(", ".join(dict.fromkeys([*near, *known])), 600) or "none"
    return f"There is no tool {_shown(name)}.{guess} Tools: {listed}.{_attempts(attempts_left)}"


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
