"""The rules of CONTRIBUTING.md that a machine can hold: rooms, arrows, sizes, sentences."""

from __future__ import annotations

import ast
import io
import re
import socket
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "toolkit"

# In the order of the table: a room imports those before it.
CORE = (
    *(
        "errors",
        "messages",
        "strict",
        "docstrings",
        "schema",
        "signatures",
        "written",
        "tools",
        "ranking",
        "arguments",
        "rendering",
    ),
    *(
        "loop",
        "events",
        "threads",
        "journals",
        "receive",
        "permit",
        "execute",
        "registry",
        "plan",
        "dialects",
        "streams",
        "transport",
        "models",
        "scripted",
        "results",
        "history",
        "setting",
        "drive",
        "run",
    ),
)
# These may import the core, and of each other what ALLOWED says.
BESIDE = (
    *("approval", "retrieval", "isolation", "isolated_child", "locks", "store", "audit", "replay", "batch"),
    *("lint", "cost", "eval_cases", "eval_files", "eval_report", "evals", "otel"),
    *("mcp", "mcp_server", "mcp_session", "local", "llama", "narrowing", "extraction", "display"),
)
# These may import everything.
ABOVE = ("cli", "__main__")
SURFACE = "__init__"  # exports the core

# Arrows that the rules above forbid, each with the reason why it stands all the same. From the core to
# something beside it, the import stands inside a function, so that it is loaded only when asked for.
ALLOWED = {
    ("models", "local"): 'a name becomes a model, and "local" is a name',
    ("results", "display"): "how a notebook shows a result; asked for only there",
    ("registry", "display"): "how people see a registry; asked for only then",
    ("setting", "retrieval"): "a number of tools becomes a retriever",
    ("journals", "audit"): "a path becomes an audit",
    ("audit", "locks"): "several processes append to one file",
    ("batch", "locks"): "the processes of a batch share a rate",
    ("store", "locks"): "no run is driven by two processes",
    ("dialects.prompted", "dialects.chat"): "it rides on that wire",
    ("dialects.prompted", "dialects.chat_stream"): "it rides on that wire",
    ("dialects.prompted", "dialects.react_text"): "reads the replies",
    ("mcp", "mcp_session"): "what a connection opens, and opens anew",
    ("mcp", "mcp_server"): "both directions are reached as one: mcp.connect, mcp.serve",
    ("local", "llama"): "the server that the embedded model runs in",
    ("isolation", "isolated_child"): "what both sides know",
    ("eval_files", "eval_cases"): "what it reads",
    ("eval_report", "eval_cases"): "the labels that it counts",
    ("eval_report", "cost"): "what its tokens cost",
    ("eval_report", "display"): "its page",
    ("evals", "batch"): "many at once",
    ("evals", "cost"): "what its tokens cost",
    ("evals", "eval_cases"): "what it asks, and the judgement",
    ("evals", "eval_files"): "offered in one place",
    ("evals", "eval_report"): "what it returns",
    ("local", "narrowing"): "what its model may choose from",
    ("local", "extraction"): "what of its answer was said",
    ("narrowing", "extraction"): "the values to choose from",
    ("dialects.chat", "dialects.chat_stream"): "its streams, read only where one is asked for",
    ("dialects.leaked", "dialects.leaked_forms"): "the readers of each form",
    ("dialects.leaked", "dialects.leaked_values"): "values as the forms write them",
    ("dialects.leaked_forms", "dialects.leaked_values"): "values as the forms write them",
    ("dialects.leaked", "dialects.react_text"): "one more form",
}

FORBIDDEN_NAMES = {"utils", "base", "types", "core", "config", "helpers"}

FILE_LIMIT = 300
FUNCTION_NORM, LONGER_FUNCTIONS, FUNCTION_LIMIT = 35, 3, 45
CORE_LIMIT, DIALECTS_LIMIT, ALL_LIMIT = 4_100, 1_200, 10_100


def read_sources() -> dict[str, str]:
    """Each module of the package, by its dotted name below it ("loop", "dialects.chat"), with its text."""
    sources = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or SURFACE
        sources[name] = path.read_text(encoding="utf-8")
    return sources


SOURCES = read_sources()


# Rooms and arrows


class Arrow(NamedTuple):
    source: str
    target: str
    deferred: bool  # inside a function


def find_arrows(source: str, code: str, modules: Iterable[str]) -> Iterator[Arrow]:
    """Every import of one of our modules, wherever it stands, under TYPE_CHECKING too."""
    for node, deferred in _imports(ast.parse(code)):
        for name in _imported_names(node, source):
            if name == "toolkit" or name.startswith("toolkit."):
                yield Arrow(source, _module_of(name, modules), deferred)


