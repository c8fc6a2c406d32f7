"""Files on a disk or in an object store, written whole or not at all."""
