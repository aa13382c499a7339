"""The command line: look at tools, run, resume and replay, verify an audit, evaluate, serve over MCP."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from toolkit.errors import ToolError, ToolkitError
from toolkit.messages import Decision, Permission, Verdict
from toolkit.runs.results import RunResult
from toolkit.tools.registry import import_tools
from toolkit.tools.tool import tool_entry

DONE, FOUND, WRONG, PAUSED, INTERRUPTED = 0, 1, 2, 3, 130
_CODES = """
exit codes: 0 done; 1 something needs attention (findings, an exceeded budget, a regression, an audit that is not
intact, a run without an answer); 2 it failed; 3 waits for approval, or too few cases to tell; 130 interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. An error is reported in one line."""
    # Modules of the working directory are found, as by `python -m`.
    sys.path.insert(0, "")
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        return code
    except KeyboardInterrupt:
        print("toolkit: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return DONE
    except FileNotFoundError as error:
        print(f"toolkit: There is no file {str(error.filename)!r}.", file=sys.stderr)
        return WRONG
    except (
        ToolkitError,
        ToolError,
        ImportError,
        OSError,
        ValueError,
        TypeError,
        LookupError,
    ) as error:
        print(
            f"toolkit: {' '.join(str(error).split()) or type(error).__name__}",
            file=sys.stderr,
        )
        return WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "toolkit",
        description=__doc__,
        epilog="toolkit COMMAND --help has an example of each." + _CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups = {"": parser.add_subparsers(metavar="COMMAND", required=True)}
    for words, command, about, arguments, example in _COMMANDS:
        group, _, name = words.rpartition(" ")
        if group not in groups:
            added = groups[""].add_parser(group, help=about)
            groups[group] = added.add_subparsers(metavar="COMMAND", required=True)
        made = groups[group].add_parser(
            name,
            help=about,
            description=about,
            epilog=f"example: toolkit {words} {example}",
        )
        made.set_defaults(command=command)
        for argument in arguments.split():
            made.add_argument(
                argument.lower() if argument.isupper() else argument,
                **_OPTIONS[argument],
            )
    return parser


def _print(as_json: bool, value: Any, text: object = "") -> None:
    print(
        json.dumps(value, ensure_ascii=False, indent=2, default=str)
        if as_json
        else text
    )


def _tools(given: argparse.Namespace) -> int:
    registry = import_tools(given.tools)
    if given.explain:
        from toolkit.cost import explain

        print(explain(registry[given.explain]))
    elif given.schema:
        _print(True, [tool_entry(tool) for tool in registry])
    else:
        about = [
            {"name": t.name, "permission": t.permission, "description": t.description}
            for t in registry
        ]
        _print(given.json, about, registry)
    return DONE


def _lint(given: argparse.Namespace) -> int:
    from toolkit.lint import lint_tools

    findings = lint_tools(given.tools, ignore=given.ignore)
    found = "\n".join(map(str, findings)) or "Nothing to mend."
    _print(given.json, list(map(dataclasses.asdict, findings)), found)
    return (
        FOUND
        if any(given.hints or finding.severity != "hint" for finding in findings)
        else DONE
    )


def _cost(given: argparse.Namespace) -> int:
    from toolkit.cost import schema_cost

    cost = schema_cost(given.tools, model=given.model, base_url=given.base_url)
    _print(given.json, dataclasses.asdict(cost), cost)
    return (
        FOUND
        if given.max_tokens is not None and cost.exceeds(given.max_tokens)
        else DONE
    )


def _run(given: argparse.Namespace) -> int:
    from toolkit.run import run_agent_with_tools

    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    result = run_agent_with_tools(
        prompt,
        instructions=given.instructions,
        max_turns=given.max_turns,
        mode="plan" if given.plan else "run",
        run_id=given.run_id,
        **_setting(given),
    )
    code = _came_of(result, given)
    if given.plan and not given.json:
        print(f"\nPlanned, and not run:\n{result.plan}")
    return code


def _resume(given: argparse.Namespace) -> int:
    from toolkit.run import resume

    verdicts: dict[str, Decision | Verdict] = dict.fromkeys(given.approve, "approve")
    for denied in given.deny:
        call_id, _, reason = denied.partition("=")
        if call_id in verdicts:
            raise ValueError(f"Call {call_id!r} is both approved and denied.")
        verdicts[call_id] = Verdict("deny", reason)
    saved = (
        given.run
        if given.store and _existing(given.store)
        else RunResult.from_json(Path(given.run).read_bytes())
    )
    return _came_of(resume(saved, verdicts, **_setting(given)), given)


def _setting(given: argparse.Namespace) -> dict[str, Any]:
    from toolkit.approval import ask_in_terminal
    from toolkit.display import live
    from toolkit.store import SQLiteStore

    return {
        "tools": given.tools or (),
        "model": given.model,
        "base_url": given.base_url,
        "approve": ask_in_terminal if given.ask else None,
        "store": SQLiteStore(given.store) if given.store else None,
        "audit": given.audit,
        "on_event": live() if given.live else None,
    }


def _came_of(result: RunResult, given: argparse.Namespace) -> int:
    _show(result, given)  # first: what cannot be written costs no answer
    if given.save:
        Path(given.save).write_text(result.to_json(), encoding="utf-8")
    if given.html:
        result.save_html(given.html)
    if result.waiting:
        return PAUSED
    if result.stop_reason != "answered":
        print(f"toolkit: the run ended with {result.stop_reason}", file=sys.stderr)
    return DONE if result.stop_reason == "answered" else FOUND


def _show(result: RunResult, given: argparse.Namespace) -> None:
    if given.json:
        print(result.to_json())
    elif result.waiting:
        print(f"Run {result.run.id} waits for approval:")
        for call in result.waiting:
            print(f"  {call.id}  {call.name}({json.dumps(dict(call.arguments))})")
        print(
            "Go on with: toolkit resume RUN --approve CALL_ID (or --deny CALL_ID=REASON), and the same --tools."
        )
    else:
        print(result)


def _runs(given: argparse.Namespace) -> int:
    from datetime import datetime

    from toolkit.store import SQLiteStore

    runs = SQLiteStore(_existing(given.store)).runs(given.status)
    rows = (
        f"{datetime.fromtimestamp(run.updated):%Y-%m-%d %H:%M:%S}  {run.status:18}  {run.id}"
        for run in runs
    )
    _print(
        given.json, list(map(dataclasses.asdict, runs)), "\n".join(rows) or "No runs."
    )
    return DONE


def _replay(given: argparse.Namespace) -> int:
    from toolkit.errors import ReplayError
    from toolkit.replay import replay

    try:
        run = replay(_recorded(given).run)
    except ReplayError as error:
        print(f"toolkit: {error}", file=sys.stderr)
        return FOUND
    print(
        f"Run {run.id} comes out as recorded: {run.turns} turns, {run.tool_calls} calls."
    )
    return DONE


def _trace(given: argparse.Namespace) -> int:
    result = _recorded(given)
    if given.html:
        result.save_html(given.html)
    else:
        print(result.tree())
    return DONE


def _recorded(given: argparse.Namespace) -> RunResult:
    if not given.store:
        return RunResult.from_json(Path(given.run).read_bytes())
    from toolkit.store import SQLiteStore

    return SQLiteStore(_existing(given.store)).result(given.run)


def _existing(path: str) -> str:
    if not Path(path).is_file():
        raise FileNotFoundError(errno.ENOENT, "no such file", path)
    return path


def _verify(given: argparse.Namespace) -> int:
    from toolkit.audit import verify

    found = verify(given.file, last=given.last)
    _print(given.json, dataclasses.asdict(found), found)
    return DONE if found.is_intact else FOUND


def _eval(given: argparse.Namespace) -> int:
    from toolkit.evals import Report, evaluate, load_cases

    baseline = (
        Report.load(given.baseline) if given.baseline else None
    )  # before --save may write over it
    report = evaluate(
        load_cases(given.cases),
        tools=given.tools,
        model=given.model,
        repeat=given.repeat,
        concurrency=given.concurrency,
        seed=given.seed,
        save_to=given.save,
        base_url=given.base_url,
    )
    print(report)
    if given.html:
        report.save_html(given.html)
    code = (
        DONE
        if given.min_rate is None or report.pass_rate.value >= given.min_rate
        else FOUND
    )
    if baseline:
        comparison = report.compare(baseline)
        print(comparison)
        code = code or comparison.exit_code
    return code


def _serve(given: argparse.Namespace) -> int:
    from toolkit.mcp import serve

    tiers: tuple[Permission, ...] = (
        "read",
        "write",
        *(("sensitive",) if given.sensitive else ()),
    )
    transport: Literal["stdio", "http"] = "http" if given.http else "stdio"
    serve(
        given.tools,
        name=given.name,
        tiers=tiers,
        transport=transport,
        host=given.host,
        port=given.port,
    )
    return DONE


class Command(NamedTuple):
    """A command: its words, its function, what it does, its arguments, and an example of them."""

    words: str
    run: Callable[[argparse.Namespace], int]
    about: str
    arguments: str
    example: str


_RUN_OPTIONS = (
    "--tools --model --base-url --ask --store --audit --live --save --html --json"
)
_COMMANDS = (
    Command(
        "tools",
        _tools,
        "List tools, or show what a model gets of them.",
        "TOOLS --schema --explain --json",
        "my_tools.py",
    ),
    Command(
        "lint",
        _lint,
        "Find what models trip over in tools.",
        "TOOLS --ignore --hints --json",
        "my_tools.py --ignore reads-alike",
    ),
    Command(
        "cost",
        _cost,
        "Count the tokens that tools add to each request.",
        "TOOLS --model --base-url --max-tokens --json",
        "my_tools.py --model gpt-5.4-mini --max-tokens 2000",
    ),
    Command(
        "run",
        _run,
        "Ask a model, with tools.",
        f"PROMPT --instructions --max-turns --plan --run-id {_RUN_OPTIONS}",
        '"What is due?" --tools my_tools.py --live',
    ),
    Command(
        "resume",
        _resume,
        "Continue a run that waits for approval, or that was interrupted.",
        f"RUN --approve --deny {_RUN_OPTIONS}",
        "RUN_ID --store runs.db --tools my_tools.py --approve CALL_ID",
    ),
    Command(
        "runs",
        _runs,
        "List the runs of a store.",
        "STORE --status --json",
        "runs.db --status awaiting_approval",
    ),
    Command(
        "replay",
        _replay,
        "Run a recorded run again, offline, and check that it comes out as recorded.",
        "RUN --store",
        "run.json",
    ),
    Command(
        "trace",
        _trace,
        "Show a recorded run as a tree or a timeline.",
        "RUN --store --html",
        "run.json --html run.html",
    ),
    Command(
        "audit verify",
        _verify,
        "Find lines of an audit that were edited, removed, reordered or cut off.",
        "FILE --last --json",
        "audit.jsonl",
    ),
    Command(
        "eval",
        _eval,
        "Measure how often a model calls the tools that it should.",
        "CASES --tools --model --base-url --repeat --concurrency --seed --baseline --min-rate --save --html",
        "cases.yaml --tools my_tools.py --baseline last.json",
    ),
    Command(
        "mcp serve",
        _serve,
        "Serve tools to MCP clients.",
        "TOOLS --name --http --host --port --sensitive",
        "my_tools.py --http --port 8000",
    ),
)


def _switch(about: str) -> dict[str, Any]:
    return {"action": "store_true", "help": about}


def _value(metavar: str | None, about: str, **more: Any) -> dict[str, Any]:
    return {"metavar": metavar, "help": about, **more}


def _repeated(metavar: str, about: str) -> dict[str, Any]:
    return {"action": "append", "default": [], "metavar": metavar, "help": about}


_TOOLS = "the tools: package.module, package.module:name or path/to/file.py"
_OPTIONS: dict[str, dict[str, Any]] = {
    "TOOLS": _value("TOOLS", _TOOLS),
    "PROMPT": _value("PROMPT", "the user's message; - reads it from standard input"),
    "RUN": _value("RUN", "a file that --save wrote, or with --store the id of a run"),
    "STORE": _value("STORE", "the SQLite file"),
    "FILE": _value("FILE", "the audit file"),
    "CASES": _value(
        "CASES", "a file of cases: .yaml, .jsonl, or of the Berkeley leaderboard"
    ),
    "--tools": _value("TOOLS", f"{_TOOLS}; without it there are none"),
    "--schema": _switch("their schemas, as Chat Completions has them"),
    "--explain": _value("NAME", "the exact JSON of one tool on each wire"),
    "--json": _switch("print JSON"),
    "--ignore": _repeated("RULE", "a rule, or TOOL:RULE; repeatable"),
    "--hints": _switch("count hints as findings for the exit code, too"),
    "--model": _value(
        None,
        "a name, responses:NAME, anthropic:NAME, react:NAME or local; default: see the README",
    ),
    "--base-url": _value("URL", "the server of the model"),
    "--max-tokens": _value("N", "a budget: exit with 1 if it is exceeded", type=int),
    "--instructions": _value(None, "the system text"),
    "--max-turns": _value(
        "N", "the most requests to the model (10)", default=10, type=int
    ),
    "--plan": _switch("run only tools that read, and show what else it wants to do"),
    "--run-id": _value("ID", "the id of the run in its store"),
    "--approve": _repeated("CALL_ID", "repeatable"),
    "--deny": _repeated("CALL_ID[=REASON]", "repeatable"),
    "--ask": _switch("ask here about calls of sensitive tools"),
    "--store": _value("FILE", "the SQLite file that keeps the run"),
    "--audit": _value("FILE", "write calls that change something to this file"),
    "--live": _switch("show each step on standard error"),
    "--save": _value(
        "FILE", "write the result as JSON, to continue from or to compare with"
    ),
    "--html": _value("FILE", "write the result as a page"),
    "--status": _value(None, "only those: running, stopped, or a stop reason"),
    "--last": _value("HASH", "the hash of the last line, kept elsewhere"),
    "--repeat": _value("N", "how often each case is asked (1)", default=1, type=int),
    "--concurrency": _value("N", "how many cases at once (1)", default=1, type=int),
    "--seed": _value("N", "a seed for the model", type=int),
    "--baseline": _value("FILE", "a saved report: exit with 1 if this one is worse"),
    "--min-rate": _value(
        "SHARE", "exit with 1 if fewer cases pass (0 to 1)", type=float
    ),
    "--name": _value(None, "the name of the server", default="toolkit"),
    "--http": _switch("over streamable HTTP instead of standard input and output"),
    "--host": _value(None, "the address to listen on (127.0.0.1)", default="127.0.0.1"),
    "--port": _value(None, "the port to listen on (8000)", default=8000, type=int),
    "--sensitive": _switch("serve tools of the tier sensitive, too"),
}


if __name__ == "__main__":
    sys.exit(main())
