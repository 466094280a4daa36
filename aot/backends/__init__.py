"""Compilers behind one small protocol: describe the toolchain, name the key factors, compile one unit."""
