"""Models: what the engine asks, and how their streams become replies."""
