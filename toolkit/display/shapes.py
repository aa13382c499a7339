"""What the displays need of tools, runs and results. They know them by these shapes only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolkit.messages import Message, Verdict


class ToolShape(Protocol):
    """A tool."""

    name: str
    permission: Any

    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any]: ...


class RunShape(Protocol):
    """The state of a run."""

    @property
    def id(self) -> str: ...
    @property
    def history(self) -> int: ...
    @property
    def turns(self) -> int: ...
    @property
    def log(self) -> Sequence[Any]: ...
    @property
    def usage(self) -> Any: ...
    @property
    def decided(self) -> Mapping[str, Verdict]: ...


class ResultShape(Protocol):
    """The result of a run."""

    @property
    def run(self) -> RunShape: ...
    @property
    def messages(self) -> Sequence[Message]: ...
    @property
    def calls(self) -> Sequence[Any]: ...
    @property
    def text(self) -> str: ...
    @property
    def stop_reason(self) -> str: ...
