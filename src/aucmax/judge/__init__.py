"""What any scored rows get: an evaluation, calibration, a threshold, a comparison with peers."""
