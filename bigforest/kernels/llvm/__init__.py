"""Functions written in LLVM, each with its plain-Python twin."""
