"""What can be saved of a SQLite file whose pages are damaged: a new file with all that is whole.

`salvage` reads every page by itself (`pages`), gathers rows (`remains`), keeps the commits that
hash to their ids with all they come from (`graph`), and finds out where branches end (`names`).
The new file takes the place of the damaged one, which stays beside it; neither is ever deleted.
"""

from .rebuild import Salvage, salvage

__all__ = ["Salvage", "salvage"]
