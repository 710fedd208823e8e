"""Routing: knowledge comes in by a feed and goes out by attachments, filtered or whole (GD 3.1; R10, R34 to R40).

- :mod:`.router`: the streams of all pubends that pass this broker
- :mod:`.routed`: all that a router has of one pubend
- :mod:`.attachment_state`, :mod:`.attachment`, :mod:`.attachments`: the receivers of a stream and their attach requests
- :mod:`.protocols`: what a router asks of its surroundings
- :mod:`.sending`: what each receiver is sent
- :mod:`.nacks`: requests for ticks that this broker does not know
- :mod:`.reports`: acknowledgements, joined on their way up, and the request for them on its way down (GD 3.1, 3.2;
  R41, R52, R57)
"""
