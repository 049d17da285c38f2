"""Plain NumPy transcriptions of the paper's objective and algorithms."""
