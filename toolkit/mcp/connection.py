"""A connection to an MCP server, for any task and thread.

A connection lives on an event loop of its own, in a thread of its own, because the SDK's sessions are bound to one
task. Calls are handed over to that loop from whichever task or thread makes them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import shlex
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

from mcp import MCPError, types

from toolkit.calls import threads
from toolkit.errors import ToolError, ToolkitError
from toolkit.mcp.session import Session
from toolkit.mcp.tools import as_tools, value_of
from toolkit.tools.tool import Tool

_log = logging.getLogger("toolkit")

_T = TypeVar("_T")

_MOST_PAGES = 100  # of a list of tools


class Server:
    """An MCP server whose tools are tools here while the connection is open: `with mcp.connect(…) as server`.

    `async with` does the same; so do `open` and `close`, or `aopen` and `aclose`, from any thread and any task. Its
    `tools` go into a run, `tools=[*server.tools, my_function]`. A server that died is started again at the next call.

    server: a command, as a text or a list, whose process speaks MCP on its standard streams; or the address of a
        server that speaks streamable HTTP ("http://…/mcp").
    name: goes before the names of its tools (`time` makes `get_time` a `time_get_time`), so that those of several
        servers differ. A name that begins with it already stays as it is. "" changes no name.
    timeout: seconds that one call may take; None for no bound. A call that is given up is cancelled at the server.
    connect_timeout: seconds for connecting, and for reading the list of tools; `npx` may have to download a server.
    env: environment variables for a command, on top of the few that it inherits (PATH, HOME and the like).
    headers: HTTP headers for an address, for example for authorization.
    trusted: whether to believe a tool that calls itself read-only, which makes its tier "read". Else it is "write".
        A tool that calls itself destructive is "sensitive" in any case.

    Raises ValueError or TypeError if these do not fit together.
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
        target = _target(server)
        is_address = isinstance(target, str)
        if not isinstance(name, str):
            raise TypeError(f"name must be a text, not {name!r}.")
        if timeout is not None and not timeout > 0:
            raise ValueError(
                f"timeout={timeout!r} must be a number of seconds above 0, or None."
            )
        if env and is_address:
            raise ValueError(
                "env is for a command, which is started here. Pass headers=… for an address."
            )
        if headers and not is_address:
            raise ValueError("headers are for an address. Pass env=… for a command.")
        self.name, self.timeout, self.trusted = name, timeout, trusted
        self.connect_timeout = connect_timeout
        self._is_address = is_address
        self._new_session = functools.partial(
            Session, name, target, env or {}, headers or {}
        )
        self._tools: list[Tool] | None = None
        self._session: Session | None = None
        # What the sessions live on, while the connection is open.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: Future[None] = Future()
        self._life: Future[None] = Future()  # done while there is no connection
        self._life.set_result(None)

    @property
    def tools(self) -> list[Tool]:
        """The server's tools, as it listed them when it was opened or last refreshed."""
        if self._tools is None:
            raise self._not_open()
        return list(self._tools)

    def open(self) -> Server:
        """Connect, and read the list of tools. Raises ToolkitError if that does not succeed in time."""
        with self._begin() as opening:
            opening.result()
        return self

    async def aopen(self) -> Server:
        """As `open`, on the running event loop."""
        with self._begin() as opening:
            await asyncio.wrap_future(opening)
        return self

    def close(self) -> None:
        """End the connection, and the process of a command. Calls that still run are answered with an error."""
        _settle(self._closing)
        concurrent.futures.wait([self._life])

    async def aclose(self) -> None:
        """As `close`, on the running event loop."""
        _settle(self._closing)
        await asyncio.wait([asyncio.wrap_future(self._life)])

    def refresh(self) -> list[Tool]:
        """Read the list of tools again, and return it: a server may change it at any time."""
        self._hand_over(self._list()).result()
        return self.tools

    async def arefresh(self) -> list[Tool]:
        """As `refresh`, on the running event loop."""
        await asyncio.wrap_future(self._hand_over(self._list()))
        return self.tools

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool by the server's own name for it. Raises ToolError with what went wrong, for a model to read."""
        try:
            call = self._hand_over(self._call(tool, arguments))
            return await asyncio.wrap_future(call)
        except ToolkitError as error:
            # What it says of this machine is not for a model.
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
        opening: Future[None] = Future()
        # From here on a waiter that is cancelled does not settle it.
        opening.set_running_or_notify_cancel()
        closing = self._closing = Future()
        self._life = threads.start(lambda: asyncio.run(self._live(opening, closing)))
        try:
            yield opening
        except BaseException as error:
            _settle(closing)
            # Given up for another reason, it may take long until the process has ended.
            if isinstance(error, ToolkitError):
                concurrent.futures.wait([self._life])
            raise

    async def _live(self, opening: Future[None], closing: Future[None]) -> None:
        """The life of the connection, in a thread and on an event loop of its own."""
        self._loop, self._session = asyncio.get_running_loop(), None
        self._lock = asyncio.Lock()
        listing = asyncio.create_task(self._list())
        closed = asyncio.wrap_future(closing)
        await asyncio.wait({listing, closed}, return_when=asyncio.FIRST_COMPLETED)
        failure: Any = ToolkitError(f"{self!r} was closed before it was open.")
        if listing.done():
            failure = listing.exception()
        if failure is None:
            opening.set_result(None)
            await closed
        listing.cancel()
        self._loop = None
        if self._session is not None:
            await self._session.close()
        if failure is not None:
            opening.set_exception(failure)
            _settle(closing)

    def _hand_over(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run a coroutine on the connection's own loop, whichever task or thread asks for it."""
        loop = self._loop
        if loop is None:
            work.close()
            raise self._not_open()
        return asyncio.run_coroutine_threadsafe(work, loop)

    def _not_open(self) -> ToolkitError:
        return ToolkitError(
            f"{self!r} is not open. Write: with mcp.connect(…) as server."
        )

    async def _connected(self) -> Session:
        """The session, started again if it is lost. One caller connects for all that wait."""
        async with self._lock:
            if self._session is not None and self._session.lost:
                _log.warning("MCP server %r is gone; connecting again", self.name)
                await self._session.close()
                self._session = None
            if self._session is None:
                self._session = self._new_session()
            session = self._session
        try:
            await asyncio.wait_for(asyncio.shield(session.ready), self.connect_timeout)
        except Exception as error:
            session.lost = True
            raise self._unusable(session, error) from error
        return session

    def _unusable(self, session: Session, error: Any) -> ToolkitError:
        while getattr(error, "exceptions", ()):  # a group
            error = error.exceptions[0]
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, asyncio.TimeoutError):
            reason = f"it did not answer within connect_timeout={self.connect_timeout:g} seconds"
        message = f"The MCP server {self.name!r} cannot be used: {reason}."
        if session.last_lines:
            lines = "\n    ".join(["", *session.last_lines])
            message += f" The last lines of its standard error:{lines}"
        return ToolkitError(message)

    async def _list(self) -> None:
        session = await self._connected()
        try:
            entries = await asyncio.wait_for(_all_pages(session), self.connect_timeout)
        except Exception as error:
            raise self._unusable(session, error) from error
        self._tools = as_tools(
            entries, self.name, self.call, timeout=self.timeout, trusted=self.trusted
        )

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        session = await self._connected()
        try:
            result = await session.client.call_tool(tool, arguments)
        except Exception as error:
            if self._is_address and not session.lost:
                session.lost = not await self._is_known(session)
            if session.lost:
                failure = "ended during the call. Whether it took effect is unknown. Another call connects again."
            elif isinstance(error, MCPError):
                failure = f"refused the call: {error}"
            else:
                failure = f"gave no valid result: {error}"
            raise ToolError(f"The MCP server {self.name!r} {failure}") from error
        return value_of(result, self.name)

    async def _is_known(self, session: Session) -> bool:
        """Whether an address still lists tools in this session. One whose server was started again refuses, somehow."""
        try:
            await asyncio.wait_for(session.client.list_tools(), self.connect_timeout)
        except Exception:
            return False
        return True


def _target(server: str | Sequence[str]) -> str | list[str]:
    """An address, or a command as a list."""
    if isinstance(server, str) and server.startswith(("http://", "https://")):
        return server
    command = shlex.split(server) if isinstance(server, str) else list(server)
    if not command or not all(isinstance(part, str) for part in command):
        raise ValueError(
            f"server={server!r} is neither a command nor an address that begins with http:// or https://."
        )
    return command


async def _all_pages(session: Session) -> list[types.Tool]:
    entries: list[types.Tool] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        page = await session.client.list_tools(cursor=cursor)
        entries += page.tools
        cursor = page.next_cursor
        if not cursor:
            return entries
    _log.warning(
        "a list of tools has more than %d pages; the rest is left out", _MOST_PAGES
    )
    return entries


def _settle(future: Future[None]) -> None:
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        future.set_result(None)
