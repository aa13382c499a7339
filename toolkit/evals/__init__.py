"""Whether a model calls the right tools with the right arguments, measured on cases.

report = evaluate(load_cases("cases.yaml"), tools=registry, model="…", repeat=3)
print(report)
sys.exit(report.compare("baseline.json").exit_code)
"""

from toolkit.evals.cases import NO_CALL, Case, Expected, Outcome
from toolkit.evals.comparison import ALL, Comparison
from toolkit.evals.evaluation import check, evaluate, run_case
from toolkit.evals.files import load_cases
from toolkit.evals.matchers import (
    Matcher,
    contains,
    equal,
    matches,
    near,
    one_of,
    optional,
)
from toolkit.evals.report import Report
from toolkit.evals.statistics import Share

__all__ = [
    "ALL",
    "NO_CALL",
    "Case",
    "Comparison",
    "Expected",
    "Matcher",
    "Outcome",
    "Report",
    "Share",
    "check",
    "contains",
    "equal",
    "evaluate",
    "load_cases",
    "matches",
    "near",
    "one_of",
    "optional",
    "run_case",
]
