"""An append-only record of what tools changed: each line is chained by a hash to the line before it.

A call of a tool that is not `read` gets a line of kind "intent", which is on the disk before the tool
starts, and a line of kind "outcome" after it. A denied call gets the outcome only.

| field | meaning |
|---|---|
| `number`, `time` | of the line: its number in the file, from 1; UTC in ISO 8601 |
| `kind` | "intent" or "outcome" |
| `run_id`, `turn`, `tool_call_id`, `tool_name`, `permission` | what was called, and where |
| `digest` | the SHA-256 of the name and the arguments as they ran (`ToolCall.digest`) |
| `arguments` | in an intent; secrets and connection strings are redacted, by the name of a field and by their form |
| `decision`, `by`, `reason` | who decided, if somebody did |
| `status` | in an outcome: "ok", "denied", "failed", "timeout", "interrupted"; a process that died wrote no outcome |
| `seconds`, `content_digest` | in an outcome: how long it ran, and the SHA-256 of what the model read of it |
| `previous`, `hash` | the hash of the line before, and of this line without its `hash` |

Beside the file stands another one, with `.head` after its name. It holds the number and the hash of the
last line and the size of the file, which show whether lines at the end are missing, and the lock with
which several processes write to one file. Move both files away, and a new chain begins.
"""

from toolkit.audit.chain import Verification, verify
from toolkit.audit.log import SECRET_FIELDS, AuditLog

__all__ = ["SECRET_FIELDS", "AuditLog", "Verification", "verify"]
