"""The answers to calls that cannot run: what is wrong with them, and what to send instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from toolkit.calls.mending import ARRAY_ERRORS, OBJECT_ERRORS
from toolkit.calls.parsing import clipped, json_excerpt
from toolkit.tools.json_schema import types_of

Errors = Sequence[Mapping[str, Any]]
Path = tuple[str | int, ...]
Schema = Mapping[str, Any]


def complain(
    name: str, errors: Errors, parameters: Schema, attempts_left: int | None = None
) -> str:
    """The errors of one call as a short text for the model: each field, what was expected, what came.

    `errors` is as for `mend`. An entry without `loc` is reported by its `msg` alone, which serves for
    arguments that could not be read: `{"msg": parsed.problem}`. The known parameters follow, and how
    many attempts are left. At most 8 fields and 2,000 characters.
    """
    properties = parameters.get("properties") or {}
    errors_by_field: dict[Path, list[Mapping[str, Any]]] = {}
    for error in errors[:100]:
        path = _field(error, parameters)
        errors_by_field.setdefault(path, []).append(error)
    missing = [
        str(path[0])
        for path, group in errors_by_field.items()
        if group[0].get("type") == "missing" and len(path) == 1
    ]
    lines = [
        _complaint(path, group, missing or list(properties))
        for path, group in list(errors_by_field.items())[:8]
    ]
    complaints = clipped("\n".join(lines), 1300)
    known = clipped(", ".join(_signature(parameters)) or "none", 500)
    attempts = _attempts(attempts_left)
    return (
        f"Invalid arguments for {name}:\n{complaints}\nParameters: {known}.{attempts}"
    )


def unknown_tool(
    name: str, known: Sequence[str], attempts_left: int | None = None
) -> str:
    """The answer to a call of a tool that does not exist: its name, the nearest names, then all others."""
    near = get_close_matches(clipped(name, 64), known, 3, 0.5)
    question = f" Did you mean {' or '.join(near)}?" if near else ""
    names = clipped(", ".join(dict.fromkeys([*near, *known])), 600) or "none"
    attempts = _attempts(attempts_left)
    return f"There is no tool {json_excerpt(name)}.{question} Tools: {names}.{attempts}"


def _field(error: Mapping[str, Any], parameters: Schema) -> Path:
    """The location of an error, without the labels that pydantic gives to members of a union."""
    first, *rest = error.get("loc") or (None,)
    if first is None:
        return ()
    labels = {"int", "float", "str", "bool", *parameters.get("$defs", ())}
    return (
        first,
        *(part for part in rest if part not in labels and "[" not in str(part)),
    )


def _complaint(path: Path, group: Errors, candidates: list[str]) -> str:
    """One line about one field. `candidates` are the parameters that an unexpected one may stand for."""
    field = clipped(".".join(map(str, path)), 100)
    match group[0].get("type"):
        case "missing":
            return f"- {field}: required, but missing"
        case "extra_forbidden":
            near = candidates
            if len(candidates) > 1:
                near = get_close_matches(field, candidates, 1)
            has_guess = near and len(path) == 1
            guess = f"; did you mean {near[0]}?" if has_guess else ""
            return f"- {field}: unexpected{guess}"
    expectations = dict.fromkeys(_expectation(error) for error in group)
    expected = " or ".join(expectations).replace(" or expected ", " or ")
    if not path:
        return f"- {expected}"
    value = json_excerpt(group[0].get("input"))
    return f"- {field}: {clipped(expected, 400)}; got {value}"


def _expectation(error: Mapping[str, Any]) -> str:
    kind = str(error.get("type"))
    if kind.endswith(ARRAY_ERRORS):
        return "expected an array"
    if kind.endswith(OBJECT_ERRORS):
        return "expected an object"
    message = str(error.get("msg", ""))
    pattern = r"\AInput should be (.*?)(, (unable to|got a) .*)?\Z"
    return re.sub(pattern, r"expected \1", message, flags=re.DOTALL)


def _signature(parameters: Schema) -> list[str]:
    """Each parameter with its types: `city (string, required)`."""
    required = parameters.get("required") or ()
    entries = []
    for name, schema in (parameters.get("properties") or {}).items():
        types = "|".join(types_of(schema, parameters)) or "any"
        entries.append(f"{name} ({types}{', required' if name in required else ''})")
    return entries


def _attempts(left: int | None) -> str:
    return "" if left is None else f"\nAttempts left: {left}."
