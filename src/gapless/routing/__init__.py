"""Routing: from a feed to attachments, filtered or whole (GD 3.1; R10, R34 to R40).

- :mod:`.router`: the streams of all pubends that pass this broker
- :mod:`.routed`: the state of one pubend at a router
- :mod:`.attachment_state`, :mod:`.attachment`, :mod:`.attachments`: the receivers of a stream
- :mod:`.protocols`: the interfaces that a router uses
- :mod:`.sending`, :mod:`.epoch_sender`: the knowledge and stream epochs that receivers are sent
- :mod:`.nacks`: requests for ticks that this broker does not know
- :mod:`.reports`: ack reports, aggregated upstream, and requests for them, sent downstream (GD 3.1,
  3.2; R41, R52, R57)
"""
