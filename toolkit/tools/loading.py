"""What a reference to tools names: a module, a file, or one thing in it. Imports it, and knows nothing of tools."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from toolkit.errors import ToolDefinitionError


def find_target(reference: str) -> tuple[ModuleType, str]:
    """The module of a reference, and the name of the thing in it: "" if the reference names the module alone.

    A reference is "package.module", "path/to/file.py", or one of these with ":name". Raises ImportError, naming it.
    """
    place, _, name = reference.rpartition(":")
    # Without a name there may still be a colon, as in the path of a Windows drive.
    if not place or name.endswith(".py"):
        place, name = reference.removesuffix(":"), ""
    module = _import_place(place)
    if name and not hasattr(module, name):
        raise ImportError(
            f"{place!r} has no {name!r}, which the reference {reference!r} names."
        )
    return module, name


def _import_place(place: str) -> ModuleType:
    is_file = place.endswith(".py")
    if is_file:
        missing = f"There is no file {place!r}."
        may_exist = Path(place).is_file()
    else:
        missing = f"There is no module {place!r}. A reference to tools is 'module', 'module:name' or a file."
        may_exist = bool(place) and not place.startswith(".")
    if not may_exist:
        raise ImportError(missing)
    try:
        if is_file:
            return _import_file(Path(place).resolve())
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        # Raised for the place itself or a package around it, not for something that the module imports.
        if f"{place}.".startswith(f"{error.name}."):
            raise ImportError(missing) from error
        raise
    except (ImportError, ToolDefinitionError):
        raise
    except (Exception, SystemExit) as error:
        raise ImportError(
            f"{place!r} failed while it was imported: {type(error).__name__}: {error}. "
            "Run it by itself to see where."
        ) from error


def _import_file(path: Path) -> ModuleType:
    """The module of a file, run once in this process, under its own name if that is free."""
    hashed = f"{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    for name in (path.stem, hashed):
        known: Any = sys.modules.get(name)
        if known is not None and getattr(known, "__file__", None) == str(path):
            return known  # type: ignore[no-any-return]
    name = hashed if path.stem in sys.modules else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{str(path)!r} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    # Its functions may be looked up by it, as by pickle.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
