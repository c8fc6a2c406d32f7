"""The families of splits: what each needs in memory and out of core."""
