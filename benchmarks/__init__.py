"""What is measured: speed and quality, each with its report in `results`."""
