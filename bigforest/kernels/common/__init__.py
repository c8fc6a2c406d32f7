"""What kernels share: random numbers, exact comparison, sorting, vectors."""
