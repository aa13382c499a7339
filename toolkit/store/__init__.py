"""Runs in a SQLite file: every step is saved before the next one, and no two processes drive one run.

A process that is killed loses nothing that was saved, and `resume(run_id, store=…)` continues the run. A
tool that has finished does not run again. A call of a `write` or `sensitive` tool that began and never
reported does not run again either: it is answered with "outcome unknown". A power failure may cost the
last steps, unless the store is `durable`.
"""

from toolkit.store.sqlite import SQLiteStore, StoredRun

__all__ = ["SQLiteStore", "StoredRun"]
