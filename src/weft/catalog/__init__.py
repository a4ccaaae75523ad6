"""Models and vendors as data: windows, caps, prices, and which liberties a model takes.

`catalog.toml` is read once by the porcelain (`load_catalog`) and passed down as frozen values.
A model is found by the longest pattern that matches its name, in whichever of the usual spellings
it is given; what no row says has the default, so an unknown model is a usable one. Rows of the
user's own (`[[model]]` in `weft.toml`, `add_models` in Python) win over the shipped ones.
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
