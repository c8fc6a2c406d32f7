"""The files of a forest: their schema, writing them, and checking them on reading."""
