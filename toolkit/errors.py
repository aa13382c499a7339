"""Every exception raised on purpose, drawn as a tree.

ToolkitError
├── ToolDefinitionError(TypeError)   a function cannot be a tool          your code, at decoration
├── ApprovalError(ValueError)        a verdict names no waiting call      your code, at resume
├── StoreError                       a run is not there, or not yours      the store; nothing has run
│   └── RunExists                    its id is taken                       resume it
├── ReplayError                      a record does not come out again     replay() only
├── RunIncomplete                    no answer, and you insisted          raise_for_stop() only
└── ModelError                       the model could not be reached       the world; carries the run
    ├── ToolsRefused                 its server takes no tools            a run goes on without them
    └── MalformedReply               it answered, but not in its dialect
ToolError                            apart: a tool raises it to speak to the model
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ToolkitError(Exception):
    """The root of all errors that the toolkit raises to its caller."""


class ToolDefinitionError(ToolkitError, TypeError):
    """A function, class or schema cannot be a tool. Raised at decoration or at first use."""


class ApprovalError(ToolkitError, ValueError):
    """A verdict names no call that waits for one. Raised by `resume`."""


class StoreError(ToolkitError):
    """A run cannot be created, found, claimed or kept in its store."""


class RunExists(StoreError):
    """The store has a run of this id already."""


class ReplayError(ToolkitError):
    """A recorded run, done again, came out differently. Raised by `replay`."""


class RunIncomplete(ToolkitError):
    """A run ended without an answer. Raised by `RunResult.raise_for_stop` only."""


class ModelError(ToolkitError):
    """The model could not be reached, or refused the request.

    `status` is the HTTP status where there was one. `run` is the state of the run at that
    moment, every call answered: `resume(error.run, ...)` or `history=error.run` go on from it.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.run: Any = None


class ToolsRefused(ModelError):
    """The model's server takes no tools. A run goes on with the tools described in its prompt."""


class MalformedReply(ModelError):
    """The server answered with success, but what it sent holds no reply in its dialect."""

    @classmethod
    def told_by(cls, body: Any, what: str) -> MalformedReply:
        """The error with what an error inside a body tells, and the HTTP status that its code or type stands for."""
        error = body.get("error") if isinstance(body, Mapping) else None
        told = error if isinstance(error, Mapping) else {"message": error}
        code, message = told.get("code"), told.get("message")
        status = (
            code
            if type(code) is int
            else _STATUSES.get(str(code)) or _STATUSES.get(str(told.get("type")))
        )
        return cls(
            f"{what}: {str(message)[:300]}" if message else f"{what}.", status=status
        )


_STATUSES = {
    "server_error": 500, "rate_limit_exceeded": 429, "server_is_overloaded": 503, "slow_down": 503,  # OpenAI's
    "api_error": 500, "rate_limit_error": 429, "timeout_error": 504, "overloaded_error": 529,  # Anthropic's
}  # fmt: skip


class ToolError(Exception):
    """Raise it inside a tool to speak to the model: its text is passed on as it is."""
