"""What analytics cost."""
