"""What we do to a model: activations of one document put into the run of another."""
