"""The ``zoo`` command: ``main`` sends a subcommand on to the module that runs it."""
