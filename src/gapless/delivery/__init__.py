"""Guaranteed delivery: what is known of a stream, what is missing, what may be handed over.

Theory of operation. A pubend's stream is a line of ticks. At its broker every tick up to the top
is D (a publication) or F (nothing there that is needed); everywhere else a tick may also be Q,
not known. Knowledge travels away from the pubend as pieces, which are facts: they may come late,
twice, in any order and by any way, and may be forgotten again. Curiosity, the wish to know certain
ticks, travels towards the pubend and is met by the nearest broker that knows. A subscriber host
delivers only what lies before the first Q (GD 2.3), so nothing is lost and nothing out of order.

The room's passive parts, which act on nothing but themselves:

- :mod:`.knowledge`: the states of a tick and the operations on pieces (GD 2.1, 2.4)
- :mod:`.istream`: a stream as far as it is known, GD's input stream (GD 3.1; R34, R36, R38)
- :mod:`.cache`: how many bytes all streams of a broker may hold together (R38)
- :mod:`.horizon`: the doubt horizon, up to which a stream was handed over (GD 2.3; R42)
- :mod:`.curiosity`: what was asked for, by whom and when (GD 2.1.1, 3.1, 3.2; R37, R45)
- :mod:`.stamped`, :mod:`.repetition`: their ranges with times, and GD's nack repetition threshold

The parts that act, each through the context it is given:

- :mod:`.pubend`: takes publications, gives them ticks, logs before it tells (GD 2.2; R27 to R32);
  under it :mod:`.stream_end` (silence and the order of telling: R29, R30), beside it
  :mod:`.publishers` (R27, R28), :mod:`.lookup` (what they repeat from long ago),
  :mod:`.hosted_regimes` (R31), :mod:`.logsize` (R58) and :mod:`.overdue` (GD 3.2; R57)
- :mod:`.best_effort`: a pubend that keeps nothing of what it tells (R33)
- :mod:`.members`: whom a pubend serves, and how far its log must be kept (R53 to R56); beside it
  :mod:`.early_hosts` (who was there before the pubend: R46)
- :mod:`.regimes`: what a regime number means, told once per session (R31, R39)
- :mod:`.feed`: a receiver's hold on a feeder nearer to the pubend (R7 to R9)
- :mod:`.router`: knowledge in by a feed, out by attachments, filtered or whole (GD 3.1; R10, R34 to
  R40); beside it :mod:`.attachments` (its receivers) and :mod:`.sending` (what they are sent)
- :mod:`.acks`: reports on their way up, joined at every router, and the wish for them on its way
  down (GD 3.1, 3.2; R41, R52, R57)

- :mod:`.requests`: reads, ends of stays and of holds, hop by hop to the pubend's broker, where
  :mod:`.serving` answers them (2.4 of the rules; R48, R49, R55)
- :mod:`.subscribers`: the end of the streams: subends, subscriptions, replay, total order (R42 to R52)

Invariants:

- A piece is never changed and never claims more than its sender knew: operations cut, join
  or turn D into F; none turns Q into F (I3).
- What is known of a tick only grows, Q < F < D, until it is forgotten altogether; two
  publications at one tick are an error of the pubend (I1) and stop the broker.
- Pieces of different regimes or control versions are never joined, so that a start point
  and a right can be read off any piece (I7).
- The doubt horizon never falls and passes over each tick once (I7).

Work is counted in frames and ranges: taking in a frame costs about a microsecond however many
publications it has, if the caller knows their size, and a silence of any length is one piece. To examine
what a peer has sent (:func:`.knowledge.fault_of`) costs a thirtieth of a microsecond a publication, once a
broker; the rooms rely on it, and pieces that were made here are not examined.
"""
