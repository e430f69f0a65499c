"""One visible loop: order, schedule, steps, divergence."""
