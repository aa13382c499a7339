"""Code that a model wrote, run within limits.

    python examples/python_sandbox.py

`isolated` runs the tool in a child process; the tool starts a second interpreter there for the model's code, behind
bubblewrap (`bwrap`) where that is installed and the system lets it work.

| the code may | alone | behind bubblewrap |
|---|---|---|
| run for longer than 5 seconds | no: it is killed, with all it started | no |
| take more than 500 MB of memory in one process | no | no |
| print without end | no: cut at 10,000 characters | no |
| read the program's environment (keys), open files and sockets | no | no |
| leave files in its working directory | no: it is removed | no |
| read and write this user's files | YES | no: only the system's and Python's, to read |
| reach the network | YES | no |
| see, end or trace this user's other processes | YES | no |
| start many processes, fill memory or disk with files, until its time is over | YES | YES |
| use a weakness of the kernel | YES | YES |

So alone it keeps accidents in: endless loops, too much memory, too much output. It does not stop code that means harm,
and a text that the model has read can make it write such code. Behind bubblewrap only the last two rows are left. For
these, give it a cgroup with a limit of processes, a virtual machine, or a service that does nothing else.

It stands in this script and not in a module, so it needs `cloudpickle`: pip install 'toolkit-agent[isolation]'.
"""

import contextlib
import logging
import os
import shutil
import subprocess
import sys
from typing import Any

from toolkit import ScriptedModel, ToolCall, run_agent_with_tools, tool
from toolkit.isolation import isolated

MOST_CHARACTERS = 10_000


@tool(permission="write")
@isolated(timeout=5, memory_mb=500, env=["PATH"])
def run_python(code: str) -> str:
    """Run Python code and get what it prints. Use for calculations; only the standard library is there.

    Args:
        code: The whole program. It prints what you want to know.
    """
    command = [*find_wall(), os.path.realpath(sys.executable), "-I", "-S", "-"]
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    with subprocess.Popen(command, text=True, errors="replace", **pipes) as process:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(code)
            process.stdin.close()
        printed = process.stdout.read(MOST_CHARACTERS + 1)
        if len(printed) > MOST_CHARACTERS:
            process.kill()
            return f"{printed[:MOST_CHARACTERS]}\n(It printed more, and was ended.)"
    return (
        f"{printed}(exit status {process.returncode})"
        if process.returncode
        else printed
    )


def find_wall() -> list[str]:
    """The command that stands before another to run it behind bubblewrap; nothing where that does not work."""
    program = shutil.which("bwrap")
    if program is None:
        return []
    wall = [
        program,
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--clearenv",
    ]
    for path in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", sys.base_prefix):
        wall += ["--ro-bind-try", path, path]
    wall += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    tried = subprocess.run(
        [*wall, os.path.realpath(sys.executable), "-I", "-S", "-c", ""],
        capture_output=True,
    )
    return wall if tried.returncode == 0 else []


SUM = "print(sum(n for n in range(1000) if n % 3 == 0 or n % 5 == 0))"
LOOK = f"""
import os, socket
print("keys in sight:", "SECRET_KEY" in os.environ)
print("this script in sight:", os.path.exists({os.path.abspath(__file__)!r}))
try:
    socket.create_server(("127.0.0.1", 0)).close()
    print("interfaces:", [name for _, name in socket.if_nameindex()])
except OSError as error:
    print("no network:", error)
"""
ENDLESS = "import os\nwhile True: os.getpid()"


def pick_model(*script: Any) -> ScriptedModel | None:
    return (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(script)
    )


def main() -> None:
    logging.getLogger("toolkit").setLevel("ERROR")  # what was ended is printed below
    os.environ["SECRET_KEY"] = "not for the model"
    print(
        "behind bubblewrap"
        if find_wall()
        else "without bubblewrap: what it says above stands open"
    )
    model = pick_model(
        *(ToolCall("", "run_python", {"code": code}) for code in (SUM, LOOK, ENDLESS)),
        "The sum is 233168.",
    )
    question = "What is the sum of all numbers below 1000 that 3 or 5 divides?"
    result = run_agent_with_tools(question, model=model, tools=[run_python])
    for call in result.calls:
        print(f"--- {call.arguments['code'].strip()}\n{call.content.strip()}")
    print(result)


if __name__ == "__main__":
    main()
