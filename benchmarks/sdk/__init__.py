"""What the SDK costs and whether its figures are true, beside the libraries people use today."""
