"""One session with an MCP server: a process or an address, whose messages are checked before the SDK reads them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from toolkit.calls import threads
from toolkit.messages import whole_characters
from toolkit.tools.json_schema import rewrite

_log = logging.getLogger("toolkit")

# The SDK logs a traceback for each odd line; below it gets one line.
logging.getLogger("mcp.client.stdio").addFilter(
    lambda record: not record.getMessage().startswith("Failed to parse")
)

_LAST_LINES = 20  # of a server's standard error
_HINTS = ("readOnlyHint", "destructiveHint")
_FIELDS = {
    "name": str,
    "description": str,
    "inputSchema": dict,
    "outputSchema": dict,
    "annotations": dict,
}
"""The fields of a tool that are used here."""


class Session:
    """A session, opened and closed by one task: the SDK's cancel scopes must be left by the task that entered them.

    `ready` is done once the two sides have greeted each other; then `client` is the SDK's client. `lost` says that the
    session is over. `last_lines` are the last lines that the process wrote to its standard error.
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
        self.last_lines = deque[str](maxlen=_LAST_LINES)
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # Else asyncio reports an exception that nobody fetched.
        self.ready.add_done_callback(lambda ready: ready.exception())
        self._leave = asyncio.Event()
        self._task = asyncio.create_task(self._hold())

    @property
    def client(self) -> Client:
        return self.ready.result()

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
            _log.debug(
                "the session with MCP server %r ended", self.name, exc_info=error
            )
            if not isinstance(error, Exception):
                error = ConnectionError("It was given up.")
            if not self.ready.done():
                self.ready.set_exception(error)
        finally:
            self.lost = True

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[tuple[Any, Any]]:
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(self._target, str):
                # How long a call may take is for the tool to say.
                timeout = httpx2.Timeout(30.0, read=None)
                http = httpx2.AsyncClient(headers=self._headers, timeout=timeout)
                await stack.enter_async_context(http)
                streams = streamable_http_client(self._target, http_client=http)
            else:
                command = StdioServerParameters(
                    command=self._target[0],
                    args=self._target[1:],
                    env=dict(self._env),
                    encoding_error_handler="replace",
                )
                # A pipe to the log: the process could not inherit ours if that is not a file, as in a notebook.
                reading, writing = os.pipe()
                listening = threads.start(lambda: self._listen(reading))
                # The last lines are read before the session reports that it ended.
                stack.push_async_callback(
                    asyncio.wait, [asyncio.wrap_future(listening)], timeout=1.0
                )
                errors = stack.enter_context(os.fdopen(writing, "w"))
                streams = stdio_client(command, errors)
            incoming, outgoing = await stack.enter_async_context(streams)
            yield _Incoming(incoming, self), outgoing

    def _listen(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as file:
            for line in iter(lambda: file.readline(2_000), ""):
                self.last_lines.append(line.rstrip())
                _log.debug("MCP server %r: %s", self.name, line.rstrip())


class _Incoming(AsyncIterator[Any], contextlib.AbstractAsyncContextManager[Any]):
    """The messages of a server. The SDK would refuse a whole list for one bad tool; that tool is left out here."""

    def __init__(self, stream: Any, session: Session) -> None:
        self._stream, self._session = stream, session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
        except BaseException:
            # The stream has ended, or the transport around it.
            self._session.lost = True
            raise
        name = self._session.name
        if isinstance(item, Exception):
            _log.warning(
                "MCP server %r sent something that is not a message; it is skipped: %.300s",
                name,
                " ".join(str(item).split()),
            )
            return item
        if getattr(item.message, "method", "") == "notifications/tools/list_changed":
            _log.info("MCP server %r has other tools now; refresh() reads them", name)
        result = getattr(item.message, "result", None)
        # A result of a call has "content", and may have "tools" of its own.
        if isinstance(result, dict) and "content" not in result:
            tools = result.get("tools")
            if isinstance(tools, list):
                clean = [_clean_tool(tool, name) for tool in tools]
                result["tools"] = list(filter(None, clean))
        return item


def _clean_tool(entry: Any, server: str) -> dict[str, Any] | None:
    """A tool of a raw list without what might be malformed and is not used here. None for one that is of no use."""
    fields = whole_characters(entry) if isinstance(entry, dict) else {}
    tool: dict[str, Any] = {
        key: fields[key]
        for key, kind in _FIELDS.items()
        if isinstance(fields.get(key), kind)
    }
    schema = tool.get("inputSchema", {"type": "missing"})
    is_object = schema.get("type", "object") in ("object", ["object"])
    if not tool.get("name", "").strip() or not is_object:
        _log.warning(
            "a tool of MCP server %r is left out, because it has no name or no schema: %.200r",
            server,
            entry,
        )
        return None
    schema = {key: value for key, value in schema.items() if value is not None}
    tool["inputSchema"] = _without_patterns({**schema, "type": "object"})
    output_schema = tool.pop("outputSchema", {})
    if output_schema.get("type") == "object":
        tool["outputSchema"] = _without_patterns(output_schema)
    hints = tool.get("annotations", {})
    tool["annotations"] = {
        key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)
    }
    return tool


def _without_patterns(schema: dict[str, Any]) -> Any:
    """The schema with its regular expressions only described: often they are JavaScript's, and some take for ever."""
    return rewrite(schema, _without_pattern)


def _without_pattern(schema: dict[str, Any]) -> dict[str, Any]:
    if "pattern" in schema:
        pattern, description = schema.pop("pattern"), schema.get("description", "")
        schema["description"] = f"{description} (pattern: {pattern})".strip()
    if schema.pop("patternProperties", None) is not None:
        schema["additionalProperties"] = True
    return schema
