"""ResNet-20's training step: convolutions, norms and ReLUs in few kernels."""
