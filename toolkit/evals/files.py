"""Cases out of files: YAML, JSON lines, and those of the Berkeley Function-Calling Leaderboard.

A file is YAML or JSON lines with the fields of `Case` (`calls` as a list of objects with `tool` and `arguments`). A
matcher is an object with its one name: `{contains: "Rom"}`, `{near: 3.5, tolerance: 0.1}`, `{one_of: [a, b]}`; with
`optional: true` the argument may also be left out. To expect an object that looks like that, write `{equal: {…}}`.

Files of the Leaderboard (BFCL) are read as they are published (questions and functions in one file, the acceptable
values in `possible_answer/` beside it), and in the form `id, messages, tools, calls` with the functions in
`tools.jsonl` beside. As there, texts are compared without case, blanks and the signs ,./-_*^, and an argument that is
not listed is wrong.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from toolkit.evals import matchers
from toolkit.evals.cases import Arguments, Case, Expected
from toolkit.evals.matchers import Matcher, one_of
from toolkit.tools.json_schema import rewrite

_Table = Callable[[Path, str], dict[str, Any]]


def load_cases(path: str | Path) -> list[Case]:
    """Read the cases of a YAML (.yaml, .yml; needs PyYAML), JSON lines (.jsonl, .json) or BFCL file.

    Raises ValueError for what is not a case, with its line and field, and if two have one id.
    """
    path = Path(path)
    table = functools.cache(_rows_by)
    cases: dict[str, Case] = {}
    places: dict[str, str] = {}
    for place, row in list(_rows(path)):
        try:
            case = _case(row, path, table)
            if case.id in cases:
                raise ValueError(
                    f"the id {case.id!r} is taken by {places[case.id]}. Give one of them another 'id'."
                )
        except KeyError as error:
            raise ValueError(f"{place}: the field {error} is missing.") from error
        except (ValueError, TypeError) as error:
            raise ValueError(f"{place}: {error}") from error
        cases[case.id], places[case.id] = case, place
    return list(cases.values())


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The place and the content of each entry of a file."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix in (".yaml", ".yml"):
        yield from _yaml_rows(path, text)
        return
    if path.suffix not in (".jsonl", ".json"):
        raise ValueError(
            f"{path}: cases are read from .yaml, .yml, .jsonl and .json files."
        )
    for number, line in enumerate(text.split("\n"), 1):
        place = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            yield place, json.loads(line)
        except ValueError as error:
            raise ValueError(f"{place}: a line is one JSON object: {error}.") from error


def _yaml_rows(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        import yaml
    except ImportError as error:
        raise ImportError(
            f"PyYAML reads {path.name}. Install it: pip install 'toolkit-agent[evals]'."
        ) from error
    try:
        node, rows = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: this is not YAML: {error}") from error
    if not isinstance(rows, list):
        raise ValueError(
            f"{path}: the file must be a list of cases, each beginning with '- input: …'."
        )
    for entry, row in zip(node.value, rows, strict=True):
        place = f"{path}, line {entry.start_mark.line + 1}"
        yield place, to_jsonable_python(row, fallback=str)  # YAML's dates become texts


def _rows_by(path: Path, key: str) -> dict[str, Any]:
    """The rows of a file beside that of the cases, by one of their fields; {} if there is no such file."""
    return {row[key]: row for _, row in _rows(path)} if path.exists() else {}


def _case(row: Any, path: Path, table: _Table) -> Case:
    if not isinstance(row, Mapping):
        raise ValueError("a case is an object with 'input' and 'tool' or 'calls'.")
    if "question" in row:
        return _published_bfcl_case(row, path, table)
    if {"messages", "calls"} <= row.keys():
        return _reshaped_bfcl_case(row, path, table)
    return _own_case(row)


# The fields of Case


def _own_case(row: Arguments) -> Case:
    values = {"input": row["input"], **row}
    _refuse_unknown(values, [each.name for each in fields(Case) if each.name != "_"])
    for name in {"tool", "arguments"} & values.keys():
        values[name] = _with_matchers(values[name])
    if isinstance(values.get("calls"), list):
        calls = enumerate(values["calls"], 1)
        values["calls"] = [_expected(number, call) for number, call in calls]
    if isinstance(values.get("then"), Mapping):
        values["then"] = _own_case(values["then"])
    return Case(**values)


def _expected(number: int, call: Any) -> Expected:
    if not isinstance(call, Mapping) or "tool" not in call:
        raise ValueError(
            f"'calls', number {number}: a call is an object with 'tool' and 'arguments'."
        )
    _refuse_unknown(call, ["tool", "arguments"])
    return Expected(**_with_matchers(dict(call)))


def _refuse_unknown(names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f"The fields are {', '.join(known)}."
            if close:
                hint = f"Did you mean {close[0]!r}?"
            raise ValueError(f"{name!r} is not a field. {hint}")


_KINDS = frozenset({"equal", "contains", "matches", "near", "one_of"})


def _with_matchers(value: Any) -> Any:
    """A value of a file with matchers in place of the objects that stand for them."""
    if isinstance(value, list):
        return [_with_matchers(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    kinds = _KINDS & value.keys()
    if len(kinds) != 1 or value.keys() - {*kinds, "tolerance", "optional"}:
        return {key: _with_matchers(item) for key, item in value.items()}
    (kind,) = kinds
    wanted = value[kind] if kind == "equal" else _with_matchers(value[kind])
    if kind != "one_of":
        matcher = getattr(matchers, kind)(wanted)
    elif isinstance(wanted, list):
        matcher = one_of(*wanted)
    else:
        raise ValueError(f"'one_of' takes a list, not {wanted!r}.")
    is_optional = bool(value.get("optional"))
    return replace(matcher, tolerance=value.get("tolerance"), optional=is_optional)


# The Berkeley Function-Calling Leaderboard: https://github.com/ShishirPatil/gorilla


def _published_bfcl_case(row: Arguments, path: Path, table: _Table) -> Case:
    if len(row["question"]) != 1:
        raise ValueError(
            "'question' has several turns, whose answers are programs. Such files cannot be read."
        )
    answers = path.parent / "possible_answer" / path.name
    answer = table(answers, "id").get(row["id"])
    if answer is None and "irrelevance" not in row["id"]:
        raise ValueError(f"{str(answers)!r} has no answer for {row['id']!r}.")
    tools = [rewrite(function, _with_json_type) for function in row["function"]]
    calls = answer["ground_truth"] if answer else []
    return _bfcl_case(row["id"], row["question"][0], tools, calls)


def _reshaped_bfcl_case(row: Arguments, path: Path, table: _Table) -> Case:
    own = row.get("definitions") or {}
    shared = table(path.with_name("tools.jsonl"), "name")
    tools = [own.get(name) or shared.get(name) or name for name in row["tools"]]
    return _bfcl_case(row["id"], row["messages"], tools, row["calls"])


def _bfcl_case(case_id: str, messages: Any, tools: list[Any], calls: Any) -> Case:
    expected = []
    for call in calls:
        if not isinstance(call, Mapping) or len(call) != 1:
            raise ValueError("an expected call is an object with one key, the tool.")
        for name, arguments in call.items():
            expected.append(Expected(name, _acceptable_arguments(arguments)))
    return Case(messages, calls=expected, exact=True, id=case_id, tools=tools)


def _acceptable_arguments(arguments: Arguments) -> dict[str, Any]:
    """A matcher for each argument: one of these values. "" among them means that it may be left out."""
    acceptable = {}
    for name, values in arguments.items():
        choices = values if isinstance(values, list) else [values]
        matcher = one_of(*map(_loosely, choices))
        acceptable[name] = replace(matcher, optional="" in choices)
    return acceptable


def _loosely(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _acceptable_arguments(value)
    if isinstance(value, list):
        return [_loosely(item) for item in value]
    return Matcher("worded", value) if isinstance(value, str) else value


# Its words come from Python.
_JSON_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "any": ["string", "number", "boolean", "object", "array", "null"],
}


def _with_json_type(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str):
        schema["type"] = _JSON_TYPES.get(kind, kind)
    return schema
