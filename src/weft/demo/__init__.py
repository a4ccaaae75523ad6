"""What Weft offers without a key: the offline model, the sample thread and the demo tools.

Importing this package imports none of them, so that a command that only needs the offline model
does not load the thread machinery of the sample.
"""

OFFLINE_MODEL = "weft-offline"
"""The name of the model that answers without network or key."""
