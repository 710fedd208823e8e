"""The ``gapless`` command: one module a subcommand, which gathers facts and shows them.

It starts in :mod:`gapless.cli.entry`; :mod:`gapless.cli.main` has all options.
"""
