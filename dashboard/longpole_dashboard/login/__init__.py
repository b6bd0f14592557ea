"""Who is let in, and whose data they see: the gate in front of every page and all behind it."""
