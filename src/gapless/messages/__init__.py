"""Every message and every durable record, as typed structs, one file a room.

Messages between brokers travel in packets of a session (:mod:`.overlay`); all fields that the
protocols need are here, and nothing here acts. A struct is an array on the wire, so fields are
added at the end and never taken out.

- :mod:`.overlay`: sessions, heartbeats, announcements (R1 to R4, R12)
- :mod:`.propagation`: tables of conjunctions and vectors (R14 to R19)
- :mod:`.streams`: feeds, knowledge, curiosity, reports (R8 to R10, R34 to R41, R52 to R57)
- :mod:`.pubend_requests`: what is asked of a pubend's broker, hop by hop (R48, R49, R55)
- :mod:`.clients`: between a broker and its clients
- :mod:`.operating`: between a broker and those who operate it
- :mod:`.records`: what a broker keeps on disk
"""
