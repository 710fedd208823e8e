"""Pubends: named ordered streams with their logs at this broker.

- :mod:`.pubend`: assigns ticks to publications and logs them before it sends them (GD 2.2; R27 to
  R32); its base class is in :mod:`.stream_end` (silence and the order of sending: R29, R30)
- :mod:`.publishers`: sequences of publishers (R27, R28); :mod:`.repeats`: look-ups of old sequences
- :mod:`.log_reader`: reads of the log and its corruption (R32, P8); :mod:`.log_size`: the size of
  the log (R58); :mod:`.retention`: its release (R56); :mod:`.overdue`: acknowledgements that are
  overdue (GD 3.2; R57)
- :mod:`.member_state`, :mod:`.members`: the members of a pubend and their ack floors (R53 to R56);
  :mod:`.known_hosts`: SHBs that are known before they become members (R46)
- :mod:`.epochs`, :mod:`.member_epochs`: stream epochs, and when one is opened (R31)
- :mod:`.protocols`: the interfaces that a pubend uses
- :mod:`.best_effort`: a pubend without a log (R33)
- :mod:`.serving`: answers to the requests that :mod:`gapless.requests` carries
- :mod:`.staging`: batches that one commit publishes whole or not at all
"""
