"""One file a dialect: raw span in, canonical span out. See ``base`` for the contract."""