def _imports(node: ast.AST, deferred: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom, ast.Call)):
            yield child, deferred
        in_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _imports(child, deferred or in_function)


def _imported_names(node: ast.AST, source: str) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            start = [*_package_of(source)[: 1 - level or None]] if level else []
            return [".".join([*start, *([module] if module else []), alias.name]) for alias in names]
        case ast.Call(args=[ast.Constant(str(name)), *_]) if ast.unparse(node.func).endswith("import_module"):
            return [f"toolkit{name}" if name.startswith(".") else name]
    return []


def _package_of(source: str) -> list[str]:
    if source == SURFACE:
        return ["toolkit"]
    parts = ["toolkit", *source.split(".")]
    return parts if source == "dialects" else parts[:-1]


def _module_of(name: str, modules: Iterable[str]) -> str:
    """The longest part of a dotted name that is a module: the rest is something in it."""
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in modules:
        parts.pop()
    return ".".join(parts) or SURFACE


def find_complaints(sources: Mapping[str, str]) -> list[str]:
    """What the imports of these modules break."""
    modules = {*sources, *CORE, *BESIDE, *ABOVE}
    return [
        f"{arrow.source} imports {arrow.target}: {complaint}"
        for source, code in sources.items()
        for arrow in find_arrows(source, code, modules)
        if (complaint := _complaint(arrow))
    ]


def _complaint(arrow: Arrow) -> str:
    source, target = arrow.source.split(".")[0], arrow.target.split(".")[0]
    if source in ABOVE or source not in {SURFACE, *CORE, *BESIDE}:
        return ""  # free to, or told of by the test for rooms
    if (arrow.source, arrow.target) in ALLOWED:
        needs_function = source in CORE and target in BESIDE and not arrow.deferred
        return "only inside a function" if needs_function else ""
    if target == SURFACE:
        return "a name is reached by its room, not by the surface"
    if target not in CORE:
        return "only what ALLOWED says may import it"
    if source in (SURFACE, *BESIDE):
        return ""
    if source == target:
        return "modules of one room do not know each other"
    return "" if CORE.index(target) < CORE.index(source) else "the arrow points down"


def test_every_module_has_a_room() -> None:
    rooms = {name.split(".")[0] for name in SOURCES}
    assert rooms - {SURFACE, *CORE, *BESIDE, *ABOVE} == set(), "give it a row in the table and a place in this test"


def test_no_module_is_named_for_nothing() -> None:
    assert [name for name in SOURCES if FORBIDDEN_NAMES & set(name.split("."))] == []


def test_imports_point_up() -> None:
    assert find_complaints(SOURCES) == []


def test_no_exception_is_left_over() -> None:
    arrows = {(a.source, a.target) for name, code in SOURCES.items() for a in find_arrows(name, code, SOURCES)}
    assert [pair for pair in ALLOWED if set(pair) <= set(SOURCES) and pair not in arrows] == []


@pytest.mark.parametrize(
    ("source", "code", "broken"),
    [
        pytest.param("tools", "from .schema import describe", False, id="up"),
        pytest.param("schema", "from .tools import Tool", True, id="down"),
        pytest.param("schema", "from . import errors, tools", True, id="down, as a module"),
        pytest.param("schema", "import toolkit.tools", True, id="down, absolute"),
        pytest.param("schema", "def f():\n    from toolkit.tools import Tool", True, id="down, inside a function"),
        pytest.param("schema", "if TYPE_CHECKING:\n    from .tools import Tool", True, id="down, for types only"),
        pytest.param("schema", "importlib.import_module('toolkit.tools')", True, id="down, by its name"),
        pytest.param("models", "f = lambda: import_module('.local', 'toolkit')", False, id="allowed, by its name"),
        pytest.param("models", "def f():\n    from .local import LocalModel", False, id="allowed, inside a function"),
        pytest.param("models", "from .local import LocalModel", True, id="allowed, but not at the top"),
        pytest.param("run", "def f():\n    from .store import save", True, id="core to beside"),
        pytest.param("evals", "from .run import resume", False, id="beside to core"),
        pytest.param("evals", "from .store import save", True, id="beside to beside"),
        pytest.param("cli", "from . import evals, lint, run", False, id="the command line imports all"),
        pytest.param("dialects.chat", "from ..tools import Tool", False, id="dialect, up"),
        pytest.param("dialects.chat", "from ..models import Model", True, id="dialect, down"),
        pytest.param("dialects.chat", "from .responses import encode", True, id="dialect to dialect"),
        pytest.param("dialects.leaked", "from .react_text import read_react", False, id="dialect to dialect, allowed"),
        pytest.param("models", "from .dialects import chat", False, id="a dialect from below"),
        pytest.param("execute", "from .dialects import chat", True, id="a dialect from above"),
        pytest.param("run", "from toolkit import tool", True, id="the surface"),
        pytest.param("__init__", "from .run import resume", False, id="the surface exports the core"),
        pytest.param("__init__", "from .evals import Case", True, id="the surface exports only the core"),
        pytest.param("schema", "import toolkit_of_others", False, id="another package"),
    ],
)
def test_wrong_arrows_are_seen(source: str, code: str, broken: bool) -> None:
    others = dict.fromkeys(("dialects.responses", "dialects.react_text", "dialects.chat"), "")
    assert bool(find_complaints({**others, source: code})) is broken


