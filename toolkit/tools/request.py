"""A request to a model as one value, and what anything that answers requests provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.messages import Message, ModelInfo, Reply
from toolkit.tools.tool import Tool

Retriever = Callable[[Sequence[Message], Sequence[Tool]], Sequence[Tool]]
"""Chooses the tools that a request shows, from the conversation so far and all tools of the run."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model.

    `tool_choice` is "auto", "required", "none" or a tool's name. `options` are request fields such as `temperature`,
    sent as they are. With `on_text` the reply is streamed, and its text passed on as it comes. `model` and `info` are
    the name and the capabilities of the model that is asked; a `Model` fills them in.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    on_text: Callable[[str], None] | None = None
    model: str = ""
    info: ModelInfo = field(default_factory=ModelInfo)


class LanguageModel(ABC):
    """Anything that answers requests: a model behind a server, a script for tests, the embedded model.

    `provider` names for traces whose API it speaks ("openai", "anthropic"). `defaults` are request fields that each
    request has, unless its own `options` override them.
    """

    name: str
    info: ModelInfo
    provider: str = ""
    defaults: Mapping[str, Any]

    @abstractmethod
    def complete(self, request: Request) -> Reply:
        """Answer one request. Raises ModelError if the model cannot be reached or refuses the request."""

    @abstractmethod
    async def acomplete(self, request: Request) -> Reply:
        """As `complete`, on the running event loop."""

    @property
    def prompted(self) -> LanguageModel:
        """The same model with the tools described in its prompt, for a server that accepts no tools."""
        return self
