"""A run: its state, the loop that decides each step, and the driver that takes it."""
