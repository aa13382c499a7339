"""What validation refused and what has only one reading, mended."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from operator import getitem
from typing import Any

from toolkit.calls.parsing import read_json

Errors = Sequence[Mapping[str, Any]]
Object = dict[str, Any]
Path = tuple[str | int, ...]
Schema = Mapping[str, Any]


ARRAY_ERRORS = (
    "list_type",
    "tuple_type",
    "set_type",
    "deque_type",
    "sequence_str",
)  # how their names end
OBJECT_ERRORS = (
    "dict_type",
    "model_type",
    "model_attributes_type",
    "dataclass_type",
    "counter_type",
)
_WANTED = {
    list: ARRAY_ERRORS,
    dict: OBJECT_ERRORS,
    int: ("type_integer", "type_number"),
    float: ("type_number",),
    bool: ("type_boolean",),
}


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
        value = read_json(text)[0]
        ends = _WANTED.get(type(value), ())
        return (
            value if not judged and any(kind.endswith(ends) for kind in kinds) else None
        )
    return None
