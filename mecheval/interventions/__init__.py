"""Interventions: replace activations of one run by those of another and read the answer."""
