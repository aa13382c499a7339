"""The rules of CONTRIBUTING.md that a machine can check."""

from __future__ import annotations

import socket

import pytest

# The guard in conftest.py


@pytest.mark.parametrize("host", ["192.0.2.1", "example.invalid", "2001:db8::1"])
def test_tests_reach_no_other_machine(host: str) -> None:
    with pytest.raises(RuntimeError, match="loopback"):
        socket.create_connection((host, 80), timeout=1)
    with socket.socket() as plain, pytest.raises(RuntimeError, match="loopback"):
        plain.connect_ex((host, 80))


def test_tests_reach_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(
            ("localhost", server.getsockname()[1]), timeout=5
        ).close()
