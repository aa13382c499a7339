"""The audit log: a line for what a tool is about to change, and one for how that ended, without secrets."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from toolkit.audit.chain import append_lines, as_text, opened_chain
from toolkit.calls.redaction import redact_secrets
from toolkit.messages import PendingCall, ToolResult

_log = logging.getLogger("toolkit.audit")

_SECRET_NAMES = (
    "password passwd passphrase passcode secret token api_key apikey authorization "
    "bearer credential cookie private_key access_key account_key signing_key "
    "card_number pwd pin otp cvv cvc iban ssn"
)
SECRET_FIELDS = tuple(_SECRET_NAMES.split())
"""The names of arguments whose values no audit shows: in any spelling, in the plural, as words of a longer name.

The longer ones are also found inside of a word ("dbpassword"). Numbers of tokens stay, and so does what
describes a secret without revealing it ("token_type", "password_policy").
"""

# A shorter name stands in too many other words: "pin" in "shipping".
_SHORTEST_INSIDE = len("token")
# Secrets if they are the whole name; in a longer one mostly not ("sort_key", "session_count").
_WHOLE_NAMES = frozenset(
    (
        "auth",
        "jwt",
        "key",
        "pass",
        "passwort",
        "pw",
        "session",
        "session_id",
        "sessionid",
    )
)
# A field that names the value beside it: {"name": "password", "value": …}.
_LABELS = ("name", "key", "field", "header")
_LABELLED = ("value", "values", "content")
_DESCRIPTIONS = "count|counts|limit|limits|type|types|usage|policy|length|strength"
_REDACTED = "[redacted]"


class AuditLog:
    """An audit in a file. If `path` is None, it only goes to the logger `toolkit.audit`, which gets every line.

    secret_fields: further names of arguments to redact.
    secret_patterns: further regular expressions of texts to redact.

    Lines are logged at level INFO. Raises OSError if a line cannot be written; the call then does not
    begin. Raises ValueError if the file does not end as its head says, which means that somebody
    altered it.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        secret_fields: Collection[str] = (),
        secret_patterns: Collection[str] = (),
    ) -> None:
        inside = "|".join(
            name for name in SECRET_FIELDS if len(name) >= _SHORTEST_INSIDE
        )
        names = (*SECRET_FIELDS, *secret_fields)
        words = "|".join(re.escape(_snake_case(name)) for name in names)
        self._secret_name = re.compile(
            rf"(?:{inside}|(?:^|_)(?:{words}))s?\d*"
            rf"(?:_(?!(?:{_DESCRIPTIONS})(?:_|$))|$)"
        )
        self._secret_patterns = [re.compile(pattern) for pattern in secret_patterns]
        self._path = None if path is None else Path(os.path.realpath(path))
        if self._path:
            # A file that cannot be opened is reported before the run.
            with opened_chain(self._path):
                pass

    def began(self, run_id: str, turn: int, calls: Sequence[PendingCall]) -> None:
        """Write an intent for each call whose tool is not `read`, and wait until the disk has them."""
        lines = []
        for call in calls:
            if call.permission != "read":
                arguments = self._redacted(dict(call.arguments))
                lines.append(_line(run_id, turn, call, "intent", arguments=arguments))
        self._write(lines, sync=True)

    def ended(
        self, run_id: str, turn: int, call: PendingCall, result: ToolResult
    ) -> None:
        """Write the outcome of a call whose tool is not `read`, or that was denied."""
        if call.permission == "read" and result.reason != "denied":
            return
        content = result.content.encode("utf-8", "replace")
        line = _line(
            run_id,
            turn,
            call,
            "outcome",
            status=result.reason or "ok",
            seconds=round(result.seconds, 6),
            content_digest=hashlib.sha256(content).hexdigest(),
        )
        self._write([line], sync=False)

    def _write(self, lines: list[dict[str, Any]], *, sync: bool) -> None:
        if not lines:
            return
        if self._path:
            texts = append_lines(self._path, lines, sync=sync)
        else:
            texts = [as_text(line) for line in lines]
        for text in texts:
            _log.info("%s", text)

    def _redacted(self, value: Any, name: str = "") -> Any:
        """The value of an argument, or of a field in it, without secrets."""
        if self._is_secret(name, value):
            return _REDACTED
        if isinstance(value, str):
            return self._redacted_text(value)
        if isinstance(value, Mapping):
            return self._redacted_object(value)
        if not isinstance(value, list):
            return value
        if len(value) == 2 and isinstance(value[0], str):
            # A header: its name and its value.
            return [self._redacted(value[0]), self._redacted(value[1], value[0])]
        return [self._redacted(each) for each in value]

    def _redacted_object(self, value: Mapping[str, Any]) -> dict[str, Any]:
        label = next((value[key] for key in _LABELS if key in value), "")
        has_labelled = any(key in value for key in _LABELLED)
        fields = {}
        for key, each in value.items():
            name = str(key)
            if key in _LABELLED and isinstance(label, str):
                name = label
            elif key in _LABELS and has_labelled:
                name = ""
            fields[self._redacted_text(str(key))] = self._redacted(each, name)
        return fields

    def _redacted_text(self, text: str) -> str:
        text = redact_secrets(text)
        for pattern in self._secret_patterns:
            text = pattern.sub(_REDACTED, text)
        return text

    def _is_secret(self, name: str, value: Any) -> bool:
        words = _snake_case(name)
        if words in _WHOLE_NAMES:
            return True
        is_count = "token" in words and isinstance(value, int | float)
        return not is_count and self._secret_name.search(words) is not None


def _line(
    run_id: str, turn: int, call: PendingCall, kind: str, **details: Any
) -> dict[str, Any]:
    verdict = call.verdict
    if verdict:
        details["decision"] = verdict.decision
        details["by"] = verdict.by
        details["reason"] = redact_secrets(verdict.reason)
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="microseconds"),
        "kind": kind,
        "run_id": run_id,
        "turn": turn,
        "tool_call_id": call.id,
        "tool_name": call.name,
        "permission": call.permission,
        "digest": call.digest,
        **details,
    }


def _snake_case(name: str) -> str:
    """A name in one spelling: api_key for apiKey, API-Key and api_key."""
    word_start = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})"
    return re.sub(r"[\W_]+", "_", re.sub(word_start, "_", name).lower())
