"""The rules of CONTRIBUTING.md that a machine can check: rooms, arrows, sizes, sentences."""

from __future__ import annotations

import ast
import io
import re
import socket
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.moves import count_moves, rooms_of_a_run

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "toolkit"
SURFACE = "__init__"  # exports the path

# The path, from the bottom up: a room imports those before it.
BOTTOM = ("errors", "messages", "events", "display")
PATH = (*BOTTOM, "tools", "calls", "dialects", "models", "runs", "run")

# What stands beside the path imports it. The path imports what stands beside it only here, and only inside
# functions, so that it is loaded only if somebody asks for it.
LAZY = {
    ("tools", "display"): "how a notebook or a terminal shows a registry",
    ("models", "local"): '"local" is the name of a model',
    ("runs", "display"): "how a notebook or a terminal shows a result",
    ("runs", "retrieval"): "a number of tools becomes a retriever",
    ("runs", "audit"): "a path becomes an audit log",
}

# Arrows against these rules that the rebuild has not removed yet. Goal: none.
NOT_YET = set[tuple[str, str]]()
CIRCLES_NOT_YET = set[tuple[str, str]]()

# Folders whose __init__ does not say yet what they are for. Goal: none.
NO_SENTENCE_YET = set[str]()

# Budgets. A figure that is above its goal may only go down.
ROOM_LIMIT = 25
ARROW_LIMIT = 115
FLOOR_LIMIT = 11
MOVES, MOVES_UP = 25, 11  # goal 25, 8
CORE = ("errors", "messages", "tools", "calls", "models", "runs", "run")
CORE_TOKENS = 49_870  # goal 33,000
DIALECT_TOKENS = 15_950
OTHER_TOKENS = 56_600  # goal 42,000
ALL_TOKENS = 122_400  # goal 90,000
TOKENS_A_LINE = 8.0
WALRUSES_IN_1000_LINES = 3
FILE_LIMIT = 490  # the command line; goal 400
FUNCTION_NORM = 35  # lines of code
FUNCTION_LIMIT = 75  # goal 45
LONGER_FUNCTIONS = 35  # goal 3

# Top-level names without an underscore, room by room: what a reader may have to know.
PUBLIC_NAMES = {
    "errors": 12,
    "messages": 27,
    "events": 8,
    "display": 17,
    "tools": 63,
    "calls": 60,
    "dialects": 68,
    "models": 16,
    "runs": 47,
    "run": 8,
    "approval": 10,
    "audit": 10,
    "batch": 4,
    "cost": 7,
    "evals": 32,
    "isolation": 8,
    "lint": 15,
    "local": 41,
    "mcp": 5,
    "otel": 2,
    "replay": 2,
    "retrieval": 19,
    "store": 6,
    "__main__": 2,
}

FORBIDDEN_NAMES = {"utils", "base", "types", "core", "config", "helpers"}


class Module(NamedTuple):
    name: str  # "loop", "dialects.chat"; a folder's __init__ has the name of the folder
    path: str  # below the package: "dialects/chat.py"
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.name.split(".")[0]

    @property
    def sentence(self) -> str:
        """The first paragraph of the docstring, on one line."""
        docstring = ast.get_docstring(self.tree) or ""
        return " ".join(docstring.split("\n\n")[0].split())

    @property
    def row(self) -> str:
        """Its row in the table of CONTRIBUTING.md."""
        path = self.path.removesuffix("__init__.py")
        return f"| `{path or self.path}` | {self.sentence} |"


def make_module(path: str, text: str) -> Module:
    parts = path.removesuffix(".py").split("/")
    if len(parts) > 1 and parts[-1] == "__init__":
        parts.pop()
    return Module(".".join(parts), path, text, ast.parse(text))


