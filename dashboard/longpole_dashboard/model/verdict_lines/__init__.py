"""The sentence on top of each page, a page a module."""
