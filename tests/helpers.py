"""What several test modules share."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from toolkit.messages import Message, ModelInfo
from toolkit.tools.request import Request
from toolkit.tools.tool import Tool


def encode(
    dialect: ModuleType,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (),
    *,
    strict: bool = False,
    structured: bool = False,
    **fields: Any,
) -> Any:
    """The body that a dialect makes of a request to the model "m"."""
    info = ModelInfo(strict=strict, structured_output=structured)
    request = Request(list(messages), list(tools), model="m", info=info, **fields)
    return dialect.encode(request)
