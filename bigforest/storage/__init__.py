"""Where files are, on a disk or in an object store, and how they are written whole or not at all."""
