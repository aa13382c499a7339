"""What lint says of the function definitions of the Berkeley Function-Calling Leaderboard, to be judged by reading.

    python tests/benchmarks/bfcl_lint.py PATH_TO_BFCL_FOLDER [--rule RULE] [--sample N] [--seed N] [--all-read]

The folder holds `tools.jsonl`, lines of {name, description, parameters}: the leaderboard's own data (Apache License
2.0, not part of this project) with the definitions by name. With --all-read every tool claims to be a reader.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path

from toolkit import ToolRegistry
from toolkit.lint import RULES, lint_tools


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rule", choices=RULES, help="print findings of this rule")
    parser.add_argument("--sample", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all-read", action="store_true")
    options = parser.parse_args()
    registry = ToolRegistry()
    for line in (
        (options.folder / "tools.jsonl").read_text(encoding="utf-8").splitlines()
    ):
        told = json.loads(line)
        registry.register_function(
            told["name"],
            told["description"],
            lambda **_: None,
            schema=told["parameters"],
            permission="read" if options.all_read else "write",
        )
    began = time.perf_counter()
    findings = lint_tools(registry)
    print(
        f"{len(registry)} tools in {time.perf_counter() - began:.1f} s: {Counter(each.rule for each in findings)}"
    )
    chosen = [each for each in findings if each.rule == options.rule]
    random.seed(options.seed)
    for each in random.sample(chosen, min(options.sample, len(chosen))):
        tool = registry[each.tool]
        print(f"\n{each}\n    {tool.description}")
        if each.parameter:
            print(f"    {json.dumps(tool.parameters, ensure_ascii=False)}")


if __name__ == "__main__":
    main()
