"""What may stand behind a shape, one file each (``SUB_CAUSE``): it refines, never renames."""
