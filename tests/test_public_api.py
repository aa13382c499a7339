"""What `import toolkit` offers, and what it costs."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import toolkit

ROOT = Path(__file__).parents[1]

# Everything else that is not the standard library waits until it is needed. `openai` alone takes half a second
# and pydantic a tenth of one; a program that only declares its tools pays for neither.
LOADED_BY_IMPORT = {"toolkit"}

LIST_LOADED = """
import json, sys
before = set(sys.modules)
import toolkit
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """The modules that `import toolkit` loads in a new process."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON")
    }
    command = [sys.executable, "-c", LIST_LOADED]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return list(json.loads(done.stdout))


@pytest.mark.slow
def test_import_loads_no_other_package(loaded: list[str]) -> None:
    packages = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names
    assert packages <= LOADED_BY_IMPORT


PATH = {
    "calls", "dialects", "errors", "events", "messages", "models", "run", "runs", "tools",
}  # fmt: skip


@pytest.mark.slow
def test_import_loads_only_the_path(loaded: list[str]) -> None:
    rooms = {name.split(".")[1] for name in loaded if name.startswith("toolkit.")}
    assert rooms <= PATH


def test_the_surface_is_small_and_sorted() -> None:
    assert toolkit.__all__ == sorted(set(toolkit.__all__))
    assert len(toolkit.__all__) <= 30


def test_the_surface_is_listed() -> None:
    assert set(toolkit.__all__) <= set(dir(toolkit))


@pytest.mark.parametrize("name", getattr(toolkit, "__all__", ()))
def test_a_public_name_is_documented(name: str) -> None:
    value = getattr(toolkit, name)
    if name == "__version__":
        assert isinstance(value, str)
        return
    own = (
        vars(value) if isinstance(value, type) else {"__doc__": value.__doc__}
    )  # not one that it inherits
    docstring = own.get("__doc__") or ""
    assert docstring.strip()
    assert not docstring.startswith(f"{name}("), (
        "that is the text that dataclass writes by itself"
    )


@pytest.mark.parametrize("name", getattr(toolkit, "__all__", ()))
def test_a_public_function_is_typed(name: str) -> None:
    value = getattr(toolkit, name)
    if inspect.isfunction(value):
        assert set(inspect.signature(value).parameters) | {"return"} <= set(
            value.__annotations__
        )


def test_types_are_shipped() -> None:
    assert (ROOT / "toolkit" / "py.typed").is_file()
