"""Who made a message: what only its maker can read goes back to its maker only."""

from weft.model import Message, Request


def made_by(protocol: str, message: Message, request: Request) -> bool:
    """Whether this protocol made it: by its origin, else by the wire it was read on."""
    if message.origin is not None:
        return message.origin.protocol == protocol
    return request.wire is not None and request.wire.protocol == protocol
