"""Every exception raised on purpose, drawn as a tree.

ToolkitError
├── ToolDefinitionError(TypeError)   a function cannot be a tool          your code, at decoration
├── ApprovalError(ValueError)        a verdict that is none, or on no      your code, at resume
│                                    waiting call
├── StoreError                       a run is missing, or is not yours     the store; nothing has run
│   └── RunExists                    its id is taken                       resume it instead
├── ReplayError                      a record did not come out again       replay() only
├── RunIncomplete                    no answer, and you insisted           raise_for_stop() only
├── RunFailed                        one prompt of a batch failed          toolkit.batch; in the results
└── ModelError                       the model could not be reached        the world; carries the run
    ├── ToolsRefused                 its server accepts no tools           a run continues without them
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
    """An invalid verdict, or one on a call that does not wait for one. Raised by `resume`."""


class StoreError(ToolkitError):
    """A run cannot be created, found, claimed or saved in its store."""


class RunExists(StoreError):
    """The store already has a run with this id."""


class ReplayError(ToolkitError):
    """A recorded run came out differently when it was replayed. Raised by `replay`."""


class RunIncomplete(ToolkitError):
    """A run ended without an answer. Raised by `RunResult.raise_for_stop` only."""


class ModelError(ToolkitError):
    """The model could not be reached, or refused the request.

    `status` is the HTTP status if there was one. `run` is the state of the run at that moment, with every
    call answered: `resume(error.run, ...)` or `history=error.run` continue it.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.run: Any = None


class ToolsRefused(ModelError):
    """The model's server accepts no tools. A run continues with the tools described in its prompt."""


class MalformedReply(ModelError):
    """The server answered with success, but its answer has no reply in this dialect."""

    @classmethod
    def told_by(cls, body: Any, what: str) -> MalformedReply:
        """The error `what`, with the server's words in the body and the HTTP status that they stand for."""
        error = body.get("error") if isinstance(body, Mapping) else None
        details = error if isinstance(error, Mapping) else {}
        code = details.get("code")
        status = code if type(code) is int else None
        if status is None:
            kinds = (str(code), str(details.get("type")))
            status = next(
                (_STATUSES[kind] for kind in kinds if kind in _STATUSES), None
            )
        words = server_words(body)[:300]
        return cls(f"{what}: {words}" if words else f"{what}.", status=status)


_STATUSES = {
    # OpenAI's
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
    # Anthropic's
    "api_error": 500,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def server_words(body: Any, depth: int = 8) -> str:
    """What the body of an error says, in the server's own words; "" if it says nothing.

    It is read to `depth` in any shape met until 2026-11: a text (plain servers), {"error": text} (LM Studio, xAI),
    {"error": {"message": ...}} (OpenAI), {"detail": text} and {"detail": [{"loc", "msg"}]} (FastAPI, Mistral),
    a list of these (Gemini), and the words of an upstream server in {"metadata": {"raw": ...}} (OpenRouter).
    """
    if isinstance(body, str):
        return body.strip()
    if depth == 0 or not isinstance(body, (list, Mapping)):
        return ""
    if isinstance(body, list):
        parts = [server_words(part, depth - 1) for part in body]
        return "; ".join(filter(None, parts))
    parts = [server_words(body.get(key), depth - 1) for key in _WORDS]
    words = ": ".join(dict.fromkeys(filter(None, parts)))
    place = body.get("loc")
    if words and place and isinstance(place, list):
        return f"{'.'.join(map(str, place))}: {words}"
    return words


_WORDS = ("error", "message", "detail", "msg", "errors", "metadata", "raw")


class ToolError(Exception):
    """Raise it in a tool to speak to the model, which reads its text unchanged."""
