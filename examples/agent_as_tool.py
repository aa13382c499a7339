"""An agent as a tool: a function that a model calls, and that asks a model itself.

    python examples/agent_as_tool.py

There is nothing to learn for it. The researcher has its own instructions, tools, limits and history; the writer sees
one function that takes a question and returns an answer, and none of the pages that the researcher read on the way.
"""

import os

from toolkit import Limits, ScriptedModel, ToolCall, run_agent_with_tools

PAGES = {
    "Kea": "The kea is a large parrot of New Zealand. It is the only alpine parrot.",
    "Kakapo": "The kakapo is a parrot of New Zealand that cannot fly. It lives up to 90 years.",
}


def read_page(title: str) -> str:
    """Read a page of the encyclopedia. Use it before you answer.

    Args:
        title: The title, in the singular.
    """
    return PAGES.get(title, f"There is no such page; there are {', '.join(PAGES)}.")


def research(question: str) -> str:
    """Ask a researcher who has an encyclopedia. Use it for every fact.

    Args:
        question: One question in full, since the researcher knows nothing of this conversation.
    """
    answer = run_agent_with_tools(
        question,
        instructions="Answer in one sentence, only from the encyclopedia.",
        tools=[read_page],
        model=pick_model(),
        limits=Limits(tool_calls=5),
    )
    return str(answer)


def play(request):
    """Both parts: which one is asked shows in the tools that it is offered."""
    question = request.messages[-1].text
    results = [
        result.content
        for message in request.messages
        for result in message.tool_results
    ]
    match [tool.name for tool in request.tools], results:
        case ["research"], []:
            questions = [
                "What is special about the Kea?",
                "What is special about the Kakapo?",
            ]
            return [
                ToolCall("", "research", {"question": question})
                for question in questions
            ]
        case ["research"], facts:
            return " ".join(["Two parrots of New Zealand.", *facts])
        case ["read_page"], []:
            return ToolCall("", "read_page", {"title": question.split()[-1].strip("?")})
        case ["read_page"], [page]:
            return page.split(". ")[-1]


def pick_model() -> ScriptedModel | None:
    return (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(play)
    )


def main() -> None:
    result = run_agent_with_tools(
        "Write a line on the Kea and the Kakapo.", tools=[research], model=pick_model()
    )
    for call in result.calls:
        print(f"{call.name}({dict(call.arguments)}) -> {call.content}")
    print(result)


if __name__ == "__main__":
    main()
