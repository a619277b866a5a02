"""Training: one loop for all objectives, whose state can be stopped and resumed to the bit."""
