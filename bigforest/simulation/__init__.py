"""Tables drawn from known distributions, of any size."""
