"""What families of trees that split on projections share."""
