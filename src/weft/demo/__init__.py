"""What Weft offers without a key: the offline model, the sample thread and the demo tools.

Importing this package imports none of them, so that a command that only needs the offline model
does not load the thread machinery of the sample.
"""
