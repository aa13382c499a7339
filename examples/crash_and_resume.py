"""A process is killed amid a run, and another one goes on with it: nothing is done twice.

    python examples/crash_and_resume.py

A store keeps every step before the next begins. Here a process of its own dies while a tool is at work, with no
chance to clean up (`os._exit`, as good as `kill -9`). What had finished is not run again. What may have taken effect
is not run again either: the model reads "outcome unknown", and here it looks before it does anything. The audit says
which call it was. A script plays the model, always.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from toolkit import (
    ScriptedModel,
    ToolCall,
    ToolContext,
    resume,
    run_agent_with_tools,
    tool,
)
from toolkit.audit import verify
from toolkit.store import SQLiteStore


@dataclass
class Bank:
    books: Path
    process: str  # which one this is


@tool(permission="read")
def find_account(owner: str, context: ToolContext) -> str:
    """Look up the account of a person. Use it before any transfer."""
    print(f"    find_account runs in the {context.deps.process} process")
    return f"account of {owner}"


@tool(permission="write", parallel=False)
def book_transfer(owner: str, euros: int, context: ToolContext) -> str:
    """Transfer money. Use it once the account is known."""
    bank = context.deps
    print(
        f"    book_transfer to {owner} runs in the {bank.process} process", flush=True
    )
    with bank.books.open("a", encoding="utf-8") as books:
        books.write(f"{owner} {euros}\n")
    if owner == "Bob" and bank.process == "first":
        os._exit(9)  # the money is gone, and nobody was told
    return f"{owner} has {euros} euros"


@tool(permission="read")
def list_transfers(context: ToolContext) -> list[str]:
    """List what was transferred. Use it where it is unknown whether a transfer took place."""
    return context.deps.books.read_text(encoding="utf-8").splitlines()


def play(request):
    """The model's part, from what it has read so far."""
    results = [
        result.content
        for message in request.messages
        for result in message.tool_results
    ]
    match results:
        case []:
            return ToolCall("c1", "find_account", {"owner": "Ada"})
        case [_]:
            people = {"c2": "Ada", "c3": "Bob", "c4": "Eve"}
            return [
                ToolCall(i, "book_transfer", {"owner": name, "euros": 9})
                for i, name in people.items()
            ]
        case [_, ada, bob, eve]:
            print(f"    the model reads: {ada} | {bob} | {eve}")
            return ToolCall("c5", "list_transfers", {})
        case [*_, transfers]:
            return f"All three were booked once: {transfers}"


def begin(folder: Path) -> None:
    """What the first process does, until it dies."""
    run_agent_with_tools(
        "Send 9 euros each to Ada, Bob and Eve.",
        run_id="pay-day",
        **setting(folder, "first"),
    )


def setting(folder: Path, process: str) -> dict:
    """What a run works with is given anew to `resume`; its state comes from the store."""
    return {
        "model": ScriptedModel(play),
        "tools": [find_account, book_transfer, list_transfers],
        "deps": Bank(folder / "books.txt", process),
        "store": SQLiteStore(folder / "runs.db"),
        "audit": folder / "audit.jsonl",
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dead = subprocess.run([sys.executable, __file__, name])
        print(f"the first process is dead (exit code {dead.returncode})")
        print(verify(folder / "audit.jsonl"))

        given = setting(folder, "second")
        print(
            f"the store has {[(run.id, run.status) for run in given['store'].runs()]}"
        )
        result = resume("pay-day", **given)
        print(result)
        print(
            f"the store has {[(run.id, run.status) for run in given['store'].runs()]}"
        )
        given["store"].close()


if __name__ == "__main__":
    begin(Path(sys.argv[1])) if sys.argv[1:] else main()
