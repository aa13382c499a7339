"""Failed requests: which are sent again, after how long, and which error the others become."""

from __future__ import annotations

import json
import logging
import random
import re
import time
from dataclasses import dataclass
from typing import Any

from toolkit.errors import MalformedReply, ModelError, ToolsRefused, server_words
from toolkit.models.clients import Clients
from toolkit.models.streaming import EndedEarly

_log = logging.getLogger("toolkit")

_LONGEST_WAIT = 120.0  # seconds; a server that wants longer is not waited for
# As Ollama, vLLM, OpenRouter and others put it (public reports, 2026-11).
_TOOLS = r"\b(?:tools|tool use|tool call(?:s|ing)|function calling|functions)\b"
_TOOLS_REFUSED = re.compile(
    rf"not support (?:the use of |native )?{_TOOLS}|n't support {_TOOLS}|no endpoints found that support tool"
    rf"|{_TOOLS}['\"`]* (?:is|are) (?:not (?:currently )?supported|unsupported)",
    re.IGNORECASE,
)


@dataclass
class Retry:
    """Decides what follows a failed attempt; one for each request: `with retry: return attempt()`.

    It swallows an error after which to send the request again, in `seconds`. What the client raises otherwise leaves
    as a ModelError.
    """

    clients: Clients
    retries: int
    attempts: int = 0
    seconds: float = 0.0

    def __enter__(self) -> None:
        self.attempts += 1

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> bool:
        if not isinstance(error, Exception):
            return False
        if self.attempts <= self.retries and _is_temporary(error, self.clients.library):
            _log.warning("request failed, trying again: %r", error)
            self.seconds = _seconds_until_retry(error, self.attempts)
            return True
        model_error = _as_model_error(error, self.clients)
        if model_error is None:
            return False
        try:
            raise model_error from error
        finally:
            # Its traceback holds this frame: without the name there is no circle, and the
            # connections close with the last reference to the model.
            del model_error


def _is_temporary(error: Exception, library: Any) -> bool:
    """Whether the same request may succeed a little later."""
    import httpx2

    if isinstance(error, library.APIStatusError):
        hint = error.response.headers.get("x-should-retry")
        if hint == "false" or getattr(error, "code", None) == "insufficient_quota":
            return False
        seconds = _retry_after(error) or 0.0
        return _is_temporary_status(error.status_code) and seconds <= _LONGEST_WAIT
    if isinstance(error, MalformedReply) and error.status is not None:
        return _is_temporary_status(error.status)
    return isinstance(
        error, (EndedEarly, library.APIConnectionError, httpx2.TransportError)
    )


def _is_temporary_status(status: int) -> bool:
    return status in (408, 409, 429) or status >= 500


def _seconds_until_retry(error: Exception, attempt: int) -> float:
    """What the server asked for, else a time that grows with each attempt and is jittered."""
    seconds = _retry_after(error)
    if seconds is None:
        seconds = min(0.5 * 2 ** (attempt - 1), 8.0) * random.uniform(0.75, 1.0)
    return max(seconds, 0.0)


def _retry_after(error: Exception) -> float | None:
    """The seconds that a response asks to wait, None if it says nothing that can be read."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    value = headers.get("retry-after", "")
    try:
        if "retry-after-ms" in headers:
            return float(headers["retry-after-ms"]) / 1000
        if value.replace(".", "", 1).isdigit():
            return float(value)
        import email.utils

        return email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError):
        return None


def _as_model_error(error: Exception, clients: Clients) -> ModelError | None:
    """The ModelError for an error of the client; None for any other."""
    import httpx2

    library = clients.library
    if isinstance(error, library.APIStatusError):
        return _status_error(error)
    if isinstance(error, (library.APIConnectionError, httpx2.TransportError)):
        causes = _causes(error)
        # httpx2's own property `request` raises if there is none. The last one is that after a redirect.
        requests = [vars(each).get("_request") for each in causes]
        requests = [vars(error).get("request"), *requests]
        request = next(filter(None, reversed(requests)), None)
        address = getattr(request, "url", clients.base_url)
        reason = str(causes[-1]) or type(causes[-1]).__name__
        return ModelError(f"The model could not be reached at {address}: {reason}.")
    # OpenAIError or AnthropicError
    if isinstance(error, getattr(library, f"{library.Client.__name__}Error")):
        return ModelError(f"The request to the model failed: {error}")
    return None


def _status_error(error: Any) -> ModelError:
    """The ModelError for a response that is an HTTP error, in the server's own words."""
    status, response = error.status_code, error.response
    body = _error_body(error)
    words = server_words(body) or str(body or response.reason_phrase)
    is_page = words.startswith("<")
    is_about_tools = 400 <= status < 502 and _TOOLS_REFUSED.search(words)
    kind = ToolsRefused if is_about_tools else ModelError
    place = ""
    if is_page or status == 404 or response.history or response.is_redirect:
        place = f" at {_address_of(response)}"
    if is_page:
        words = _page_words(words)
    hint = ""
    if status == 404 or (is_page and status < 500):
        hint = _address_hint(response)
    message = f"The model's server answered {status}{place}: {words[:1000]}{hint}"
    return kind(message, status=status)


def page_error(page: str, response: Any) -> MalformedReply:
    """The error for a page of HTML that came with success: the address is not that of a model's API."""
    return MalformedReply(
        f"The server answered at {_address_of(response)} with {_page_words(page)}.{_address_hint(response)}"
    )


def _error_body(error: Any) -> Any:
    """The body of an error response. The SDK's own `body` is only what stands under "error"."""
    try:
        return json.loads(error.response.content)
    except (ValueError, RuntimeError):  # not JSON, or not read
        return error.body


def _address_of(response: Any) -> str:
    """The address that answered, without what may be secret in it, and where a redirect began or leads."""
    steps = (*response.history, response)
    first, *_, last = [
        str(step.url.copy_with(query=None, userinfo=b"")) for step in (*steps, response)
    ]
    if response.is_redirect:
        return f"{last} (redirected to {response.headers.get('location')})"
    return last if first == last else f"{last} (redirected from {first})"


def _address_hint(response: Any) -> str:
    """A question about the base URL of a request that reached no model's API."""
    return "" if "/v1" in response.url.path else " Should base_url end in '/v1'?"


def _page_words(page: str) -> str:
    """What an HTML page says: its title, or else its text."""
    title = re.search(r"<title[^>]*>(.*?)</title", page, re.IGNORECASE | re.DOTALL)
    text = title[1] if title else re.sub(r"<[^>]*>", " ", page)
    return f"an HTML page, {' '.join(text.split())[:200]!r}"


def _causes(error: BaseException) -> list[BaseException]:
    """The error, what caused it, and so on."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    return causes
