"""From images to the table of their features."""
