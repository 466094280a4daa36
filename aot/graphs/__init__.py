"""Which graphs a configuration needs, what they are made of, and the modules behind them. No torch is imported to plan."""
