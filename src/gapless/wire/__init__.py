"""Bytes on a connection: frames, the handshake, and the codec of every message.

Theory of operation
-------------------
A connection carries frames: a length of four bytes, then a body in msgpack. The side that dials
sends :class:`Connect`. The other side answers :class:`Connected`, or sends :class:`Disconnect` with
a reason. After that each frame is one message of the connection's kind: between brokers a packet of
a session (:mod:`gapless.messages.overlay`), between a broker and a client a request or a notice
(:mod:`gapless.messages.clients`). Either side sends :class:`KeepAlive` when it has nothing else to
send, and Disconnect before it closes.

Structs are arrays with a tag, so a field can be added at the end and older readers skip it. A
malformed frame closes its connection and has no other effect (:class:`ProtocolError`). A client's
request with a wrong field is refused if its number can be read. The machine checks whether a
well-formed message is valid.

- :mod:`.frames`: lengths, and splitting a stream of bytes into bodies
- :mod:`.handshake`: the identities and the protocol version, and why a connection ends
- :mod:`.codec`: messages to frames, bodies to messages
- :mod:`.tokens`: secrets that authenticate the side that dials
- :mod:`.parts`: packets between brokers that are larger than a frame

Brokers check the protocol version again inside their session (R1): a handshake belongs to one
connection, and a session may outlive it.
"""

from gapless.core.limits import FRAME_BYTES_MAX
from gapless.wire.codec import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    LINK_PACKETS,
    Codec,
    decode_handshake,
    encode_handshake,
    request_number,
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
    "request_number",
    "token_fault",
]
