"""The timeline of a request and its export as spans."""
