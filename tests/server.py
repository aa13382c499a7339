"""A strict Chat Completions server on loopback that plays a script.

What providers refuse is refused here with 400, so that a request which would be wrong out there is wrong in a test.
The rules are those of OpenAI and of the servers that are stricter than it, as quoted in public bug reports until
2026-11. HTTP is the standard library's, with connections kept alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from types import TracebackType
from typing import Any

# A client that is made reads the certificates of the world, which takes 30 ms; nothing here speaks TLS.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)


@dataclass(frozen=True)
class Fault:
    """An HTTP error."""

    status: int
    message: str = "something went wrong"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reset:
    """The connection is reset, and nothing was answered."""


@dataclass(frozen=True)
class Cut:
    """The answer ends before the length that its header promises."""


@dataclass(frozen=True)
class Raw:
    """An answer of any bytes."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Events:
    """A stream of chunks as server-sent events; where `whole` is false, it ends before its end."""

    chunks: tuple[Any, ...]
    whole: bool = True


@dataclass(frozen=True)
class Slow:
    """Another play, `seconds` later."""

    seconds: float
    play: Any


@dataclass(frozen=True)
class Request:
    """What came in: the body, the headers in lower case, on which connection, and when (`time.monotonic`)."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str
    connection: int
    at: float


def call(
    name: str, arguments: Any = "{}", id: str | None = "c1", **extra: Any
) -> dict[str, Any]:
    """A tool call on the wire; arguments other than text become JSON text."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    made = {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": text},
        **extra,
    }
    return {key: value for key, value in made.items() if value is not None}


