"""One page a file; each defines ``PAGE``. Layout only: what they draw comes from ``data``."""
