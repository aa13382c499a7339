"""A web page on which people confirm or reject what a model wants to do.

    python examples/approval_web --demo

Runs that wait for a verdict are kept in a SQLite file, so the page, the server and the program that began a run may
each end and start again. With tools of your own (the model is then as for every run, see the README):

    python examples/approval_web --store runs.db --tools your_package.your_module:registry

Another program begins the runs, with `store=SQLiteStore("runs.db")` and no `approve=`.
"""

import argparse
import sys
from pathlib import Path

import demo
from web import Approvals, make_server

from toolkit.store import SQLiteStore
from toolkit.tools.registry import import_tools


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="approval_web", description="Confirm or reject the calls of waiting runs."
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="tools that do nothing, a scripted model and some runs",
    )
    parser.add_argument(
        "--tools",
        metavar="TOOLS",
        help="yours: package.module, package.module:name or path/to/file.py",
    )
    parser.add_argument(
        "--model", help="the model that goes on with a run (default: as for every run)"
    )
    parser.add_argument(
        "--store",
        type=Path,
        default=Path("approvals.db"),
        help="the file of runs (%(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=8765, help="0 takes a free one (%(default)s)"
    )
    given = parser.parse_args()
    if given.demo == bool(given.tools):
        parser.error("give either --demo or --tools TOOLS")
    store = SQLiteStore(given.store)
    if given.demo:
        tools, model = demo.registry, demo.model()
        demo.begin_runs(store)
    else:
        sys.path.insert(0, str(Path.cwd()))
        tools, model = import_tools(given.tools), given.model
    server = make_server(Approvals(store, tools, model), given.port)
    print(f"Open {server.address}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("Stopped. What waits is kept; start again to go on.")


if __name__ == "__main__":
    main()
