"""A few programs of the system as a tool, without a shell.

    python examples/shell_without_a_shell.py

The model names a program out of a short list and gives a list of arguments. No shell reads them, so `;`, `$(…)` and `*`
mean nothing. Each argument must match a pattern, which the model sees in the schema and which is enforced before
anything runs: a short option, or a file's name without a slash, so that no path leads out of the folder. A name may
not begin with a dash, or it would be an option.

Choose the programs for what their options can do: these three only read. `sort` would not do (`-o` writes a file),
nor `find` (`-exec`), `tar`, `git` or `man` (they start other programs).
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkit import (
    ScriptedModel,
    ToolCall,
    ToolContext,
    ToolError,
    run_agent_with_tools,
    tool,
)

Argument = Annotated[
    str, Field(pattern=r"^(-[A-Za-z0-9]{1,4}|[A-Za-z0-9_][A-Za-z0-9_.]{0,99})$")
]


@tool(permission="read")
def run_program(
    program: Literal["wc", "head", "cksum"],
    arguments: Annotated[list[Argument], Field(max_length=10)],
    context: ToolContext,
) -> str:
    """Run a program on files of the folder: count (wc), show the beginning (head), make a checksum (cksum).

    Args:
        program: Its name.
        arguments: Short options and names of files, one each, e.g. ["-l", "notes.txt"].
    """
    path = shutil.which(program)
    if path is None:
        raise ToolError(f"{program} is not installed here.")
    command = [path, *arguments]
    done = subprocess.run(
        command,
        cwd=context.deps,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=10,
    )
    if done.returncode:
        raise ToolError(f"{program} failed: {done.stderr.strip()}")
    return done.stdout


def pick_model(*script: Any) -> ScriptedModel | None:
    return (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(script)
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "notes.txt").write_text("milk\nbread\ntea\n")
        model = pick_model(
            ToolCall(
                "",
                "run_program",
                {"program": "wc", "arguments": ["-l", "notes.txt; rm -r ."]},
            ),
            ToolCall(
                "",
                "run_program",
                {"program": "head", "arguments": ["-n1", "../../etc/passwd"]},
            ),
            ToolCall(
                "", "run_program", {"program": "wc", "arguments": ["-l", "notes.txt"]}
            ),
            "There are 3 lines in notes.txt.",
        )
        question = "How many lines are in notes.txt?"
        result = run_agent_with_tools(
            question, model=model, tools=[run_program], deps=Path(folder)
        )
        for call in result.calls:
            print(f"{dict(call.arguments)} -> {call.content.strip()}")
        print(result)


if __name__ == "__main__":
    main()
