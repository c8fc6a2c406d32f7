"""What every layer uses: errors, events, sizes, estimates of memory, the version."""
