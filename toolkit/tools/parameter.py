"""`ToolParameter`: one parameter of a class tool, checked when it is written down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from toolkit.errors import ToolDefinitionError

JSON_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "any": Any,
}


def json_type_name(kind: Any) -> str:
    """The name of a parameter's type: a JSON type, several of them, or the name of a Python type."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, list):
        return " or ".join(kind)
    names = {hint: name for name, hint in JSON_TYPES.items()}
    return str(names.get(kind) or getattr(kind, "__name__", kind))


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One parameter of a class tool.

    `type` is a JSON type by name ("string", "integer", "number", "boolean", "array", "object",
    "any") or a Python type or hint. `default` counts if `required` is False. Raises
    ToolDefinitionError for a name, a type or a default that cannot be.
    """

    name: str
    type: Any
    description: str
    required: bool = True
    default: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ToolDefinitionError(
                f"name={self.name!r} of a ToolParameter must be a text that is not empty."
            )
        if not isinstance(self.description, str):
            raise ToolDefinitionError(
                f"The description of parameter {self.name!r} must be a text, "
                f"not {self.description!r}."
            )
        if isinstance(self.type, str) and self.type not in (*JSON_TYPES, "null"):
            raise ToolDefinitionError(
                f"Parameter {self.name!r} has the type {self.type!r}. Known names are "
                f"{', '.join(JSON_TYPES)}; a Python type or hint works as well."
            )
        if not self.required and self.default is not None:
            self._check_default()

    @property
    def hint(self) -> Any:
        """The type as a Python type or hint."""
        return JSON_TYPES[self.type] if isinstance(self.type, str) else self.type

    def to_dict(self) -> dict[str, Any]:
        """The parameter as a dict of its fields."""
        return asdict(self)

    def _check_default(self) -> None:
        from pydantic import TypeAdapter, ValidationError

        try:
            TypeAdapter(self.hint).validate_python(self.default)
        except ValidationError as error:
            raise ToolDefinitionError(
                f"default={self.default!r} of parameter {self.name!r} does not fit its "
                f"type {self.type!r}: {error.errors()[0]['msg']}."
            ) from error
        except Exception:
            # A type that pydantic cannot read is reported when the tool is registered.
            return
