"""This toolkit for the side-by-side benchmark: its public functions, with their defaults.

A single call is measured on the caller's own thread, as a tool with `timeout=None` runs; the class
`OnWorker` measures the default, a worker thread that bounds the call to 60 seconds.
"""

from types import SimpleNamespace
from typing import ClassVar

from .base import Adapter


class Toolkit(Adapter):
    name = "toolkit"
    env = "toolkit"
    distributions = ("toolkit-agent",)
    imports = "from toolkit import tool, run_agent_with_tools, arun_agent_with_tools"
    notes: ClassVar = {"loop": "run_agent_with_tools / arun_agent_with_tools", "dispatch": "ToolRegistry.call"}
    timeout = None

    def declare(self, functions):
        from toolkit import ToolRegistry, tool

        registry = ToolRegistry()
        return [tool(registry=registry)(function) for function in functions]

    def schemas(self, tools):
        return [dict(function.tool_schema) for function in tools]

    def dispatcher(self, function):
        from toolkit import ToolRegistry

        registry = ToolRegistry()
        made = registry.register_tool(function, timeout=self.timeout)
        return lambda arguments: registry.call(made.name, arguments).content

    def open(self, model, functions, max_turns, concurrency=1):
        from toolkit import Model, ToolRegistry

        asked = Model(model, base_url=self.base_url, api_key=self.api_key)
        return SimpleNamespace(model=asked, tools=ToolRegistry(functions), max_turns=max_turns)

    def run(self, s, prompt):
        from toolkit import run_agent_with_tools

        return str(run_agent_with_tools(prompt, model=s.model, tools=s.tools, max_turns=s.max_turns))

    async def aopen(self, model, functions, max_turns, concurrency=1):
        return self.open(model, functions, max_turns, concurrency)

    async def arun(self, s, prompt):
        from toolkit import arun_agent_with_tools

        return str(await arun_agent_with_tools(prompt, model=s.model, tools=s.tools, max_turns=s.max_turns))

    def stream(self, s, prompt):
        """Text comes through a callback, so the run has a thread of its own."""
        import queue
        import threading

        from toolkit import run_agent_with_tools

        pieces = queue.SimpleQueue()

        def work():
            run_agent_with_tools(prompt, model=s.model, tools=s.tools, max_turns=s.max_turns, on_text=pieces.put)
            pieces.put(None)

        threading.Thread(target=work, daemon=True).start()
        yield from iter(pieces.get, None)

    async def astream(self, s, prompt):
        import asyncio

        from toolkit import arun_agent_with_tools

        pieces = asyncio.Queue()
        given = {"model": s.model, "tools": s.tools, "max_turns": s.max_turns, "on_text": pieces.put_nowait}
        task = asyncio.ensure_future(arun_agent_with_tools(prompt, **given))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        while (piece := await pieces.get()) is not None:
            yield piece
        await task


class OnWorker(Toolkit):
    name = "toolkit_worker"
    skip = (
        "W1",
        "W1b",
        "W1c",
        "W2",
        "W2r",
        "W3s",
        "W3x",
        "W3a",
        "W4s",
        "W4x",
        "W4a",
        "W6",
        "W6h",
        "W7",
        "W7c",
        "W8",
        "W8t",
    )
    timeout = 60.0


ADAPTER = Toolkit
