"""Lint finds what a model would trip over, and cost tells what the tools add to each request.

    python examples/check_tools.py

The tools below have faults on purpose. Each finding says what to write instead. Without a model the tokens are an
estimate; set TOOLKIT_MODEL, and that model's provider counts them, in a handful of tiny requests.
"""

import os

from toolkit import ToolRegistry, tool
from toolkit.cost import Price, explain, schema_cost
from toolkit.lint import lint_tools

registry = ToolRegistry()


@tool(
    registry=registry, permission="read"
)  # it deletes: nobody would be asked, and nothing would be audited
def delete_report(number: int) -> str:
    """Delete a report."""
    return f"report {number} is gone"


@tool(registry=registry, permission="read")
def find_reports(author: str, order: str = "newest") -> list[str]:
    """Find the reports of an author. Use it whenever a report is meant whose number is not known.

    Args:
        autor: Full name of the author.
        order: Either 'newest' or 'oldest'.
    """
    return []


@tool(registry=registry, permission="read")
def report_text(number: int) -> str:
    """The text of a report.

    Args:
        number: As `find_reports` gives it.
    """
    return ""


def main() -> None:
    findings = lint_tools(registry, ignore=["delete_report:parameter-undescribed"])
    for finding in findings:
        print(finding)
    print(f"{sum(finding.severity == 'error' for finding in findings)} errors\n")

    price = Price(
        0.75, currency="USD"
    )  # for a million tokens, from your provider's list
    cost = schema_cost(
        registry, model=os.environ.get("TOOLKIT_MODEL"), each=True, price=price
    )
    print(cost)
    print(
        "too much" if cost.exceeds(400) else "within the budget of 400"
    )  # in CI, end with an error there
    print()
    print(explain(find_reports))


if __name__ == "__main__":
    main()
