"""The presorted table on disk: `store.format` describes it, `StoreWriter` writes it, `Store` reads it."""
