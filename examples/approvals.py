"""What a model may do by itself, what a person decides, and a plan that is approved as a whole.

    python examples/approvals.py

Three ways. By rules: cheap payments go through, dear ones wait. By a person: the run pauses, is saved as a text, and
goes on with a verdict, maybe in another process; the verdict holds for exactly the call that was shown. By a plan:
nothing but reading is done, and what the model wants to do is shown, approved and carried out once. With a page to
click on: `python examples/approval_web --demo`. A script plays the model, always.
"""

from toolkit import ScriptedModel, ToolCall, Verdict, resume, run_agent_with_tools, tool
from toolkit.approval import allow, deny, first

paid = []


@tool(permission="sensitive", tags=["money"])
def pay(recipient: str, euros: int) -> str:
    """Pay somebody. Use it when the user wants money to be sent.

    Args:
        recipient: First name.
        euros: Whole euros.
    """
    paid.append((recipient, euros))
    return f"{recipient} has {euros} euros"


def model(**people: int) -> ScriptedModel:
    calls = [
        ToolCall(name, "pay", {"recipient": name, "euros": euros})
        for name, euros in people.items()
    ]
    return ScriptedModel([calls, "That is all that I could do."])


def main() -> None:
    print("--- rules")
    policy = first(
        allow("pay", where=lambda arguments: arguments["euros"] <= 20),
        deny(
            "pay",
            where=lambda arguments: arguments["euros"] > 1_000,
            reason="Never more than 1000.",
        ),
    )  # what neither of them decides waits for a person
    script = model(Ada=9, Bob=5_000)
    for call in run_agent_with_tools(
        "Pay them.", tools=[pay], model=script, approve=policy
    ).calls:
        print(f"{call.arguments['recipient']}: {call.content}")

    print("--- a person")
    script = model(Eve=300)
    result = run_agent_with_tools("Pay Eve.", tools=[pay], model=script, approve=policy)
    print(result)
    saved = result.to_json()  # into a database, a queue, a page
    (call,) = result.waiting
    verdict = Verdict(
        "approve", by="the treasurer", digest=call.digest
    )  # for no other name or arguments
    print(resume(saved, {call.id: verdict}, tools=[pay], model=script).calls[0].content)

    print("--- a plan")
    result = run_agent_with_tools(
        "Pay them.", tools=[pay], model=model(Ann=1, Tom=2), mode="plan"
    )
    print(result.plan)
    print("paid so far:", paid)
    approved = result.plan.digest  # of what somebody was shown
    for done in result.plan.apply(approved):
        print(done)


if __name__ == "__main__":
    main()
