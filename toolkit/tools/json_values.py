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
import re
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

_HASH_DIGITS = 16
_NEED_CARE = ("function", "generator", "is-", "set", "frozenset", "callable")
_OWN_DUMPS = ("serialization", "serialization_exclude", "computed_fields")


may_overflow = re.compile(r"\d[eE]\+?\d{3}|\d{300}").search
"""Whether a JSON text may hold a number beyond what a float holds."""


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


def json_form(value: Any, unfaithful: list[Any], adapter: Any = None) -> Any:
    """A value as JSON. Whatever can only be shown by the name of its type is added to `unfaithful`.

    `adapter` is pydantic's for the hint of the value: the hint may say how a value is dumped, if its class does not.
    """
    try:
        return _json_form(value, unfaithful, adapter)
    except (
        Exception
    ):  # cyclic values, and objects whose attributes raise what they like
        return _type_name(value, unfaithful)


def _json_form(value: Any, unfaithful: list[Any], adapter: Any = None) -> Any:
    if is_scalar(value):
        is_number = not isinstance(value, float) or math.isfinite(value)
        return value if is_number else json.dumps(value)
    if isinstance(value, Enum):
        return _json_form(value.value, unfaithful)
    if hasattr(type(value), "get_secret_value"):
        return _secret_form(value, unfaithful)
    if isinstance(value, (bytes, bytearray)):
        return _bytes_form(value)
    if isinstance(value, Mapping):
        keys = [_text(_json_form(key, unfaithful)) for key in value]
        items = [_json_form(item, unfaithful) for item in value.values()]
        return dict(zip(keys, items, strict=True))
    if isinstance(value, (list, tuple, deque)):
        return [_json_form(item, unfaithful) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_json_form(item, unfaithful) for item in value), key=_json)
    if dataclasses.is_dataclass(value):
        # Not by asdict, which would copy what it contains.
        names = [field.name for field in dataclasses.fields(value)]
        return _json_form({name: getattr(value, name) for name in names}, unfaithful)
    if hasattr(value, "__pydantic_root_model__"):
        return _json_form(_model_fields(value), unfaithful)
    return _leaf_form(value, unfaithful, adapter)


def _secret_form(value: Any, unfaithful: list[Any]) -> str:
    within: list[Any] = []
    secret = value.get_secret_value()
    if not isinstance(secret, (str, bytes)):
        secret = _json(_json_form(secret, within))
    return _type_name(value, unfaithful) if within else _hashed(value, secret)


def _bytes_form(value: bytes | bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _hashed(value, value)


def _model_fields(model: Any) -> Any:
    """The fields of a model by their names, those that are excluded from dumps among them."""
    if model.__pydantic_root_model__:
        return model.root
    names = type(model).model_fields
    fields = {name: vars(model)[name] for name in names}
    return fields | (model.__pydantic_extra__ or {})


def _leaf_form(value: Any, unfaithful: list[Any], adapter: Any) -> Any:
    """A date, a UUID and the like, or an object of a class or under a hint that tells pydantic how it is dumped."""
    from pydantic import TypeAdapter
    from pydantic_core import to_jsonable_python

    # An iterator is dumped by exhausting it.
    if not isinstance(value, (Iterator, type)):
        with contextlib.suppress(Exception):
            return to_jsonable_python(value)
        with contextlib.suppress(Exception):
            adapter = adapter or TypeAdapter(type(value))
            return adapter.dump_python(
                value, mode="json", by_alias=False, warnings=False
            )
    return _type_name(value, unfaithful)


def _type_name(value: Any, unfaithful: list[Any]) -> str:
    unfaithful.append(value)
    return f"<{type(value).__name__}>"


def _hashed(value: Any, content: str | bytes | bytearray) -> str:
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(content).hexdigest()
    return f"<{type(value).__name__} sha256:{digest[:_HASH_DIGITS]}>"


def _text(form: Any) -> str:
    return form if isinstance(form, str) else _json(form)


def _json(form: Any) -> str:
    return json.dumps(form, sort_keys=True)
