"""Validated values as JSON, for everybody who decides on a call, records it or compares it.

The same value has the same form in every process. What has no faithful form in JSON is shown by its type and a hash
(`<SecretStr sha256:…>`), or by its type alone; its content is never shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

_HASH_DIGITS = 16
_NEED_CARE = ("function", "generator", "is-", "set", "frozenset", "callable")
_OWN_DUMPS = ("serialization", "serialization_exclude", "computed_fields")


def needs_care(core: Any) -> bool:
    """Whether values of a core schema may be such that pydantic's own dump hides something, or has no fixed order.

    Values that validators made may be of any type. Secrets are dumped as stars, sets in the order of their hashes;
    a field may be excluded, or dumped by the program's own serializer.
    """
    if isinstance(core, list):
        return any(map(needs_care, core))
    if not isinstance(core, dict):
        return False
    kind = core.get("type")
    if isinstance(kind, str) and kind.startswith(_NEED_CARE):
        return True
    has_own_dump = any(core.get(key) for key in _OWN_DUMPS)
    return has_own_dump or any(
        needs_care(part) for key, part in core.items() if key != "metadata"
    )


def is_scalar(value: Any) -> bool:
    return value is None or type(value) in (str, int, bool, float)


def is_secret(value: Any) -> bool:
    return hasattr(type(value), "get_secret_value")


def may_be_dumped(value: Any) -> bool:
    """Whether pydantic may dump a value: it would exhaust an iterator, and write stars for a secret."""
    return not isinstance(value, (Iterator, type)) and not is_secret(value)


def json_form(value: Any, unfaithful: list[Any]) -> Any:
    """A value as JSON. Whatever can only be shown by the name of its type is added to `unfaithful`."""
    try:
        return _json_form(value, unfaithful)
    except (
        Exception
    ):  # cyclic values, and objects whose attributes raise what they like
        return _type_name(value, unfaithful)


def _json_form(value: Any, unfaithful: list[Any]) -> Any:
    if is_scalar(value):
        is_number = not isinstance(value, float) or math.isfinite(value)
        return value if is_number else json.dumps(value)
    if isinstance(value, Enum):
        return _json_form(value.value, unfaithful)
    if is_secret(value):
        return _secret_form(value, unfaithful)
    if isinstance(value, (bytes, bytearray)):
        return _bytes_form(value)
    if isinstance(value, Mapping):
        keys = [_key(key, unfaithful) for key in value]
        items = [_json_form(item, unfaithful) for item in value.values()]
        return dict(zip(keys, items, strict=True))
    if isinstance(value, (list, tuple, deque)):
        return [_json_form(item, unfaithful) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_json_form(item, unfaithful) for item in value), key=_sort_key)
    if hasattr(value, "__pydantic_root_model__") or dataclasses.is_dataclass(value):
        return _fields_form(value, unfaithful)
    return _leaf_form(value, unfaithful)


def _fields_form(value: Any, unfaithful: list[Any]) -> Any:
    """The fields of a model or a dataclass by their names, those that are excluded from dumps among them."""
    if getattr(value, "__pydantic_root_model__", False):
        return _json_form(value.root, unfaithful)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        fields = {name: getattr(value, name) for name in names}
    else:
        fields = {name: vars(value)[name] for name in type(value).model_fields}
        fields |= value.__pydantic_extra__ or {}
    return _json_form(fields, unfaithful)


def _leaf_form(value: Any, unfaithful: list[Any]) -> Any:
    """A date, a UUID and the like, or an object of a class that tells pydantic how it is dumped."""
    from pydantic import TypeAdapter
    from pydantic_core import to_jsonable_python

    if may_be_dumped(value):
        with contextlib.suppress(Exception):
            return to_jsonable_python(value)
        if hasattr(value, "__get_pydantic_core_schema__"):
            with contextlib.suppress(Exception):
                adapter = TypeAdapter(type(value))
                return adapter.dump_python(value, mode="json", warnings=False)
    return _type_name(value, unfaithful)


def _secret_form(value: Any, unfaithful: list[Any]) -> str:
    nameless: list[Any] = []
    secret = value.get_secret_value()
    if not isinstance(secret, (str, bytes)):
        secret = _sort_key(_json_form(secret, nameless))
    if nameless:
        return _type_name(value, unfaithful)
    return _hashed(value, secret)


def _bytes_form(value: bytes | bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _hashed(value, value)


def _hashed(value: Any, content: str | bytes | bytearray) -> str:
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(content).hexdigest()
    return f"<{type(value).__name__} sha256:{digest[:_HASH_DIGITS]}>"


def _type_name(value: Any, unfaithful: list[Any]) -> str:
    unfaithful.append(value)
    return f"<{type(value).__name__}>"


def _key(key: Any, unfaithful: list[Any]) -> str:
    form = _json_form(key, unfaithful)
    return form if isinstance(form, str) else _sort_key(form)


def _sort_key(form: Any) -> str:
    return json.dumps(form, sort_keys=True)
