"""The clients of the SDKs (openai, anthropic; one generator made both), kept for the life of a model."""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
import os
import types
import weakref
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from toolkit.errors import ModelError


@dataclass(eq=False)
class Clients:
    """The clients of one model: the one that its user passed, else one made here for each event loop and for none.

    `sdk` is "openai" or "anthropic", and `method` the client's ordinary method ("chat.completions.create").
    """

    sdk: str
    method: str
    client: Any = None
    base_url: str | None = None
    api_key: str | None = None
    _by_loop: weakref.WeakKeyDictionary[Any, Any] = field(
        default_factory=weakref.WeakKeyDictionary, init=False
    )

    @functools.cached_property
    def library(self) -> Any:
        """The SDK. Raises ModelError if it is not installed."""
        try:
            return importlib.import_module(self.sdk)
        except ImportError as error:
            raise ModelError(
                f"This model needs the package {self.sdk!r}. "
                f"Install it: pip install 'toolkit-agent[{self.sdk}]'."
            ) from error

    @functools.cached_property
    def default(self) -> Any:
        """The client for callers without an event loop. Raises ModelError if it cannot be made."""
        return self._new_client() if self.client is None else self.client

    async def of_running_loop(self) -> Any:
        """The client for the running event loop: a pooled connection belongs to the loop that opened it."""
        if self.client is not None:
            return self.client
        import asyncio

        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            lifetime = _until_loop_ends(self._new_client("Async"))
            self._by_loop[loop] = (await anext(lifetime), lifetime)
        return self._by_loop[loop][0]

    def is_at(self, address: str) -> bool:
        """Whether requests go to this address, which is the SDK's own if nothing names another one."""
        base_url = self.base_url
        if self.client is not None:
            base_url = getattr(self.client, "base_url", "unknown")
        base_url = base_url or self._from_environment("BASE_URL") or address
        return str(base_url).startswith(address)

    def is_async(self, client: Any) -> bool:
        """Whether the method of a client is a coroutine function."""
        if _package(client) == self.sdk:
            return type(client).__name__.startswith("Async")
        return inspect.iscoroutinefunction(self.method_of(client))

    def is_original(self, client: Any) -> bool:
        """Whether a client is the SDK's own, and nobody (a tracer, a test) has wrapped its method."""
        method = self.method_of(client)
        if _package(client) != self.sdk or type(method) is not types.MethodType:
            return False
        # functools.wraps copies the name of the module, but not the globals.
        function = method.__func__
        return (
            isinstance(function, types.FunctionType)
            and function.__globals__["__name__"].split(".")[0] == self.sdk
        )

    def method_of(self, client: Any) -> Any:
        """The ordinary method of a client for this wire."""
        return operator.attrgetter(self.method)(client)

    def _new_client(self, prefix: str = "") -> Any:
        # Both SDKs have such names for their main classes.
        new = getattr(self.library, f"{prefix}Client")
        api_key = self.api_key or self._from_environment("API_KEY")
        if self.base_url or self._from_environment("BASE_URL"):
            # The SDK insists on a key. Whether one is needed is for this server to say.
            api_key = api_key or "none"
        try:
            # There is one policy of retries, and it is ours.
            return new(base_url=self.base_url, api_key=api_key, max_retries=0)
        except Exception as error:
            raise ModelError(
                f"The client of the {self.sdk} SDK cannot be made: {error}"
            ) from error

    def _from_environment(self, name: str) -> str | None:
        return os.environ.get(f"{self.sdk.upper()}_{name}")


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


async def _until_loop_ends(client: Any) -> AsyncGenerator[Any, None]:
    """Yield the client. asyncio finalises the generator when the loop shuts down, which closes the connections."""
    try:
        yield client
    finally:
        await client.close()