MODULES = [
    make_module(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
]
ROOMS = list(dict.fromkeys(module.room for module in MODULES))


# Rooms and arrows


class Arrow(NamedTuple):
    source: str
    target: str
    lazy: bool = False  # inside a function

    @property
    def rooms(self) -> tuple[str, str]:
        return self.source.split(".")[0], self.target.split(".")[0]


Graph = dict[str, set[str]]


def find_arrows(module: Module, names: Iterable[str]) -> Iterator[Arrow]:
    """Every import of one of our modules, wherever it stands, under TYPE_CHECKING too."""
    for node, lazy in _imports(module.tree):
        for name in _imported_names(node, module):
            if name == "toolkit" or name.startswith("toolkit."):
                yield Arrow(module.name, _module_of(name, names), lazy)


def _imports(node: ast.AST, lazy: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom, ast.Call)):
            yield child, lazy
        yield from _imports(child, lazy or isinstance(child, functions))


def _imported_names(node: ast.AST, module: Module) -> list[str]:
    match node:
        case ast.Import(names=aliases):
            return [alias.name for alias in aliases]
        case ast.ImportFrom(module=origin, names=aliases, level=level):
            start = _package_of(module, level) if level else []
            parts = [*start, origin] if origin else start
            return [".".join([*parts, alias.name]) for alias in aliases]
        case ast.Call(func=func, args=[ast.Constant(str(name)), *_]):
            if ast.unparse(func).endswith("import_module"):
                return [f"toolkit{name}" if name.startswith(".") else name]
    return []


def _package_of(module: Module, level: int) -> list[str]:
    folders = ["toolkit", *module.path.split("/")[:-1]]
    return folders[: len(folders) - level + 1]


def _module_of(name: str, names: Iterable[str]) -> str:
    """The longest part of a dotted name that is a module: the rest is in it."""
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in names:
        parts.pop()
    return ".".join(parts) or SURFACE


def complaint(arrow: Arrow) -> str:
    """Which rule an arrow breaks; "" if none."""
    source, target = arrow.rooms
    if source == target or arrow.rooms in NOT_YET or source == "__main__":
        return ""
    if target == SURFACE:
        return "a name is imported from its module, not from the surface"
    if source == SURFACE:
        return "" if target in PATH else "the surface exports only the path"
    if source not in PATH:
        return ""
    if arrow.rooms in LAZY:
        return "" if arrow.lazy else "only inside a function"
    if target not in PATH or target == "display":
        return "only an arrow listed in LAZY may lead there"
    below = PATH[: PATH.index(source)]
    return "" if target in below else "the path imports downwards only"


def graph_of_rooms(arrows: Iterable[Arrow]) -> Graph:
    graph: Graph = {}
    for source, target in {arrow.rooms for arrow in arrows}:
        if source != target:
            graph.setdefault(source, set()).add(target)
    return graph


def graph_inside_folders(arrows: Iterable[Arrow]) -> Graph:
    graph: Graph = {}
    for arrow in arrows:
        if arrow.rooms[0] == arrow.rooms[1] and arrow.source != arrow.target:
            graph.setdefault(arrow.source, set()).add(arrow.target)
    return graph


