"""Train PyTorch models to maximize AUC."""
