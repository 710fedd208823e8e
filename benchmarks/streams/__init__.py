"""What the broker costs over bare input and output, and what each promise adds to that."""
