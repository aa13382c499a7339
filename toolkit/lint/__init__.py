"""What a model, or a wire, will trip over in the tools of a program, and what to write instead.

An "error" is refused by a wire or contradicts the code, a "warning" makes models call wrongly, a "hint" is worth a
thought. The rules on wording know English only: judged by hand on 1,702 function definitions as people write them
(Berkeley Function-Calling Leaderboard), nine in ten of their findings were right.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolkit.errors import ToolDefinitionError
from toolkit.retrieval.ranking import Index, words
from toolkit.tools.docstrings import read_docstring
from toolkit.tools.foreign import WrittenSignature
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.strict import strict_form
from toolkit.tools.tool import FunctionTool, Tool

Severity = Literal["error", "warning", "hint"]

RULES: Mapping[str, Severity] = {
    "broken": "error",  # there is no schema to be had: a hint names what is not defined
    "description-missing": "error",
    "description-repeats-name": "warning",
    "description-without-when": "hint",
    "destructive-read": "error",  # permission="read", and yet it deletes
    "enum-unexplained": "hint",
    "name-illegal": "warning",  # models see an alias
    "name-without-verb": "hint",
    "not-strict": "hint",  # but an error where strict=True insists
    "parameter-undescribed": "warning",
    "parameter-unknown": "error",  # in the docstring only
    "parameter-untyped": "warning",
    "reads-alike": "warning",
    "refused": "error",  # by a wire, with all other tools of the request
    "too-large": "warning",
    "values-in-text": "warning",
}
"""The rules, by the names that `ignore` takes, and how severe a finding of each is."""

LARGEST = 4_000  # characters of description and schema, near a thousand tokens in each request
ALIKE = 0.8  # of the BM25 score that a tool has for its own text


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing to mend: what is wrong with which tool, or with which of its parameters, and what to write."""

    tool: str
    rule: str
    severity: Severity
    message: str
    fix: str
    parameter: str = ""  # dotted where it lies inside another

    def __str__(self) -> str:
        place = f"{self.tool}.{self.parameter}" if self.parameter else self.tool
        return f"{self.severity} {place}: {self.message} {self.fix} [{self.rule}]"


def lint_tools(
    tools: ToolsGiven = None, *, ignore: Collection[str] = ()
) -> list[Finding]:
    """Find what to mend in the tools, tool by tool in their order, the worst first.

    tools: functions, Tools or a registry; None takes the global one.
    ignore: rules to leave out, everywhere ("reads-alike") or for one tool ("get_weather:reads-alike").

    No tool is called. Raises ValueError for a rule that does not exist.
    """
    ignore = {ignore} if isinstance(ignore, str) else set(ignore)
    if unknown := sorted(
        each for each in ignore if each.rpartition(":")[2] not in RULES
    ):
        raise ValueError(
            f"There is no rule {unknown[0]!r}. The rules are {', '.join(RULES)}."
        )
    registry = registry_of(tools)
    found: list[Finding] = []
    readable: list[Tool] = []
    for tool in registry:
        try:
            made = [_finding(tool, *each) for check in _CHECKS for each in check(tool)]
            readable.append(tool)
        except ToolDefinitionError as error:
            made = [
                _finding(
                    tool,
                    "broken",
                    "",
                    str(error),
                    "Until then every run with this tool fails.",
                )
            ]
        found += made
    found += (_finding(*each) for each in _alike(readable))
    place = {tool.name: number for number, tool in enumerate(registry)}
    found.sort(
        key=lambda finding: (place[finding.tool], _SEVERITIES.index(finding.severity))
    )
    return [
        each
        for each in dict.fromkeys(found)
        if ignore.isdisjoint((each.rule, f"{each.tool}:{each.rule}"))
    ]


_SEVERITIES = ("error", "warning", "hint")
_Told = tuple[str, str, str, str]  # the rule, the parameter, the message, the fix


