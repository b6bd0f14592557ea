"""Speculation: several tokens a step, guessed cheaply and checked by the model."""
