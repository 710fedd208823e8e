"""The proof beside the product: simulator, planted bugs, experiments, chaos and demonstration.

The product (:mod:`gapless`) never imports this package. The ``gapless`` command finds its subcommands by entry points.

- :mod:`.sim`: overlays in virtual time with seeded faults, an oracle and invariants
- :mod:`.lab`: the papers' experiments
- :mod:`.chaos`: real brokers that are killed, frozen and cut off under traffic
- :mod:`.demo`: an overlay under traffic and faults, with an audit
- :mod:`.sweep`: runs spread over Spark executors
- :mod:`.commands`: the subcommands
"""
