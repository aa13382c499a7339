"""Functions that run in a child process of their own, within limits, and are ended for certain.

    @tool
    @isolated(timeout=5, memory_mb=256)
    def count_words(text: str) -> int: ...

**How.** Each call starts a fresh interpreter, never a fork of this process. It imports the function by its module and
name. A function without such a place (in a notebook or a script, a lambda, a closure) travels by value, with
`cloudpickle`. The child inherits only the environment variables listed in `env`, and no socket or file of this
process. It has a working directory of its own, which is removed afterwards. What it writes to standard output and
error is discarded; if it ends badly, the last of it is in the log. Context variables do not travel.

**What it costs.** Each call takes about 40 ms of processor time more, and 100 ms if the function's module imports the
toolkit, as it does to decorate (Python 3.11, 2026). No child is kept or started in advance.

**Arguments** are pickled. **Results** come back as JSON, never as a pickle, because a model may have written whatever
ran there. The return type says how they are read (models, dataclasses, dates, sets). Without one a result is plain
JSON, so that a tuple becomes a list, a date a string, and bytes base64. A result may have 10 MB.

**When it ends.** At `timeout`, which counts from the start of the child, imports included; when this process is gone;
when the run no longer waits (the tool's own timeout is shorter, Ctrl-C, cancellation). All that the child started ends
with it, in sessions of their own as well. A `ToolContext` reaches the child with its `deps` pickled; there its
`cancelled()` is never true.

**What it is not.** It contains accidents and runaways, not an enemy: code in the child has the rights of this user,
reads this user's files and reaches the network. `examples/python_sandbox.py` shows what to add. `memory_mb` and
`cpu_s` hold for each process that it starts, not for all together. All of this holds on Linux. On macOS the system
does not limit the address space, and a process that leaves its group outlives the call. Windows is refused.
"""

from toolkit.isolation.call import ChildTraceback, IsolatedError
from toolkit.isolation.decorator import isolated

__all__ = ["ChildTraceback", "IsolatedError", "isolated"]
