"""One request over an SDK's client: posted as it is, whole or streamed, with retries.

The SDKs are the transport: connections, authentication, errors. Requests go through their `post`, because their typed
methods copy all parameters at every request, the whole history among them. A client that is not the SDK's own, or
whose method is wrapped, is used through that method.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, ClassVar

from toolkit.calls import threads
from toolkit.errors import MalformedReply
from toolkit.messages import Reply
from toolkit.models.clients import Clients
from toolkit.models.retries import Retry, page_error
from toolkit.models.server_sent_events import read_json
from toolkit.models.streaming import StreamedReply


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request in the form of its wire, and how its response is read.

    `options` are those of `Transport.OPTIONS`.
    """

    body: dict[str, Any]
    options: Mapping[str, Any]
    stream: StreamedReply | None
    decode: Callable[[Any], Reply]


@dataclass(frozen=True)
class Transport:
    """The way to one server. `retries` is how often a request is sent again after a failure that may pass."""

    OPTIONS: ClassVar = {
        "timeout": "timeout",
        "extra_headers": "headers",
        "extra_query": "params",
    }
    """The options of a request that are not for its body, with the SDKs' inner names for them."""

    clients: Clients
    path: str
    retries: int

    def send(self, exchange: Exchange) -> Reply:
        """Send a request, and return the reply. Raises ModelError if it is refused, or fails with all retries."""
        retry = Retry(self.clients, self.retries)
        while True:
            with retry:
                return exchange.decode(self._fetch(exchange))
            time.sleep(retry.seconds)

    async def asend(self, exchange: Exchange) -> Reply:
        """As `send`, on the running event loop."""
        import asyncio

        retry = Retry(self.clients, self.retries)
        while True:
            with retry:
                return exchange.decode(await self._afetch(exchange))
            await asyncio.sleep(retry.seconds)

    def _fetch(self, exchange: Exchange) -> Any:
        """The body of the response."""
        client, stream = self.clients.default, exchange.stream
        if self.clients.is_async(client):
            return threads.run_coroutine(self._afetch(exchange)).result()
        answer = self._request(client, exchange)
        if inspect.isawaitable(answer):
            answer = threads.wait_for(answer)
        if not self.clients.is_original(client):
            if stream and isinstance(answer, Iterator):
                return stream.collect(map(_plain, answer))
            return _plain(answer)
        with closing(answer):
            if stream and not _is_whole(answer):
                body = stream.collect(answer.iter_bytes())
                return _read(body, answer) if isinstance(body, bytes) else body
            return _read(answer.read(), answer)

    async def _afetch(self, exchange: Exchange) -> Any:
        """As `_fetch`, on the running event loop."""
        import asyncio

        client, stream = await self.clients.of_running_loop(), exchange.stream
        if not self.clients.is_async(client):
            fetch = functools.partial(self._fetch, exchange)
            return await asyncio.wrap_future(threads.start(fetch))
        answer = await self._request(client, exchange)
        if not self.clients.is_original(client):
            if stream and hasattr(answer, "__aiter__"):
                chunks = (_plain(chunk) async for chunk in answer)
                return await stream.acollect(chunks)
            return _plain(answer)
        async with aclosing(answer):
            if stream and not _is_whole(answer):
                body = await stream.acollect(answer.aiter_bytes())
                return _read(body, answer) if isinstance(body, bytes) else body
            return _read(await answer.aread(), answer)

    def _request(self, client: Any, exchange: Exchange) -> Any:
        """Make the request. An asynchronous client returns what is to be awaited."""
        if not self.clients.is_original(client):
            return _call(self.clients.method_of(client), exchange)
        return client.post(self.path, **_post_arguments(exchange))


def _call(method: Any, exchange: Exchange) -> Any:
    """Call a client's ordinary method; fields that it has no parameter for go into its `extra_body`."""
    parameters = inspect.signature(method).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    fields = {**exchange.body, **exchange.options}
    if inspect.Parameter.VAR_KEYWORD not in kinds and "extra_body" in parameters:
        unknown = [name for name in exchange.body if name not in parameters]
        if unknown:
            fields["extra_body"] = {name: fields.pop(name) for name in unknown}
    return method(**fields)


def _post_arguments(exchange: Exchange) -> dict[str, Any]:
    import httpx2

    options = {
        Transport.OPTIONS[name]: value for name, value in exchange.options.items()
    }
    if exchange.stream:
        # The SDKs' own way to ask for a response that is still open.
        headers = options.get("headers", {})
        options["headers"] = {**headers, "X-Stainless-Raw-Response": "stream"}
    # There is one policy of retries, and it is ours.
    options["max_retries"] = 0
    return {"body": exchange.body, "cast_to": httpx2.Response, "options": options}


def _is_whole(response: Any) -> bool:
    """Whether the whole reply comes at once: some servers answer so though a stream was asked for."""
    content_type = response.headers.get("content-type", "")
    return "json" in content_type or "html" in content_type


def _read(content: bytes, response: Any) -> Any:
    """The JSON of a response. Raises MalformedReply for anything else, such as a page."""
    try:
        return read_json(content)
    except MalformedReply:
        if content.lstrip().startswith(b"<"):
            raise page_error(content.decode("utf-8", "replace"), response) from None
        raise


def _plain(answer: Any) -> Any:
    """What a client's method returned, as plain JSON: it may be one of the SDK's objects."""
    dump = getattr(answer, "model_dump", None)
    return dump(exclude_unset=True) if dump else answer
