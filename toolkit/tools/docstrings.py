"""A docstring of any style, split into its description and what it says of each parameter."""

from __future__ import annotations

import re
import textwrap


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring (Google, NumPy, reST or Epytext style) into its description and that of each parameter."""
    if "\n" not in text and ":" not in text and "@" not in text:
        return text, {}
    from docstring_parser import DocstringStyle, ParseError, parse

    style = next(
        (style for style, pattern in _STYLES.items() if pattern.search(text)), "GOOGLE"
    )
    # docstring-parser 0.18 refuses a docstring that opens with a section; the dash stands in for a summary. Its
    # entries may have lost their indentation, which Python reckons from the second line on.
    opens_with_section = _GOOGLE_SECTION.match(text)
    if opens_with_section:
        heading, body = (
            text[: opens_with_section.end()],
            text[opens_with_section.end() :],
        )
        text = f"-\n\n{heading}{body if body.startswith(' ') else textwrap.indent(body, '    ')}"
    try:
        text = _KEYWORDS.sub("" if _HAS_ARGS.search(text) else r"\1Args:", text)
        parsed = parse(_LONG_TYPE.sub(r"\1 \2", text), style=DocstringStyle[style])
    except ParseError:
        return text, {}
    description = (parsed.description or "").strip()
    if opens_with_section:
        description = description.removeprefix("-").lstrip()
    about = {}
    for parameter in parsed.params:
        for name in parameter.arg_name.split(","):
            about[name.strip().lstrip("\\*")] = " ".join(
                (parameter.description or "").split()
            )
    return description, about


# By docstring-parser's names.
_STYLES = {
    "REST": re.compile(
        r"^\s*:(param|parameter|arg|argument|key|type|returns?|raises?)\b[^\n]*:",
        re.MULTILINE,
    ),
    "EPYDOC": re.compile(
        r"^\s*@(param|type|return|rtype|raise)\b[^\n]*:", re.MULTILINE
    ),
    "NUMPYDOC": re.compile(
        r"^\s*(Parameters|Returns|Raises|Yields|Examples|Notes)\s*\n\s*-{3,}\s*$",
        re.MULTILINE,
    ),
}
_GOOGLE_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Returns|Raises|Yields|Examples?):[ \t]*\n"
)
_KEYWORDS = re.compile(
    r"^([ \t]*)(?:Keyword Args|Keyword Arguments|Other Parameters):[ \t]*$",
    re.MULTILINE,
)
_HAS_ARGS = re.compile(
    r"^[ \t]*(?:Args|Arguments|Parameters|Params):[ \t]*$", re.MULTILINE
)
_LONG_TYPE = re.compile(
    r"^([ \t]*:param)[ \t][^:\n]*[ \t](\\?\*{0,2}\w+:)", re.MULTILINE
)  # docstring-parser takes one word
