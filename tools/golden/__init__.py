"""Writers and readers of quantized checkpoints in plain NumPy, one module per family of formats."""
