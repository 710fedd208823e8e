"""Knowledge of one stream: what is known, what is missing, what may be delivered.

Theory of operation. A pubend's stream is a line of ticks. At its broker every tick up to the top is D (a publication)
or F (final, nothing there that is needed). Everywhere else a tick may also be Q, unknown. Knowledge travels away from
the pubend as ranges. A range is a fact: it may come late, twice, in any order and over any route, and a broker may
forget it. Nacks travel towards the pubend, and the first broker that knows the ticks answers. A subscriber hosting
broker delivers only what lies before the first Q (GD 2.3), so nothing is lost and nothing is out of order.

- :mod:`.ranges`: the states of a tick and the operations on knowledge ranges (GD 2.1, 2.4)
- :mod:`.istream`: what one broker knows of a stream (GD 3.1; R34, R36, R38)
- :mod:`.cache`: how many bytes all streams of a broker may hold together (R38)
- :mod:`.horizon`: the doubt horizon, up to which a stream was delivered (GD 2.3; R42)
- :mod:`.curiosity`: the requested ticks, by requester and time (GD 2.1.1, 3.1, 3.2; R37, R45)
- :mod:`.stamped`, :mod:`.repetition`: ranges with times, and GD's nack repetition threshold
- :mod:`.epochs`: the vector that each stream epoch serves (R31, R39)

Invariants:

- A range is never changed and never claims more than its sender knew. Operations cut, join or turn D into F; none
  turns Q into F (I3).
- Knowledge of a tick only grows, Q < F < D, until it is forgotten altogether. Two publications at one tick are an
  error of the pubend (I1) and stop the broker.
- Ranges of different stream epochs or control versions are never joined, so that a start point and a right can be
  read off any range (I7).
- The doubt horizon never falls and passes over each tick once (I7).

Costs: taking in a range costs about a microsecond however many publications it has, if the caller knows their size. A
silence of any length is one range. A broker examines the ranges of a peer once, where they come in.
"""
