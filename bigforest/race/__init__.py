"""Selecting a configuration by out-of-bag loss: forests compared on one store."""
