"""One batch of calls: parse, validate, permit, run, render."""

from toolkit.calls import single
from toolkit.tools.registry import ToolRegistry

# Tools know nothing of calls; importing this folder gives `ToolRegistry.call` its runner.
ToolRegistry.runner = single
