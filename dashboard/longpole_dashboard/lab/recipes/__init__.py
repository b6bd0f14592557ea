"""The recipes, one family of causes a file (constant ``RECIPES``)."""
