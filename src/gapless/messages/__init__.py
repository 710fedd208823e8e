"""All messages and durable records as typed structs, one module for each protocol.

Messages between brokers are sent in packets of a peer session (:mod:`.overlay`). The structs have
fields and no behaviour. A struct is encoded as an array, so fields are added at the end and never
removed.

- :mod:`.overlay`: peer sessions, heartbeats, announcements (R1 to R4, R12)
- :mod:`.propagation`: subscription tables (R14 to R19)
- :mod:`.streams`: feeds, knowledge, curiosity, reports (R8 to R10, R34 to R41, R52 to R57)
- :mod:`.pubend_requests`: requests routed to a PHB (R48, R49, R55)
- :mod:`.clients`, :mod:`.reading`: between a broker and its clients
- :mod:`.operating`: between a broker and its operators
- :mod:`.records`: the durable records of a broker
"""
