"""What a model sent, read carefully: text to arguments, or a reason.

Everything here reads untrusted input: nothing is evaluated, no reader raises, the work is bounded. Validation stands
in the middle: `parse` and `unwrap` come before it, `mend` and `complain` after it has failed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from toolkit.messages import whole_characters

Error = Mapping[str, Any]
Path = tuple[str | int, ...]
Schema = Mapping[str, Any]

_CUT_OFF = "The arguments were cut off at the output length limit. Send shorter ones, or split them over several calls."
_LAYERS = 3  # of text in text, of wrapper in wrapper
_WRAPPERS = {"arguments", "parameters", "properties", "args", "kwargs", "params", "input", "function"}
_NAME_KEYS = {"name", "tool", "tool_name", "function", "function_name"}
_SCHEMA_KEYS = {"type", "required", "additionalProperties", "$schema", "id"}
_ARRAY_ERRORS = ("list_type", "tuple_type", "set_type", "deque_type", "sequence_str")  # how their names end
_OBJECT_ERRORS = ("dict_type", "model_type", "model_attributes_type", "dataclass_type", "counter_type")
_LABELS = {"int", "float", "str", "bool"}  # what pydantic calls such members of a union, beside list[int] and the like
_JUDGED = ("string_", "value_error", "assertion_error")  # a rule refused a value whose type was welcome
_WORDS = {"True": "true", "False": "false", "None": "null"}
_VISIBLE = re.compile(r"\S")
_TOKEN = re.compile(  # the groups are named after the repairs
    r"""(?P<string> "[^"\\]*(?:\\.[^"\\]*)*")
      | (?P<python_literal> '[^'\\]*(?:\\.[^'\\]*)*' | \b(?:True|False|None)\b)
      | (?P<escaped_quotes> \\"[^"\\]*\\") | (?P<unclosed> ["'])
      | (?P<trailing_comma> (?<![\[{,:]),(?=\s*[\]}]))""",
    re.VERBOSE | re.DOTALL,
)
_IN_STRING = re.compile(r'\\(?:x[0-9a-fA-F]{2}|.)|["\x00-\x1f]', re.DOTALL)


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
    try:
        value = _from_json()(raw if isinstance(raw, (str, bytes)) else _text(raw))
    except Exception:
        value = None
    if type(value) is dict:
        return Parsed(value)
    problem, repairs = "", tuple[str, ...]()
    try:
        value, repairs = _read(_text(raw))
    except Exception as error:  # too deep a text, or an object of some SDK, whose methods raise what they like
        problem = f"The arguments are not valid JSON: {error}."
    if isinstance(value, dict):
        return Parsed(value, repairs)
    if not problem and value not in (None, []):
        problem = f"The arguments are {_shown(value)}, which is no JSON object. Send one that names the parameters."
    return Parsed({}, repairs, _CUT_OFF if truncated else problem, value or None)


@functools.cache
def _from_json() -> Callable[[str | bytes], Any]:
    from pydantic_core import from_json  # 30 ms to import: paid at the first call

    return functools.partial(from_json, allow_inf_nan=False)


def _text(raw: object) -> str:
    if isinstance(raw, (bytes, bytearray)):
        return raw.decode()
    return raw if isinstance(raw, str) else json.dumps(dict(raw) if isinstance(raw, Mapping) else raw)


def _read(text: str) -> tuple[Any, tuple[str, ...]]:
    """The one JSON value of a text (None if blank) and what was mended. ValueError says why there is none."""
    repairs: list[str] = []
    value = _layer(text, repairs)
    for _ in range(_LAYERS):
        if isinstance(value, str) and value.lstrip()[:1] in ("", "{", "[", '"', "`"):
            repairs.append("double_encoded")
            value = _layer(value, repairs)
    # The strict reader has the last word: no infinity, no nesting that the validator could not follow.
    value = _from_json()(_whole(json.dumps(value, ensure_ascii=False), repairs))
    return value, tuple(dict.fromkeys(repairs))


def _layer(text: str, repairs: list[str]) -> Any:
    whole = _whole(text, repairs)
    if whole.startswith("\ufeff"):
        repairs.append("byte_order_mark")
    whole = whole.lstrip("\ufeff")
    if fence := re.match(r"\s*```\w*", whole):
        repairs.append("code_fence")
        whole = whole[fence.end() :].rstrip().removesuffix("```")
    try:
        return _decoded(whole, repairs)
    except ValueError as error:
        try:
            return _decoded(_as_json(whole, repairs), repairs)
        except ValueError:
            raise error from None  # its position is that in the text as sent


def _whole(text: str, repairs: list[str]) -> str:
    whole: str = whole_characters(text)
    if whole != text:
        repairs.append("surrogate")
    return whole


def _decoded(text: str, repairs: list[str]) -> Any:
    values, end = [], 0
    while visible := _VISIBLE.search(text, end):
        value, end = _DECODER.raw_decode(text, visible.start())
        values.append(value)
    if len(values) > 1:
        if len({json.dumps(value, sort_keys=True) for value in values}) > 1:  # as text, for 1 == 1.0 == True in Python
            raise ValueError(f"{len(values)} values that differ; send each as a call of its own")
        repairs.append("concatenated_duplicate")
    return values[0] if values else None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} has no JSON form")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _as_json(text: str, repairs: list[str]) -> str:
    """The text with what Python, JavaScript or haste wrote differently put as JSON; adds no bracket, closes no quote.

    Token by token, so that nothing inside a string is taken for structure; what the rewriting does not make JSON, the
    decoder refuses. `ast.literal_eval` would warn of escapes and exhaust its stack, and cannot read `null`.
    """

    def token(match: re.Match[str]) -> str:
        kind, piece = str(match.lastgroup), match[0]
        if kind == "unclosed":
            raise ValueError("unclosed quote")
        if kind != "string":
            repairs.append(kind)
        if kind == "trailing_comma":
            return ""
        edge = 2 if kind == "escaped_quotes" else 1
        return _WORDS.get(piece) or f'"{_IN_STRING.sub(in_string, piece[edge:-edge])}"'

    def in_string(match: re.Match[str]) -> str:
        piece = match[0]
        if piece < " ":
            repairs.append("control_characters")
            return f"\\u{ord(piece):04x}"
        if piece[:2] in ("\\'", "\\x"):
            repairs.append("python_literal")
            return "'" if piece == "\\'" else "\\u00" + piece[2:]
        return '\\"' if piece == '"' else piece

    return _TOKEN.sub(token, text)


def unwrap(parsed: Parsed, name: str, parameters: Schema) -> Parsed:
    """Take off the envelope that a model put around the arguments of tool `name`, where it can be nothing else.

    `parameters` is the tool's JSON Schema. An envelope is `{"arguments": {...}}` and its kin with nothing beside it
    but the tool's name or words of a schema, for a tool that has no such parameter; or a bare array for a tool whose
    one required (or one) parameter takes an array.
    """
    properties = parameters.get("properties") or {}
    if isinstance(parsed.other, list):
        required = parameters.get("required") or ()
        lone = list(required if len(required) == 1 else properties)
        if len(lone) == 1 and "array" in _types(properties.get(lone[0]), parameters):
            return Parsed({lone[0]: parsed.other}, (*parsed.repairs, "bare_array"))
    for _ in range(_LAYERS):
        if parsed.arguments.keys() <= properties.keys() or parameters.get("additionalProperties"):
            break
        beside = _SCHEMA_KEYS | {key for key in _NAME_KEYS if parsed.arguments.get(key) == name}
        held = [key for key in parsed.arguments if key not in beside]
        if len(held) != 1 or held[0] not in _WRAPPERS | {name} or properties.keys() & parsed.arguments.keys():
            break
        inner = parse(parsed.arguments[held[0]])
        if inner.problem or any(_echoes(value, properties.get(key)) for key, value in inner.arguments.items()):
            break
        parsed = replace(inner, repairs=(*parsed.repairs, "wrapper", *inner.repairs))
    return parsed


def _echoes(value: Any, schema: Any) -> bool:
    """The schema itself sent back, where a value should be."""
    return isinstance(value, dict) and isinstance(schema, Mapping) and value.get("type", "") == schema.get("type")


def _variants(schema: Any, parameters: Schema) -> list[Schema]:
    """A schema and its alternatives: references followed, unions spread, each once."""
    definitions = parameters.get("$defs") or parameters.get("definitions") or {}
    found: dict[int, Schema] = {}
    waiting = [schema]
    for node in waiting:
        if isinstance(node, Mapping) and id(node) not in found:
            found[id(node)] = node
            waiting += [member for key in ("anyOf", "oneOf", "allOf") for member in node.get(key, ())]
            waiting.append(definitions.get(str(node.get("$ref")).rpartition("/")[2]))
    return list(found.values())


def _parts(schemas: list[Schema], part: str | int, parameters: Schema) -> list[Schema]:
    """The schemas of one property, entry or item; none where the schemas know no such part."""
    found: list[Any] = []
    for schema in schemas:
        if isinstance(part, int):
            found += [schema.get("items"), *schema.get("prefixItems", ())[part : part + 1]]
        elif part in schema.get("properties", ()):
            found.append(schema["properties"][part])
        elif "[" not in part and part not in _LABELS:
            found += [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    return [variant for schema in found for variant in _variants(schema, parameters)]


def _types(schema: Any, parameters: Schema) -> list[str]:
    named = [variant.get("type", ()) for variant in _variants(schema, parameters)]
    return list(dict.fromkeys(name for one in named for name in ([one] if isinstance(one, str) else one)))


def mend(
    arguments: dict[str, Any],
    errors: Sequence[Error],
    properties_with_default: Collection[str],
    parameters: Schema | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Mend what validation refused and what has one reading; None where there is nothing of that kind.

    `errors` is pydantic's `ValidationError.errors(include_url=False)` for `arguments`, which stay untouched. Mended are
    the JSON text of an array or object where one was wanted and no string allowed, and a null that stands for "the
    default": its key is left out. A nested null needs the tool's JSON Schema as `parameters`, which tells a property
    that may be missing from an entry of a free map. The caller validates again, for text in text up to three times,
    and tells the first errors if that fails.
    """
    found = [(path, error) for error in errors if (path := _path(arguments, error))]
    kept = {path for path, error in found if error["type"].startswith(_JUDGED) and error["type"] != "string_type"}
    mended, names = deepcopy(arguments), set()
    for path, error in found:
        *parents, last = path
        node: Any = mended
        for part in parents:
            node = node[part]
        if path in kept or last not in _keys(node):
            continue
        if error["input"] is None and _may_be_missing(path, properties_with_default, parameters or {}):
            del node[last]
            names.add("null_default")
        elif error["input"] is not None and (value := _contained(error["input"], error["type"])) is not None:
            node[last] = value
            names.add("json_text")
    return (mended, tuple(sorted(names))) if names else None


def _path(arguments: Any, error: Error) -> Path:
    """Where the text or null that an error refuses stands, () if nowhere; union members' labels are passed over."""
    given = error.get("input")
    trails: list[tuple[Path, Any]] = [((), arguments)] if given is None or isinstance(given, str) else []
    for part in error["loc"]:
        deeper = [((*path, part), node[part]) for path, node in trails if part in _keys(node)]
        trails = (deeper + [trail for trail in trails if isinstance(part, str)])[:16]
    return next((path for path, node in trails if type(node) is type(given) and node == given), ())


def _keys(node: Any) -> Collection[str | int]:
    return node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()


def _may_be_missing(path: Path, with_default: Collection[str], parameters: Schema) -> bool:
    *parents, key = path
    if not parents:
        return key in with_default
    schemas = _variants(parameters, parameters)
    for part in parents:
        schemas = _parts(schemas, part, parameters)
    return any(key in schema.get("properties", ()) and key not in schema.get("required", ()) for schema in schemas)


def _contained(text: str, kind: str) -> Any:
    wanted = list if kind.endswith(_ARRAY_ERRORS) else dict if kind.endswith(_OBJECT_ERRORS) else ()
    try:
        value = _read(text)[0] if wanted else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, wanted) else None


def complain(name: str, errors: Sequence[Error], parameters: Schema, attempts_left: int | None = None) -> str:
    """The errors of one call as a short text for the model: each field, what was expected, what came.

    `errors` is as for `mend`; an entry without `loc` is told by its `msg` alone, so that `{"msg": parsed.problem}`
    tells of what could not be read. The known parameters follow, and how many attempts are left. At most 8 fields and
    2,000 characters.
    """
    fields: dict[Path, list[Error]] = {}
    for error in errors[:100]:
        fields.setdefault(_field(error, parameters), []).append(error)
    missing = [path for path, group in fields.items() if group[0].get("type") == "missing"]
    properties, required = parameters.get("properties") or {}, parameters.get("required") or ()
    lines = []
    for path, group in list(fields.items())[:8]:
        rivals = [str(other[-1]) for other in missing if other[:-1] == path[:-1]]
        said = _complaint(path, group, rivals or (list(properties) if len(path) == 1 else []))
        lines.append(f"- {_clip('.'.join(map(str, path)), 100)}: {said}" if path else f"- {said}")
    known = [
        f"{key} ({'|'.join(_types(schema, parameters)) or 'any'}{', required' if key in required else ''})"
        for key, schema in properties.items()
    ]
    told, listed = _clip("\n".join(lines), 1300), _clip(", ".join(known) or "none", 500)
    return f"Invalid arguments for {name}:\n{told}\nParameters: {listed}.{_attempts(attempts_left)}"


def _field(error: Error, parameters: Schema) -> Path:
    """The error's location by the schema's own names: without the labels that pydantic gives to members of a union."""
    location = tuple(error.get("loc", ()))
    forced = {1, len(location) if error.get("type") == "extra_forbidden" else 1}
    trails: list[tuple[Path, list[Schema]]] = [((), _variants(parameters, parameters))]
    for depth, part in enumerate(location, 1):
        known = [((*path, part), inner) for path, schemas in trails if (inner := _parts(schemas, part, parameters))]
        if not known and (isinstance(part, int) or depth in forced):
            known = [((*path, part), []) for path, _ in trails]
        trails = (known + [trail for trail in trails if depth > 1 and isinstance(part, str)])[:16]
    return trails[0][0]


def _complaint(path: Path, group: list[Error], rivals: list[str]) -> str:
    kind = group[0].get("type")
    if kind == "missing":
        return "required, but missing"
    if kind == "extra_forbidden":
        near = rivals if len(rivals) == 1 else get_close_matches(_clip(str(path[-1]), 60), rivals, 1)
        return f"unexpected; did you mean {near[0]}?" if near else "unexpected"
    expected = " or ".join(dict.fromkeys(map(_expectation, group))).replace(" or expected ", " or ")
    return f"{_clip(expected, 400)}; got {_shown(group[0].get('input'))}" if path else expected


def _expectation(error: Error) -> str:
    kind = str(error.get("type"))
    if kind.endswith(_ARRAY_ERRORS + _OBJECT_ERRORS):
        return "expected an array" if kind.endswith(_ARRAY_ERRORS) else "expected an object"
    message = re.sub(r"\A(Value error|Assertion failed), ", "", str(error.get("msg", "")))
    return re.sub(r"\AInput should be (.*?)(, (unable to|got a) .*)?\Z", r"expected \1", message, flags=re.DOTALL)


def _shown(value: Any) -> str:
    return _clip(whole_characters(json.dumps(value, ensure_ascii=False, default=str)), 60)


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _attempts(left: int | None) -> str:
    return "" if left is None else f"\nAttempts left: {left}."


def unknown_tool(name: str, known: Sequence[str], attempts_left: int | None = None) -> str:
    """The answer to a call of a tool that is not there: the wrong name, the nearest names, then all others."""
    near = get_close_matches(_clip(name, 64), known, 3, 0.5)
    tools = [*near, *(tool for tool in known if tool not in near)]
    guess = f" Did you mean {' or '.join(near)}?" if near else ""
    listed = ", ".join(tools[:30]) + (f" and {len(tools) - 30} more" if len(tools) > 30 else "")
    return f"There is no tool {_shown(name)}.{guess} Tools: {listed or 'none'}.{_attempts(attempts_left)}"


def resolve_name(name: str, known: Collection[str]) -> str | None:
    """The known tool that a name means: `functions.x` and `functions.x:0` mean `x`. Case is never folded."""
    bare = name.partition("<|")[0].strip(" \t\r\n\"'`")  # a control token of gpt-oss may cling to the name
    short = re.sub(r"\A(?:functions?|tools?)\.", "", bare)
    return next((tool for tool in (name, bare, short, re.sub(r":\d+\Z", "", short)) if tool in known), None)


def expand_parallel(arguments: Mapping[str, Any]) -> list[tuple[str, dict[str, Any] | str]] | None:
    """The calls inside one call of OpenAI's `multi_tool_use.parallel`, names as sent; None if it has not that form."""
    uses = arguments.get("tool_uses")
    uses = uses if isinstance(uses, list) else []
    if not all(isinstance(use, Mapping) and isinstance(use.get("recipient_name"), str) for use in uses):
        return None
    sent = [(use["recipient_name"], use.get("parameters")) for use in uses]
    return [(name, given if isinstance(given, dict) else _text(given)) for name, given in sent] or None
