"""Models as data: context windows, output limits, prices and capabilities.

`catalog.toml` is read once by `load_catalog` and passed down as frozen values. A model name may
have any of the usual spellings; the row with the longest matching pattern wins. Missing fields have
defaults, so an unknown model works too. User rows (`[[model]]` in `weft.toml`, `add_models` in
Python) win over the shipped ones.
"""

from .catalog import Catalog, CatalogRow, Model, Price, add_models, cost, load_catalog, read_tables

__all__ = [
    "Catalog",
    "CatalogRow",
    "Model",
    "Price",
    "add_models",
    "cost",
    "load_catalog",
    "read_tables",
]
