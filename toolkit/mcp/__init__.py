"""The tools of an MCP server, as tools here; and a registry, served as an MCP server.

    with mcp.connect("uvx mcp-server-time", name="time") as server:
        run_agent_with_tools("What time is it in Tokyo?", tools=server.tools)

The official SDK speaks the protocol. What a server sends is untrusted: one bad tool of a list, a line
that is no message, a death amid a call cost no more than themselves. A session is opened and closed by
one task on the private loop, since the SDK's cancel scopes must be left by the task that entered them;
calls are handed over to that loop from whichever task or thread makes them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import json
import logging
import shlex
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

from toolkit.calls import threads
from toolkit.errors import ToolDefinitionError, ToolError, ToolkitError
from toolkit.messages import Permission, ToolReturn
from toolkit.tools.tool import FunctionTool, Tool, ToolOptions

try:
    from mcp import Client, MCPError, types
except ImportError as error:
    raise ImportError(
        "MCP is spoken through its SDK. Install it: pip install 'toolkit-agent[mcp]'."
    ) from error

from toolkit.mcp.server import serve
from toolkit.mcp.session import Session

__all__ = ["Server", "connect", "serve"]

_log = logging.getLogger("toolkit")

T = TypeVar("T")

_MOST_PAGES = 100  # of a list of tools
_LONGEST_DESCRIPTION, _LONGEST_SCHEMA = 8_000, 50_000  # characters


class Server:
    """An MCP server, whose tools are tools here while the connection is open: `with mcp.connect(…) as server`.

    `async with` does the same; so do `open` and `close`, or `aopen` and `aclose`, from any thread and any task. Its
    `tools` go into a run, `tools=[*server.tools, my_function]`. A server that died is started anew at the next call.

    server: a command, as a text or a list, whose process speaks MCP on its standard streams; or the address of a
        server that speaks streamable HTTP ("http://…/mcp").
    name: goes before the names of its tools (`time` makes `get_time` a `time_get_time`), so that those of several
        servers stand beside each other; but not before one that begins with it anyway. "" goes before none.
    timeout: seconds that one call may take; None for no bound. A call that is given up is cancelled at the server.
    connect_timeout: seconds for connecting, and for reading the list of tools; `npx` may have to download a server.
    env: environment variables for a command, on top of the few that it gets (PATH, HOME and the like).
    headers: HTTP headers for an address, as for authorization.
    trusted: whether to believe a tool that calls itself read-only, which makes its tier "read". Else it is "write";
        one that calls itself destructive is "sensitive" in any case.

    Raises ValueError or TypeError where these do not fit together.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        name: str,
        timeout: float | None = 60.0,
        connect_timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        trusted: bool = False,
    ) -> None:
        self.name, self.timeout, self.connect_timeout, self.trusted = (
            name,
            timeout,
            connect_timeout,
            trusted,
        )
        self._target, self._env, self._headers = (
            _read_target(server),
            dict(env or {}),
            dict(headers or {}),
        )
        if not isinstance(name, str):
            raise TypeError(f"name is a text, not {type(name).__name__}.")
        if timeout is not None and not timeout > 0:
            raise ValueError(
                f"timeout={timeout!r} is neither a number of seconds nor None."
            )
        if env and isinstance(self._target, str):
            raise ValueError(
                "env is for a command, whose process is started here. An address takes headers=…."
            )
        if headers and not isinstance(self._target, str):
            raise ValueError("headers are for an address. A command takes env=….")
        self._tools: list[Tool] | None = None
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = (
            None  # what the sessions live on, while they do
        )
        self._closing: Future[None] = Future()
        self._life: Future[None] = Future()  # done while there is no connection
        self._life.set_result(None)

    @property
    def tools(self) -> list[Tool]:
        """The server's tools, as it told them when it was opened or last refreshed."""
        if self._tools is None:
            raise self._not_open()
        return list(self._tools)

    def open(self) -> Server:
        """Connect, and read the list of tools. Raises ToolkitError where that does not succeed in time."""
        with self._begin() as opened:
            opened.result()
        return self

    async def aopen(self) -> Server:
        """As `open`, with the running event loop."""
        with self._begin() as opened:
            await asyncio.wrap_future(opened)
        return self

    def close(self) -> None:
        """End the connection, and the process of a command. Calls still under way are answered with an error."""
        _settle(self._closing)
        concurrent.futures.wait([self._life])

    async def aclose(self) -> None:
        """As `close`, with the running event loop."""
        _settle(self._closing)
        await asyncio.wait([asyncio.wrap_future(self._life)])

    def refresh(self) -> list[Tool]:
        """Read the list of tools anew, and return it: a server may change it at any time."""
        self._hand_over(self._list()).result()
        return self.tools

    async def arefresh(self) -> list[Tool]:
        """As `refresh`, with the running event loop."""
        await asyncio.wrap_future(self._hand_over(self._list()))
        return self.tools

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool by the server's own name for it. Raises ToolError with what went wrong, for a model to read."""
        try:
            return await asyncio.wrap_future(
                self._hand_over(self._call(tool, arguments))
            )
        except ToolkitError as error:  # what it tells of the machine is not for a model
            _log.warning("%s", error)
            raise ToolError(
                f"The MCP server {self.name!r} cannot be reached. The call was not made."
            ) from error

    __enter__, __aenter__ = open, aopen

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<MCP server {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is connected to this process. Connect in the other one, in a module of tools."
        )

    @contextlib.contextmanager
    def _begin(self) -> Iterator[Future[None]]:
        if not self._life.done():
            raise ToolkitError(
                f"{self!r} is open already. Close it first, or make another connection."
            )
        opened: Future[None] = Future()
        opened.set_running_or_notify_cancel()  # from here on a cancelled waiter does not settle it
        self._closing = Future()
        self._life = threads.start(
            lambda: asyncio.run(self._live(opened, self._closing))
        )
        try:
            yield opened
        except BaseException as error:
            _settle(self._closing)
            if isinstance(
                error, ToolkitError
            ):  # else it may be long until the process has ended
                concurrent.futures.wait([self._life])
            raise

    async def _live(self, opened: Future[None], closing: Future[None]) -> None:
        """The life of the connection, in a thread and on an event loop of its own."""
        self._loop, self._session, self._turn = (
            asyncio.get_running_loop(),
            None,
            asyncio.Lock(),
        )
        listing, ended = asyncio.create_task(self._list()), asyncio.wrap_future(closing)
        await asyncio.wait({listing, ended}, return_when=asyncio.FIRST_COMPLETED)
        failure = (
            listing.exception()
            if listing.done()
            else ToolkitError(f"{self!r} was closed before it was open.")
        )
        if failure is None:
            opened.set_result(None)
            await ended
        listing.cancel()
        self._loop = None
        if self._session is not None:
            await self._session.close()
        if failure is not None:
            opened.set_exception(failure)
            _settle(closing)

    def _hand_over(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have something done on the connection's own loop, whichever task or thread asks for it."""
        if (loop := self._loop) is None:
            work.close()
            raise self._not_open()
        return asyncio.run_coroutine_threadsafe(work, loop)

    def _not_open(self) -> ToolkitError:
        return ToolkitError(
            f"{self!r} is not open. Write: with mcp.connect(…) as server."
        )

    async def _connected(self) -> Session:
        async with self._turn:  # one connects for all who wait for it
            if self._session is not None and self._session.lost:
                _log.warning("MCP server %r is gone; connecting anew", self.name)
                await self._session.close()
                self._session = None
            if self._session is None:
                self._session = Session(
                    self.name, self._target, self._env, self._headers
                )
            session = self._session
        try:
            await asyncio.wait_for(asyncio.shield(session.ready), self.connect_timeout)
        except Exception as error:
            session.lost = True
            raise self._unusable(session, error) from error
        return session

    def _unusable(self, session: Session, error: BaseException) -> ToolkitError:
        while inner := getattr(error, "exceptions", ()):  # of a group
            error = inner[0]
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, asyncio.TimeoutError):
            why = f"it did not answer within connect_timeout={self.connect_timeout:g} seconds"
        last = "".join(f"\n    {line}" for line in session.last_words)
        told = f" The last lines of its standard error:{last}" if last else ""
        return ToolkitError(
            f"The MCP server {self.name!r} cannot be used: {why}.{told}"
        )

    async def _list(self) -> None:
        session = await self._connected()
        try:
            listed = await asyncio.wait_for(
                _read_pages(session.ready.result()), self.connect_timeout
            )
        except Exception as error:
            raise self._unusable(session, error) from error
        self._tools = self._as_tools(listed)

    def _as_tools(self, listed: Sequence[types.Tool]) -> list[Tool]:
        names, made = {tool.name for tool in listed}, dict[str, Tool]()
        for tool in listed:
            name = _full_name(self.name, tool.name, names)
            try:
                if name in made:
                    raise ToolDefinitionError("There is another tool of that name.")
                made[name] = self._as_tool(name, tool)
            except (ToolDefinitionError, RecursionError) as error:
                _log.warning(
                    "tool %r of MCP server %r is left out: %s",
                    tool.name,
                    self.name,
                    error,
                )
        return list(made.values())

    def _as_tool(self, name: str, tool: types.Tool) -> Tool:
        hints = tool.annotations or types.ToolAnnotations()
        tier: Permission = "read" if self.trusted and hints.read_only_hint else "write"
        if len(json.dumps(tool.input_schema)) > _LONGEST_SCHEMA:
            raise ToolDefinitionError(
                f"Its schema has more than {_LONGEST_SCHEMA:,} characters."
            )
        options = ToolOptions(
            name=name,
            description=(tool.description or "")[:_LONGEST_DESCRIPTION],
            schema=tool.input_schema,
            permission="sensitive" if hints.destructive_hint else tier,
            timeout=self.timeout,
        )
        return FunctionTool(functools.partial(self.call, tool.name), options)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        session = await self._connected()
        try:
            result = await session.ready.result().call_tool(tool, arguments)
        except Exception as error:
            if isinstance(self._target, str) and not session.lost:
                session.lost = not await self._is_known(session)
            if session.lost:
                told = "ended during the call. Whether it took effect is unknown. A further call connects anew."
            else:
                told = (
                    f"refused the call: {error}"
                    if isinstance(error, MCPError)
                    else f"gave no valid result: {error}"
                )
            raise ToolError(f"The MCP server {self.name!r} {told}") from error
        text = "\n".join(map(_as_text, result.content))
        if result.is_error:
            raise ToolError(
                text.strip()
                or f"The MCP server {self.name!r} says that the call failed, but not why."
            )
        if result.structured_content is None:
            return text
        return (
            ToolReturn(result.structured_content, text)
            if text
            else result.structured_content
        )

    async def _is_known(self, session: Session) -> bool:
        """Whether an address still lists tools in this session; one whose server was started anew refuses, somehow."""
        try:
            await asyncio.wait_for(
                session.ready.result().list_tools(), self.connect_timeout
            )
        except Exception:
            return False
        return True


