"""Parts that figures are made of: heat maps, lines, curves, points and a forest plot."""
