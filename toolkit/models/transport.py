"""One request over an SDK's client: posted as it is, whole or streamed, with retries.

The SDKs (openai, anthropic: one generator made both) are the transport: connections, authentication,
errors. Requests go through their `post`, since their typed methods copy all parameters at every
request, the whole history among them. A client that is not the SDK's own, or whose method somebody
has wrapped (a tracer, a test), is used through that method.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import operator
import os
import random
import re
import time
import types
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

from toolkit.calls import threads
from toolkit.errors import MalformedReply, ModelError, ToolsRefused
from toolkit.messages import Reply
from toolkit.models.server_sent_events import EndedEarly, Streamed, parsed

_log = logging.getLogger("toolkit")

# As Ollama, vLLM, OpenRouter and others put it (public reports, 2026-11).
_TOOLS = r"\b(?:tools|tool use|tool call(?:s|ing)|function calling|functions)\b"
_NO_TOOLS = re.compile(
    rf"not support (?:the use of |native )?{_TOOLS}|n't support {_TOOLS}|no endpoints found that support tool"
    rf"|{_TOOLS}['\"`]* (?:is|are) (?:not (?:currently )?supported|unsupported)",
    re.IGNORECASE,
)
_RETRIED = (408, 409, 429)
_LONGEST_WAIT = 120.0  # seconds; a server that wants longer is not waited for
_OPTIONS = {"timeout": "timeout", "extra_headers": "headers", "extra_query": "params"}
KEYWORDS = frozenset(_OPTIONS)
"""What a caller may say of the transport among the fields of a request."""


Body = dict[str, Any]
Options = Mapping[str, Any]


class Transport:
    """The way to one server. `sdk` is "openai" or "anthropic", `method` the client's ordinary method for a wire."""

    def __init__(
        self,
        sdk: str,
        path: str,
        method: str,
        *,
        client: Any,
        base_url: str | None,
        api_key: str | None,
        retries: int,
    ) -> None:
        self.sdk, self.path, self.method, self.retries = sdk, path, method, retries
        self._given, self._base_url, self._api_key = client, base_url, api_key
        self._async_clients: weakref.WeakKeyDictionary[Any, Any] = (
            weakref.WeakKeyDictionary()
        )

    def ask(
        self,
        body: Body,
        options: Options,
        streamed: Streamed | None,
        read: Callable[[Any], Reply],
    ) -> Reply:
        """What `read` makes of the response. Raises ModelError when the retries are used up or it is refused."""
        failed: list[Exception] = []

        def attempt() -> Reply:
            if failed:
                raise failed.pop()  # for the policy, the first attempt has been made
            return read(self._attempt(body, options, streamed))

        try:
            try:
                return attempt()  # without the policy, whose machinery costs more than the rest of the toolkit
            except Exception as error:
                failed.append(error)
                reply: Reply = self._policy("Retrying")(attempt)
                return reply
        except Exception as error:
            if (told := self._as_model_error(error)) is None:
                raise
            raise told from error

    async def aask(
        self,
        body: Body,
        options: Options,
        streamed: Streamed | None,
        read: Callable[[Any], Reply],
    ) -> Reply:
        """As `ask`, on the running event loop."""
        failed: list[Exception] = []

        async def attempt() -> Reply:
            if failed:
                raise failed.pop()
            return read(await self._aattempt(body, options, streamed))

        try:
            try:
                return await attempt()
            except Exception as error:
                failed.append(error)
                reply: Reply = await self._policy("AsyncRetrying")(attempt)
                return reply
        except Exception as error:
            if (told := self._as_model_error(error)) is None:
                raise
            raise told from error

    def is_at(self, address: str) -> bool:
        """Whether requests go to this address, the SDK's own where none was given."""
        given = (
            self._base_url
            if self._given is None
            else getattr(self._given, "base_url", "elsewhere")
        )
        return str(
            given or os.environ.get(f"{self.sdk.upper()}_BASE_URL") or address
        ).startswith(address)

    def _attempt(self, body: Body, options: Options, streamed: Streamed | None) -> Any:
        client = self._client
        if self._is_async(client):
            return threads.run_coroutine(
                self._asend(client, body, options, streamed)
            ).result()
        return self._send(client, body, options, streamed)

    async def _aattempt(
        self, body: Body, options: Options, streamed: Streamed | None
    ) -> Any:
        client = await self._async_client()
        if self._is_async(client):
            return await self._asend(client, body, options, streamed)
        import asyncio

        send = functools.partial(self._send, client, body, options, streamed)
        return await asyncio.wrap_future(threads.start(send))

    def _send(
        self, client: Any, body: Body, options: Options, streamed: Streamed | None
    ) -> Any:
        if streamed:
            streamed.begin()
        if not self._is_plain(client):
            answer = _called(self._method_of(client), body, options)
            if inspect.isawaitable(answer):
                answer = threads.wait_for(answer)
            if not streamed or not isinstance(answer, Iterator):
                return _as_dict(answer)
            for chunk in answer:
                streamed.take(_as_dict(chunk))
            return streamed.end()
        response = client.post(self.path, **_posted(body, options, streamed))
        try:
            if not streamed or not _is_event_stream(response):
                return parsed(response.read())
            for data in response.iter_bytes():  # to its end, which keeps the connection
                streamed.feed(data)
            return streamed.end()
        finally:
            response.close()

    async def _asend(
        self, client: Any, body: Body, options: Options, streamed: Streamed | None
    ) -> Any:
        if streamed:
            streamed.begin()
        if not self._is_plain(client):
            answer = await _called(self._method_of(client), body, options)
            if not streamed or not hasattr(answer, "__aiter__"):
                return _as_dict(answer)
            async for chunk in answer:
                streamed.take(_as_dict(chunk))
            return streamed.end()
        response = await client.post(self.path, **_posted(body, options, streamed))
        try:
            if not streamed or not _is_event_stream(response):
                return parsed(await response.aread())
            async for data in response.aiter_bytes():
                streamed.feed(data)
            return streamed.end()
        finally:
            await response.aclose()

    @functools.cached_property
    def _library(self) -> Any:
        try:
            return importlib.import_module(self.sdk)
        except ImportError as error:
            raise ModelError(
                f"This model is asked through the package {self.sdk}. "
                f"Install it: pip install 'toolkit-agent[{self.sdk}]'."
            ) from error

    @functools.cached_property
    def _client(self) -> Any:
        return self._made("OpenAI", "Anthropic") if self._given is None else self._given

    async def _async_client(self) -> Any:
        """One client for each event loop: a pooled connection belongs to the loop that opened it."""
        if self._given is not None:
            return self._given
        import asyncio

        loop = asyncio.get_running_loop()
        if loop not in self._async_clients:
            opened = _open_until_loop_ends(self._made("AsyncOpenAI", "AsyncAnthropic"))
            self._async_clients[loop] = (await anext(opened), opened)
        return self._async_clients[loop][0]

    def _made(self, openai_class: str, anthropic_class: str) -> Any:
        kind = getattr(
            self._library, openai_class if self.sdk == "openai" else anthropic_class
        )
        name = self.sdk.upper()
        is_own = self._base_url or os.environ.get(
            f"{name}_BASE_URL"
        )  # where a key is the server's affair
        key = (
            self._api_key
            or os.environ.get(f"{name}_API_KEY")
            or ("none" if is_own else None)
        )
        try:
            return kind(base_url=self._base_url, api_key=key, max_retries=0)
        except Exception as error:
            raise ModelError(
                f"No client of the {self.sdk} SDK could be made: {error}"
            ) from error

    def _method_of(self, client: Any) -> Any:
        return operator.attrgetter(self.method)(client)

    def _is_plain(self, client: Any) -> bool:
        """Whether a client is the SDK's own and nobody has put anything before its method."""
        method = self._method_of(client)
        if not self._is_own(client) or type(method) is not types.MethodType:
            return False
        function = method.__func__
        # functools.wraps copies the module's name, but not the globals.
        return isinstance(function, types.FunctionType) and self._is_own(
            method, function.__globals__["__name__"]
        )

    def _is_async(self, client: Any) -> bool:
        if self._is_own(client):
            return type(client).__name__.startswith("Async")
        return inspect.iscoroutinefunction(self._method_of(client))

    def _is_own(self, thing: Any, module: str = "") -> bool:
        return (module or type(thing).__module__).split(".")[0] == self.sdk

    def _policy(self, kind: str) -> Any:
        import tenacity

        return getattr(tenacity, kind)(
            stop=tenacity.stop_after_attempt(self.retries + 1),
            retry=tenacity.retry_if_exception(self._is_passing),
            wait=lambda state: _wait(state.outcome.exception(), state.attempt_number),
            before_sleep=lambda state: _log.warning(
                "request failed, trying again: %r", state.outcome.exception()
            ),
            reraise=True,
        )

    def _is_passing(self, error: BaseException) -> bool:
        """Whether the same request may well succeed a little later."""
        import httpx2

        if isinstance(error, self._library.APIStatusError):
            told = error.response.headers.get("x-should-retry")
            if told == "false" or getattr(error, "code", None) == "insufficient_quota":
                return False
            return (
                _is_passing_status(error.status_code)
                and (_retry_after(error) or 0.0) <= _LONGEST_WAIT
            )
        if isinstance(error, MalformedReply):
            return (
                isinstance(error, EndedEarly)
                if error.status is None
                else _is_passing_status(error.status)
            )
        return isinstance(
            error, (self._library.APIConnectionError, httpx2.TransportError)
        )

    def _as_model_error(self, error: Exception) -> ModelError | None:
        import httpx2

        if isinstance(error, self._library.APIStatusError):
            status, text = (
                error.status_code,
                error.message.removeprefix(f"Error code: {error.status_code} - ")[
                    :1000
                ],
            )
            kind = (
                ToolsRefused
                if 400 <= status < 502 and _NO_TOOLS.search(text)
                else ModelError
            )
            return kind(f"The model's server answered {status}: {text}", status=status)
        if isinstance(error, (self._library.APIConnectionError, httpx2.TransportError)):
            where = getattr(
                getattr(error, "_request", None) or getattr(error, "request", None),
                "url",
                self._base_url,
            )
            return ModelError(
                f"The model could not be reached at {where}: {_cause(error)}."
            )
        if isinstance(
            error, getattr(self._library, f"{type(self._client).__name__}Error", ())
        ):
            return ModelError(f"The model could not be asked: {error}")
        return None