def _finding(tool: Tool, rule: str, parameter: str, message: str, fix: str) -> Finding:
    insists = rule == "not-strict" and tool.strict
    return Finding(
        tool.name, rule, "error" if insists else RULES[rule], message, fix, parameter
    )


# Names


def _check_name(tool: Tool) -> Iterator[_Told]:
    better = re.sub(
        r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tool.name).lower()
    ).strip("_")
    if tool.wire_name != tool.name:
        yield ("name-illegal", "", f"No wire takes this name; models see {tool.wire_name!r}.",
               f"Name it in ASCII letters, digits, _ and -, 64 at most: name={better[:64] or 'get_…'!r}.")  # fmt: skip
    says = _SAYING.match(tool.description)  # a verb that is not in the list
    is_said = says is not None and not set(words(says[0])).isdisjoint(words(tool.name))
    if better and not is_said and not any(map(_is_verb, _parts(tool.name))):
        verb = _VERB_OF_STEM.get(next(words(tool.description), ""), "get")
        yield ("name-without-verb", "", "The name does not say what the tool does.",
               f"Begin it with a verb: name='{verb}_{better}'.")  # fmt: skip


_SAYING = re.compile(r"\w+s\b|\w+(?= (?:an?|the)\b)")


def _parts(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _is_verb(word: str) -> bool:
    return (
        word in _VERBS or _PREFIX.sub("", word) in _VERBS or bool(_SUFFIX.search(word))
    )


_PREFIX, _SUFFIX = (
    re.compile(r"^(?:de|dis|mis|over|pre|re|un)"),
    re.compile(r"[a-z]{3}(?:ify|i[sz]e)$"),
)
_LISTED = """
cancel clear del delete destroy discard drop erase kill overwrite purge remove reset revoke terminate truncate uninstall
unpublish wipe

abort accept access acknowledge acquire activate adapt add adjust aggregate alert align allocate allow amend analyse
analyze annotate announce answer append apply approve archive arrange ask assemble assert assess assign assist attach
attend audit authenticate backup balance begin bill bind block book bookmark boost break broadcast browse build buy
cache calc calculate call can capture catch change charge chat check checkout choose clean click clone close cluster
collect combine comment commit communicate compare compile complete compose compress compute concatenate condense
conduct configure confirm connect construct consult contact contains continue control convert cook copy correct count
crawl create crop debug decide decline decode decrypt define delay delegate deliver deny deploy deposit derive describe
detach detect determine diagnose diff disable discover dismiss distribute divide do donate download draft draw duplicate
echo edit eliminate email embed emit enable encode encrypt end enqueue enrol enroll enter enumerate estimate evaluate
examine exchange exec execute exists exit expand expire explain explore export expose extend extract fetch fill filter
find finish fit fix flag flatten flip fold follow forecast format formulate forward freeze fulfil fulfill gather
generate get give grade grant greet group guide handle has hash help hide highlight hire hold ignore implement import
include increase index inform init initiate inject inquire insert inspect install integrate interpolate interpret
intersect introduce invert investigate invite invoke is issue join judge keep label launch learn leave limit link list
listen load locate lock log login logout look lookup mail make manage map mark match measure meet merge message migrate
mirror mix mock monitor mount move mult multiply mute name navigate negotiate note observe offer onboard open operate
orchestrate order pack parse partition pass paste patch pause pay perform persist pick pin ping place plan play plot
poll populate post predict prepare present price print process produce promote prompt propose provide provision prune
publish pull purchase push put query quote raise rank rate react read receive recommend reconcile record recover redeem
redirect reduce refer refresh refund register reject rekey release remember remind render renew rent repair repeat reply
report request respond restock resume retain retrieve reveal reverse revert rewind roll rotate round route run sample
save say scan schedule score scrape screen scroll scrub search segment select sell send serve set setup share ship shop
shorten should show shuffle shut sign simulate skip sleep slice solve sort split start stop store stream study submit
subscribe subtract suggest sum support swap switch sync tag take teach tell test toggle total trace track trade train
transcribe transfer transform translate transmit transpose trigger trim try tune turn tweet type update upgrade upload
use validate vet view visit vote wait watch withdraw wrap write zip
"""
_VERBS, _DESTRUCTIVE = (
    frozenset(text.split()) for text in (_LISTED, _LISTED.partition("\n\n")[0])
)
_VERB_OF_STEM = {
    stem: verb for verb in sorted(_VERBS, reverse=True) for stem in words(verb)
}


# Descriptions


def _check_description(tool: Tool) -> Iterator[_Told]:
    text = tool.description.strip()
    begun = text.rstrip(".") if len(text) <= 60 else f"… {text.rstrip('.')[-50:]}"
    if not text:
        yield ("description-missing", "", "A model chooses by descriptions, and there is none.",
               'Write a docstring: what it does, and when: "… Use it when …".')  # fmt: skip
    elif set(words(text)) <= set(words(tool.name)):
        yield ("description-repeats-name", "", f"The description {text!r} says no more than the name.",
               f'Say when to use it, and what comes back: "{begun}. Use it when …".')  # fmt: skip
    elif _ENGLISH.search(text) and not _WHEN.search(text):
        yield ("description-without-when", "", "The description says what the tool does, but not when to use it.",
               f'Add for which questions, or when: "{begun}. Use it when …".')  # fmt: skip
    # Where the name hides it, the docstring may say it first: "Deletes …".
    verbs = (
        next(filter(_is_verb, _parts(tool.name)), ""),
        _VERB_OF_STEM.get(next(words(text), ""), ""),
    )
    if tool.permission == "read" and (
        does := next(filter(_DESTRUCTIVE.__contains__, verbs), "")
    ):
        yield ("destructive-read", "", f"It says {does!r}, and yet permission='read' lets it run unaudited.",
               'Write permission="write", or "sensitive" where somebody shall decide on each call.')  # fmt: skip


_ENGLISH = re.compile(r"\b(?:the|of|and|to|from|with|by|for)\b", re.IGNORECASE)
# The words of an occasion or a purpose, or a second sentence.
_WHEN = re.compile(
    r"\b(?:use[ds]?|useful|call|helps?|purposes?|when(?:ever)?|if|once|before|after|instead|unless|until|prefer|needs?"
    r"|only)\b|[.;:!?]\s+\S|\n",
    re.IGNORECASE,
)


def _check_docstring(tool: Tool) -> Iterator[_Told]:
    function: Any = tool.function if isinstance(tool, FunctionTool) else None
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = (
            function.func
            if isinstance(function, functools.partial)
            else inspect.unwrap(function)
        )
    if not inspect.isroutine(function):
        return
    taken = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        return
    for name in read_docstring(inspect.getdoc(function) or "")[1]:
        if name not in taken and name not in ("self", "cls"):
            near = difflib.get_close_matches(name, taken, 1)
            yield ("parameter-unknown", name, "The docstring describes it, but the function does not take it.",
                   f"Write {near[0]!r} there." if near else "Take it out of the docstring.")  # fmt: skip


# Parameters


def _check_parameters(tool: Tool) -> Iterator[_Told]:
    for path, schema in _properties(tool.parameters):
        parts = list(_alternatives(schema, tool.parameters))
        about = next(
            (str(part["description"]) for part in parts if part.get("description")), ""
        )
        if not any(_TYPED & part.keys() for part in parts):
            yield ("parameter-untyped", path, "It takes any JSON value, and a model has to guess which.",
                   f"Write a type hint: {path.rpartition('.')[2]}: str.")  # fmt: skip
        if not about:
            yield ("parameter-undescribed", path, "Nothing says what it is.",
                   f'Describe it, with unit and form: "{path}: …" under Args:, or Field(description="…").')  # fmt: skip
        if about and (
            silent := _codes(
                [value for part in parts for value in part.get("enum", ())], about
            )
        ):
            yield ("enum-unexplained", path, f"Nothing says what {_listed(silent)} stands for.",
                   f'Say it in the description: "{silent[0]} for …".')  # fmt: skip
        is_text = any("string" in _kinds(part) for part in parts) and not any(
            _NARROW & p.keys() for p in parts
        )
        if is_text and len(named := _values_in(about)) > 1:
            values = named + [
                value
                for value in [schema.get("default")]
                if value and value not in named
            ]
            yield ("values-in-text", path, "The description lists the values, but the type takes any text.",
                   f"Write the type Literal[{_listed(values)}].")  # fmt: skip


_NARROW = {"enum", "const", "pattern", "format"}
_TYPED = {"type", "properties", "items", "allOf", *_NARROW}


def _properties(
    schema: Any, path: str = "", depth: int = 0
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The properties of a schema to any depth, and of its definitions, by their dotted path."""
    if not isinstance(schema, Mapping) or depth > 20:
        return
    for key in ("properties", "$defs", "definitions"):
        for name, entry in (schema.get(key) or {}).items():
            entry = entry if isinstance(entry, Mapping) else {}
            if key == "properties":
                yield f"{path}{name}", entry
            yield from _properties(entry, f"{path}{name}.", depth + 1)
    for part in (
        schema.get("items"),
        *(each for key in _BRANCHES for each in schema.get(key, ())),
    ):
        yield from _properties(part, path, depth + 1)


_BRANCHES = ("anyOf", "oneOf", "allOf")


def _alternatives(
    schema: Any, root: Mapping[str, Any], depth: int = 0
) -> Iterator[Mapping[str, Any]]:
    """The schemas that a value may fit, those of the items of an array among them."""
    if not isinstance(schema, Mapping) or depth > 5:
        return
    yield schema
    target = root.get("$defs", {}).get(
        str(schema.get("$ref", "")).removeprefix("#/$defs/")
    )
    for part in (
        target,
        schema.get("items"),
        *(each for key in _BRANCHES for each in schema.get(key, ())),
    ):
        yield from _alternatives(part, root, depth + 1)


def _kinds(schema: Mapping[str, Any]) -> list[Any]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


def _codes(values: list[Any], about: str) -> list[Any]:
    """Values that do not speak for themselves, as words do, where hardly one is explained."""
    numbers = [value for value in values if type(value) is int]
    is_scale = len(numbers) > 2 and numbers == [
        *range(numbers[0], numbers[0] + len(numbers))
    ]
    letters = [
        value
        for value in values
        if isinstance(value, str) and len(value) == 1 and value.isalpha()
    ]
    codes = letters + ([] if is_scale else numbers)
    silent = [
        value
        for value in codes
        if not re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", about)
    ]
    return silent if 2 * len(silent) > len(codes) else []


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in values)


def _values_in(text: str) -> list[str]:
    """The values that a description lists as all there are."""
    found = (
        None
        if _OPEN_ENDED.search(text)
        else _NAMED_LIST.search(text) or _QUOTED_LIST.search(text)
    )
    return (
        list(
            dict.fromkeys(value.strip("'\"`") for value in _JOINED.split(found["list"]))
        )
        if found
        else []
    )


_OPEN_ENDED = re.compile(
    r"\b(?:e\.?g|example|such as|like|instance|includ\w+|etc|format\w*|similar)\b|\.\.\.|…",
    re.IGNORECASE,
)
_QUOTED = r"""(?:'[^'\n]{1,40}'|"[^"\n]{1,40}"|`[^`\n]{1,40}`)"""
_OR = r"(?:\s*[,/|]\s*(?:or\s+)?|\s+or\s+)"
_JOINED = re.compile(r"\s*[,/|]\s*(?:or\s+|and\s+)?|\s+or\s+|\s+and\s+")
_QUOTED_LIST = re.compile(rf"(?P<list>{_QUOTED}(?:{_OR}{_QUOTED})+)")
_NAMED_LIST = re.compile(
    r"\b(?:one of|options|(?:possible|allowed|valid|accepted|supported) values|choices|either|between)"
    r"(?: are| the following)?\s*:?\s*"
    rf"(?P<list>{_QUOTED}(?:(?:{_JOINED.pattern}){_QUOTED})+|[\w-]+(?:{_OR}[\w-]+)+(?=[.;)]|$))",
    re.IGNORECASE,
)


# Wires


def _check_wires(tool: Tool) -> Iterator[_Told]:
    schema = tool.parameters
    size = len(tool.description) + len(
        json.dumps(schema, ensure_ascii=False, default=str, separators=(",", ":"))
    )
    if size > LARGEST:
        yield ("too-large", "", f"It adds {size:,} characters to each request.",
               "Split the tool, shorten its descriptions, or let it take less.")  # fmt: skip
    for path, entry in _properties(schema):
        # Public bug reports until 2026-11 quote both refusals.
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", path.rpartition(".")[2]):
            yield ("refused", path, "Anthropic refuses a request with a parameter of this name.",
                   "Name it in ASCII letters, digits, _, . and -, 64 at most.")  # fmt: skip
        if any(
            "array" in _kinds(each) and "items" not in each
            for each in _alternatives(entry, schema)
        ):
            yield ("refused", path, "OpenAI refuses a request with an array that does not say of what.",
                   'Write the type of its items: list[str], or "items": {"type": …} in a schema.')  # fmt: skip
    if tool.strict is not False and (reason := _why_not_strict(tool, schema)):
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        alone = (
            (name, {**shared, "properties": {name: entry}})
            for name, entry in schema["properties"].items()
        )
        culprit = next(
            (name for name, part in alone if _why_not_strict(tool, part)), ""
        )
        yield ("not-strict", culprit, f"OpenAI's strict mode is off for this tool: {reason}",
               "Give each of its parts a type of its own, or write strict=False to settle it.")  # fmt: skip


def _why_not_strict(tool: Tool, schema: Mapping[str, Any]) -> str:
    try:
        strict_form(
            schema,
            unlisted_is_optional=not isinstance(tool.signature, WrittenSignature),
        )
    except ToolDefinitionError as error:
        return str(error)
    return ""


_CHECKS = (
    _check_name,
    _check_description,
    _check_docstring,
    _check_parameters,
    _check_wires,
)


# Tools side by side


def _alike(tools: list[Tool]) -> Iterator[tuple[Tool, str, str, str, str]]:
    """Pairs that share nearly all that sets them apart from the other tools; of several the nearest, told once."""
    index, place = (
        Index(tools),
        {tool.name: number for number, tool in enumerate(tools)},
    )
    near: dict[str, dict[str, float]] = {}
    for tool in tools:
        scores = {other.name: score for other, score in index.rank(_text(tool))}
        own = scores.pop(tool.name, 1.0)
        near[tool.name] = {
            name: score / own for name, score in scores.items() if score >= ALIKE * own
        }
    for tool in tools:
        earlier = (
            name
            for name in near[tool.name]
            if place[name] < place[tool.name] and tool.name in near[name]
        )
        both = [name for name in earlier if not _differ(tool, tools[place[name]])]
        if both:
            other = max(both, key=near[tool.name].__getitem__)
            yield (tool, "reads-alike", "", f"It reads like {other!r}, and a model can hardly choose between them.",
                   f'Say in both when to take which: "… Not for …: that is {other}.", or make them one.')  # fmt: skip


def _text(tool: Tool) -> str:
    return f"{tool.name} {tool.description}"


def _differ(one: Tool, other: Tool) -> bool:
    """Whether each name has a word that the other tool lacks, or the same words in another order say the reverse."""
    here, there = list(words(one.description)), list(words(other.description))
    if here != there and sorted(here) == sorted(there):
        return True
    return not (
        set(words(one.name)) <= set(words(_text(other)))
        or set(words(other.name)) <= set(words(_text(one)))
    )