# Sizes


def find_code_lines(code: str) -> set[int]:
    """The lines that are neither blank, nor comment, nor docstring."""
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type not in layout:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Expr(ast.Constant(str())):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines - {number for number, line in enumerate(code.split("\n"), 1) if not line.strip()}


def measure_functions(sources: Mapping[str, str]) -> dict[str, int]:
    """The lines of code of every function, its own inner ones counted in."""
    lengths = {}
    for name, code in sources.items():
        lines = find_code_lines(code)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                lengths[f"{name}:{node.lineno} {node.name}"] = len(lines.intersection(span))
    return lengths


def test_lines_of_code_leave_out_words_and_air() -> None:
    code = (
        '"""Doc."""\n\n# why\nx = """a\n\nb"""\n\n\n'
        'def f():\n    """Doc,\n\n    more."""\n    return (  # why\n        1\n    )\n'
    )
    assert find_code_lines(code) == {4, 6, 9, 13, 14, 15}
    assert measure_functions({"m": code}) == {"m:9 f": 4}


def test_files_are_short() -> None:
    lengths = {name: len(find_code_lines(code)) for name, code in SOURCES.items()}
    assert {name: length for name, length in lengths.items() if length > FILE_LIMIT} == {}


def test_functions_are_short() -> None:
    long = {place: length for place, length in measure_functions(SOURCES).items() if length > FUNCTION_NORM}
    assert {place: length for place, length in long.items() if length > FUNCTION_LIMIT} == {}
    assert len(long) <= LONGER_FUNCTIONS, f"over {FUNCTION_NORM} lines: {long}"


def test_the_whole_is_small() -> None:
    rooms = Counter[str]()
    for name, code in SOURCES.items():
        rooms[name.split(".")[0]] += len(find_code_lines(code))
    dialects, everything = rooms["dialects"], rooms.total()
    core = sum(rooms[room] for room in CORE) - dialects
    within = core <= CORE_LIMIT and dialects <= DIALECTS_LIMIT and everything <= ALL_LIMIT
    assert within, f"core {core}, dialects {dialects}, all {everything}; of them {rooms}"


# Sentences


def read_sentences() -> dict[str, str]:
    """Room by room, in order, what the table in CONTRIBUTING.md says of it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(\w+)(?:\.py|/)` \| (.+) \|$", text, flags=re.MULTILINE))


SENTENCES = read_sentences()


def test_the_table_has_the_rooms_in_order() -> None:
    assert tuple(SENTENCES)[: len(CORE)] == CORE
    assert set(SENTENCES) <= {*CORE, *BESIDE, *ABOVE}


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_opens_with_its_sentence(name: str) -> None:
    docstring = ast.get_docstring(ast.parse(SOURCES[name]))
    assert docstring, "a module says first what it is"
    if name != SURFACE and "." not in name:
        first_paragraph = " ".join(docstring.split("\n\n")[0].split())
        assert first_paragraph == SENTENCES.get(name), "the table in CONTRIBUTING.md says otherwise"


# The guard in conftest.py


@pytest.mark.parametrize("host", ["192.0.2.1", "example.invalid", "2001:db8::1"])
def test_tests_reach_no_other_machine(host: str) -> None:
    with pytest.raises(RuntimeError, match="loopback"):
        socket.create_connection((host, 80), timeout=1)
    with socket.socket() as plain, pytest.raises(RuntimeError, match="loopback"):
        plain.connect_ex((host, 80))


def test_tests_reach_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=5).close()
