"""Which requests take part in the next step."""
