"""Knowledge of one stream: what is known, what is missing, what may be delivered.

Theory of operation. A pubend's stream is a sequence of ticks. At its PHB every tick up to the top
is D (a publication) or F (final: nothing is needed there). Everywhere else a tick may also be Q
(unknown). Knowledge is sent downstream as ranges. A range is a fact: it may arrive late, twice, in
any order and over any route, and a broker may forget it. Nacks are sent upstream, and the first
broker that knows the ticks answers. An SHB delivers only what lies before the first Q (GD 2.3), so
nothing is lost and nothing is out of order.

- :mod:`.ranges`: the states of a tick and the operations on knowledge ranges (GD 2.1, 2.4)
- :mod:`.istream`: what one broker knows of a stream (GD 3.1; R34, R36, R38)
- :mod:`.cache`: the limit on the memory of all streams of a broker (R38)
- :mod:`.horizon`: the doubt horizon, up to which a stream was delivered (GD 2.3; R42)
- :mod:`.curiosity`: the requested ticks, by requester and time (GD 2.1.1, 3.1, 3.2; R37, R45)
- :mod:`.stamped`, :mod:`.repetition`: ranges with times, and GD's nack repetition threshold
- :mod:`.epochs`: the vector that each stream epoch serves (R31, R39)

Invariants:

- A range is never changed and never states more than its sender knew. Operations cut, join or turn
  D into F; none turns Q into F (I3).
- Knowledge of a tick only grows, Q < F < D, until it is forgotten. Two publications at one tick are
  an error of the pubend (I1) and stop the broker.
- Ranges of different stream epochs or control versions are never joined, so that every range has
  one start point and one right (I7).
- The doubt horizon never falls and passes over each tick once (I7).

Costs: adding a range takes about a microsecond for any number of publications, if the caller knows
their size. A silence of any length is one range. A broker checks the ranges of a peer once, on
arrival.
"""
