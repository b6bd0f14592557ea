"""From text to tokens and back, one piece at a time."""
