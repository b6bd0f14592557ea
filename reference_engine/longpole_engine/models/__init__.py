"""Model families and the readers of their weights."""
