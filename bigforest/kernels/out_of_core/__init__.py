"""One block of rows at a time: routing rows and counting what open nodes ask for."""
