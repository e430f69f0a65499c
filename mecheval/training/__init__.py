"""Training: batches, schedule, optimiser and the loop."""
