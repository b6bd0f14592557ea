"""Where keys and values live, and which of them can be used again."""
