"""What kernels share: layouts, random numbers, sorting, searching."""