connect = Server  # as it reads where it is used


def _read_target(server: str | Sequence[str]) -> str | list[str]:
    """An address, or a command as a list."""
    if isinstance(server, str) and server.startswith(("http://", "https://")):
        return server
    command = shlex.split(server) if isinstance(server, str) else list(server)
    if not command or not all(isinstance(part, str) for part in command):
        raise ValueError(
            f"server={server!r} is neither a command nor an address that begins with http:// or https://."
        )
    return command


async def _read_pages(client: Client) -> list[types.Tool]:
    listed: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed += page.tools
        if not (cursor := page.next_cursor):
            return listed
    _log.warning(
        "a list of tools has more than %d pages; the rest is left out", _MOST_PAGES
    )
    return listed


def _full_name(server: str, tool: str, listed: Collection[str]) -> str:
    """The name of a tool with its server's before it, unless it begins with that already and is not mistaken so."""
    rest = tool[len(server) + 1 :]
    if not server or (
        tool.startswith((f"{server}_", f"{server}.", f"{server}-"))
        and rest
        and rest not in listed
    ):
        return tool
    return f"{server}_{tool}"


def _as_text(block: types.ContentBlock) -> str:
    """A piece of a result as text. What is no text is named, with its size: its bytes would say nothing to a model."""
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type}: {block.mime_type}, {_size(block.data)}, not shown]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource: {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return f"[resource: {resource.uri}, {resource.mime_type or 'binary'}, {_size(resource.blob)}, not shown]"
        case types.ResourceLink():
            return f"[link: {block.uri}, {block.name}{f', {block.description}' if block.description else ''}]"
    return "[something that is no text]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"


def _settle(future: Future[None]) -> None:
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        future.set_result(None)
