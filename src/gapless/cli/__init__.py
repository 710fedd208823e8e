"""The ``gapless`` command: one module a subcommand, which gathers facts and shows them.

The entry point is :func:`gapless.cli.main.main`.
"""
