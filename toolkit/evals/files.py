"""Cases out of files: YAML, JSON lines, and those of the Berkeley Function-Calling Leaderboard.

A file is YAML or JSON lines with the fields of `Case` (`calls` as a list of objects with `tool` and `arguments`). A
matcher is an object with its one name: `{contains: "Rom"}`, `{near: 3.5, tolerance: 0.1}`, `{one_of: [a, b]}`; with
`optional: true` the argument may be left out as well. To expect an object that looks so, write `{equal: {…}}`.

Files of the Leaderboard (BFCL) are read as they are published (questions and functions in one file, the acceptable
values in `possible_answer/` beside it), and in the form `id, messages, tools, calls` with the functions in
`tools.jsonl` beside. As there, texts are compared without case, blanks and the signs ,./-_*^, and no argument may be
given that is not listed.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from toolkit.evals.cases import (
    Case,
    Expected,
    Matcher,
    contains,
    equal,
    jsonable,
    matches,
    near,
    one_of,
)


def load_cases(path: str | Path) -> list[Case]:
    """Read the cases of a YAML (.yaml, .yml; needs PyYAML), JSON lines (.jsonl, .json) or BFCL file.

    Raises ValueError for what is no case, with its line and field, and where two have one id.
    """
    rows, first = list(_rows(path := Path(path))), dict[str, str]()
    table = functools.cache(_read_table)
    cases: list[Case] = []
    for where, row in rows:
        try:
            if not isinstance(row, Mapping):
                raise ValueError(
                    "a case is an object with 'input' and 'tool' or 'calls'."
                )
            is_bfcl = "question" in row or {"messages", "calls"} <= row.keys()
            case = _read_bfcl(row, path, table) if is_bfcl else _read_case(row)
            if case.id in first:
                raise ValueError(
                    f"the id {case.id!r} is taken by {first[case.id]}. Give one of them another 'id'."
                )
        except (ValueError, TypeError, KeyError) as error:
            told = (
                f"the field {error} is missing."
                if isinstance(error, KeyError)
                else error
            )
            raise ValueError(f"{where}: {told}") from error
        first[case.id] = where
        cases.append(case)
    return cases


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Each entry of a file, and where it stands."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix in (".yaml", ".yml"):
        yield from _yaml_rows(path, text)
    elif path.suffix not in (".jsonl", ".json"):
        raise ValueError(
            f"{path}: cases are read from .yaml, .yml, .jsonl and .json files."
        )
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    yield f"{path}, line {number}", json.loads(line)
                except ValueError as error:
                    raise ValueError(
                        f"{path}, line {number}: a line is one JSON object: {error}."
                    ) from error


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
        raise ValueError(f"{path}: this is no YAML: {error}") from error
    if not isinstance(rows, list):
        raise ValueError(
            f"{path}: the file is a list of cases, each begun with '- input: …'."
        )
    for entry, row in zip(node.value, rows, strict=True):
        yield (
            f"{path}, line {entry.start_mark.line + 1}",
            jsonable(row),
        )  # YAML's dates become texts


def _read_case(row: Mapping[str, Any]) -> Case:
    given = {"input": row["input"], **row}
    _refuse_unknown(given, [known.name for known in fields(Case) if known.name != "_"])
    if isinstance(given.get("calls"), list):
        for number, call in enumerate(given["calls"], 1):
            if not isinstance(call, Mapping) or "tool" not in call:
                raise ValueError(
                    f"'calls', number {number}: a call is an object with 'tool' and 'arguments'."
                )
            _refuse_unknown(call, ["tool", "arguments"])
        given["calls"] = [
            Expected(**_read_wanted(dict(call))) for call in given["calls"]
        ]
    given |= {
        name: _read_wanted(given[name])
        for name in ("tool", "arguments")
        if name in given
    }
    if isinstance(given.get("then"), Mapping):
        given["then"] = _read_case(given["then"])
    return Case(**given)


def _refuse_unknown(given: Iterable[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = (
                f"Did you mean {near[0]!r}?"
                if near
                else f"There are {', '.join(known)}."
            )
            raise ValueError(f"{name!r} is no field. {hint}")


_MATCHERS: dict[str, Callable[..., Matcher]] = {
    "equal": equal, "contains": contains, "matches": matches, "near": near, "one_of": lambda values: one_of(*values),
}  # fmt: skip


def _read_wanted(value: Any) -> Any:
    """A value of a file, its matchers made of the objects that stand for them."""
    if isinstance(value, list):
        return [_read_wanted(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    kinds = _MATCHERS.keys() & value.keys()
    if len(kinds) != 1 or value.keys() - {*kinds, "tolerance", "optional"}:
        return {key: _read_wanted(each) for key, each in value.items()}
    kind = kinds.pop()
    if kind == "one_of" and not isinstance(value[kind], list):
        raise ValueError(f"'one_of' takes a list, not {value[kind]!r}.")
    made = _MATCHERS[kind](
        value[kind] if kind == "equal" else _read_wanted(value[kind])
    )
    return replace(
        made, tolerance=value.get("tolerance"), optional=bool(value.get("optional"))
    )


# The Berkeley Function-Calling Leaderboard: https://github.com/ShishirPatil/gorilla

_ANY = ["string", "number", "boolean", "object", "array", "null"]
_JSON_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "any": _ANY,
}  # its words come from Python


def _read_table(path: Path, key: str) -> dict[str, Any]:
    """The rows of a file that stands beside one of cases, if there is one."""
    return {row[key]: row for _, row in _rows(path)} if path.exists() else {}


def _read_bfcl(
    row: Mapping[str, Any], path: Path, table: Callable[[Path, str], dict[str, Any]]
) -> Case:
    if "question" not in row:
        own, known = (
            row.get("definitions") or {},
            table(path.with_name("tools.jsonl"), "name"),
        )
        messages, calls = row["messages"], row["calls"]
        tools = [own.get(name) or known.get(name) or name for name in row["tools"]]
    else:
        if len(row["question"]) != 1:
            raise ValueError(
                "'question' has several turns, whose answers are programs; such files are not read."
            )
        answers = table(place := path.parent / "possible_answer" / path.name, "id")
        if row["id"] not in answers and "irrelevance" not in row["id"]:
            raise ValueError(f"{str(place)!r} has no answer for {row['id']!r}.")
        messages, tools = row["question"][0], _with_json_types(row["function"])
        calls = answers.get(row["id"], {"ground_truth": []})["ground_truth"]
    if not all(isinstance(call, Mapping) and len(call) == 1 for call in calls):
        raise ValueError(
            "the expected calls are objects with one key, the tool's name."
        )
    named = [next(iter(call.items())) for call in calls]
    expected = [
        Expected(name, {key: _acceptable(values) for key, values in given.items()})
        for name, given in named
    ]
    return Case(messages, calls=expected, exact=True, id=row["id"], tools=tools)


def _acceptable(values: Any) -> Any:
    """One of these; "" among them means that it may be left out."""
    values = values if isinstance(values, list) else [values]
    return replace(one_of(*map(_worded, values)), optional="" in values)


def _worded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _acceptable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_worded(each) for each in value]
    return Matcher("worded", value) if isinstance(value, str) else value


def _with_json_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_json_types(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kind = schema.get("type")
    given = {key: _with_json_types(each) for key, each in schema.items()}
    return (
        {**given, "type": _JSON_TYPES.get(kind, kind)}
        if isinstance(kind, str)
        else given
    )
