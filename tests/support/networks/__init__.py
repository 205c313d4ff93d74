"""Networks of PyTorch and steps that train them, each small."""
