"""One batch of calls: parse, validate, permit, execute, render."""

from toolkit.calls import single
from toolkit.tools.registry import ToolRegistry

# Tools know nothing of calls. Importing this folder, as `import toolkit` does, gives
# `ToolRegistry.call` what runs a single call.
ToolRegistry.runner = single