def _called(method: Any, body: Body, options: Options) -> Any:
    """Call a client's ordinary method; fields that it has no parameter for go into its `extra_body`."""
    parameters = inspect.signature(method).parameters
    takes_all = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    if takes_all or "extra_body" not in parameters:
        return method(**body, **options)
    extra = {key: value for key, value in body.items() if key not in parameters}
    known = {key: value for key, value in body.items() if key in parameters}
    return method(**known, **options, **({"extra_body": extra} if extra else {}))


def _posted(body: Body, options: Options, streamed: Streamed | None) -> dict[str, Any]:
    import httpx2

    request = {
        "max_retries": 0,
        **{_OPTIONS[name]: value for name, value in options.items()},
    }
    if streamed:  # the SDKs' own way to ask for an open response
        request["headers"] = {
            **request.get("headers", {}),
            "X-Stainless-Raw-Response": "stream",
        }
    return {"body": body, "cast_to": httpx2.Response, "options": request}


async def _open_until_loop_ends(client: Any) -> AsyncGenerator[Any, None]:
    """Yield the client; asyncio finalises the generator when it shuts the loop down, which closes the connections."""
    try:
        yield client
    finally:
        await client.close()


def _is_event_stream(response: Any) -> bool:
    """Some servers answer a request for a stream with the whole reply."""
    return "json" not in response.headers.get("content-type", "")


def _as_dict(answer: Any) -> Any:
    dump = getattr(answer, "model_dump", None)
    return dump(exclude_unset=True) if dump else answer


def _is_passing_status(status: int) -> bool:
    return status in _RETRIED or status >= 500


def _wait(error: BaseException | None, attempt: int) -> float:
    """Seconds until the next attempt: what the server asked for, else growing and jittered."""
    if (wanted := _retry_after(error)) is not None:
        return max(wanted, 0.0)
    return float(min(0.5 * 2 ** (attempt - 1), 8.0) * random.uniform(0.75, 1.0))


def _retry_after(error: Any) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", {})
    try:
        if "retry-after-ms" in headers:
            return float(headers["retry-after-ms"]) / 1000
        value = headers.get("retry-after")
        if value is None or value.replace(".", "", 1).isdigit():
            return None if value is None else float(value)
        import email.utils

        return email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError):
        return None


def _cause(error: BaseException) -> str:
    deepest = error
    while deepest.__cause__ is not None:
        deepest = deepest.__cause__
    return str(deepest) or type(deepest).__name__