def answer(
    text: str | None = None, *calls: Any, finish: str | None = None, **extra: Any
) -> dict[str, Any]:
    """A response body; `extra` goes into its message."""
    message: dict[str, Any] = {"role": "assistant", "content": text, **extra}
    if calls:
        message["tool_calls"] = list(calls)
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
    }
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    return {
        "id": "r1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


class ChatServer(ThreadingHTTPServer):
    """Plays its script, one play for each request: a text, a response body, a `Fault` or the like.

    As a context manager it runs, and complains at its end of requests that it refused and of plays that nobody asked
    for. `requests` holds what came, `connections` counts the connections.
    """

    daemon_threads = False  # so that server_close waits for them

    def __init__(self, *plays: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.plays = deque(plays)
        self.requests: list[Request] = []
        self.refused: list[str] = []
        self.connections = 0
        self.open: set[socket.socket] = set()
        self.closing = threading.Event()
        self.lock = threading.Lock()

    def server_bind(self) -> None:
        TCPServer.server_bind(
            self
        )  # HTTPServer would ask the name service for this machine's full name
        self.server_name, self.server_port = (
            self.server_address[0],
            self.server_address[1],
        )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    def __enter__(self) -> ChatServer:
        threading.Thread(
            target=self.serve_forever, args=(0.01,), name="chat-server"
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self.shutdown()
        for connection in list(self.open):
            with contextlib.suppress(OSError):  # closed by its other end
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()
        if kind is None:
            assert not self.refused, self.refused
            assert not self.plays, f"nobody asked for {list(self.plays)}"


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ChatServer

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1
            self.number = self.server.connections
            self.server.open.add(self.connection)

    def finish(self) -> None:
        with self.server.lock:
            self.server.open.discard(self.connection)
        super().finish()

    def log_message(self, *_: Any) -> None:
        """Be quiet."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client went away
            super().handle()

    def do_POST(self) -> None:
        at = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.lock:
            self.server.requests.append(
                Request(body, headers, self.path, self.number, at)
            )
            complaint = find_complaint(body)
            if complaint is None and not self.server.plays:
                complaint = "The script has ended."
            if complaint is not None:
                self.server.refused.append(complaint)
            play = (
                Fault(400, complaint)
                if complaint is not None
                else self.server.plays.popleft()
            )
        self.perform(play)

    def perform(self, play: Any) -> None:
        if isinstance(play, Slow):
            self.server.closing.wait(play.seconds)
            self.perform(play.play)
        elif isinstance(play, Reset):
            self.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            self.close_connection = True
        elif isinstance(play, Cut):
            self.send(200, b'{"choices": [', promised=1000)
            self.close_connection = True
        elif isinstance(play, Raw):
            self.send(play.status, play.body, play.headers)
        elif isinstance(play, Events):
            lines = [
                f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
                for chunk in play.chunks
            ]
            self.send(
                200,
                "".join([*lines, "data: [DONE]\n\n" if play.whole else ""]).encode(),
                _EVENT_STREAM,
            )
        elif isinstance(play, Fault):
            told = {
                "error": {
                    "message": play.message,
                    "type": "played",
                    "param": None,
                    "code": play.code,
                }
            }
            self.send(play.status, json.dumps(told).encode(), play.headers)
        else:
            self.send(
                200,
                json.dumps(answer(play) if isinstance(play, str) else play).encode(),
            )

    def send(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        promised: int = 0,
    ) -> None:
        fields = {
            "content-type": "application/json",
            "content-length": promised or len(body),
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.wfile.write(f"HTTP/1.1 {status} played\r\n{head}\r\n".encode() + body)


_EVENT_STREAM = {"content-type": "text/event-stream"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def find_complaint(body: Mapping[str, Any]) -> str | None:
    """Why providers would refuse a request body, or None where they would not."""
    return next(_complaints(body), None)


def _complaints(body: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(body.get("model"), str):
        yield "model: missing"
    names: list[str] = []
    if "tools" in body:
        yield from _complaints_of_tools(body["tools"], names)
    yield from _complaints_of_choice(body, names)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: [] is too short"
        return
    yield from _complaints_of_messages(messages)


def _complaints_of_tools(tools: Any, names: list[str]) -> Iterator[str]:
    if not isinstance(tools, list) or not tools:
        yield "tools: [] is too short"
        return
    for tool in tools:
        function = tool["function"]
        if tool.get("type") != "function" or tool.keys() - {"type", "function"}:
            yield f"tools: {tool} is no function"
        if function.keys() - {"name", "description", "parameters", "strict"}:
            yield f"tools: unknown fields in {function}"
        if not _is_name(function["name"]) or function["name"] in names:
            yield f"tools: the name {function['name']!r} is illegal or taken"
        names.append(function["name"])
        parameters = function.get("parameters", {"type": "object", "properties": {}})
        if parameters.get("type") != "object" or not isinstance(
            parameters.get("properties"), dict
        ):
            yield f"tools: the schema of {function['name']!r} is no object with properties"


def _complaints_of_choice(body: Mapping[str, Any], names: list[str]) -> Iterator[str]:
    for key in ("tool_choice", "parallel_tool_calls"):
        if key in body and not names:
            yield f"{key}: only allowed when tools are specified"
    choice = body.get("tool_choice", "auto")
    forced = choice["function"]["name"] if isinstance(choice, dict) else None
    if forced not in (None, *names) or (
        forced is None and choice not in ("auto", "none", "required")
    ):
        yield f"tool_choice: {choice!r} is no choice"


def _complaints_of_messages(messages: list[Any]) -> Iterator[str]:
    open_ids: list[str] = []
    seen: set[str] = set()
    for position, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if "content" not in message:
            yield f"messages[{position}]: has no content"
        if role == "tool":
            if not isinstance(content, str):
                yield f"messages[{position}]: the content of a tool message is no text"
            if message.get("tool_call_id") not in open_ids:
                yield f"messages[{position}]: answers no call of the message before it"
            else:
                open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            yield f"messages[{position}]: the calls {open_ids} are not answered"
        open_ids = []
        if role == "system" and any(
            before["role"] != "system" for before in messages[:position]
        ):
            yield f"messages[{position}]: a system message must be at the beginning"
        if role not in ("system", "developer", "user", "assistant"):
            yield f"messages[{position}]: {role!r} is no role"
        if "tool_calls" in message:
            yield from _complaints_of_calls(
                message["tool_calls"], position, open_ids, seen
            )
        elif not isinstance(content, (str, list)):
            yield f"messages[{position}]: content must not be null"
    if open_ids:
        yield f"the calls {open_ids} are not answered"


def _complaints_of_calls(
    calls: Any, position: int, open_ids: list[str], seen: set[str]
) -> Iterator[str]:
    where = f"messages[{position}].tool_calls"
    if not isinstance(calls, list) or not calls:
        yield f"{where}: [] is too short"
        return
    for one in calls:
        name, arguments = one["function"].get("name"), one["function"].get("arguments")
        if one.get("type") != "function":
            yield f"{where}: a call without its type"
        if not isinstance(one.get("id"), str) or not one["id"] or one["id"] in seen:
            yield f"{where}: the id {one.get('id')!r} is missing, or used before"
        if not _is_name(name):
            yield f"{where}: the name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$"
        if not isinstance(arguments, str) or not isinstance(_read(arguments), dict):
            yield f"{where}: the arguments {arguments!r} are not the JSON text of an object"
        seen.add(str(one.get("id")))
        open_ids.append(str(one.get("id")))


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
