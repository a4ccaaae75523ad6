"""Recovers a SQLite store whose pages are damaged, by building a new file from the intact rows.

- `recovered_rows` reads every page by itself and recovers the rows of every table.
- `graph` keeps the commits that hash to their ids, with all their ancestors.
- `names` finds where branches end.
- `rebuild` writes the new file, which replaces the damaged one. The damaged file stays
  beside it; neither is ever deleted.

Only `weft fsck --repair` needs this package, and imports it then.
"""

from .rebuild import Salvage, salvage
from .repair_lock import RepairLock

__all__ = ["RepairLock", "Salvage", "salvage"]
