"""Measures jobs on Spark: a sweep by one worker and by two, and a backtest of many filters."""
