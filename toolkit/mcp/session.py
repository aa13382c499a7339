"""One session with an MCP server: a process or an address, whose messages are looked at before the SDK reads them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, TextIO

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from toolkit.calls import threads
from toolkit.messages import whole_characters

_log = logging.getLogger("toolkit")

# The SDK tells of each odd line with a traceback; it is told of below, in a line.
logging.getLogger("mcp.client.stdio").addFilter(
    lambda record: not record.getMessage().startswith("Failed to parse")
)

_LAST_LINES = 20  # of a server's standard error
_HINTS = ("readOnlyHint", "destructiveHint")


class Session:
    """A session, opened and closed by one task: the SDK's cancel scopes must be left by the task that entered them.

    `ready` is the SDK's client once the two have greeted each other; `lost` says that the session is over.
    `last_words` are the last lines that the process wrote for people.
    """

    def __init__(
        self,
        name: str,
        target: str | list[str],
        env: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> None:
        self.name, self._target, self._env, self._headers = name, target, env, headers
        self.lost = False
        self.last_words = deque[str](maxlen=_LAST_LINES)
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(
            lambda ready: ready.exception()
        )  # or asyncio complains that nobody asked for it
        self._leave = asyncio.Event()
        self._task = asyncio.create_task(self._hold())

    async def close(self) -> None:
        """End the session, and the process."""
        self._leave.set()
        if not self.ready.done():
            self._task.cancel()
        await asyncio.wait([self._task])

    async def _hold(self) -> None:
        try:
            async with Client(self._transport(), cache=None) as client:
                self.ready.set_result(client)
                await self._leave.wait()
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(
                    error
                    if isinstance(error, Exception)
                    else ConnectionError("It was given up.")
                )
            _log.debug(
                "the session with MCP server %r broke off", self.name, exc_info=error
            )
        finally:
            self.lost = True

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[tuple[Any, Any]]:
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(self._target, str):
                timeout = httpx2.Timeout(
                    30.0, read=None
                )  # how long a call may take is the tool's own affair
                http = await stack.enter_async_context(
                    httpx2.AsyncClient(headers=self._headers, timeout=timeout)
                )
                streams = streamable_http_client(self._target, http_client=http)
            else:
                command, *rest = self._target
                started = StdioServerParameters(
                    command=command,
                    args=rest,
                    env=dict(self._env),
                    encoding_error_handler="replace",
                )
                streams = stdio_client(
                    started, stack.enter_context(self._standard_error())
                )
            incoming, outgoing = await stack.enter_async_context(streams)
            yield _Incoming(incoming, self), outgoing

    def _standard_error(self) -> TextIO:
        """A pipe to the log. The process could not inherit ours where that is no file, as in a notebook."""
        reading, writing = os.pipe()
        threads.start(lambda: self._listen(reading))
        return open(writing, "w")

    def _listen(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            while line := lines.readline(2_000):
                self.last_words.append(line.rstrip())
                _log.debug("MCP server %r: %s", self.name, line.rstrip())


class _Incoming:
    """The messages of a server. The SDK would refuse a whole list for one bad tool; that tool is left out here."""

    def __init__(self, stream: Any, session: Session) -> None:
        self._stream, self._session = stream, session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _Incoming:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
        except (
            BaseException
        ):  # the end of the stream, or that of the transport around it
            self._session.lost = True
            raise
        name = self._session.name
        if isinstance(item, Exception):
            _log.warning(
                "MCP server %r sent what is no message; it is passed over: %.300s",
                name,
                " ".join(str(item).split()),
            )
            return item
        if getattr(item.message, "method", "") == "notifications/tools/list_changed":
            _log.info("MCP server %r has other tools now; refresh() reads them", name)
        result = getattr(item.message, "result", None)
        if (
            isinstance(result, dict)
            and isinstance(result.get("tools"), list)
            and "content" not in result
        ):
            result["tools"] = [
                tool for each in result["tools"] if (tool := _cleaned(each, name))
            ]
        return item


def _cleaned(listed: Any, server: str) -> dict[str, Any] | None:
    """A tool of a list without what might be malformed and is not used here; None for one that is of no use."""
    tool: dict[str, Any] = whole_characters(listed) if isinstance(listed, dict) else {}
    name, hints, output = (
        tool.get("name"),
        tool.get("annotations"),
        tool.get("outputSchema"),
    )
    schema: Any = tool.get("inputSchema")
    is_object = isinstance(schema, dict) and schema.get("type", "object") in (
        "object",
        ["object"],
    )
    if not isinstance(name, str) or not name.strip() or not is_object:
        _log.warning(
            "a tool of MCP server %r is left out, for want of a name or a schema: %.200r",
            server,
            listed,
        )
        return None
    schema = {key: value for key, value in schema.items() if value is not None}
    kept: dict[str, Any] = {
        "name": name,
        "inputSchema": _without_patterns({**schema, "type": "object"}),
    }
    if isinstance(tool.get("description"), str):
        kept["description"] = tool["description"]
    if isinstance(output, dict) and output.get("type") == "object":
        kept["outputSchema"] = _without_patterns(output)
    if isinstance(hints, dict):
        kept["annotations"] = {
            key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)
        }
    return kept


def _without_patterns(schema: Any) -> Any:
    """The schema with its regular expressions only told: often they are JavaScript's, and some take for ever."""
    if isinstance(schema, list):
        return [_without_patterns(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: {name: _without_patterns(each) for name, each in value.items()}
        if key in _BY_NAME and isinstance(value, dict)
        else value
        if key in _VALUES
        else _without_patterns(value)
        for key, value in schema.items()
        if key not in ("pattern", "patternProperties")
    }
    if "pattern" in schema:
        plain["description"] = (
            f"{schema.get('description', '')} (pattern: {schema['pattern']})".strip()
        )
    return (
        {**plain, "additionalProperties": True}
        if "patternProperties" in schema
        else plain
    )


_BY_NAME = ("properties", "$defs", "definitions", "dependentSchemas")
_VALUES = ("enum", "const", "default", "examples")
