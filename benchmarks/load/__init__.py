"""The load generator beside its peers."""
