"""Tools that do nothing, a model that follows a script, and runs that wait: something to try the page with."""

from toolkit import ScriptedModel, ToolCall, ToolRegistry, run_agent_with_tools, tool
from toolkit.store import SQLiteStore

registry = ToolRegistry()


@tool(registry=registry, permission="sensitive", tags=["files"])
def delete_file(path: str) -> str:
    """Delete a file for good. Use only when the user asked for it.

    Args:
        path: Where the file is, e.g. "exports/2019.csv".
    """
    return f"{path} is deleted (not really: this is a demo)"


@tool(registry=registry, permission="read", tags=["files"])
def list_files(folder: str) -> list[str]:
    """List the files of a folder."""
    return [f"{folder}/2019.csv", f"{folder}/2020.csv", f"{folder}/2026.csv"]


@tool(registry=registry, permission="sensitive", tags=["money"])
def refund(order: int, euros: float, note: str = "") -> str:
    """Pay a customer back.

    Args:
        order: The order's number.
        euros: How much.
        note: What the customer reads of it.
    """
    return f"order {order}: {euros:.2f} euros paid back (not really: this is a demo)"


@tool(registry=registry, permission="sensitive", tags=["mail"])
def send_mail(to: str, subject: str, text: str) -> str:
    """Send a mail.

    Args:
        to: The address.
        subject: What stands above it.
        text: The mail, in plain text.
    """
    return f"sent to {to} (not really: this is a demo)"


MAIL = "Dear Ada,\n\nyour lamp was broken, and we are sorry. The money is on its way.\n\nThe shop"
TASKS = {
    "Delete the exports from before 2025.": [
        ToolCall("", "delete_file", {"path": "exports/2019.csv"}),
        ToolCall("", "delete_file", {"path": "exports/2020.csv"}),
        ToolCall("", "list_files", {"folder": "exports"}),
    ],
    "Order 1017 came broken. Make it good.": [
        ToolCall(
            "",
            "refund",
            {"order": 1017, "euros": 39.9, "note": "Sorry for the broken lamp!"},
        ),
        ToolCall(
            "",
            "send_mail",
            {"to": "ada@example.com", "subject": "Your order 1017", "text": MAIL},
        ),
    ],
    "Invite the team to the summer party.": [
        ToolCall(
            "",
            "send_mail",
            {
                "to": "team@example.com",
                "subject": "Summer party",
                "text": "Friday at six! 🎉",
            },
        ),
    ],
}


def model() -> ScriptedModel:
    """A model that calls what its task says, then tells what came of it; it holds no state, so it may start anew."""

    def reply(request):
        last = request.messages[-1]
        if last.role == "user":
            return TASKS[last.text]
        refused = [result.content for result in last.tool_results if result.is_error]
        done = len(last.tool_results) - len(refused)
        return " ".join(
            [f"{done} of {len(last.tool_results)} steps are done.", *refused]
        )

    return ScriptedModel(reply)


def begin_runs(store: SQLiteStore) -> None:
    """Fill a store that has no runs yet."""
    if not store.runs():
        for task in TASKS:
            run_agent_with_tools(task, model=model(), tools=registry, store=store)
