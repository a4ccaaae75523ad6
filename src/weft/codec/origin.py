"""Which protocol made a message. Thinking and stored files go back to their own vendor only."""

from weft.model import Message, Opaque, Request

MAKER_ONLY = "thinking_of_another_model"
STORED_ONLY = "file_id_of_another_vendor"


def made_by(protocol: str, message: Message, request: Request) -> bool:
    """Whether this protocol made a message: by its origin, else by the body it was read from."""
    if message.origin is not None:
        return message.origin.protocol == protocol
    return request.wire is not None and request.wire.protocol == protocol


def refuse_foreign(protocol: str, message: Message, request: Request) -> str | None:
    """The loss code of thinking from another protocol, else `None`."""
    if made_by(protocol, message, request):
        return None
    return MAKER_ONLY


def refuse_opaque(protocol: str, block: Opaque, _message: Message, _request: Request) -> str | None:
    """The loss code of another protocol's own block, else `None`."""
    return None if block.protocol == protocol else "vendor_block_dropped"
