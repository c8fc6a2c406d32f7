"""The tests; `naive` holds their oracles, `strategies.py` their random tables."""
