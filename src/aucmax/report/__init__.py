"""Pages: their frame, their figures, and the sections of an evaluation."""
