"""The ``gapless`` command: one module per subcommand.

It starts in :mod:`gapless.cli.entry`; :mod:`gapless.cli.main` has all options.
"""
