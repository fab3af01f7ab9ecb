BUILDERS: dict = {}
