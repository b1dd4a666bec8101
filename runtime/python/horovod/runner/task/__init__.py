"""Names of Horovod's package of the same name, for code that imports them."""
