"""The embedded model: a small language model on this machine that needs no key and no network."""

from toolkit.local.llama import is_installed
from toolkit.local.model import LocalModel

__all__ = ["LocalModel", "is_installed"]
