"""Provider clients, one file each, named after the client's package; ``base`` is the contract."""
