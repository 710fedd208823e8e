"""The subcommands of ``gapless`` that the lab adds."""
