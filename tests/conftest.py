"""What every test can rely on: no network, no keys, a fresh registry, both drivers."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Generator, Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import settings

import toolkit
from helpers import Runner, in_loop

# A machine under load is slow, not wrong. The profile chosen so far stays in force: under CI it is a repeatable one.
settings.register_profile("toolkit", settings.default, deadline=None)
settings.load_profile("toolkit")

# What would make a test depend on the machine it runs on.
OUTSIDE_SETTINGS = (
    *(
        "TOOLKIT_MODEL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
    ),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
    *(
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ),
)


@pytest.fixture(autouse=True, scope="session")
def only_loopback() -> Iterator[None]:
    """Sockets connect to this machine only, and no other name is looked up.

    It holds for the whole session, so that a thread that outlives its test is held as well.
    """
    connect, connect_ex, getaddrinfo = (
        socket.socket.connect,
        socket.socket.connect_ex,
        socket.getaddrinfo,
    )

    def connect_near(self: socket.socket, address: Any) -> None:
        _refuse_far(address)
        connect(self, address)

    def connect_ex_near(self: socket.socket, address: Any) -> int:
        _refuse_far(address)
        return connect_ex(self, address)

    def look_up_near(host: Any, *rest: Any, **options: Any) -> Any:
        _refuse_far((host,))
        return getaddrinfo(host, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_near)
        patch.setattr(socket.socket, "connect_ex", connect_ex_near)
        patch.setattr(socket, "getaddrinfo", look_up_near)
        yield


def _refuse_far(address: Any) -> None:
    if not isinstance(address, tuple) or address[0] in (
        None,
        "localhost",
        b"localhost",
    ):
        return  # a path (a Unix socket), or this machine by name
    host = os.fsdecode(address[0])
    try:
        near = ip_address(host).is_loopback
    except ValueError:
        near = False
    if not near:
        raise RuntimeError(
            f"A test tried to reach {host!r}. Tests talk to servers on loopback only."
        )


# What only `make test-all` runs: tests that start interpreters, browsers, servers or the embedded model.
PROCESS_MARKERS = ("slow", "local", "servers")
_has_quick_test = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that starts processes says so, or it fails."""
    global _has_quick_test
    _has_quick_test = not any(map(item.get_closest_marker, PROCESS_MARKERS))
    try:
        return (yield)
    finally:
        _has_quick_test = False


def _refuse_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _has_quick_test and arguments[0] != "uname":
        raise RuntimeError(
            f"A quick test started {arguments[0]!r}. Mark it with @pytest.mark.slow."
        )


sys.addaudithook(_refuse_processes)  # `platform` asks uname for the processor


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, address, model or proxy comes from the environment; a test sets its own."""
    for name in OUTSIDE_SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def registry() -> toolkit.ToolRegistry:
    """An empty registry of the test's own."""
    return toolkit.ToolRegistry()


@pytest.fixture(
    params=["sync", "async"], scope="module"
)  # it holds no state, and so serves property tests too
def run(request: pytest.FixtureRequest) -> Runner:
    """`run(prompt, **options)` through each of the two drivers: whoever asks for it is tested with both."""
    if request.param == "sync":
        return toolkit.run_agent_with_tools
    return in_loop(toolkit.arun_agent_with_tools)


@pytest.fixture(params=["sync", "async"], scope="module")
def resume(request: pytest.FixtureRequest) -> Runner:
    """`resume(paused, verdicts, **options)` through each of the two drivers."""
    if request.param == "sync":
        return toolkit.resume
    return in_loop(toolkit.aresume)
