"""A docstring of any style, split into its description and what it says of each parameter."""

from __future__ import annotations

import re
import textwrap


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring (Google, NumPy, reST or Epytext) into its description and that of each parameter."""
    if "\n" not in text and ":" not in text and "@" not in text:
        return text, {}
    from docstring_parser import DocstringStyle, ParseError, parse

    matching = (name for name, pattern in _STYLES.items() if pattern.search(text))
    style = DocstringStyle[next(matching, "GOOGLE")]
    # docstring-parser 0.18 refuses a docstring that opens with a section, so it gets a dash as a summary. The entries
    # may have lost their indentation, which Python measures from the second line on.
    opening = _GOOGLE_SECTION.match(text)
    if opening:
        heading, body = opening[0], text[opening.end() :]
        if not body.startswith(" "):
            body = textwrap.indent(body, "    ")
        text = f"-\n\n{heading}{body}"
    text = _KEYWORDS.sub("" if _ARGUMENTS.search(text) else r"\1Args:", text)
    try:
        parsed = parse(_LONG_TYPE.sub(r"\1 \2", text), style=style)
    except ParseError:
        return text, {}
    description = (parsed.description or "").strip()
    if opening:
        description = description.removeprefix("-").lstrip()
    descriptions = {}
    for parameter in parsed.params:
        about = " ".join((parameter.description or "").split())
        for name in parameter.arg_name.split(","):
            descriptions[name.strip().lstrip("\\*")] = about
    return description, descriptions


# By the names of docstring-parser.
_STYLES = {
    "REST": re.compile(
        r"(?m)^\s*:(param|parameter|arg|argument|key|type|returns?|raises?)\b[^\n]*:"
    ),
    "EPYDOC": re.compile(r"(?m)^\s*@(param|type|return|rtype|raise)\b[^\n]*:"),
    "NUMPYDOC": re.compile(
        r"(?m)^\s*(Parameters|Returns|Raises|Yields|Examples|Notes)\s*\n\s*-{3,}\s*$"
    ),
}
_GOOGLE_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Returns|Raises|Yields|Examples?):[ \t]*\n"
)
_KEYWORDS = re.compile(
    r"(?m)^([ \t]*)(?:Keyword Args|Keyword Arguments|Other Parameters):[ \t]*$"
)
_ARGUMENTS = re.compile(r"(?m)^[ \t]*(?:Args|Arguments|Parameters|Params):[ \t]*$")
# docstring-parser takes a type of one word only.
_LONG_TYPE = re.compile(r"(?m)^([ \t]*:param)[ \t][^:\n]*[ \t](\\?\*{0,2}\w+:)")
