"""Who made a message: what only its maker can read goes back to its maker only."""

from weft.model import Message, Opaque, Request

MAKER_ONLY = "thinking_of_another_model"
STORED_ONLY = "file_id_of_another_vendor"


def made_by(protocol: str, message: Message, request: Request) -> bool:
    """Whether this protocol made it: by its origin, else by the wire it was read on."""
    if message.origin is not None:
        return message.origin.protocol == protocol
    return request.wire is not None and request.wire.protocol == protocol


def refuse_foreign(protocol: str, message: Message, request: Request) -> str | None:
    """Why thinking cannot go to this protocol, or `None` where it made it."""
    if made_by(protocol, message, request):
        return None
    return MAKER_ONLY


def refuse_opaque(protocol: str, block: Opaque, _message: Message, _request: Request) -> str | None:
    """Why a block that nobody else can read cannot go to this protocol, or `None` where it can."""
    return None if block.protocol == protocol else "vendor_block_dropped"
