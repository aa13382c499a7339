"""The audit log of a run, opened from what its caller gave."""

from __future__ import annotations

import logging
from pathlib import Path

from toolkit.calls.protocols import Journal


def open_audit(audit: str | Path | Journal | None) -> Journal | None:
    """The audit log in a file; without one, on the logger `toolkit.audit` if somebody listens there."""
    if audit is None:
        has_listener = logging.getLogger("toolkit.audit").isEnabledFor(logging.INFO)
        if not has_listener:
            return None
    elif not isinstance(audit, str | Path):
        if not hasattr(audit, "began"):
            raise TypeError(
                f"audit must be a path or an AuditLog, not {type(audit).__name__}."
            )
        return audit
    from toolkit.audit import AuditLog

    return AuditLog(audit)
