"""The options of a run and of a model: which of them are a mistake."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

_SYNONYMS = {
    "system": "instructions",
    "system_prompt": "instructions",
    "registry": "tools",
    "output": "output_type",
    "model_name": "model",
    "key": "api_key",
    "max_tool_calls": "limits=Limits(tool_calls=…)",
}
# The toolkit fills in the former itself. The latter are arguments of a run.
_RESERVED = {
    *("messages", "model", "tools", "functions", "stream", "stream_options"),
    *("retrieve", "mode", "audit", "store", "run_id", "cancel"),
}


def refuse_unknown_options(
    options: Mapping[str, Any], parameters: Collection[str]
) -> None:
    """Raise TypeError for options that cannot be fields of a request, or are close to one of our `parameters`.

    Any other option goes to the model's API as it is: each API has fields of its own.
    """
    for name in options:
        if name in _SYNONYMS:
            raise TypeError(f"Unknown option {name!r}. Use {_SYNONYMS[name]} instead.")
        similar = difflib.get_close_matches(name, parameters, 1, cutoff=0.8)
        # "audio" is a field of Chat Completions, close to our "audit".
        if similar and name != "audio":
            raise TypeError(f"Unknown option {name!r}. Did you mean {similar[0]!r}?")
        if name in _RESERVED:
            raise TypeError(
                f"Unknown option {name!r}: it is neither an argument of a run nor a field of this model's API."
            )
