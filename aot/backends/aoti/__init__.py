"""torch.export + AOTInductor: the CPU backend."""
