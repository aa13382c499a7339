"""What validation refused although it has only one reading, mended."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from operator import getitem
from typing import Any

from toolkit.calls.parsing import read_json
from toolkit.tools.json_schema import subschemas

Errors = Sequence[Mapping[str, Any]]
Path = tuple[str | int, ...]

# How the types of pydantic's errors end.
ARRAY_ERRORS = ("list_type", "tuple_type", "set_type", "deque_type", "sequence_str")
OBJECT_ERRORS = (
    "dict_type",
    "model_type",
    "model_attributes_type",
    "dataclass_type",
    "counter_type",
)
_ERRORS_FOR = {
    list: ARRAY_ERRORS,
    dict: OBJECT_ERRORS,
    int: ("type_integer", "type_number"),
    float: ("type_number",),
    bool: ("type_boolean",),
}
# A rule refused the text, though a string was welcome.
_RULE_ERRORS = ("string_too", "string_pattern", "value_error", "assertion")


def mend(
    arguments: dict[str, Any],
    errors: Errors,
    optional: Collection[str],
    parameters: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return mended arguments and the names of the mends; None if nothing can be mended.

    Two things are mended: the JSON text of an array or object where no string is allowed, and a
    null that stands for "the default", whose key is left out. `errors` is pydantic's
    `ValidationError.errors(include_url=False)` for `arguments`, which are not changed. `optional`
    are the parameters that may be left out. A null inside of an object needs the tool's JSON Schema,
    `parameters`, to tell a property that may be missing from an entry of a free map. The caller
    validates again, up to three times for text inside of text, and reports the first errors if that
    fails.
    """
    kinds_by_path: dict[Path, list[str]] = {}
    for error in errors:
        path = _path(arguments, error)
        if path:
            kinds_by_path.setdefault(path, []).append(error["type"])
    mended = deepcopy(arguments)
    names: set[str] = set()
    nested = _OptionalKeys(parameters)
    for (*parents, last), kinds in kinds_by_path.items():
        node: Any = functools.reduce(getitem, parents, mended)  # type: ignore[arg-type]
        if node[last] is None:
            if last in (nested.of(node, tuple(parents)) if parents else optional):
                del node[last]
                names.add("null_default")
            continue
        value = _json_value(node[last], kinds)
        if value is not None:
            node[last] = value
            names.add("json_text")
    return (mended, tuple(sorted(names))) if names else None


def _path(arguments: Any, error: Mapping[str, Any]) -> Path:
    """Where the text or null is that an error refuses; () if nowhere. The labels of union members are skipped."""
    path: Path = ()
    node, refused = arguments, error["input"]
    for part in error["loc"]:
        with suppress(LookupError, TypeError):
            node = node[part]
            path = (*path, part)
    can_be_mended = refused is None or isinstance(refused, str)
    return path if can_be_mended and node == refused else ()


class _OptionalKeys:
    """The keys that may be missing from objects, by those parts of a schema that know all of their keys."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._known: list[tuple[set[str], set[str]]] | None = None
        self._by_path: dict[Path, set[str]] = {}

    def of(self, node: Any, path: Path) -> set[str]:
        """The optional keys of the object at a path. The schema is read once, and each object once."""
        if path not in self._by_path:
            self._by_path[path] = self._optional(node)
        return self._by_path[path]

    def _optional(self, node: Any) -> set[str]:
        if not isinstance(node, dict):
            return set()
        if self._known is None:
            self._known = [
                (set(part["properties"]), set(part.get("required", ())))
                for part in subschemas(self._schema)
                if isinstance(part.get("properties"), Mapping)
            ]
        keys = set(node)
        fitting = [known - required for known, required in self._known if keys <= known]
        return set().union(*fitting)


def _json_value(text: str, kinds: list[str]) -> Any:
    """The JSON value in a text, if a value of its type was expected; else None.

    Scalars appear here only if somebody wrote the schema: pydantic reads them from text itself.
    """
    if any(kind.startswith(_RULE_ERRORS) for kind in kinds):
        return None
    with suppress(ValueError, RecursionError):
        value = read_json(text)[0]
        endings = _ERRORS_FOR.get(type(value), ())
        if any(kind.endswith(endings) for kind in kinds):
            return value
    return None
