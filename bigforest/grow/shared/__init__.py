"""What growing in memory and out of core share."""
