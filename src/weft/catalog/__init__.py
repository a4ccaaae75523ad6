"""Models and vendors as data: windows, caps, prices, and which liberties a model takes.

`catalog.toml` is read once by the porcelain (`load_catalog`) and passed down as frozen values.
A model is found by the longest pattern that matches its name; what no row says has the default,
so an unknown model is a usable one. A user's own file may add rows or overrule ours.
"""

from .catalog import Catalog, Model, Price, cost, load_catalog

__all__ = ["Catalog", "Model", "Price", "cost", "load_catalog"]
