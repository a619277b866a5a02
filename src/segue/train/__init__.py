"""Training: one loop for all objectives, with a state that can be saved and resumed bit-exactly."""
