"""This toolkit for the side-by-side benchmark: its public functions, with their defaults.

A single call is measured on the caller's own thread, as a tool with `timeout=None` runs; the class
`OnWorker` measures the default, a worker thread that bounds the call to 60 seconds. `Wide` allows 32 calls at once,
where the default is 16.
"""

from types import SimpleNamespace
from typing import ClassVar

from .base import Adapter


class Toolkit(Adapter):
    name = "toolkit"
    env = "toolkit"
    distributions = ("toolkit-agent",)
    imports = "from toolkit import tool, run_agent_with_tools, arun_agent_with_tools"
    notes: ClassVar = {
        "loop": "run_agent_with_tools / arun_agent_with_tools",
        "dispatch": "ToolRegistry.call",
    }
    timeout = None
    concurrency = 16

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
        from toolkit import Limits, Model, ToolRegistry

        asked = Model(model, base_url=self.base_url, api_key=self.api_key)
        limits = Limits(concurrency=self.concurrency)
        return SimpleNamespace(
            model=asked,
            tools=ToolRegistry(functions),
            max_turns=max_turns,
            limits=limits,
        )

    def run(self, s, prompt):
        from toolkit import run_agent_with_tools

        return str(
            run_agent_with_tools(
                prompt,
                model=s.model,
                tools=s.tools,
                max_turns=s.max_turns,
                limits=s.limits,
            )
        )

    async def aopen(self, model, functions, max_turns, concurrency=1):
        return self.open(model, functions, max_turns, concurrency)

    async def arun(self, s, prompt):
        from toolkit import arun_agent_with_tools

        return str(
            await arun_agent_with_tools(
                prompt,
                model=s.model,
                tools=s.tools,
                max_turns=s.max_turns,
                limits=s.limits,
            )
        )

    def stream(self, s, prompt):
        """Text comes through a callback, so the run has a thread of its own."""
        import queue
        import threading

        from toolkit import run_agent_with_tools

        pieces = queue.SimpleQueue()

        def work():
            run_agent_with_tools(
                prompt,
                model=s.model,
                tools=s.tools,
                max_turns=s.max_turns,
                on_text=pieces.put,
            )
            pieces.put(None)

        threading.Thread(target=work, daemon=True).start()
        yield from iter(pieces.get, None)

    async def astream(self, s, prompt):
        import asyncio

        from toolkit import arun_agent_with_tools

        pieces = asyncio.Queue()
        given = {
            "model": s.model,
            "tools": s.tools,
            "max_turns": s.max_turns,
            "on_text": pieces.put_nowait,
        }
        task = asyncio.ensure_future(arun_agent_with_tools(prompt, **given))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        while (piece := await pieces.get()) is not None:
            yield piece
        await task


LOOPS = (
    "W1",
    "W1b",
    "W1c",
    "W2",
    "W2r",
    "W3s",
    "W3x",
    "W3a",
    "W6",
    "W6h",
    "W7",
    "W7c",
    "W8",
    "W8t",
)
PARALLEL = ("W4s", "W4x", "W4a")


class OnWorker(Toolkit):
    name = "toolkit_worker"
    skip = (*LOOPS, *PARALLEL)
    timeout = 60.0


class Wide(Toolkit):
    name = "toolkit_wide"
    skip = (*LOOPS, "W5", "W5n")
    concurrency = 32


ADAPTER = Toolkit
