"""The paper as a guest: its recipes, scales, published values, claims and figures."""
