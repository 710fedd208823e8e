"""What the broker costs over bare input and output, and what each guarantee adds."""
