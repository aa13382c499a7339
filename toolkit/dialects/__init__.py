"""One module for each wire: `chat`, `responses`, `anthropic`, `prompted`. Pure: a dialect sends nothing.

A `Request` becomes a request body, a response body becomes a `Reply`, and the chunks of a stream become
the body that would have come without a stream. `leaked` reads the calls that a model wrote into its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolkit.messages import Reply
from toolkit.tools.request import Request

JSONObject = Mapping[str, Any]
"""A JSON object that is only read, such as a response body."""

JSONDict = dict[str, Any]
"""A JSON object that is built here, such as a request body."""


class Assembly(Protocol):
    """A streamed reply, assembled from its chunks."""

    def add(self, chunk: JSONObject) -> str:
        """Add one chunk; return the text that becomes visible with it.

        Raises MalformedReply if the chunk reports an error.
        """

    def body(self) -> JSONDict:
        """The response body as it would have come without a stream.

        Raises MalformedReply if the stream ended early.
        """


class Dialect(Protocol):
    """What the module of a wire provides.

    `PATH` is the path of the API behind the base URL. `DIALECT` is the key of `Message.opaque` under which
    the dialect keeps what goes back verbatim. `STREAM` holds the fields of a body that ask for a stream.
    """

    PATH: str
    DIALECT: str
    STREAM: JSONObject

    def encode(self, request: Request) -> JSONDict:
        """The body of a request."""

    def decode(self, body: JSONObject) -> Reply:
        """The reply in a response body. Raises MalformedReply if it holds none."""

    def assembly(self, known_names: Sequence[str]) -> Assembly:
        """An empty assembly. `known_names` are the tools' names on the wire."""
