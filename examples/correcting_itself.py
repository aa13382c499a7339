"""A model sends a date that is none, reads what was wrong with it, and corrects itself.

    python examples/correcting_itself.py

Nothing is written for that: arguments are checked against the hints before the function is called, and what does not
fit goes back to the model as an error that names the parameter, what was expected, and what came. The function itself
only ever sees a `date`. A script plays the model here, since a real one might get the date right at once.
"""

from datetime import date

from toolkit import ScriptedModel, ToolCall, ToolError, run_agent_with_tools, tool

TODAY = date(2030, 6, 1)


@tool(permission="write")
def book_table(day: date, people: int = 2) -> str:
    """Book a table for dinner. Use it once the day is known.

    Args:
        day: The day, as YYYY-MM-DD.
        people: How many come.
    """
    if day < TODAY:
        raise ToolError(
            f"{day} is over. Today is {TODAY}."
        )  # goes to the model, word for word
    return f"booked: {day:%A, %d %B %Y}, {people} people"


script = [
    ToolCall(
        "", "book_table", {"day": "June 31st", "people": 4}
    ),  # no date, and no such day
    ToolCall(
        "", "book_table", {"day": "2003-06-30", "people": 4}
    ),  # a date, but long ago
    ToolCall("", "book_table", {"day": "2030-06-30", "people": 4}),
    "A table for four is booked for Sunday, 30 June. June has no 31st.",
]


def main() -> None:
    result = run_agent_with_tools(
        "A table for four on June 31st, please.", model=ScriptedModel(script)
    )
    for call in result.calls:
        print(
            f"{'error ' if call.is_error else 'result'}  {dict(call.arguments)}\n        {call.content}"
        )
    print(f"answer  {result}")


if __name__ == "__main__":
    main()
