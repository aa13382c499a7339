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
    told, listed = (
        clipped("\n".join(lines), 1300),
        clipped(", ".join(known) or "none", 500),
    )
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
    kind, field = group[0].get("type"), clipped(".".join(map(str, path)), 100)
    if kind == "missing":
        return f"- {field}: required, but missing"
    if kind == "extra_forbidden":
        near = rivals if len(rivals) == 1 else get_close_matches(field, rivals, 1)
        return f"- {field}: unexpected{f'; did you mean {near[0]}?' if near and len(path) == 1 else ''}"
    expected = " or ".join(dict.fromkeys(map(_expectation, group))).replace(
        " or expected ", " or "
    )
    return (
        f"- {field}: {clipped(expected, 400)}; got {json_excerpt(group[0].get('input'))}"
        if path
        else f"- {expected}"
    )


def _expectation(error: Mapping[str, Any]) -> str:
    kind = str(error.get("type"))
    if kind.endswith(ARRAY_ERRORS + OBJECT_ERRORS):
        return (
            "expected an array" if kind.endswith(ARRAY_ERRORS) else "expected an object"
        )
    message = str(error.get("msg", ""))
    return re.sub(
        r"\AInput should be (.*?)(, (unable to|got a) .*)?\Z",
        r"expected \1",
        message,
        flags=re.DOTALL,
    )


def _attempts(left: int | None) -> str:
    return "" if left is None else f"\nAttempts left: {left}."


def unknown_tool(
    name: str, known: Sequence[str], attempts_left: int | None = None
) -> str:
    """The answer to a call of a tool that is not there: the wrong name, the nearest names, then all others."""
    near = get_close_matches(clipped(name, 64), known, 3, 0.5)
    guess = f" Did you mean {' or '.join(near)}?" if near else ""
    listed = clipped(", ".join(dict.fromkeys([*near, *known])), 600) or "none"
    return f"There is no tool {json_excerpt(name)}.{guess} Tools: {listed}.{_attempts(attempts_left)}"
