"""What the pieces of a leaked call stand for: names, arguments, values, the tokens around them.

Pure: nothing a model wrote is run; only `literal` raises.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

Call = tuple[str, dict[str, Any] | str]
Tools = Mapping[str, Mapping[str, Any]]
Block = tuple[int, list[Call]]

PREFIX = r"(?:[|｜]DSML[|｜] ?|antml:)?"
TOKEN = re.compile(
    # The lookahead is for speed: most characters begin no token.
    rf"(?=[<\[a])(?:</?(?:\w+:)?tool_calls?>|</?{PREFIX}(?:(?:function_|tool_)?calls|function_call)>|</function>|</?answer>"
    r"|<[|｜]tool[▁_]calls?(?:[▁_]section)?[▁_](?:begin|start|end)[|｜]>|<\|tool_call\|?>|<tool_call\|>"
    r"|<\|(?:action_(?:start|end)|plugin|(?:START|END)_(?:ACTION|RESPONSE)|python_(?:start|end|tag))\|>|\[/?TOOL_CALLS\]"
    r"|(?:<\|start\|>\w*)?<\|channel\|>\w*|<\|start\|>\w*|<\|(?:message|constrain|end|call|return)\|>"
    r"|<\|(?:open|close)\|>(?:response|tools|message)<\|sep\|>|</s>|<turn\|>|<｜end▁of▁sentence｜>"
    r"|<\|(?:im_end|eot_id|eom_id|endoftext|END_OF_TURN_TOKEN)\|>|assistant(?:commentary|analysis|final)\b)"
)
GAP = re.compile(rf"(?:[\s;,]|{TOKEN.pattern})*")
STOP = re.compile(rf"\n?```|{TOKEN.pattern}")
_END = re.compile(r"<\|(?:call|end)\|>|<[|｜]tool[▁_]call[▁_]end[|｜]>|</function>")
SPACE = re.compile(r"\s*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = set("\n\\'\"abfnrtvxuUN01234567")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def skip(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where a pattern that may match nothing ends."""
    match = pattern.match(text, start)
    return match.end() if match else start


def resolve(name: object, tools: Tools) -> str | None:
    """The given tool that is meant, if one is."""
    if not isinstance(name, str):
        return None
    return next((known for known in (name, name.removeprefix("functions.")) if known in tools), None)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(strict=False, parse_constant=_refuse)


def decode(text: str, start: int) -> tuple[Any, int] | None:
    """The JSON value at `start`, and its end."""
    try:
        return _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def arguments_at(text: str, start: int) -> tuple[dict[str, Any] | str, int] | None:
    """The object at `start`, and its end. Raw text if it is closed but no JSON, None if it is cut."""
    decoded = decode(text, start) if text.startswith("{", start) else None
    if decoded:
        return decoded
    if end := _END.match(text, start):
        return {}, end.start()
    stop = STOP.search(text, start)
    raw = text[start : stop.start() if stop else len(text)].rstrip()
    return (raw, start + len(raw)) if is_closed(raw) else None


def is_closed(raw: str) -> bool:
    return raw[:1] == "{" and raw[-1:] == "}" and ":" in raw and raw.count("{") == raw.count("}")


def typed(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value that `text` stands for where a form writes all values as text.

    The schema decides: text stays text where a string is allowed or the parameter is not known.
    """
    types = _types(schema, root)
    word = text.strip()
    if "null" in types and word in ("null", "None"):
        return None
    is_container = bool(types & {"object", "array"}) and word[:1] in ("{", "[")
    if not isinstance(schema, Mapping) or ("string" in types and not is_container):
        return text
    if word in _WORDS:
        return _WORDS[word]
    decoded = decode(word, 0)
    if decoded and decoded[1] == len(word):
        return decoded[0]
    statements = parse_python(word) if word[:1] in ("{", "[") else []
    try:
        return literal(statements[0].value) if len(statements) == 1 else text
    except (ValueError, RecursionError):
        return text


def _types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> set[str]:
    if depth > 4 or not isinstance(schema, Mapping):
        return set()
    if isinstance(reference := schema.get("$ref"), str):
        definitions = root.get("$defs") or root.get("definitions") or {}
        return _types(definitions.get(reference.rpartition("/")[2]), root, depth + 1)
    given = schema.get("type", [])
    found = {given} if isinstance(given, str) else set(given)
    for key in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(key, ()):
            found |= _types(branch, root, depth + 1)
    has_text = any(isinstance(value, str) for value in (*schema.get("enum", ()), schema.get("const")))
    return found | {"string"} if has_text else found


def parse_python(source: str) -> list[ast.Expr]:
    """The expressions of source that is nothing but expressions; none if it is anything else."""
    # An escape that Python does not know ("\\d") means itself, but the parser warns of it.
    source = _ESCAPE.sub(lambda escape: escape[0] if escape[1] in _ESCAPES else "\\" + escape[0], source.strip())
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    expressions = [statement for statement in statements if isinstance(statement, ast.Expr)]
    return expressions if len(expressions) == len(statements) else []


def literal(node: ast.AST | None) -> Any:
    """The JSON value that a Python literal stands for. Raises ValueError for anything else."""
    match node:
        case ast.Constant(value=None | bool() | str() | int() | float()):
            return node.value
        case ast.List() | ast.Tuple() | ast.Set():
            return [literal(item) for item in node.elts]
        case ast.Dict():
            return {str(literal(key)): literal(value) for key, value in zip(node.keys, node.values, strict=True)}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
    raise ValueError("no literal")