def find_circle(graph: Graph) -> list[str]:
    """One circle, if there is any: each imports the next."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def find_floors(graph: Graph) -> dict[str, int]:
    """The length of the longest chain that starts at each room, in which each room imports the next."""
    floors: dict[str, int] = {}
    for room in TopologicalSorter(graph).static_order():
        below = [floors[target] for target in graph.get(room, ())]
        floors[room] = 1 + max(below, default=0)
    return floors


ALL_ARROWS = [
    arrow
    for module in MODULES
    for arrow in find_arrows(module, {module.name for module in MODULES})
]
ARROWS = [arrow for arrow in ALL_ARROWS if arrow.rooms not in NOT_YET]
FLOORS = find_floors(graph_of_rooms(ARROWS))


def test_the_house_has_few_rooms() -> None:
    assert len(ROOMS) <= ROOM_LIMIT, ROOMS


def test_no_module_is_named_for_nothing() -> None:
    assert [m.name for m in MODULES if FORBIDDEN_NAMES & set(m.name.split("."))] == []


def test_the_path_imports_downwards() -> None:
    complaints = {f"{a.source} -> {a.target}: {complaint(a)}" for a in ALL_ARROWS}
    assert sorted(line for line in complaints if not line.endswith(": ")) == []


def test_rooms_import_few_others() -> None:
    graph = graph_of_rooms(ALL_ARROWS)
    count = sum(len(targets) for targets in graph.values())
    assert count <= ARROW_LIMIT, graph


def test_no_rooms_import_each_other_in_a_circle() -> None:
    assert find_circle(graph_of_rooms(ARROWS)) == []


def test_no_modules_of_a_folder_import_each_other_in_a_circle() -> None:
    arrows = [a for a in ALL_ARROWS if (a.source, a.target) not in CIRCLES_NOT_YET]
    assert find_circle(graph_inside_folders(arrows)) == []


def test_the_longest_chain_of_rooms_is_short() -> None:
    assert max(FLOORS.values()) <= FLOOR_LIMIT, FLOORS


def test_a_run_moves_little_between_rooms() -> None:
    moves, moves_up = count_moves(rooms_of_a_run(), FLOORS)
    assert moves <= MOVES
    assert moves_up <= MOVES_UP


def test_each_lazy_arrow_is_still_needed() -> None:
    rooms = {arrow.rooms for arrow in ALL_ARROWS}
    unused = set(LAZY) - rooms
    # The path turns into an audit log in calls/, until that moves to runs/.
    assert unused <= {("runs", "audit")}


@pytest.mark.parametrize(
    ("path", "code", "is_wrong"),
    [
        pytest.param("runs/x.py", "from toolkit.calls.x import y", False, id="down"),
        pytest.param("calls/x.py", "from toolkit.models.x import y", True, id="up"),
        pytest.param(
            "calls/x.py", "import toolkit.models.x", True, id="up, as a module"
        ),
        pytest.param(
            "calls/x.py", "from toolkit import errors, models", True, id="up, as a room"
        ),
        pytest.param("calls/x.py", "from ..models import y", True, id="up, relative"),
        pytest.param(
            "calls/__init__.py",
            "from ..models import y",
            True,
            id="up, relative, from a folder's init",
        ),
        pytest.param(
            "events.py", "from .models import y", True, id="up, relative, from the top"
        ),
        pytest.param(
            "calls/x.py",
            "def f():\n    from toolkit.models.x import y",
            True,
            id="up, lazily",
        ),
        pytest.param(
            "calls/x.py",
            "if TYPE_CHECKING:\n    from toolkit.models.x import y",
            True,
            id="up, for types",
        ),
        pytest.param(
            "calls/x.py",
            "importlib.import_module('toolkit.models.x')",
            True,
            id="up, by its name",
        ),
        pytest.param(
            "errors.py", "from toolkit.messages import y", True, id="up, at the bottom"
        ),
        pytest.param(
            "run.py", "from toolkit.runs.loop import Run", False, id="run above runs"
        ),
        pytest.param(
            "runs/x.py", "from toolkit.run import resume", True, id="runs below run"
        ),
        pytest.param(
            "runs/x.py", "from toolkit.runs.y import z", False, id="inside a folder"
        ),
        pytest.param(
            "models/x.py", "from toolkit.local import y", True, id="beside, at the top"
        ),
        pytest.param(
            "models/x.py",
            "def f():\n    from toolkit.local import y",
            False,
            id="beside, lazily, listed",
        ),
        pytest.param(
            "models/x.py",
            "f = lambda: import_module('.local', 'toolkit')",
            False,
            id="the same by name",
        ),
        pytest.param(
            "runs/x.py",
            "def f():\n    from toolkit.store import y",
            True,
            id="beside, lazily, not listed",
        ),
        pytest.param(
            "runs/x.py", "from toolkit.display import y", True, id="display, at the top"
        ),
        pytest.param(
            "runs/x.py",
            "def f():\n    from toolkit.display import y",
            False,
            id="display, lazily",
        ),
        pytest.param(
            "models/x.py",
            "def f():\n    from toolkit.display import y",
            True,
            id="display, not listed",
        ),
        pytest.param(
            "evals/x.py",
            "from toolkit.run import resume",
            False,
            id="from beside to the path",
        ),
        pytest.param(
            "evals/x.py",
            "from toolkit.store import y",
            False,
            id="from beside to beside",
        ),
        pytest.param(
            "__main__.py",
            "from toolkit import evals, run",
            False,
            id="the command line imports all",
        ),
        pytest.param("run.py", "from toolkit import tool", True, id="the surface"),
        pytest.param(
            "evals/x.py",
            "from toolkit import tool",
            True,
            id="the surface, from beside",
        ),
        pytest.param(
            "__init__.py",
            "from toolkit.run import resume",
            False,
            id="the surface exports the path",
        ),
        pytest.param(
            "__init__.py",
            "from toolkit.evals import Case",
            True,
            id="the surface exports only the path",
        ),
        pytest.param(
            "calls/x.py", "import toolkit_of_others", False, id="another package"
        ),
    ],
)
def test_wrong_arrows_are_seen(path: str, code: str, is_wrong: bool) -> None:
    names = {*ROOMS, "models.x", "calls.x", "runs.loop", "runs.y"}
    arrows = find_arrows(make_module(path, code), names)
    assert any(complaint(arrow) for arrow in arrows) is is_wrong


def test_circles_and_floors_are_seen() -> None:
    circle = [Arrow("a.x", "b"), Arrow("b", "c.y", lazy=True), Arrow("c.z", "a")]
    assert set(find_circle(graph_of_rooms(circle))) == {"a", "b", "c"}
    assert find_circle(graph_inside_folders(circle)) == []
    inside = [Arrow("a.x", "a.y"), Arrow("a.y", "a"), Arrow("a", "a.x")]
    assert set(find_circle(graph_inside_folders(inside))) == {"a", "a.x", "a.y"}
    assert find_circle(graph_of_rooms(inside)) == []
    chain = [Arrow("a", "b"), Arrow("b", "c"), Arrow("a", "c"), Arrow("d", "c")]
    assert find_floors(graph_of_rooms(chain)) == {"c": 1, "b": 2, "d": 2, "a": 3}


# Sizes


class Size(NamedTuple):
    tokens: int
    lines: int  # of code: at least one token starts there
    walruses: int


LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def find_tokens(module: Module) -> list[range]:
    """The lines of each token that is code: no layout, comment or docstring. A string literal is one token."""
    docstrings = set[int]()
    for node in ast.walk(module.tree):
        match node:
            case ast.Expr(ast.Constant(str())):
                docstrings.update(_lines_of(node))
    found = []
    open_strings: list[
        int
    ] = []  # f-strings, which Python 3.12 and newer split into tokens
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        first, last = token.start[0], token.end[0]
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            open_strings.append(first)
            continue
        if name.endswith("STRING_END"):
            first = open_strings.pop()
        if token.type not in LAYOUT and first not in docstrings and not open_strings:
            found.append(range(first, last + 1))
    return found


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


TOKENS = {module.name: find_tokens(module) for module in MODULES}


def measure(module: Module, tokens: list[range]) -> Size:
    walruses = sum(isinstance(node, ast.NamedExpr) for node in ast.walk(module.tree))
    return Size(len(tokens), len({lines.start for lines in tokens}), walruses)


SIZES = {module.name: measure(module, TOKENS[module.name]) for module in MODULES}


def measure_functions(module: Module, tokens: list[range]) -> dict[str, int]:
    """The lines of code of each function, inner ones included; blank ones in a string do not count."""
    texts = module.text.split("\n")
    code = {n for lines in tokens for n in lines if texts[n - 1].strip()}
    return {
        f"{module.path}:{node.lineno} {node.name}": len(
            code.intersection(_lines_of(node))
        )
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def find_public_names(tree: ast.Module) -> set[str]:
    """The names that a module defines at its top, without those that start with an underscore."""
    names = set[str]()
    for node in tree.body:
        match node:
            case (
                ast.FunctionDef(name=n)
                | ast.AsyncFunctionDef(name=n)
                | ast.ClassDef(name=n)
            ):
                names.add(n)
            case ast.Assign(targets=targets):
                names.update(t.id for t in targets if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=n)):
                names.add(n)
    return {name for name in names if not name.startswith("_")}


def test_the_path_is_small_and_so_is_the_whole() -> None:
    rooms = Counter[str]()
    for module in MODULES:
        rooms[module.room] += SIZES[module.name].tokens
    core, dialects = sum(rooms[room] for room in CORE), rooms["dialects"]
    others = rooms.total() - core - dialects
    figures = f"core {core}, dialects {dialects}, others {others}; {rooms}"
    assert core <= CORE_TOKENS, figures
    assert dialects <= DIALECT_TOKENS, figures
    assert others <= OTHER_TOKENS, figures
    assert rooms.total() <= ALL_TOKENS, figures


def test_a_line_holds_one_thought() -> None:
    lines = sum(size.lines for size in SIZES.values())
    tokens = sum(size.tokens for size in SIZES.values())
    walruses = sum(size.walruses for size in SIZES.values())
    assert tokens / lines <= TOKENS_A_LINE
    assert 1000 * walruses / lines <= WALRUSES_IN_1000_LINES


def test_files_are_short() -> None:
    lengths = {m.path: len(m.text.splitlines()) for m in MODULES}
    assert {path: n for path, n in lengths.items() if n > FILE_LIMIT} == {}


def test_functions_are_short() -> None:
    long = {
        place: length
        for module in MODULES
        for place, length in measure_functions(module, TOKENS[module.name]).items()
        if length > FUNCTION_NORM
    }
    assert {place: n for place, n in long.items() if n > FUNCTION_LIMIT} == {}
    assert len(long) <= LONGER_FUNCTIONS, f"over {FUNCTION_NORM} lines: {long}"


def test_rooms_have_few_public_names() -> None:
    counts = Counter[str]()
    for module in MODULES:
        counts[module.room] += len(find_public_names(module.tree))
    assert {
        room: n for room, n in counts.items() if n > PUBLIC_NAMES.get(room, 0)
    } == {}


def test_sizes_leave_out_words_and_air() -> None:
    code = (
        '"""Doc."""\n\n# why\nx = """a\n\nb"""\n_y: int = 1\n\n'
        'def f():\n    """Doc,\n\n    more."""\n    if z := f"{x} {_y!r:>{x}}":  # why\n'
        "        return (\n            z\n        )\n"
    )
    module = make_module("m.py", code)
    tokens = find_tokens(module)
    assert measure(module, tokens) == Size(tokens=22, lines=7, walruses=1)
    assert measure_functions(module, tokens) == {"m.py:9 f": 5}
    assert find_public_names(module.tree) == {"x", "f"}


# Sentences

TABLE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `\S+(?:\.py|/)` \| .+ \|$", TABLE, flags=re.MULTILINE)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_a_module_opens_with_its_sentence_in_the_table(module: Module) -> None:
    if module.name in NO_SENTENCE_YET:
        return
    assert module.sentence, "a module says first what it is for"
    has_row = module.row in ROWS
    assert has_row, f"the table of CONTRIBUTING.md must have this row:\n{module.row}"


def test_the_table_names_no_other_modules() -> None:
    rows = [module.row for module in MODULES]
    assert [row for row in ROWS if row not in rows] == []


def test_the_table_begins_with_the_path_from_the_bottom_up() -> None:
    rooms = [re.split(r"[`./]", row)[1] for row in ROWS]
    assert tuple(dict.fromkeys(rooms))[: len(PATH)] == PATH


# The guard in conftest.py


@pytest.mark.parametrize("host", ["192.0.2.1", "example.invalid", "2001:db8::1"])
def test_tests_reach_no_other_machine(host: str) -> None:
    with pytest.raises(RuntimeError, match="loopback"):
        socket.create_connection((host, 80), timeout=1)
    with socket.socket() as plain, pytest.raises(RuntimeError, match="loopback"):
        plain.connect_ex((host, 80))


def test_tests_reach_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(
            ("localhost", server.getsockname()[1]), timeout=5
        ).close()
