"""Calls that a model wrote as Python: read from the syntax tree, never run. Pure."""

from __future__ import annotations

import ast
import json
import keyword
import re

from toolkit.calls.parsing import resolve_name
from toolkit.dialects.leaked_values import Call, Tools

_PYTHON_ESCAPE = r"(\\[\n\\'\"abfnrtvxuUN0-7])|\\"
# A string, or a word of Python where the name of an argument stands.
_KEYWORD = (
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
    rf"|(?<=[(,\s])(?P<word>{'|'.join(keyword.kwlist)})(?=\s*=(?!=))"
)
_NAME_MARK = "_as_name"
_JSON_WORDS = {"true": True, "false": False, "null": None}


def whole_python(source: str, tools: Tools) -> list[Call]:
    """The calls in source that is nothing but calls, with literals as arguments."""
    # An escape that Python does not know ("\\d") means itself, but the parser warns of it.
    source = re.sub(_PYTHON_ESCAPE, lambda escape: escape[1] or r"\\", source.strip())
    source = re.sub(_KEYWORD, _as_name, source)
    try:
        statements = _JsonWords().visit(ast.parse(source)).body
        calls = [_call(node, tools) for node in _expressions(statements)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    known = [call for call in calls if call]
    return known if any(isinstance(call[1], dict) for call in known) else []


def _as_name(match: re.Match[str]) -> str:
    return f"{match[0]}{_NAME_MARK}" if match["word"] else match[0]


class _JsonWords(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_WORDS[node.id]) if node.id in _JSON_WORDS else node


def _expressions(statements: list[ast.stmt]) -> list[ast.expr]:
    """The expressions that source consists of, those in a list or a tuple among them; [] if it has a statement."""
    nodes: list[ast.expr] = []
    for statement in statements:
        if not isinstance(statement, ast.Expr):
            return []
        node = statement.value
        nodes += node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    return nodes


def _call(node: ast.expr, tools: Tools) -> Call | None:
    prefix = ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        # A hyphen in the name.
        prefix = ast.unparse(node.left).replace(" ", "") + "-"
        node = node.right
    if not isinstance(node, ast.Call):
        return None
    written_name = prefix + ast.unparse(node.func)
    name = resolve_name(written_name.removesuffix(".call"), tools)
    if name is None:
        return None
    source = ast.unparse(node)
    if node.args:
        return name, source
    try:
        literals = {
            str(kw.arg).removesuffix(_NAME_MARK): ast.literal_eval(kw.value)
            for kw in node.keywords
        }
        return name, json.loads(json.dumps(literals, allow_nan=False))
    except (ValueError, TypeError):
        return name, source
