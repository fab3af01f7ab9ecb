"""The page: a local web server around the Localizer. It owns no logic of the method."""
