"""What a forest learned, and why it answers as it does: loops over rows that stand one after the other."""
