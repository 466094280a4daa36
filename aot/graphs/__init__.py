"""Which graphs a configuration needs, what they are made of, and the modules behind them.

Planning imports no torch; only `modules.py` does.
"""
