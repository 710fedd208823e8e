"""Fuzzing: hostile clients and a hostile neighbour, beside a healthy publisher and subscribers.

Theory of operation
-------------------
Three brokers run as processes of their own in a line, b1 to b3 (:mod:`.processes`). The fuzzer plays
a fourth, a0, the configured neighbour of b1: it makes a genuine handshake with b1 and b2, whose
neighbourhoods contain it, and opens peer sessions. It also plays clients of all three
(:mod:`.hostile`). The healthy pair is a process too (:mod:`.pair`): its publisher and a durable
subscriber are at b3, whose neighbourhood does not contain a0, a second subscriber is at b2.

A seed determines the *attacks* (:mod:`.planning`, :mod:`.attacks`). An attack is one connection: it is
brought into a state, sends frames, waits until the broker has read them, and ends. In each state all
message types follow one another. Frames are

- drawn from the types of the messages, with plausible or extreme values (:mod:`.generation`,
  :mod:`.vocabulary`), so new messages and fields are covered without a change here;
- messages of recorded sessions, which are runs of the simulator (:mod:`.recordings`), as they are
  or with changed values or bytes (:mod:`.mutation`);
- msgpack bombs (:mod:`.bombs`).

A frame that is malformed comes last in its attack, because the broker reads no further.

What is tested
--------------
- No broker ends, and no error reaches the event loop of a broker.
- No step takes more than 100 ms of the processor. A broker's process has a probe (:mod:`.probe`,
  :mod:`.probed_broker`) that measures every step and names the attack that sent its input.
- Nothing remains: after the attack, a rest and a collection of garbage, a broker uses hardly more
  memory than after the first part of the attack. Names come from small pools, also those in mutated
  frames (:mod:`.taming`), and brokers forget what they keep for a time after seconds, so what is
  rightly stored is bounded.
- The healthy subscribers receive every event, once, in order, and their p99 latency is at most three
  times that without attack.

What is claimed of a lying neighbour
------------------------------------
A neighbour with a valid handshake is believed about the streams, brokers and cells that it speaks
for. So a0 states nothing about the pubend of the healthy pair and its brokers b2 and b3. It
may attach to that pubend and acknowledge it. All else it may say, about itself, b1, unknown names and
the pubends of the attackers. Then the pair, which uses b2, b3 and the link between them, must be
served. Survival, steps and memory are claimed for every frame.
"""
