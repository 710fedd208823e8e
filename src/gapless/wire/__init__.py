"""Bytes on a connection: frames, the greeting, and the codec of every message.

Theory of operation
-------------------
A connection carries frames: a length of four bytes, then a body in msgpack. The side that dials
sends :class:`Connect`, the other answers :class:`Connected` or sends :class:`Disconnect` with a reason;
after that each frame is one message of the connection's kind. Between brokers that is a packet of
a session (:mod:`gapless.messages.overlay`), between a broker and a client a request or a notice
(:mod:`gapless.messages.clients`). Either side may send :class:`KeepAlive` when it has nothing else to
say, and Disconnect before it closes.

Structs are arrays with a tag, so a field can be added at the end and older readers skip it. What
cannot be read closes the connection it came on and nothing else (:class:`ProtocolError`). What can be
read may still make no sense; that is for the machine to see.

- :mod:`.frames`: lengths, and cutting a stream of bytes into bodies
- :mod:`.handshake`: who is there, which version both speak, and why a connection ends
- :mod:`.codec`: messages to frames, bodies to messages
- :mod:`.tokens`: secrets by which the side that dials is known
- :mod:`.parts`: packets between brokers that are larger than a frame

The version of the protocol between brokers is checked again inside their session (R1): a greeting
is per connection, a session may outlive one.
"""

from gapless.core.limits import FRAME_BYTES_MAX
from gapless.wire.codec import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    LINK_PACKETS,
    Codec,
    decode_handshake,
    encode_handshake,
)
from gapless.wire.frames import HEADER_BYTES, Body, FrameReader
from gapless.wire.handshake import (
    VERSIONS,
    Connect,
    Connected,
    Disconnect,
    DisconnectReason,
    Handshake,
    KeepAlive,
    Role,
    common_version,
)
from gapless.wire.parts import PacketAssembler, PacketPart
from gapless.wire.tokens import digest_of, new_token, read_tokens, token_fault

__all__ = [
    "CLIENT_NOTICES",
    "CLIENT_REQUESTS",
    "FRAME_BYTES_MAX",
    "HEADER_BYTES",
    "LINK_PACKETS",
    "VERSIONS",
    "Body",
    "Codec",
    "Connect",
    "Connected",
    "Disconnect",
    "DisconnectReason",
    "FrameReader",
    "Handshake",
    "KeepAlive",
    "PacketAssembler",
    "PacketPart",
    "Role",
    "common_version",
    "decode_handshake",
    "digest_of",
    "encode_handshake",
    "new_token",
    "read_tokens",
    "token_fault",
]
